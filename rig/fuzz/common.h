/* What the fuzzers have in common: two worlds, the input, dispatch tables, jobs, and how they end.
 *
 * One world has the module, the other one libcrypto's default provider alone. `FUZZ_MODULES` names
 * the directory of lockstep.so; `FUZZ_LOG` prints every step of an input. */
#include <fcntl.h>
#include <openssl/async.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A finding: libFuzzer keeps the input. */
#define FINDING(...)                                                                               \
    do {                                                                                           \
        fprintf(stderr, "FINDING line %d: ", __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        ERR_print_errors_fp(stderr);                                                               \
        abort();                                                                                   \
    } while (0)
#define NEED(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "setup failed, line %d: %s\n", __LINE__, #x);                          \
            ERR_print_errors_fp(stderr);                                                           \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

enum { OURS, STOCK, WORLDS };

static struct world {
    OSSL_LIB_CTX *libctx;
    OSSL_PROVIDER *provider;
    void *provctx;
} worlds[WORLDS];

/* ---- the input ---- */

static const uint8_t *next_byte, *last_byte;

static uint8_t u8(void) {
    return next_byte < last_byte ? *next_byte++ : 0;
}

/* `FUZZ_LOG` prints every step of an input: what it did, and what the worlds answered. */
static int logging;
#define LOG(...)                                                                                   \
    do {                                                                                           \
        if (logging) fprintf(stderr, __VA_ARGS__);                                                 \
    } while (0)

/* Below `n`. */
static unsigned pick(unsigned n) {
    return u8() % n;
}

/* Once in `n`, and never at the end of the input. */
static int rarely(unsigned n) {
    return u8() % n == n - 1;
}

/* ---- tables ---- */

typedef void (*function)(void);

struct algorithm {
    int operation;
    const char *name;
    const OSSL_DISPATCH *table[WORLDS];
};

static int has_name(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = names; at; at = strchr(at, ':')) {
        at += *at == ':';
        if (strncasecmp(at, name, length) == 0 && (at[length] == 0 || at[length] == ':')) return 1;
    }
    return 0;
}

static void find(struct algorithm *algorithm) {
    for (int w = 0; w < WORLDS; w++) {
        int no_cache;
        const OSSL_ALGORITHM *all =
            OSSL_PROVIDER_query_operation(worlds[w].provider, algorithm->operation, &no_cache);
        for (; all && all->algorithm_names; all++)
            if (has_name(all->algorithm_names, algorithm->name))
                algorithm->table[w] = all->implementation;
    }
    NEED(algorithm->table[STOCK]);
    if (!algorithm->table[OURS])
        algorithm->table[OURS] =
            NULL; /* Not offered on this machine: its operations are skipped. */
}

static function entry(const OSSL_DISPATCH *table, int id) {
    for (; table && table->function_id; table++)
        if (table->function_id == id) return table->function;
    return NULL;
}

/* Calls function `id` of a table with its own type. */
#define CALL(table, id, type) ((type)entry(table, id))
#define HAS(algorithm, id)                                                                         \
    (entry((algorithm)->table[OURS], id) && entry((algorithm)->table[STOCK], id))

/* ---- operations ---- */

static void agree(const char *what, int ours, int stock) {
    LOG("  %s: ours %d, stock %d\n", what, ours, stock);
    if ((ours > 0) != (stock > 0)) FINDING("%s: ours %d, stock %d", what, ours, stock);
    ERR_clear_error();
}

/* ---- jobs: an operation of our world may run inside one ---- */

struct call {
    int (*run)(void *);
    void *arg;
    int value;
};

static int in_job(void *arg) {
    struct call *call = *(struct call **)arg;
    call->value = call->run(call->arg);
    return 1;
}

/* Runs our half of an operation, at times inside an asynchronous job. */
static int ours(int asynchronous, int (*run)(void *), void *arg) {
    if (!asynchronous) return run(arg);
    struct call call = {run, arg, 0}, *pointer = &call;
    ASYNC_JOB *job = NULL;
    ASYNC_WAIT_CTX *wait = ASYNC_WAIT_CTX_new();
    int done = 0;
    NEED(wait);
    for (;;) {
        switch (ASYNC_start_job(&job, wait, &done, in_job, &pointer, sizeof pointer)) {
        case ASYNC_PAUSE: continue;
        case ASYNC_FINISH: break;
        default: FINDING("a job failed");
        }
        break;
    }
    ASYNC_WAIT_CTX_free(wait);
    return call.value;
}

/* ---- libFuzzer's side ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

#ifndef SANITIZED
/* The input that runs. libFuzzer's own handler takes memory for its report: a program that died
 * inside malloc would wait in it for ever. */
static const uint8_t *input;
static size_t input_length;

static void keep_input(int signal) {
    static char path[4096];
    const char *directory = getenv("FUZZ_FINDINGS");
    static const char message[] = "FINDING: a signal ended the program; the input is kept\n";
    snprintf(path, sizeof path, "%s/signal-%d-%d", directory ? directory : ".", signal, getpid());
    int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (file < 0 || write(file, input, input_length) != (ssize_t)input_length ||
        write(2, message, sizeof message - 1) < 0)
        _exit(78);
    _exit(77);
}

static void handle_signals(void) {
    static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    /* A stack of its own: that of a job may have come to its end. */
    static uint8_t stack[65536];
    NEED(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL) == 0);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        NEED(sigaction(deadly[i],
                       &(struct sigaction){.sa_handler = keep_input, .sa_flags = SA_ONSTACK},
                       NULL) == 0);
}
#endif

static void count_operations(void) {
    uint64_t counted[2] = {0, 0};
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_uint64("lockstep-operations", &counted[0]),
        OSSL_PARAM_construct_uint64("lockstep-fallbacks", &counted[1]),
        OSSL_PARAM_construct_end(),
    };
    if (OSSL_PROVIDER_get_params(worlds[OURS].provider, params) == 1)
        fprintf(stderr, "lanes served %llu operations, %llu fell back\n",
                (unsigned long long)counted[0], (unsigned long long)counted[1]);
}

static void start_worlds(void) {
    for (int w = 0; w < WORLDS; w++) {
        NEED(worlds[w].libctx = OSSL_LIB_CTX_new());
        NEED(worlds[w].provider = OSSL_PROVIDER_load(worlds[w].libctx, "default"));
    }
    /* Without a directory neither world has the module: a crash is then libcrypto's own. */
    if (getenv("FUZZ_MODULES")) {
        NEED(OSSL_PROVIDER_set_default_search_path(worlds[OURS].libctx, getenv("FUZZ_MODULES")) ==
             1);
        NEED(worlds[OURS].provider = OSSL_PROVIDER_load(worlds[OURS].libctx, "lockstep"));
    }
    for (int w = 0; w < WORLDS; w++)
        worlds[w].provctx = OSSL_PROVIDER_get0_provider_ctx(worlds[w].provider);
    ASYNC_init_thread(8, 0);
    atexit(count_operations);
    logging = getenv("FUZZ_LOG") != NULL;
#ifndef SANITIZED
    handle_signals();
#endif
}

static void begin_input(const uint8_t *bytes, size_t length) {
    next_byte = bytes;
    last_byte = bytes + length;
#ifndef SANITIZED
    input = bytes;
    input_length = length;
#endif
}
