/* Uses keys while randomness fails: the system's, which the module draws from, and the
 * application's own, which OpenSSL's code draws from.
 * Usage: random WHEN DENIED OWN RSA.pem P256.pem ED25519.pem
 *   WHEN    cold (randomness fails from the first use on), warm (after each operation was used)
 *   DENIED  the error of getrandom, as a number; 0 leaves the system's randomness alone. With an
 *           error files cannot be opened, either.
 *   OWN     works, or fails
 * Where the kernel allows no filter, it says `skipped`. */
#define _GNU_SOURCE
#define OPENSSL_SUPPRESS_DEPRECATED
#include "common.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <openssl/async.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { THREADS = 4, EACH = 24, MOST = 4096 };

/* ---- the application's generator ---- */

static atomic_int fails;
static atomic_ulong drawn, state = 77;

static int draw(unsigned char *bytes, int count) {
    atomic_fetch_add(&drawn, 1);
    if (atomic_load(&fails))
        return 0;
    for (int i = 0; i < count; i++) {
        unsigned long word = atomic_fetch_add(&state, 0x9e3779b97f4a7c15ul);
        word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ul;
        bytes[i] = word >> 40;
    }
    return 1;
}

static int is_seeded(void) {
    return 1;
}

static RAND_METHOD generator = {NULL, draw, NULL, NULL, draw, is_seeded};

/* ---- the system's ---- */

static void deny(int error) {
    unsigned failure = SECCOMP_RET_ERRNO | error, no_file = SECCOMP_RET_ERRNO | EACCES;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, failure),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, no_file),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
        printf("skipped: no filter of system calls: %s\n", strerror(errno));
        exit(0);
    }
    unsigned char byte;
    CHECK(syscall(SYS_getrandom, &byte, 1, 0) == -1 && errno == error);
    CHECK(fopen("/dev/urandom", "r") == NULL);
}

/* ---- operations: 1, or 0 after an error of OpenSSL ---- */

enum { RSA_SIGN, RSA_PSS, RSA_OPEN, ECDSA, ED25519, X25519, EC_PAIR, KINDS };
static const char *names[KINDS] = {"rsa", "pss", "oaep", "ecdsa", "ed25519", "x25519", "p256"};
static EVP_PKEY *rsa, *ec, *ed;
static unsigned char sealed[512];
static size_t sealed_length;

/* What must never occur twice: the first half of an ECDSA signature, which reveals the nonce, and
 * public keys. */
static unsigned char once[MOST][32];
static atomic_int count_of_once;

static int try_sign(EVP_PKEY *key, const char *digest, int pss, unsigned char *signature,
                    size_t *length) {
    EVP_PKEY_CTX *options = NULL;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int done = EVP_DigestSignInit_ex(ctx, &options, digest, NULL, NULL, key, NULL) == 1;
    if (done && pss)
        done = EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1;
    done = done && EVP_DigestSign(ctx, signature, length, (unsigned char *)"message", 7) == 1;
    EVP_MD_CTX_free(ctx);
    /* OpenSSL 3.0 calls a signature without bytes a success, if it could not encode it. */
    if (!done || *length == 0)
        return 0;
    ctx = EVP_MD_CTX_new();
    CHECK(EVP_DigestVerifyInit_ex(ctx, &options, digest, NULL, NULL, key, NULL) == 1);
    if (pss)
        CHECK(EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1);
    CHECK(EVP_DigestVerify(ctx, signature, *length, (unsigned char *)"message", 7) == 1);
    EVP_MD_CTX_free(ctx);
    return 1;
}

