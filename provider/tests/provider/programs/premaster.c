/* Decrypts premaster secrets the way libssl does for RSA key exchange, well-formed and forged ones.
 * Usage: premaster KEY.pem. Prints how many decryptions it made. */
#include "common.h"
#include <openssl/prov_ssl.h>

enum { SECRET = 48, TLS1_2 = 0x0303, TLS1_1 = 0x0302 };

static EVP_PKEY *key;
static size_t size;
static int decryptions;

static void encrypt(const unsigned char *block, unsigned char *sealed) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    size_t length = size;
    CHECK(ctx && EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_NO_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &length, block, size) == 1 && length == size);
    EVP_PKEY_CTX_free(ctx);
}

static void decrypt(const unsigned char *sealed, unsigned version, unsigned negotiated,
                    unsigned char *secret) {
    unsigned char out[1024];
    size_t length = sizeof out;
    OSSL_PARAM params[3], *p = params;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_WITH_TLS_PADDING) == 1);
    *p++ = OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION, &version);
    if (negotiated)
        *p++ = OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_NEGOTIATED_VERSION, &negotiated);
    *p = OSSL_PARAM_construct_end();
    CHECK(EVP_PKEY_CTX_set_params(ctx, params) == 1);
    CHECK(EVP_PKEY_decrypt(ctx, out, &length, sealed, size) == 1 && length == SECRET);
    memcpy(secret, out, SECRET);
    EVP_PKEY_CTX_free(ctx);
    decryptions++;
}

/* 00 02 PS 00 secret, with a secret that starts with `version`. */
static void well_formed(unsigned char *block, unsigned version) {
    memset(block, 0x77, size);
    block[0] = 0;
    block[1] = 2;
    block[size - SECRET - 1] = 0;
    block[size - SECRET] = version >> 8;
    block[size - SECRET + 1] = version & 255;
}

/* The forged block must give 48 bytes that are neither its secret nor the same twice. */
static void expect_random(const unsigned char *block) {
    unsigned char sealed[1024], first[SECRET], second[SECRET];
    encrypt(block, sealed);
    decrypt(sealed, TLS1_2, 0, first);
    decrypt(sealed, TLS1_2, 0, second);
    CHECK(memcmp(first, block + size - SECRET, SECRET) != 0);
    CHECK(memcmp(first, second, SECRET) != 0);
}

int main(int argc, char **argv) {
    unsigned char block[1024], sealed[1024], secret[SECRET];
    CHECK(argc == 2);
    key = read_key(NULL, argv[1]);
    size = EVP_PKEY_get_size(key);

    well_formed(block, TLS1_2);
    encrypt(block, sealed);
    decrypt(sealed, TLS1_2, 0, secret);
    CHECK(memcmp(secret, block + size - SECRET, SECRET) == 0);

    /* Old clients put the negotiated version there: accepted if the caller says so. */
    well_formed(block, TLS1_1);
    encrypt(block, sealed);
    decrypt(sealed, TLS1_2, TLS1_1, secret);
    CHECK(memcmp(secret, block + size - SECRET, SECRET) == 0);

    expect_random(block); /* otherwise it is a wrong version */
    for (size_t at = 2; at < size - SECRET - 1; at += size / 16) {
        well_formed(block, TLS1_2);
        block[at] = 0; /* a message that is too long */
        expect_random(block);
    }
    for (size_t at = size - SECRET; at < size; at += 7) {
        well_formed(block, TLS1_2);
        block[size - SECRET - 1] = 0x77;
        block[at] = 0; /* a message that is too short */
        expect_random(block);
    }
    well_formed(block, TLS1_2);
    block[1] = 1; /* the wrong block type */
    expect_random(block);
    printf("%d\n", decryptions);
    return 0;
}
