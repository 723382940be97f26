/* A program whose own methods of RSA and EC keys are libcrypto's defaults, as those of a hardware
 * module are: its functions compute, with the module as without it.
 * Usage: methods KEY.pem (the module is in OPENSSL_CONF) */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "common.h"
#include <openssl/ec.h>

typedef int private_function(int length, const unsigned char *from, unsigned char *to, RSA *rsa, int padding);
typedef int ec_sign_function(int type, const unsigned char *digest, int size, unsigned char *signature,
                             unsigned int *length, const BIGNUM *inverse, const BIGNUM *r, EC_KEY *key);

static private_function *stock_encrypt, *stock_decrypt;
static ec_sign_function *stock_sign;
static int calls;
/* By this number an object that was generated has another one, which alone has the private parts: a
 * hardware module keeps them so. */
static int token_index;

static int generate(RSA *rsa, int bits, int primes, BIGNUM *exponent, BN_GENCB *progress) {
    RSA *token = RSA_new();
    (void)primes;
    CHECK(token && RSA_set_method(token, RSA_PKCS1_OpenSSL()) == 1);
    CHECK(RSA_generate_key_ex(token, bits, exponent, progress) == 1);
    CHECK(RSA_set0_key(rsa, BN_dup(RSA_get0_n(token)), BN_dup(RSA_get0_e(token)), NULL) == 1);
    RSA_set_flags(rsa, RSA_FLAG_EXT_PKEY);
    return RSA_set_ex_data(rsa, token_index, token);
}

static int encrypt(int length, const unsigned char *from, unsigned char *to, RSA *rsa, int padding) {
    RSA *token = RSA_get_ex_data(rsa, token_index);
    calls++;
    return stock_encrypt(length, from, to, token ? token : rsa, padding);
}

static int decrypt(int length, const unsigned char *from, unsigned char *to, RSA *rsa, int padding) {
    calls++;
    return stock_decrypt(length, from, to, rsa, padding);
}

static int sign_digest(int type, const unsigned char *digest, int size, unsigned char *signature,
                       unsigned int *length, const BIGNUM *inverse, const BIGNUM *r, EC_KEY *key) {
    calls++;
    return stock_sign(type, digest, size, signature, length, inverse, r, key);
}

static void prefer_methods(void) {
    RSA_METHOD *rsa = RSA_meth_dup(RSA_PKCS1_OpenSSL());
    CHECK(rsa);
    stock_encrypt = RSA_meth_get_priv_enc(rsa);
    stock_decrypt = RSA_meth_get_priv_dec(rsa);
    CHECK(RSA_meth_set_priv_enc(rsa, encrypt) == 1 && RSA_meth_set_priv_dec(rsa, decrypt) == 1);
    CHECK(RSA_meth_set_multi_prime_keygen(rsa, generate) == 1);
    token_index = RSA_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    RSA_set_default_method(rsa);
    EC_KEY_METHOD *ec = EC_KEY_METHOD_new(EC_KEY_OpenSSL());
    int (*setup)(EC_KEY *, BN_CTX *, BIGNUM **, BIGNUM **);
    ECDSA_SIG *(*sign_sig)(const unsigned char *, int, const BIGNUM *, const BIGNUM *, EC_KEY *);
    CHECK(ec);
    EC_KEY_METHOD_get_sign(ec, &stock_sign, &setup, &sign_sig);
    EC_KEY_METHOD_set_sign(ec, sign_digest, setup, sign_sig);
    EC_KEY_set_default_method(ec);
}

static void decrypt_with(EVP_PKEY *key) {
    unsigned char sealed[1024], opened[1024];
    size_t length = sizeof sealed, opened_length = sizeof opened;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(ctx && EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &length, (unsigned char *)"secret", 6) == 1);
    CHECK(EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_decrypt(ctx, opened, &opened_length, sealed, length) == 1);
    CHECK(opened_length == 6 && memcmp(opened, "secret", 6) == 0);
    EVP_PKEY_CTX_free(ctx);
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    EVP_PKEY *before = read_key(NULL, argv[1]);
    sign(NULL, before, 1);
    CHECK(calls == 0);
    prefer_methods();
    EVP_PKEY *key = read_key(NULL, argv[1]);
    sign(NULL, key, 2);
    CHECK(calls == 1);
    if (EVP_PKEY_is_a(key, "RSA")) {
        decrypt_with(key);
        CHECK(calls == 2);
        /* Of the default provider, and of ours. */
        const char *queries[] = {NULL, "provider=lockstep"};
        for (int i = 0; i < 2; i++) {
            EVP_PKEY *token = EVP_PKEY_Q_keygen(NULL, queries[i], "RSA", (size_t)2048);
            CHECK(token);
            sign(NULL, token, 5);
            CHECK(calls == 3 + i);
            EVP_PKEY_free(token);
        }
    }
    /* A key that the module had before stays on lanes. */
    int so_far = calls;
    sign(NULL, before, 3);
    CHECK(calls == so_far);
    /* OpenSSL copies no RSA key with such a method. */
    EVP_PKEY *copy = EVP_PKEY_dup(key);
    CHECK((copy == NULL) == EVP_PKEY_is_a(key, "RSA"));
    if (copy) {
        sign(NULL, copy, 4);
        CHECK(calls == so_far + 1);
        EVP_PKEY_free(copy);
    }
    EVP_PKEY_free(key);
    EVP_PKEY_free(before);
    return 0;
}