static int try_open(void) {
    unsigned char opened[512];
    size_t length = sizeof opened;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(rsa, NULL);
    CHECK(EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    int done = EVP_PKEY_decrypt(ctx, opened, &length, sealed, sealed_length) == 1;
    EVP_PKEY_CTX_free(ctx);
    CHECK(!done || (length == 7 && memcmp(opened, "message", 7) == 0));
    return done;
}

static int try_pair(const char *type, const char *group) {
    unsigned char public[128];
    size_t length = 0;
    EVP_PKEY *pair = EVP_PKEY_Q_keygen(NULL, NULL, type, group);
    if (!pair)
        return 0;
    CHECK(EVP_PKEY_get_octet_string_param(pair, "pub", public, sizeof public, &length) == 1);
    EVP_PKEY_free(pair);
    int place = atomic_fetch_add(&count_of_once, 1);
    CHECK(place < MOST && length >= 32);
    memcpy(once[place], public + length - 32, 32);
    return 1;
}

static int try_kind(int kind) {
    unsigned char signature[1024];
    size_t length = sizeof signature;
    switch (kind) {
    case RSA_SIGN:
        return try_sign(rsa, "SHA256", 0, signature, &length);
    case RSA_PSS:
        return try_sign(rsa, "SHA256", 1, signature, &length);
    case RSA_OPEN:
        return try_open();
    case ECDSA:
        if (!try_sign(ec, "SHA256", 0, signature, &length))
            return 0;
        int place = atomic_fetch_add(&count_of_once, 1);
        CHECK(place < MOST && signature[2] == 2 && signature[3] >= 16 && signature[3] <= 33);
        memcpy(once[place], signature + 4, 16);
        return 1;
    case ED25519:
        return try_sign(ed, NULL, 0, signature, &length);
    case X25519:
        return try_pair("X25519", NULL);
    default:
        return try_pair("EC", "P-256");
    }
}

static int job(void *kind) {
    return try_kind(*(int *)kind) ? 1 : 2;
}

static int try_job(int kind) {
    ASYNC_JOB *running = NULL;
    ASYNC_WAIT_CTX *wait = ASYNC_WAIT_CTX_new();
    int result = 0, now = ASYNC_PAUSE;
    while (now == ASYNC_PAUSE)
        now = ASYNC_start_job(&running, wait, &result, job, &kind, sizeof kind);
    CHECK(now == ASYNC_FINISH);
    ASYNC_WAIT_CTX_free(wait);
    return result == 1;
}

static atomic_int done[KINDS];
static pthread_barrier_t barrier;
static int is_warm;

static void *user(void *argument) {
    (void)argument;
    CHECK(ASYNC_init_thread(0, 0) == 1);
    if (is_warm)
        for (int kind = 0; kind < KINDS; kind++)
            CHECK(try_kind(kind) == 1 && try_job(kind) == 1);
    pthread_barrier_wait(&barrier);
    /* Now randomness is made to fail. */
    pthread_barrier_wait(&barrier);
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < EACH; i++)
            atomic_fetch_add(&done[kind], i % 2 ? try_job(kind) : try_kind(kind));
    return NULL;
}

static int compare(const void *a, const void *b) {
    return memcmp(a, b, 32);
}

int main(int argc, char **argv) {
    CHECK(argc == 7);
    int error = atoi(argv[2]), own_fails = strcmp(argv[3], "fails") == 0;
    pthread_t threads[THREADS];
    CHECK(RAND_set_rand_method(&generator) == 1);
    CHECK(OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    rsa = read_key(NULL, argv[4]);
    ec = read_key(NULL, argv[5]);
    ed = read_key(NULL, argv[6]);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(rsa, NULL);
    sealed_length = sizeof sealed;
    CHECK(EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &sealed_length, (unsigned char *)"message", 7) == 1);
    EVP_PKEY_CTX_free(ctx);
    is_warm = strcmp(argv[1], "warm") == 0;
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, user, NULL) == 0);
    pthread_barrier_wait(&barrier);
    if (error)
        deny(error);
    atomic_store(&fails, own_fails);
    atomic_store(&drawn, 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    int count = atomic_load(&count_of_once);
    qsort(once, count, sizeof once[0], compare);
    for (int i = 1; i < count; i++)
        CHECK(memcmp(once[i - 1], once[i], sizeof once[0]) != 0);
    for (int kind = 0; kind < KINDS; kind++)
        printf("%s %d\n", names[kind], atomic_load(&done[kind]));
    printf("drawn %lu\n", atomic_load(&drawn));
    exit(0);
}
