/* What the programs share: checks that name the failing line, signing and verifying. */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d (process %d): %s\n", __FILE__, __LINE__, (int)getpid(), \
                    #condition);                                                           \
            ERR_print_errors_fp(stderr);                                                   \
            _exit(1);                                                                      \
        }                                                                                  \
    } while (0)

static inline EVP_PKEY *read_key(OSSL_LIB_CTX *libctx, const char *path) {
    FILE *file = fopen(path, "r");
    CHECK(file);
    EVP_PKEY *key = PEM_read_PrivateKey_ex(file, NULL, NULL, NULL, libctx, NULL);
    CHECK(key);
    fclose(file);
    return key;
}

/* Signs a message that contains `number`, with SHA-256 where the key takes a digest, and verifies
 * the signature. */
static inline void sign(OSSL_LIB_CTX *libctx, EVP_PKEY *key, int number) {
    const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
    unsigned char signature[1024];
    char message[64];
    size_t length = sizeof signature;
    int size = snprintf(message, sizeof message, "message %d", number);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestSignInit_ex(ctx, NULL, digest, libctx, NULL, key, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)message, size) == 1);
    EVP_MD_CTX_free(ctx);
    ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestVerifyInit_ex(ctx, NULL, digest, libctx, NULL, key, NULL) == 1);
    CHECK(EVP_DigestVerify(ctx, signature, length, (unsigned char *)message, size) == 1);
    EVP_MD_CTX_free(ctx);
}

/* What a job signs. */
struct task {
    EVP_PKEY *key;
    int number;
};

/* A job's function: `arg` is its copy of a task. */
static inline int sign_task(void *arg) {
    struct task *task = arg;
    sign(NULL, task->key, task->number);
    return 1;
}
