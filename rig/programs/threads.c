/* Many threads that share keys, for ThreadSanitizer.
 *
 * Usage: threads SECONDS MODULES RSA.pem EC.pem ED25519.pem. The module comes by the configuration;
 * one thread loads it again and again into library contexts of its own, from the directory MODULES,
 * unless that is "-".
 *
 * Says "rounds NUMBER" and "lanes NUMBER" (operations that the lanes served), and ends with 0; with
 * 4 if no thread gets on for a long time, and with 1 after a wrong result.
 *
 * ThreadSanitizer does not know the stacks between which libcrypto switches for its jobs. So the
 * functions with which libcrypto switches are our own here: they tell it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <openssl/async.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "threads.c:%d: %s\n", __LINE__, #condition);      \
            ERR_print_errors_fp(stderr);                                      \
            _exit(1);                                                         \
        }                                                                     \
    } while (0)

enum { THREADS = 6, KEYS = 3, JOBS = 6, MOST_STACKS = 1024, HANG_SECONDS = 15 };
/* Lost jobs are never freed, as in a server. */
enum { MOST_LOST = 200 };

/* ---- stacks ---- */

/* The interface of ThreadSanitizer for stacks that a program switches by itself. */
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);

/* Which stack each place belongs to that a stack was left at. Places are parts of libcrypto's own
 * records of its stacks. */
static struct {
    _Atomic(void *) place, fiber;
} stacks[MOST_STACKS];

static _Atomic(void *) *fiber_of(void *place) {
    for (int i = 0; i < MOST_STACKS; i++) {
        void *found = NULL;
        if (atomic_compare_exchange_strong(&stacks[i].place, &found, place) || found == place)
            return &stacks[i].fiber;
    }
    abort();
}

/* libc's functions. */
void *lockstep_setjmp;
static void (*libc_longjmp)(void *, int) __attribute__((noreturn));
static int (*libc_setcontext)(const void *);

__attribute__((constructor)) static void find_libc(void) {
    lockstep_setjmp = dlsym(RTLD_NEXT, "_setjmp");
    libc_longjmp = dlsym(RTLD_NEXT, "_longjmp");
    libc_setcontext = dlsym(RTLD_NEXT, "setcontext");
}

__attribute__((used)) void lockstep_leave(void *place) {
    atomic_store(fiber_of(place), __tsan_get_current_fiber());
}

/* It returns twice, so it must not have a frame when libc's is called. */
__asm__(".globl _setjmp\n"
        ".type _setjmp, @function\n"
        "_setjmp:\n"
        "    push %rdi\n"
        "    call lockstep_leave\n"
        "    pop %rdi\n"
        "    jmp *lockstep_setjmp(%rip)\n"
        ".size _setjmp, . - _setjmp\n");

__attribute__((noreturn)) void _longjmp(struct __jmp_buf_tag place[1], int value) {
    __tsan_switch_to_fiber(atomic_load(fiber_of(place)), 0);
    libc_longjmp(place, value);
}

/* A stack that is entered for the first time. */
int setcontext(const ucontext_t *place) {
    __tsan_switch_to_fiber(__tsan_create_fiber(0), 0);
    return libc_setcontext(place);
}

/* ---- jobs ---- */

struct task {
    int (*run)(EVP_PKEY *, int);
    EVP_PKEY *key;
    int number;
};

struct slot {
    ASYNC_JOB *job;
    ASYNC_WAIT_CTX *wait;
    struct task task;
    int has_callback, give_up;
    atomic_int called;
};

static int run_task(void *argument) {
    struct task *task = argument;
    return task->run(task->key, task->number);
}

static int ring(void *called) {
    atomic_store((atomic_int *)called, 1);
    return 1;
}

static int is_ready(struct slot *slot) {
    OSSL_ASYNC_FD fds[4];
    size_t count = 0;
    if (slot->has_callback)
        return atomic_exchange(&slot->called, 0);
    CHECK(ASYNC_WAIT_CTX_get_all_fds(slot->wait, NULL, &count) == 1 && count == 1);
    CHECK(ASYNC_WAIT_CTX_get_all_fds(slot->wait, fds, &count) == 1);
    struct pollfd readable = {.fd = fds[0], .events = POLLIN};
    return poll(&readable, 1, 0) == 1;
}

