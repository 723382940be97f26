/* Does every kind of operation in children, in each of which another allocation fails.
 * Usage: allocations cold|warm one|few|all|large FIRST STEP MOST KEY.pem...
 *   cold   each child begins with nothing loaded
 *   warm   each child begins with what one round has loaded
 *   one    the allocation fails, and no other
 *   few    it fails, and so do the two after it
 *   all    it fails, and so does every later one
 *   large  the same, but of those of at least 64 KiB alone
 * FIRST and STEP choose the allocations; it goes on until a child makes fewer, with MOST children
 * at most. Says for each child that a signal ends "crash NUMBER SIGNAL", for each wrong result
 * "wrong NUMBER", and at last "children COUNT, errors COUNT". */
#define _GNU_SOURCE
#include "common.h"
#include <errno.h>
#include <limits.h>
#include <openssl/async.h>
#include <openssl/kdf.h>
#include <stdatomic.h>
#include <sys/wait.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static atomic_long made;
static long fails_from = LONG_MAX, fails_to = LONG_MAX;
/* Smaller ones are neither counted nor do they fail. */
static size_t least;

static int fails(size_t size) {
    if (size < least)
        return 0;
    long number = atomic_fetch_add(&made, 1);
    if (number < fails_from || number >= fails_to)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) {
    return fails(size) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return fails(count * size) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    return fails(size) ? NULL : __libc_realloc(block, size);
}

void *memalign(size_t alignment, size_t size) {
    return fails(size) ? NULL : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    void *found = memalign(alignment, size);
    if (!found)
        return ENOMEM;
    *block = found;
    return 0;
}

enum { KEYS = 8 };
static char **paths;
static int key_count;
static EVP_PKEY *keys[KEYS];

/* What was signed with which key, to be checked when there is memory again. */
static struct {
    int key;
    unsigned char signature[512];
    size_t length;
} results[4 * KEYS];
static int key_in_use, result_count, errors;

static EVP_PKEY *try_read(const char *path) {
    FILE *file = fopen(path, "r");
    EVP_PKEY *key = NULL;
    if (file) {
        key = PEM_read_PrivateKey_ex(file, NULL, NULL, NULL, NULL, NULL);
        fclose(file);
    }
    return key;
}

static const char *digest_of(EVP_PKEY *key) {
    return EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
}

static const unsigned char MESSAGE[] = "message";

static int try_sign(EVP_PKEY *key) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned char *signature = results[result_count].signature;
    size_t length = sizeof results[result_count].signature;
    int done = ctx && EVP_DigestSignInit_ex(ctx, NULL, digest_of(key), NULL, NULL, key, NULL) == 1 &&
               EVP_DigestSign(ctx, signature, &length, MESSAGE, sizeof MESSAGE) == 1;
    EVP_MD_CTX_free(ctx);
    /* OpenSSL 3.0 calls a signature without bytes a success, if it could not encode it. */
    if (done && length > 0 && length <= sizeof results[result_count].signature) {
        results[result_count].key = key_in_use;
        results[result_count++].length = length;
        return 1;
    }
    return 0;
}

static int verified(int i) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY *key = keys[results[i].key];
    int right =
        ctx && EVP_DigestVerifyInit_ex(ctx, NULL, digest_of(key), NULL, NULL, key, NULL) == 1 &&
        EVP_DigestVerify(ctx, results[i].signature, results[i].length, MESSAGE, sizeof MESSAGE) == 1;
    EVP_MD_CTX_free(ctx);
    return right;
}

static int try_agree(const char *type, const char *group) {
    unsigned char secret[64];
    size_t length = sizeof secret;
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, type, group);
    EVP_PKEY_CTX *ctx = key ? EVP_PKEY_CTX_new(key, NULL) : NULL;
    int done = ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, key) == 1 &&
               EVP_PKEY_derive(ctx, secret, &length) == 1;
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(key);
    return done;
}

