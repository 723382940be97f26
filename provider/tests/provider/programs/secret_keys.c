/* Derives shared secrets as EVP_SKEYs (OpenSSL 3.6), whose functions older headers do not have.
 * Usage: secret_keys KEY.pem (the module is in OPENSSL_CONF) */
#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>

typedef void *derive_function(EVP_PKEY_CTX *ctx, void *management, const char *type, const char *query,
                              size_t length, const OSSL_PARAM *params);
typedef int bytes_function(const void *secret, const unsigned char **bytes, size_t *length);
typedef void free_function(void *secret);

int main(int argc, char **argv) {
    CHECK(argc == 2);
    derive_function *derive = dlsym(RTLD_DEFAULT, "EVP_PKEY_derive_SKEY");
    bytes_function *raw_bytes = dlsym(RTLD_DEFAULT, "EVP_SKEY_get0_raw_key");
    free_function *free_secret = dlsym(RTLD_DEFAULT, "EVP_SKEY_free");
    if (!derive || !raw_bytes || !free_secret) {
        printf("skipped: this OpenSSL has no EVP_PKEY_derive_SKEY (3.6)\n");
        return 0;
    }
    EVP_PKEY *key = read_key(NULL, argv[1]);
    unsigned char expected[32];
    size_t length = sizeof expected;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, key) == 1);
    CHECK(EVP_PKEY_derive(ctx, expected, &length) == 1 && length == sizeof expected);
    const char *types[] = {"GENERIC-SECRET", "AES"};
    for (int i = 0; i < 2; i++) {
        const unsigned char *bytes;
        void *secret = derive(ctx, NULL, types[i], NULL, sizeof expected, NULL);
        CHECK(secret && ERR_peek_error() == 0);
        CHECK(raw_bytes(secret, &bytes, &length) == 1);
        CHECK(length == sizeof expected && memcmp(bytes, expected, length) == 0);
        free_secret(secret);
    }
    CHECK(!derive(ctx, NULL, "no such", NULL, sizeof expected, NULL));
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(key);
    return 0;
}
