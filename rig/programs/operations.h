/* What the programs of the rig share: every operation of a TLS server, each checked. */
#include "../../provider/tests/provider/programs/common.h"
#include <openssl/async.h>
#include <openssl/kdf.h>
#include <pthread.h>
#include <stdatomic.h>

/* Encrypts a number and decrypts it. */
static inline void decrypt(EVP_PKEY *key, int number) {
    unsigned char sealed[512], opened[512];
    size_t length = sizeof sealed, opened_length = sizeof opened;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &length, (unsigned char *)&number, sizeof number) == 1);
    EVP_PKEY_CTX_free(ctx);
    ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_decrypt(ctx, opened, &opened_length, sealed, length) == 1);
    CHECK(opened_length == sizeof number && memcmp(opened, &number, sizeof number) == 0);
    EVP_PKEY_CTX_free(ctx);
}

static inline void secret_of(EVP_PKEY *own, EVP_PKEY *peer, unsigned char *secret) {
    size_t length = 32;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(own, NULL);
    CHECK(ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, peer) == 1);
    CHECK(EVP_PKEY_derive(ctx, secret, &length) == 1 && length == 32);
    EVP_PKEY_CTX_free(ctx);
}

/* Two new keys agree; secrets have 32 bytes. */
static inline void agree(const char *type, const char *group) {
    unsigned char one[32], other[32];
    EVP_PKEY *a = EVP_PKEY_Q_keygen(NULL, NULL, type, group);
    EVP_PKEY *b = EVP_PKEY_Q_keygen(NULL, NULL, type, group);
    CHECK(a && b);
    secret_of(a, b, one);
    secret_of(b, a, other);
    CHECK(memcmp(one, other, sizeof one) == 0);
    EVP_PKEY_free(a);
    EVP_PKEY_free(b);
}

/* A traffic key of TLS 1.3. */
static inline void derive(int number) {
    unsigned char secret[32] = {number & 255}, out[32];
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
    EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, "SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret, sizeof secret),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, "tls13 ", 6),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, "key", 3),
        OSSL_PARAM_construct_end(),
    };
    CHECK(ctx && EVP_KDF_derive(ctx, out, sizeof out, params) == 1);
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
}

/* A job's callback: notes that it was called. */
static inline int ring(void *called) {
    atomic_store((atomic_int *)called, 1);
    return 1;
}

/* Says how many operations the module's lanes served. */
static inline void tell_lanes(void) {
    uint64_t count = 0;
    OSSL_PROVIDER *lockstep = OSSL_PROVIDER_load(NULL, "lockstep");
    OSSL_PARAM params[] = {OSSL_PARAM_construct_uint64("lockstep-operations", &count),
                           OSSL_PARAM_END};
    CHECK(lockstep && OSSL_PROVIDER_get_params(lockstep, params) == 1);
    printf("lanes %llu\n", (unsigned long long)count);
}
