/* An Ed25519 key whose public part is not the one of its private part: the module and the default
 * provider must make the same signatures. RFC 8032 hashes the public key, so two that differ would
 * have the same R and another S each, which reveals the scalar.
 * Usage: mismatched KEY.pem (the module is in OPENSSL_CONF) */
#include "common.h"

/* A key of these bytes. */
static EVP_PKEY *key_of(unsigned char *private, unsigned char *public) {
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("priv", private, 32),
                           OSSL_PARAM_construct_octet_string("pub", public, 32), OSSL_PARAM_END};
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "ED25519", NULL);
    CHECK(ctx && EVP_PKEY_fromdata_init(ctx) == 1);
    CHECK(EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, params) == 1);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

static void sign_with(EVP_PKEY *key, const char *query, unsigned char *signature) {
    size_t length = 64;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestSignInit_ex(ctx, NULL, NULL, NULL, query, key, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)"message", 7) == 1);
    CHECK(length == 64);
    EVP_MD_CTX_free(ctx);
}

int main(int argc, char **argv) {
    unsigned char private[32], public[32], ours[64], stock[64];
    size_t length = 32;
    CHECK(argc == 2);
    EVP_PKEY *key = read_key(NULL, argv[1]);
    CHECK(EVP_PKEY_get_raw_private_key(key, private, &length) == 1 && length == 32);
    CHECK(EVP_PKEY_get_raw_public_key(key, public, &length) == 1 && length == 32);
    EVP_PKEY_free(key);
    /* The key as it is, then with a bit of the public part flipped in each third byte. */
    for (int flipped = -1; flipped < 32; flipped += 3) {
        if (flipped >= 0)
            public[flipped] ^= 4;
        key = key_of(private, public);
        sign_with(key, NULL, ours);
        sign_with(key, "provider=default", stock);
        CHECK(memcmp(ours, stock, sizeof ours) == 0);
        EVP_PKEY_free(key);
        if (flipped >= 0)
            public[flipped] ^= 4;
    }
    return 0;
}
