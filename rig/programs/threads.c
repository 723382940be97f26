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
 * functions with which libcrypto switches are our own here: they report each switch to it. */
#define _GNU_SOURCE
#include "operations.h"
#include <dlfcn.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

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

struct step {
    void (*run)(EVP_PKEY *, int);
    EVP_PKEY *key;
    int number;
};

struct slot {
    ASYNC_JOB *job;
    ASYNC_WAIT_CTX *wait;
    struct step step;
    int has_callback, give_up;
    atomic_int called;
};

static int run_step(void *argument) {
    struct step *step = argument;
    step->run(step->key, step->number);
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

/* Runs the steps as jobs, as an event loop does. One that is to be given up goes when it pauses, as
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
            switch (ASYNC_start_job(&slot->job, slot->wait, &result, run_step, &slot->step,
                                    sizeof slot->step)) {
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

static void sign_alone(EVP_PKEY *key, int number) {
    sign(NULL, key, number);
}

static void agree_somehow(EVP_PKEY *key, int number) {
    (void)key;
    if (number % 2)
        agree("X25519", NULL);
    else
        agree("EC", "P-256");
}

static void copy(EVP_PKEY *key, int number) {
    EVP_PKEY *again = EVP_PKEY_dup(key);
    CHECK(again);
    sign(NULL, again, number);
    EVP_PKEY_free(again);
}

static void derive_alone(EVP_PKEY *key, int number) {
    (void)key;
    derive(number);
}

/* ---- threads ---- */

static EVP_PKEY *keys[KEYS];
static const char *modules, *rsa_path;
static time_t end;
static atomic_long rounds;

static struct step choose(unsigned *seed) {
    static void (*const ways[])(EVP_PKEY *, int) = {
        sign_alone, sign_alone, sign_alone, agree_somehow, copy, derive_alone};
    int number = rand_r(seed);
    struct step step = {ways[rand_r(seed) % 6], keys[number % KEYS], number};
    if (step.run == sign_alone && step.key == keys[0] && number % 2)
        step.run = decrypt;
    return step;
}

static void *user(void *argument) {
    unsigned seed = 77 + (unsigned)(size_t)argument;
    CHECK(ASYNC_init_thread(0, 0) == 1);
    while (time(NULL) < end) {
        struct slot slots[JOBS] = {0};
        int count = rand_r(&seed) % (2 * JOBS);
        for (int i = 0; i < JOBS && i < count; i++) {
            slots[i].step = choose(&seed);
            slots[i].has_callback = rand_r(&seed) % 3 == 0;
            slots[i].give_up = rand_r(&seed) % 8 == 0;
        }
        if (count < JOBS) {
            run_jobs(slots, count);
        } else {
            struct step step = choose(&seed);
            run_step(&step);
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
        sign(libctx, key, number);
        EVP_PKEY_free(key);
        CHECK(OSSL_PROVIDER_unload(lockstep) == 1 && OSSL_PROVIDER_unload(stock) == 1);
        OSSL_LIB_CTX_free(libctx);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
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
    CHECK(pthread_create(&watcher, NULL, watch, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, user, (void *)i) == 0);
    int loads = strcmp(modules, "-") != 0;
    if (loads)
        CHECK(pthread_create(&threads[THREADS], NULL, loader, NULL) == 0);
    for (int i = 0; i < THREADS + loads; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("rounds %ld\n", atomic_load(&rounds));
    tell_lanes();
    fflush(stdout);
    /* Lost jobs are threads that wait for ever. */
    return 0;
}
