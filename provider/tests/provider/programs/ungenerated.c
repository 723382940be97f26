/* Prints the errors of an EC key that cannot be generated: its point format is none, or the
 * program's own method fails.
 * Usage: ungenerated format|method */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "common.h"
#include <openssl/ec.h>

static int fail(EC_KEY *key) {
    (void)key;
    printf("asked\n");
    ERR_raise(ERR_LIB_USER, 1);
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    int is_method = strcmp(argv[1], "method") == 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("group", "P-256", 0),
                           OSSL_PARAM_construct_utf8_string("point-format", "none", 0), OSSL_PARAM_END};
    if (is_method) {
        EC_KEY_METHOD *method = EC_KEY_METHOD_new(EC_KEY_OpenSSL());
        CHECK(method);
        EC_KEY_METHOD_set_keygen(method, fail);
        EC_KEY_set_default_method(method);
        params[1] = OSSL_PARAM_construct_end();
    }
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    CHECK(ctx && EVP_PKEY_keygen_init(ctx) == 1);
    if (EVP_PKEY_CTX_set_params(ctx, params) == 1)
        CHECK(EVP_PKEY_generate(ctx, &key) != 1);
    for (unsigned long error; (error = ERR_get_error());)
        printf("%s\n", ERR_error_string(error, NULL));
    EVP_PKEY_CTX_free(ctx);
    return 0;
}