static int try_decrypt(EVP_PKEY *key) {
    unsigned char sealed[512], opened[512];
    size_t length = sizeof sealed, opened_length = sizeof opened;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    int done = ctx && EVP_PKEY_encrypt_init(ctx) == 1 &&
               EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1 &&
               EVP_PKEY_encrypt(ctx, sealed, &length, MESSAGE, sizeof MESSAGE) == 1 &&
               EVP_PKEY_decrypt_init(ctx) == 1 &&
               EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1 &&
               EVP_PKEY_decrypt(ctx, opened, &opened_length, sealed, length) == 1;
    EVP_PKEY_CTX_free(ctx);
    if (done && (opened_length != sizeof MESSAGE || memcmp(opened, MESSAGE, sizeof MESSAGE)))
        _exit(2);
    return done;
}

static int try_kdf(void) {
    unsigned char key[32] = {1}, out[32];
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
    EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, "SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key, sizeof key),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, "tls13 ", 6),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, "key", 3),
        OSSL_PARAM_construct_end(),
    };
    int done = ctx && EVP_KDF_derive(ctx, out, sizeof out, params) == 1;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    return done;
}

static int job(void *arg) {
    return try_sign(*(EVP_PKEY **)arg);
}

static int try_job(EVP_PKEY *key) {
    ASYNC_JOB *running = NULL;
    ASYNC_WAIT_CTX *wait = ASYNC_WAIT_CTX_new();
    int result = 0, state = ASYNC_ERR;
    if (!wait)
        return 0;
    do
        state = ASYNC_start_job(&running, wait, &result, job, &key, sizeof key);
    while (state == ASYNC_PAUSE);
    ASYNC_WAIT_CTX_free(wait);
    return state == ASYNC_FINISH && result == 1;
}

static void round_of_all(void) {
    result_count = errors = 0;
    for (int i = key_in_use = 0; i < key_count; key_in_use = ++i) {
        /* A key that is new to the module: it is imported there. */
        EVP_PKEY *key = keys[i] ? EVP_PKEY_dup(keys[i]) : try_read(paths[i]);
        if (!key) {
            errors++;
            continue;
        }
        errors += !try_sign(key);
        errors += !try_job(key);
        if (EVP_PKEY_is_a(key, "RSA"))
            errors += !try_decrypt(key);
        if (keys[i])
            EVP_PKEY_free(key);
        else
            keys[i] = key;
    }
    errors += !try_agree("X25519", NULL);
    errors += !try_agree("EC", "P-256");
    errors += !try_kdf();
}

/* Ends with 0, 1 after errors, 2 after a wrong result, 3 if there were fewer allocations. */
static void child(long number, long in_all) {
    alarm(20);
    atomic_store(&made, 0);
    fails_from = number;
    fails_to = in_all == LONG_MAX ? LONG_MAX : number + in_all;
    round_of_all();
    int reached = atomic_load(&made) > number, failed = errors;
    fails_from = LONG_MAX;
    for (int i = 0; i < result_count; i++)
        if (!verified(i))
            _exit(2);
    round_of_all();
    _exit(!reached ? 3 : failed > 0);
}

int main(int argc, char **argv) {
    CHECK(argc > 6 && argc - 6 <= KEYS);
    int warm = strcmp(argv[1], "warm") == 0;
    int large = strcmp(argv[2], "large") == 0;
    long in_all = large || strcmp(argv[2], "all") == 0 ? LONG_MAX : strcmp(argv[2], "few") == 0 ? 3 : 1;
    long number = atol(argv[3]), step = atol(argv[4]);
    least = large ? 64 * 1024 : 0;
    int most = atoi(argv[5]);
    paths = argv + 6;
    key_count = argc - 6;
    if (warm) {
        round_of_all();
        CHECK(errors == 0);
    }
    int children = 0, with_errors = 0;
    for (; children < most; number += step, children++) {
        fflush(stdout);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(number, in_all);
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid);
        if (WIFSIGNALED(status))
            printf("crash %ld %d\n", number, WTERMSIG(status));
        else if (WEXITSTATUS(status) == 2)
            printf("wrong %ld\n", number);
        else if (WEXITSTATUS(status) == 3)
            break;
        else
            with_errors += WEXITSTATUS(status) != 0;
    }
    printf("children %d, errors %d\n", children, with_errors);
    return 0;
}
