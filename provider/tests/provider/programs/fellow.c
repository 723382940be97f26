/* A provider that offers, under the name that a configuration gives it, what libcrypto's default
 * provider does: of an operation's algorithms each by the same names, with its own property. Its
 * section says what: `offers = digests`, or `offers = keys`. Its own library context is the default
 * provider's. */

#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <string.h>

enum { OPERATIONS = OSSL_OP_KEM + 1, MOST = 256 };

static OSSL_PROVIDER *inner;
static int digests;
static char properties[100];
static OSSL_ALGORITHM offered[OPERATIONS][MOST];

static const OSSL_ALGORITHM *query(void *context, int operation, int *no_store)
{
    const OSSL_ALGORITHM *all;
    int place = 0;
    (void)context;
    int is_digest = operation == OSSL_OP_DIGEST;
    int is_key = operation >= OSSL_OP_KEYMGMT && operation <= OSSL_OP_KEM;
    if (!(digests ? is_digest : is_key))
        return NULL;
    all = OSSL_PROVIDER_query_operation(inner, operation, no_store);
    for (; all != NULL && all[place].algorithm_names != NULL && place < MOST - 1; place++) {
        offered[operation][place] = all[place];
        offered[operation][place].property_definition = properties;
    }
    return offered[operation];
}

static int capabilities(void *context, const char *kind, OSSL_CALLBACK *callback, void *argument)
{
    (void)context;
    return digests || OSSL_PROVIDER_get_capabilities(inner, kind, callback, argument);
}

static const OSSL_DISPATCH functions[] = {
    { OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))query },
    { OSSL_FUNC_PROVIDER_GET_CAPABILITIES, (void (*)(void))capabilities },
    { 0, NULL },
};

int OSSL_provider_init(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in,
                       const OSSL_DISPATCH **out, void **context)
{
    OSSL_FUNC_core_get_params_fn *get = NULL;
    const char *name = NULL, *offers = NULL;
    OSSL_PARAM asked[] = {
        OSSL_PARAM_utf8_ptr(OSSL_PROV_PARAM_CORE_PROV_NAME, &name, 0),
        OSSL_PARAM_utf8_ptr("offers", &offers, 0),
        OSSL_PARAM_END,
    };
    for (; in->function_id != 0; in++)
        if (in->function_id == OSSL_FUNC_CORE_GET_PARAMS)
            get = OSSL_FUNC_core_get_params(in);
    if (get == NULL || !get(handle, asked) || name == NULL || offers == NULL)
        return 0;
    digests = strcmp(offers, "digests") == 0;
    snprintf(properties, sizeof properties, "provider=%s", name);
    inner = OSSL_PROVIDER_load(OSSL_LIB_CTX_new(), "default");
    if (inner == NULL)
        return 0;
    *out = functions;
    *context = OSSL_PROVIDER_get0_provider_ctx(inner);
    return 1;
}
