/* Prints the errors of an EC key that cannot be generated: its point format is none.
 * Usage: ungenerated */
#include "common.h"

int main(void) {
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("group", "P-256", 0),
                           OSSL_PARAM_construct_utf8_string("point-format", "none", 0), OSSL_PARAM_END};
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    CHECK(ctx && EVP_PKEY_keygen_init(ctx) == 1);
    if (EVP_PKEY_CTX_set_params(ctx, params) == 1)
        CHECK(EVP_PKEY_generate(ctx, &key) != 1);
    for (unsigned long error; (error = ERR_get_error());)
        printf("%08lx %s\n", error, ERR_reason_error_string(error));
    EVP_PKEY_CTX_free(ctx);
    return 0;
}