static atomic_int lost;

/* Runs the tasks as jobs, as an event loop does. One that is to be given up goes when it pauses, as
 * in a server whose client has left. */
static void run_jobs(struct slot *slots, int count) {
    int left = count;
    for (int i = 0; i < count; i++) {
        CHECK(slots[i].wait = ASYNC_WAIT_CTX_new());
        if (slots[i].has_callback)
            CHECK(ASYNC_WAIT_CTX_set_callback(slots[i].wait, ring, &slots[i].called) == 1);
    }
    while (left > 0) {
        for (int i = 0; i < count; i++) {
            struct slot *slot = &slots[i];
            int result = 0;
            if (!slot->wait || (slot->job && !is_ready(slot)))
                continue;
            switch (ASYNC_start_job(&slot->job, slot->wait, &result, run_task, &slot->task,
                                    sizeof slot->task)) {
            case ASYNC_PAUSE:
                if (!slot->give_up || atomic_fetch_add(&lost, 1) >= MOST_LOST)
                    continue;
                break;
            case ASYNC_FINISH:
                CHECK(result == 1);
                break;
            default:
                CHECK(!"a job");
            }
            ASYNC_WAIT_CTX_free(slot->wait);
            slot->wait = NULL;
            left--;
        }
        usleep(100);
    }
}

/* ---- operations ---- */

static EVP_PKEY *read_key(OSSL_LIB_CTX *libctx, const char *path) {
    FILE *file = fopen(path, "r");
    CHECK(file);
    EVP_PKEY *key = PEM_read_PrivateKey_ex(file, NULL, NULL, NULL, libctx, NULL);
    CHECK(key);
    fclose(file);
    return key;
}

static int sign_in(OSSL_LIB_CTX *libctx, EVP_PKEY *key, int number) {
    const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
    unsigned char signature[1024];
    size_t length = sizeof signature;
    char message[64];
    int size = snprintf(message, sizeof message, "message %d", number);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestSignInit_ex(ctx, NULL, digest, libctx, NULL, key, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)message, size) == 1);
    EVP_MD_CTX_free(ctx);
    ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestVerifyInit_ex(ctx, NULL, digest, libctx, NULL, key, NULL) == 1);
    CHECK(EVP_DigestVerify(ctx, signature, length, (unsigned char *)message, size) == 1);
    EVP_MD_CTX_free(ctx);
    return 1;
}

static int sign(EVP_PKEY *key, int number) {
    return sign_in(NULL, key, number);
}

static int decrypt(EVP_PKEY *key, int number) {
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
    return 1;
}

static void secret_of(EVP_PKEY *own, EVP_PKEY *peer, unsigned char *secret) {
    size_t length = 32;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(own, NULL);
    CHECK(ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, peer) == 1);
    CHECK(EVP_PKEY_derive(ctx, secret, &length) == 1 && length == 32);
    EVP_PKEY_CTX_free(ctx);
}

static int agree_on(const char *type, const char *group) {
    unsigned char one[32], other[32];
    EVP_PKEY *a = EVP_PKEY_Q_keygen(NULL, NULL, type, group);
    EVP_PKEY *b = EVP_PKEY_Q_keygen(NULL, NULL, type, group);
    CHECK(a && b);
    secret_of(a, b, one);
    secret_of(b, a, other);
    CHECK(memcmp(one, other, sizeof one) == 0);
    EVP_PKEY_free(a);
    EVP_PKEY_free(b);
    return 1;
}

static int agree(EVP_PKEY *key, int number) {
    (void)key;
    return number % 2 ? agree_on("X25519", NULL) : agree_on("EC", "P-256");
}

static int copy(EVP_PKEY *key, int number) {
    EVP_PKEY *again = EVP_PKEY_dup(key);
    CHECK(again);
    sign(again, number);
    EVP_PKEY_free(again);
    return 1;
}

static int derive(EVP_PKEY *key, int number) {
    (void)key;
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
    return 1;
}

