/* Processes that are made without the handlers of `fork`, and threads that are cancelled.
 * Usage: unannounced raw KEY.pem      by the system call
 *        unannounced namespace        of the same number, in a PID namespace of its own (as root)
 *        unannounced exit KEY.pem     such a one that exits, while its parent has worker threads
 *        unannounced cancelled KEY.pem ROUNDS   threads, while others sign */
#define _GNU_SOURCE
#include "common.h"
#include <dirent.h>
#include <openssl/async.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Makes key pairs and prints the public keys, each of which belongs to its private key. */
static void make_pairs(int count) {
    for (int i = 0; i < count; i++) {
        unsigned char public[32], private[32], again[32];
        size_t size = sizeof public, private_size = sizeof private, again_size = sizeof again;
        EVP_PKEY *pair = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
        CHECK(EVP_PKEY_get_raw_public_key(pair, public, &size) == 1);
        CHECK(EVP_PKEY_get_raw_private_key(pair, private, &private_size) == 1);
        EVP_PKEY *own =
            EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, private, sizeof private);
        CHECK(EVP_PKEY_get_raw_public_key(own, again, &again_size) == 1);
        CHECK(memcmp(public, again, sizeof public) == 0);
        printf("pair ");
        for (size_t at = 0; at < sizeof public; at++)
            printf("%02x", public[at]);
        printf("\n");
        EVP_PKEY_free(pair);
        EVP_PKEY_free(own);
    }
    fflush(stdout);
}

/* A child, of which nobody is told. */
static pid_t split(unsigned long flags) {
    return syscall(SYS_clone, SIGCHLD | flags, 0, 0, 0, 0);
}

static void wait_for(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void sign_some(EVP_PKEY *key) {
    for (int number = 0; number < 8; number++)
        sign(NULL, key, number);
}

static void raw(EVP_PKEY *key) {
    make_pairs(1);
    sign_some(key);
    pid_t child = split(0);
    if (child == 0) {
        sign_some(key);
        make_pairs(8);
        child = split(0);
        if (child == 0) {
            make_pairs(8);
            sign_some(key);
            _exit(0);
        }
        wait_for(child);
        _exit(0);
    }
    wait_for(child);
    make_pairs(8);
    sign_some(key);
}

/* A child is number 1 of a PID namespace of its own. */
static pid_t split_into_namespace(void) {
    pid_t child = split(CLONE_NEWPID);
    CHECK(child != 0 || getpid() == 1);
    return child;
}

static void in_namespace(void) {
    pid_t first = split_into_namespace();
    if (first < 0) {
        printf("skipped: no PID namespace\n");
        return;
    }
    if (first == 0) {
        make_pairs(1);
        pid_t same = split_into_namespace();
        if (same == 0) {
            make_pairs(8);
            _exit(0);
        }
        wait_for(same);
        make_pairs(8);
        _exit(0);
    }
    wait_for(first);
}

static int woken(void *argument) {
    (void)argument;
    return 1;
}

/* A worker serves a job with a callback. */
static void sign_in_job(EVP_PKEY *key) {
    struct task task = {key, 1};
    ASYNC_JOB *job = NULL;
    ASYNC_WAIT_CTX *wait = ASYNC_WAIT_CTX_new();
    int result, state = ASYNC_PAUSE;
    CHECK(wait && ASYNC_WAIT_CTX_set_callback(wait, woken, NULL) == 1);
    while (state == ASYNC_PAUSE) {
        state = ASYNC_start_job(&job, wait, &result, sign_task, &task, sizeof task);
        usleep(100);
    }
    CHECK(state == ASYNC_FINISH && result == 1);
    ASYNC_WAIT_CTX_free(wait);
}

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    CHECK(tasks);
    for (struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Number 1 of a namespace ignores most signals, so its parent kills it if it does not end. */
static void wait_shortly_for(pid_t child) {
    int status;
    for (int waits = 0; waits < 2000; waits++) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        CHECK(child > 0 && (ended == 0 || (ended == child && status == 0)));
        if (ended == child)
            return;
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    CHECK(!"it ends within 20 seconds");
}

static void exit_in_namespace(const char *path) {
    pid_t first = split_into_namespace();
    if (first < 0) {
        printf("skipped: no PID namespace\n");
        return;
    }
    if (first == 0) {
        EVP_PKEY *key = read_key(NULL, path);
        sign_in_job(key);
        CHECK(threads() > 1);
        pid_t same = split_into_namespace();
        if (same == 0) {
            /* A key would keep the module in its place. */
            EVP_PKEY_free(key);
            exit(0);
        }
        wait_shortly_for(same);
        sign_in_job(key);
        _exit(0);
    }
    wait_for(first);
}

static EVP_PKEY *shared;
static atomic_int is_over, count;

static void *sign_always(void *unused) {
    (void)unused;
    for (int number = 0; !atomic_load(&is_over); number++) {
        sign(NULL, shared, number);
        atomic_fetch_add(&count, 1);
    }
    return NULL;
}

/* It is cancelled in OpenSSL, or between two calls. */
static void *sign_until_cancelled(void *unused) {
    (void)unused;
    unsigned char digest[32] = {1}, signature[1024];
    for (;;) {
        size_t length = sizeof signature;
        EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(shared, NULL);
        CHECK(EVP_PKEY_sign_init(ctx) == 1);
        CHECK(EVP_PKEY_sign(ctx, signature, &length, digest, sizeof digest) == 1);
        EVP_PKEY_CTX_free(ctx);
        pthread_testcancel();
    }
}

static void cancelled(int rounds) {
    pthread_t signers[2], thread;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&signers[i], NULL, sign_always, NULL) == 0);
    for (int round = 0; round < rounds; round++) {
        void *result;
        CHECK(pthread_create(&thread, NULL, sign_until_cancelled, NULL) == 0);
        usleep(1000 + round * 37 % 500);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
        /* The others go on. */
        int before = atomic_load(&count), waits = 0;
        while (atomic_load(&count) == before) {
            CHECK(waits++ < 300000);
            usleep(100);
        }
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(signers[i], NULL) == 0);
}

int main(int arguments, char **words) {
    CHECK(arguments >= 2);
    if (strcmp(words[1], "raw") == 0)
        raw(read_key(NULL, words[2]));
    if (strcmp(words[1], "namespace") == 0)
        in_namespace();
    if (strcmp(words[1], "exit") == 0)
        exit_in_namespace(words[2]);
    if (strcmp(words[1], "cancelled") == 0) {
        shared = read_key(NULL, words[2]);
        cancelled(atoi(words[3]));
    }
    return 0;
}
