/* Derives shared secrets as EVP_SKEYs (OpenSSL 3.6), whose functions older headers do not have, and
 * enciphers with one.
 * Usage: secret_keys KEY.pem (the module is in OPENSSL_CONF) */
#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>

typedef void *derive_function(EVP_PKEY_CTX *ctx, void *management, const char *type, const char *query,
                              size_t length, const OSSL_PARAM *params);
typedef int bytes_function(const void *secret, const unsigned char **bytes, size_t *length);
typedef void free_function(void *secret);
typedef int init_function(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *cipher, void *secret,
                          const unsigned char *iv, size_t iv_length, int enc,
                          const OSSL_PARAM *params);

/* What AES-256-CBC makes of a block of zeros, by a key or its bytes. */
static void encipher(unsigned char *block, init_function *init, void *secret,
                     const unsigned char *bytes) {
    static const unsigned char zeros[16];
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int length;
    CHECK(cipher && ctx);
    if (secret)
        CHECK(init(ctx, cipher, secret, zeros, sizeof zeros, 1, NULL) == 1);
    else
        CHECK(EVP_CipherInit_ex2(ctx, cipher, bytes, zeros, 1, NULL) == 1);
    CHECK(EVP_CipherUpdate(ctx, block, &length, zeros, sizeof zeros) == 1 && length == 16);
    EVP_CIPHER_CTX_free(ctx);
    EVP_CIPHER_free(cipher);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    derive_function *derive = dlsym(RTLD_DEFAULT, "EVP_PKEY_derive_SKEY");
    bytes_function *raw_bytes = dlsym(RTLD_DEFAULT, "EVP_SKEY_get0_raw_key");
    free_function *free_secret = dlsym(RTLD_DEFAULT, "EVP_SKEY_free");
    init_function *init = dlsym(RTLD_DEFAULT, "EVP_CipherInit_SKEY");
    if (!derive || !raw_bytes || !free_secret || !init) {
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
        CHECK(secret);
        CHECK(raw_bytes(secret, &bytes, &length) == 1);
        CHECK(length == sizeof expected && memcmp(bytes, expected, length) == 0);
        if (i == 1) {
            unsigned char block[16], same[16];
            encipher(block, init, secret, NULL);
            encipher(same, init, NULL, expected);
            CHECK(memcmp(block, same, sizeof block) == 0);
        }
        free_secret(secret);
    }
    CHECK(!derive(ctx, NULL, "no such", NULL, sizeof expected, NULL));
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(key);
    return 0;
}