/* ---- threads ---- */

static EVP_PKEY *keys[KEYS];
static const char *modules, *rsa_path;
static time_t end;
static atomic_long rounds;

static struct task choose(unsigned *seed) {
    static int (*const ways[])(EVP_PKEY *, int) = {sign, sign, sign, agree, copy, derive};
    int number = rand_r(seed);
    struct task task = {ways[rand_r(seed) % 6], keys[number % KEYS], number};
    if (task.run == sign && task.key == keys[0] && number % 2)
        task.run = decrypt;
    return task;
}

static void *user(void *argument) {
    unsigned seed = 77 + (unsigned)(size_t)argument;
    CHECK(ASYNC_init_thread(0, 0) == 1);
    while (time(NULL) < end) {
        struct slot slots[JOBS] = {0};
        int count = rand_r(&seed) % (2 * JOBS);
        for (int i = 0; i < JOBS && i < count; i++) {
            slots[i].task = choose(&seed);
            slots[i].has_callback = rand_r(&seed) % 3 == 0;
            slots[i].give_up = rand_r(&seed) % 8 == 0;
        }
        if (count < JOBS) {
            run_jobs(slots, count);
        } else {
            struct task task = choose(&seed);
            CHECK(run_task(&task) == 1);
        }
        atomic_fetch_add(&rounds, 1);
    }
    /* Not ASYNC_cleanup_thread: it would not find the lost ones. */
    return NULL;
}

/* Library contexts come and go. */
static void *loader(void *argument) {
    (void)argument;
    for (int number = 0; time(NULL) < end; number++) {
        OSSL_LIB_CTX *libctx = OSSL_LIB_CTX_new();
        CHECK(libctx && OSSL_PROVIDER_set_default_search_path(libctx, modules) == 1);
        OSSL_PROVIDER *stock = OSSL_PROVIDER_load(libctx, "default");
        OSSL_PROVIDER *lockstep = OSSL_PROVIDER_load(libctx, "lockstep");
        CHECK(stock && lockstep);
        CHECK(EVP_set_default_properties(libctx, "?lockstep.fast=yes,?lockstep.keys!=yes") == 1);
        EVP_PKEY *key = read_key(libctx, rsa_path);
        sign_in(libctx, key, number);
        EVP_PKEY_free(key);
        CHECK(OSSL_PROVIDER_unload(lockstep) == 1 && OSSL_PROVIDER_unload(stock) == 1);
        OSSL_LIB_CTX_free(libctx);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static unsigned long long on_lanes(OSSL_PROVIDER *lockstep) {
    uint64_t count = 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_uint64("lockstep-operations", &count),
                           OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(lockstep, params) == 1);
    return count;
}

static void *watch(void *argument) {
    (void)argument;
    long before = -1;
    for (int quiet = 0;; quiet++) {
        sleep(1);
        long now = atomic_load(&rounds);
        if (now != before)
            quiet = 0;
        before = now;
        if (quiet >= HANG_SECONDS) {
            printf("no thread gets on after %ld rounds\n", now);
            fflush(stdout);
            /* ThreadSanitizer's own end of a process takes locks. */
            syscall(SYS_exit_group, 4);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS + 1], watcher;
    CHECK(argc == 3 + KEYS);
    end = time(NULL) + atoi(argv[1]);
    modules = argv[2];
    rsa_path = argv[3];
    CHECK(OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    for (int i = 0; i < KEYS; i++)
        keys[i] = read_key(NULL, argv[3 + i]);
    OSSL_PROVIDER *lockstep = OSSL_PROVIDER_load(NULL, "lockstep");
    CHECK(lockstep);
    CHECK(pthread_create(&watcher, NULL, watch, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, user, (void *)i) == 0);
    int loads = strcmp(modules, "-") != 0;
    if (loads)
        CHECK(pthread_create(&threads[THREADS], NULL, loader, NULL) == 0);
    for (int i = 0; i < THREADS + loads; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("rounds %ld\nlanes %llu\n", atomic_load(&rounds), on_lanes(lockstep));
    fflush(stdout);
    /* Lost jobs are threads that wait for ever. */
    return 0;
}
