/* A program that carries an OpenSSL of its own.
 * Usage: own_openssl KEY.pem DIRECTORY (where lockstep.so is)
 *
 * It loads the module by OPENSSL_CONF, as every program does, and then by itself, prints whether
 * that worked, what its error queue holds and which operations the module leaves to OpenSSL, and
 * signs and decrypts by whatever it has got. */
#include "common.h"

#ifdef TAKE_ADDRESS
#include <openssl/ec.h>
void (*volatile taken)(EC_POINT *) = EC_POINT_free;
#endif

static void seal_and_open(EVP_PKEY *key) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    unsigned char sealed[512], opened[512];
    size_t sealed_length = sizeof sealed, opened_length = sizeof opened;
    CHECK(ctx && EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &sealed_length, (unsigned char *)"secret", 6) == 1);
    CHECK(EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_decrypt(ctx, opened, &opened_length, sealed, sealed_length) == 1);
    CHECK(opened_length == 6 && memcmp(opened, "secret", 6) == 0);
    EVP_PKEY_CTX_free(ctx);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    CHECK(OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    printf("by configuration: %s\n", OSSL_PROVIDER_available(NULL, "lockstep") ? "loaded" : "refused");

    OSSL_LIB_CTX *libctx = OSSL_LIB_CTX_new();
    CHECK(libctx && OSSL_PROVIDER_set_default_search_path(libctx, argv[2]) == 1);
    CHECK(OSSL_PROVIDER_load(libctx, "default"));
    ERR_clear_error();
    OSSL_PROVIDER *lockstep = OSSL_PROVIDER_load(libctx, "lockstep");
    printf("by itself: %s\n", lockstep ? "loaded" : "refused");
    ERR_print_errors_fp(stdout);
    if (lockstep) {
        char *text = NULL;
        OSSL_PARAM wanted[2] = {
            OSSL_PARAM_construct_utf8_ptr("lockstep-unaccelerated", &text, 0), OSSL_PARAM_END};
        CHECK(OSSL_PROVIDER_get_params(lockstep, wanted) == 1);
        printf("unaccelerated: %s\n", text);
    }

    EVP_PKEY *key = read_key(NULL, argv[1]);
    sign(NULL, key, 1);
    if (EVP_PKEY_is_a(key, "RSA"))
        seal_and_open(key);
    EVP_PKEY_free(key);
    OSSL_LIB_CTX_free(libctx);
    return 0;
}
