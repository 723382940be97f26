/* Uses every kind of operation, alone, in threads, in jobs and in a child, and can have a system
 * call denied meanwhile: to compare the module with OpenSSL's own code.
 *
 * Usage: syscalls WHEN ACTION CALL RSA.pem EC.pem ED25519.pem
 *   WHEN    never; start (before the module is loaded), loaded (then), used (after a round)
 *   ACTION  EPERM, ENOSYS, or kill
 *   CALL    the number of the system call
 *
 * It marks its stages by a write that fails, which strace shows. Ends with 0 if all results are
 * right; with 77 if the kernel takes no filter. Says "lanes NUMBER" (operations that lanes served),
 * if the module was loaded. */
#define _GNU_SOURCE
#include "operations.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { KEYS = 3, THREADS = 3, JOBS = 4 };

static EVP_PKEY *keys[KEYS];

static void stage(const char *name) {
    char mark[32];
    int length = snprintf(mark, sizeof mark, "stage %s", name);
    CHECK(write(-1, mark, length) == -1);
}

static void deny(int call, const char *action) {
    unsigned what = SECCOMP_RET_ERRNO | (strcmp(action, "ENOSYS") == 0 ? ENOSYS : EPERM);
    if (strcmp(action, "kill") == 0)
        what = SECCOMP_RET_KILL_PROCESS;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, what),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
        printf("no filter of system calls: %s\n", strerror(errno));
        fflush(stdout);
        _exit(77);
    }
}

/* ---- operations ---- */

static void read_keys(char **paths) {
    for (int i = 0; i < KEYS; i++)
        keys[i] = read_key(NULL, paths[i]);
}

static void all(void) {
    for (int i = 0; i < KEYS; i++)
        sign(NULL, keys[i], i);
    decrypt(keys[0], 7);
    agree("X25519", NULL);
    agree("EC", "P-256");
    derive(1);
}

/* ---- threads ---- */

/* The threads begin before any filter and end after all stages. They wait for their turns at this
 * barrier. */
static pthread_barrier_t barrier;

static void meet(void) {
    pthread_barrier_wait(&barrier);
}

static void *thread(void *argument) {
    (void)argument;
    meet();
    for (int turn = 0; turn < 2; turn++) {
        meet();
        all();
        all();
        meet();
    }
    meet();
    return NULL;
}

static void threads(void) {
    meet();
    meet();
}

/* ---- jobs ---- */

static int job(void *key) {
    sign(NULL, *(EVP_PKEY **)key, 1);
    return 1;
}

/* Without system calls of its own: jobs are resumed whether or not they are ready. */
static void jobs(int callbacks) {
    struct {
        ASYNC_JOB *job;
        ASYNC_WAIT_CTX *wait;
        atomic_int called;
    } slots[JOBS] = {0};
    int left = JOBS;
    for (int i = 0; i < JOBS; i++) {
        CHECK(slots[i].wait = ASYNC_WAIT_CTX_new());
        if (callbacks)
            CHECK(ASYNC_WAIT_CTX_set_callback(slots[i].wait, ring, &slots[i].called) == 1);
    }
    while (left > 0)
        for (int i = 0; i < JOBS; i++) {
            int result = 0;
            int waits = callbacks && slots[i].job && !atomic_exchange(&slots[i].called, 0);
            if (!slots[i].wait || waits)
                continue;
            int state = ASYNC_start_job(&slots[i].job, slots[i].wait, &result, job,
                                        &keys[i % KEYS], sizeof keys[0]);
            if (state == ASYNC_PAUSE)
                continue;
            CHECK(state == ASYNC_FINISH && result == 1);
            ASYNC_WAIT_CTX_free(slots[i].wait);
            slots[i].wait = NULL;
            left--;
        }
}

static void child(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        all();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 4 + KEYS);
    const char *when = argv[1];
    pthread_t started[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&started[i], NULL, thread, NULL) == 0);
    meet();
    if (strcmp(when, "start") == 0)
        deny(atoi(argv[3]), argv[2]);
    stage("load");
    CHECK(OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    read_keys(argv + 4);
    int loaded = OSSL_PROVIDER_available(NULL, "lockstep");
    if (strcmp(when, "loaded") == 0)
        deny(atoi(argv[3]), argv[2]);
    for (int turn = 0; turn < 2; turn++) {
        stage("requests");
        all();
        stage("threads");
        threads();
        stage("jobs");
        CHECK(ASYNC_init_thread(0, 0) == 1);
        jobs(0);
        jobs(1);
        stage("fork");
        child();
        stage("more");
        if (turn == 0 && strcmp(when, "used") == 0)
            deny(atoi(argv[3]), argv[2]);
    }
    stage("end");
    meet();
    for (int i = 0; i < THREADS; i++)
        pthread_join(started[i], NULL);
    if (loaded)
        tell_lanes();
    printf("all results are right\n");
    fflush(stdout);
    stage("exit");
    return 0;
}
