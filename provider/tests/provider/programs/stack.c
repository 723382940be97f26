/* How much of its stack an async job needs for an operation by EVP.
 *
 * Usage: stack sign KEY.pem       a signature with a key that has just been read, and its check
 *        stack decrypt KEY.pem    RSA-OAEP, likewise
 *        stack agree ALGORITHM    a key pair, and an agreement with it
 *        stack encapsulate ALGORITHM    a key pair, a secret to it, and the same out of it
 *
 * Prints a number of bytes: from the job's own function to the deepest byte that was written. */
#include "common.h"
#include <openssl/async.h>
#include <stdint.h>

/* OpenSSL gives a job 32 KiB. What lies above the job's function takes a few hundred bytes. */
enum { BELOW = 31000, OWN = 512, MARK = 0xa5 };

static const char *name;
static EVP_PKEY *key;

static void sign_once(void) {
    sign(NULL, key, 0);
}

static void decrypt_once(void) {
    unsigned char encrypted[512], decrypted[512];
    size_t length = sizeof encrypted, count = sizeof decrypted;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(ctx && EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, encrypted, &length, (const unsigned char *)"a", 1) == 1);
    EVP_PKEY_CTX_free(ctx);
    ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(ctx && EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_decrypt(ctx, decrypted, &count, encrypted, length) == 1 && count == 1);
    EVP_PKEY_CTX_free(ctx);
}

static EVP_PKEY *generated(void) {
    EVP_PKEY *pair = NULL;
    int is_nist = strncmp(name, "P-", 2) == 0;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, is_nist ? "EC" : name, NULL);
    CHECK(ctx && EVP_PKEY_keygen_init(ctx) == 1);
    CHECK(!is_nist || EVP_PKEY_CTX_set_group_name(ctx, name) == 1);
    CHECK(EVP_PKEY_generate(ctx, &pair) == 1);
    EVP_PKEY_CTX_free(ctx);
    return pair;
}

static void agree_once(void) {
    unsigned char secret[64];
    size_t length = sizeof secret;
    EVP_PKEY *own = generated();
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);
    CHECK(ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, own) == 1);
    CHECK(EVP_PKEY_derive(ctx, secret, &length) == 1);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(own);
}

static void encapsulate_once(void) {
    static unsigned char sealed[2048], sent[80], received[80];
    size_t length = sizeof sealed, count = sizeof sent;
    EVP_PKEY *own = generated();
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);
    CHECK(ctx && EVP_PKEY_encapsulate_init(ctx, NULL) == 1);
    CHECK(EVP_PKEY_encapsulate(ctx, sealed, &length, sent, &count) == 1);
    EVP_PKEY_CTX_free(ctx);
    ctx = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);
    CHECK(ctx && EVP_PKEY_decapsulate_init(ctx, NULL) == 1);
    CHECK(EVP_PKEY_decapsulate(ctx, received, &count, sealed, length) == 1);
    CHECK(memcmp(sent, received, count) == 0);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(own);
}

struct measured {
    void (*operation)(void);
    size_t *depth;
};

static int measure(void *arg) {
    struct measured *measured = arg;
    uintptr_t top = (uintptr_t)__builtin_frame_address(0);
    for (uintptr_t at = top - BELOW; at < top - OWN; at++)
        *(volatile unsigned char *)at = MARK;
    measured->operation();
    uintptr_t deepest = top - BELOW;
    while (deepest < top && *(volatile unsigned char *)deepest == MARK)
        deepest++;
    *measured->depth = top - deepest;
    return 1;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size_t depth = 0;
    struct measured measured = {NULL, &depth};
    name = argv[2];
    if (strcmp(argv[1], "agree") == 0) {
        measured.operation = agree_once;
    } else if (strcmp(argv[1], "encapsulate") == 0) {
        measured.operation = encapsulate_once;
    } else {
        measured.operation = strcmp(argv[1], "sign") == 0 ? sign_once : decrypt_once;
        key = read_key(NULL, name);
    }
    ASYNC_JOB *job = NULL;
    ASYNC_WAIT_CTX *wait = ASYNC_WAIT_CTX_new();
    int result = 0, state;
    CHECK(wait && ASYNC_init_thread(1, 1) == 1);
    do
        state = ASYNC_start_job(&job, wait, &result, measure, &measured, sizeof measured);
    while (state == ASYNC_PAUSE);
    CHECK(state == ASYNC_FINISH && result == 1);
    ASYNC_WAIT_CTX_free(wait);
    EVP_PKEY_free(key);
    printf("%zu\n", depth);
    return 0;
}
