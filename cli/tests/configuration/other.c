/* A provider of somebody else, which a configuration prefers by any number of clauses. It has
 * OpenSSL's own algorithms under its name. Its keys cannot leave it, as those of a token. */
#include <openssl/core_dispatch.h>
#include <openssl/crypto.h>
#include <openssl/provider.h>

enum { OPERATIONS = 32, MOST = 64, KEYS = 64 };

static OSSL_PROVIDER *stock;

/* The functions of a key management, without those that hand keys out. */
static const OSSL_DISPATCH *kept(const OSSL_DISPATCH *functions) {
    static OSSL_DISPATCH tables[KEYS][MOST];
    static int count;
    if (count == KEYS)
        return functions;
    OSSL_DISPATCH *table = tables[count++];
    for (int n = 0; functions->function_id != 0 && n < MOST - 1; functions++)
        if (functions->function_id < OSSL_FUNC_KEYMGMT_EXPORT
            || functions->function_id == OSSL_FUNC_KEYMGMT_DUP)
            table[n++] = *functions;
    return table;
}

static const OSSL_ALGORITHM *query(void *ctx, int operation, int *no_cache) {
    static OSSL_ALGORITHM tables[OPERATIONS][MOST];
    (void)ctx;
    *no_cache = 0;
    if (operation != OSSL_OP_KEYMGMT && operation != OSSL_OP_KEYEXCH
        && operation != OSSL_OP_SIGNATURE && operation != OSSL_OP_ASYM_CIPHER)
        return NULL;
    OSSL_ALGORITHM *table = tables[operation];
    if (table[0].algorithm_names)
        return table;
    const OSSL_ALGORITHM *theirs = OSSL_PROVIDER_query_operation(stock, operation, no_cache);
    for (int n = 0; theirs[n].algorithm_names && n < MOST - 1; n++) {
        table[n] = theirs[n];
        table[n].property_definition = "provider=other,other.p2=yes,other.p3=yes,other.p4=yes,"
                                       "other.p5=yes,other.p6=yes,other.p7=yes,other.p8=yes,"
                                       "other.p9=yes";
        if (operation == OSSL_OP_KEYMGMT)
            table[n].implementation = kept(theirs[n].implementation);
    }
    return table;
}

int OSSL_provider_init(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in,
                       const OSSL_DISPATCH **out, void **ctx) {
    static const OSSL_DISPATCH functions[] = {
        {OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))query},
        {0, NULL},
    };
    (void)handle;
    (void)in;
    OSSL_LIB_CTX *own = OSSL_LIB_CTX_new();
    stock = own ? OSSL_PROVIDER_load(own, "default") : NULL;
    if (!stock)
        return 0;
    *ctx = OSSL_PROVIDER_get0_provider_ctx(stock);
    *out = functions;
    return 1;
}
