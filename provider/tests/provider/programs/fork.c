/* Signs in processes that fork. Every process signs COUNT times, verifies, says its pid and exits
 * in the usual way.
 * Usage: fork WAY KEY.pem COUNT
 *   before   forks before the first signature
 *   after    forks after it
 *   nested   child, grandchild and great-grandchild
 *   threads  forks 8 times while 4 threads sign
 *   jobs     forks while async jobs are paused
 *   resumed  the same, and both processes go on with the jobs
 *   resumed-callback  the same with jobs that workers serve
 *   master   loads and never signs; 4 children do */
#include "common.h"
#include <openssl/async.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

static EVP_PKEY *key;
static const char *key_path;
static int count;
static atomic_int stop;

static void sign_all(void) {
    for (int i = 0; i < count; i++)
        sign(NULL, key, i);
}

static void say(void) {
    char text[64];
    int length = snprintf(text, sizeof text, "process %d\n", (int)getpid());
    CHECK(write(1, text, length) == length);
}

static void wait_for_children(int children) {
    for (int i = 0; i < children; i++) {
        int status = 0;
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* Forks a child that signs and exits. */
static void fork_signer(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(30);
        sign_all();
        say();
        exit(0);
    }
}

/* Signs without pause, with a key and a context of its own. A forked child must not inherit locks
 * of OpenSSL that are held (stock OpenSSL hangs then), so nothing is fetched or looked up in here.
 */
static void *sign_on(void *started) {
    unsigned char digest[32] = {1}, first[1024], next[1024];
    size_t length = sizeof first;
    EVP_PKEY *own = read_key(NULL, key_path);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(own, NULL);
    CHECK(ctx && EVP_PKEY_sign_init(ctx) == 1);
    CHECK(EVP_PKEY_sign(ctx, first, &length, digest, sizeof digest) == 1);
    pthread_barrier_wait(started);
    while (!atomic_load(&stop)) {
        size_t again = sizeof next;
        CHECK(EVP_PKEY_sign(ctx, next, &again, digest, sizeof digest) == 1);
        CHECK(again == length && memcmp(first, next, length) == 0);
    }
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(own);
    return NULL;
}

static int run(void *arg) {
    (void)arg;
    sign(NULL, key, 3);
    return 1;
}

static int woken(void *arg) {
    (void)arg;
    return 1;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *way = argv[1];
    key = read_key(NULL, key_path = argv[2]);
    count = atoi(argv[3]);
    alarm(50);

    if (strcmp(way, "before") == 0) {
        fork_signer();
        sign_all();
        wait_for_children(1);
    } else if (strcmp(way, "after") == 0) {
        sign_all();
        fork_signer();
        wait_for_children(1);
    } else if (strcmp(way, "nested") == 0) {
        sign_all();
        for (int generation = 0; generation < 3; generation++) {
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid > 0) {
                wait_for_children(1);
                break;
            }
            sign_all();
        }
    } else if (strcmp(way, "threads") == 0) {
        pthread_t threads[4];
        pthread_barrier_t started;
        CHECK(pthread_barrier_init(&started, NULL, 5) == 0);
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&threads[i], NULL, sign_on, &started) == 0);
        pthread_barrier_wait(&started);
        for (int i = 0; i < 8; i++) {
            usleep(20000);
            fork_signer();
        }
        wait_for_children(8);
        atomic_store(&stop, 1);
        for (int i = 0; i < 4; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    } else if (strcmp(way, "jobs") == 0 || strncmp(way, "resumed", 7) == 0) {
        enum { JOBS = 12 };
        ASYNC_JOB *jobs[JOBS] = {NULL};
        ASYNC_WAIT_CTX *waits[JOBS];
        int results[JOBS], left = JOBS;
        for (int i = 0; i < JOBS; i++) {
            CHECK(waits[i] = ASYNC_WAIT_CTX_new());
            if (strcmp(way, "resumed-callback") == 0)
                CHECK(ASYNC_WAIT_CTX_set_callback(waits[i], woken, NULL) == 1);
            /* A job whose answer comes before it could pause is over at once; on a busy machine
             * some are. */
            int state = ASYNC_start_job(&jobs[i], waits[i], &results[i], run, NULL, 0);
            CHECK(state == ASYNC_PAUSE || (state == ASYNC_FINISH && results[i] == 1));
            if (state == ASYNC_FINISH) {
                jobs[i] = NULL;
                left--;
            }
        }
        CHECK(left > 0);
        int resumed = strcmp(way, "jobs") != 0;
        pid_t pid = -1;
        if (resumed)
            CHECK((pid = fork()) >= 0);
        else
            fork_signer();
        while (left > 0)
            for (int i = 0; i < JOBS; i++)
                if (jobs[i] && ASYNC_start_job(&jobs[i], waits[i], &results[i], run, NULL, 0) == ASYNC_FINISH) {
                    CHECK(results[i] == 1);
                    jobs[i] = NULL;
                    left--;
                }
        if (!resumed)
            sign_all();
        if (pid != 0)
            wait_for_children(1);
    } else if (strcmp(way, "master") == 0) {
        CHECK(OSSL_PROVIDER_available(NULL, "lockstep"));
        for (int i = 0; i < 4; i++)
            fork_signer();
        wait_for_children(4);
    } else {
        CHECK(!"a way");
    }
    say();
    return 0;
}
