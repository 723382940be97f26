/* Gives every operation its input and output at odd places: at each offset from a cache line, and
 * the same place for both. The results must be right, and not a byte may change before or behind
 * them. Usage: unaligned RSA.pem KEY.pem... Prints the last RSA signature in hexadecimal. */
#include "common.h"

enum { LINE = 64, MARK = 0xa5 };

static _Alignas(64) unsigned char in[1024], out[1024];
static unsigned char message[1024];

/* The output of at most `size` bytes at `offset`, in a field of marks. */
static unsigned char *marked(size_t offset) {
    memset(out, MARK, sizeof out);
    return out + offset;
}

static void check_marks(size_t offset, size_t size) {
    for (size_t i = 0; i < sizeof out; i++)
        CHECK((i >= offset && i < offset + size) || out[i] == MARK);
}

static unsigned char *placed(size_t offset, const unsigned char *bytes, size_t length) {
    return memcpy(in + offset, bytes, length);
}

static void sign_and_verify(EVP_PKEY *key, size_t offset) {
    const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
    size_t size = EVP_PKEY_get_size(key), length = size;
    const unsigned char *data = placed(offset, message, 100);
    unsigned char *signature = marked(offset);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestSignInit_ex(ctx, NULL, digest, NULL, NULL, key, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, data, 100) == 1 && length <= size);
    EVP_MD_CTX_free(ctx);
    check_marks(offset, size);
    ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestVerifyInit_ex(ctx, NULL, digest, NULL, NULL, key, NULL) == 1);
    CHECK(EVP_DigestVerify(ctx, signature, length, data, 100) == 1);
    EVP_MD_CTX_free(ctx);
}

static EVP_PKEY_CTX *started(EVP_PKEY *key, int init(EVP_PKEY_CTX *), int padding) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && init(ctx) == 1 && EVP_PKEY_CTX_set_rsa_padding(ctx, padding) == 1);
    return ctx;
}

/* Encrypts, decrypts and raises to the private exponent, with the output in place of the input
 * if `in_place`. */
static void decrypt(EVP_PKEY *key, size_t offset, int in_place) {
    unsigned char sealed[512];
    size_t size = EVP_PKEY_get_size(key), length = sizeof sealed;
    EVP_PKEY_CTX *ctx = started(key, EVP_PKEY_encrypt_init, RSA_PKCS1_OAEP_PADDING);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &length, message, 48) == 1 && length == size);
    EVP_PKEY_CTX_free(ctx);

    unsigned char *output = marked(offset);
    const unsigned char *input = in_place ? memcpy(output, sealed, size) : placed(offset, sealed, size);
    ctx = started(key, EVP_PKEY_decrypt_init, RSA_PKCS1_OAEP_PADDING);
    length = size;
    CHECK(EVP_PKEY_decrypt(ctx, output, &length, input, size) == 1 && length == 48);
    CHECK(memcmp(output, message, length) == 0);
    EVP_PKEY_CTX_free(ctx);
    check_marks(offset, size);

    output = marked(offset);
    input = in_place ? memcpy(output, message, size) : placed(offset, message, size);
    ctx = started(key, EVP_PKEY_sign_init, RSA_NO_PADDING);
    length = size;
    CHECK(EVP_PKEY_sign(ctx, output, &length, input, size) == 1 && length == size);
    EVP_PKEY_CTX_free(ctx);
    check_marks(offset, size);
    /* The public operation gives the message back. */
    ctx = started(key, EVP_PKEY_verify_recover_init, RSA_NO_PADDING);
    unsigned char again[512];
    length = sizeof again;
    CHECK(EVP_PKEY_verify_recover(ctx, again, &length, output, size) == 1);
    CHECK(length == size && memcmp(again, message, size) == 0);
    EVP_PKEY_CTX_free(ctx);
}

/* Agrees from public keys at odd places, into odd places. */
static void agree(size_t offset) {
    unsigned char first[32];
    for (int side = 0; side < 2; side++) {
        static EVP_PKEY *keys[2];
        for (int i = 0; i < 2; i++)
            if (!keys[i])
                CHECK(keys[i] = EVP_PKEY_Q_keygen(NULL, NULL, "X25519"));
        unsigned char *raw = in + offset;
        size_t length = 32;
        CHECK(EVP_PKEY_get_raw_public_key(keys[!side], raw, &length) == 1 && length == 32);
        EVP_PKEY *peer = EVP_PKEY_new_raw_public_key_ex(NULL, "X25519", NULL, raw, length);
        EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(keys[side], NULL);
        CHECK(peer && ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, peer) == 1);
        unsigned char *secret = marked(offset);
        CHECK(EVP_PKEY_derive(ctx, secret, &length) == 1 && length == 32);
        check_marks(offset, length);
        CHECK(side == 0 ? memcpy(first, secret, 32) == first : memcmp(first, secret, 32) == 0);
        EVP_PKEY_CTX_free(ctx);
        EVP_PKEY_free(peer);
    }
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    alarm(50);
    /* Below any modulus, and no two bytes in a row alike. */
    for (size_t i = 1; i < sizeof message; i++)
        message[i] = i;
    for (int i = 1; i < argc; i++) {
        EVP_PKEY *key = read_key(NULL, argv[i]);
        for (size_t offset = 1; offset < LINE; offset++)
            sign_and_verify(key, offset);
        EVP_PKEY_free(key);
    }
    for (size_t offset = 1; offset < LINE; offset++)
        agree(offset);
    EVP_PKEY *rsa = read_key(NULL, argv[1]);
    for (size_t offset = 1; offset < LINE; offset++)
        decrypt(rsa, offset, offset % 8 == 0);
    for (int i = 0; i < EVP_PKEY_get_size(rsa); i++)
        printf("%02x", out[LINE - 1 + i]);
    EVP_PKEY_free(rsa);
    return 0;
}
