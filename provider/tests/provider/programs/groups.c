/* Prints the TLS groups that a server and a client can be set to, in alphabetical order, each with
 * whether a key pair can be made for it. */
#include "common.h"
#include <openssl/ssl.h>

enum { MOST = 256 };
static char *names[MOST];
static int count;

static int note_group(const OSSL_PARAM params[], void *arg) {
    (void)arg;
    const OSSL_PARAM *name = OSSL_PARAM_locate_const(params, "tls-group-name");
    CHECK(name && name->data_type == OSSL_PARAM_UTF8_STRING && count < MOST);
    names[count++] = strdup(name->data);
    return 1;
}

static int note_groups(OSSL_PROVIDER *provider, void *arg) {
    return OSSL_PROVIDER_get_capabilities(provider, "TLS-GROUP", note_group, arg) >= 0;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(void) {
    CHECK(OSSL_PROVIDER_do_all(NULL, note_groups, NULL) == 1);
    qsort(names, count, sizeof *names, compare);
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    CHECK(ctx);
    for (int i = 0; i < count; i++) {
        /* Advertised by two providers, used from one. */
        if (i > 0 && strcmp(names[i], names[i - 1]) == 0)
            continue;
        printf("%s %d\n", names[i], (int)SSL_CTX_set1_groups_list(ctx, names[i]));
    }
    SSL_CTX_free(ctx);
    return 0;
}
