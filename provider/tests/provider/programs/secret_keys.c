/* Derives shared secrets as EVP_SKEYs (OpenSSL 3.6), whose functions older headers do not have,
 * derives another one of each by TLS13-KDF, and enciphers with them.
 * Usage: secret_keys KEY.pem (the module is in OPENSSL_CONF) */
#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>
#include <openssl/kdf.h>

static void *(*derive)(EVP_PKEY_CTX *ctx, void *management, const char *type, const char *query,
                       size_t length, const OSSL_PARAM *params);
static void *(*expand)(EVP_KDF_CTX *ctx, void *management, const char *type, const char *query,
                       size_t length, const OSSL_PARAM *params);
static int (*set_key)(EVP_KDF_CTX *ctx, void *secret, const char *name);
static int (*raw_bytes)(const void *secret, const unsigned char **bytes, size_t *length);
static void (*free_secret)(void *secret);
static int (*init)(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *cipher, void *secret,
                   const unsigned char *iv, size_t iv_length, int enc, const OSSL_PARAM *params);

/* What AES-256-CBC makes of a block of zeros, by a key or its bytes. */
static void encipher(unsigned char *block, void *secret, const unsigned char *bytes) {
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

/* Whether a key enciphers as its bytes do. */
static void compare(void *secret, const unsigned char *bytes) {
    unsigned char block[16], same[16];
    encipher(block, secret, NULL);
    encipher(same, NULL, bytes);
    CHECK(memcmp(block, same, sizeof block) == 0);
}

/* The same of what TLS13-KDF extracts from a key, which is given by its bytes or as it is. */
static void extract(void *secret, unsigned char *bytes) {
    int mode = EVP_KDF_HKDF_MODE_EXTRACT_ONLY;
    OSSL_PARAM all[] = {OSSL_PARAM_int(OSSL_KDF_PARAM_MODE, &mode),
                        OSSL_PARAM_utf8_string(OSSL_KDF_PARAM_DIGEST, "SHA256", 6),
                        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_PREFIX, "tls13 ", 6),
                        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_LABEL, "derived", 7),
                        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_KEY, bytes, 32),
                        OSSL_PARAM_END};
    unsigned char expected[32];
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
    EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
    CHECK(ctx && EVP_KDF_derive(ctx, expected, sizeof expected, all) == 1);
    EVP_KDF_CTX_reset(ctx);
    void *of_bytes = expand(ctx, NULL, "AES", NULL, sizeof expected, all);
    EVP_KDF_CTX_reset(ctx);
    all[4] = OSSL_PARAM_construct_end();
    CHECK(EVP_KDF_CTX_set_params(ctx, all) == 1);
    CHECK(set_key(ctx, secret, OSSL_KDF_PARAM_KEY) == 1);
    void *of_secret = expand(ctx, NULL, "AES", NULL, sizeof expected, NULL);
    CHECK(of_bytes && of_secret);
    compare(of_bytes, expected);
    compare(of_secret, expected);
    free_secret(of_bytes);
    free_secret(of_secret);
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    derive = dlsym(RTLD_DEFAULT, "EVP_PKEY_derive_SKEY");
    expand = dlsym(RTLD_DEFAULT, "EVP_KDF_derive_SKEY");
    set_key = dlsym(RTLD_DEFAULT, "EVP_KDF_CTX_set_SKEY");
    raw_bytes = dlsym(RTLD_DEFAULT, "EVP_SKEY_get0_raw_key");
    free_secret = dlsym(RTLD_DEFAULT, "EVP_SKEY_free");
    init = dlsym(RTLD_DEFAULT, "EVP_CipherInit_SKEY");
    if (!derive || !expand || !set_key || !raw_bytes || !free_secret || !init) {
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
        extract(secret, expected);
        if (i == 1)
            compare(secret, expected);
        free_secret(secret);
    }
    CHECK(!derive(ctx, NULL, "no such", NULL, sizeof expected, NULL));
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(key);
    return 0;
}
