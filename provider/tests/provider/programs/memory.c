/* Signs, and makes X25519 keys, in threads of the usual stack, in threads whose stacks are far
 * smaller than a kernel needs, and in async jobs; prints how many KiB of anonymous memory the
 * process has when all are gone. Usage: memory THREADS KEY.pem... */
#include "common.h"
#include <malloc.h>
#include <openssl/async.h>
#include <pthread.h>
#include <sys/prctl.h>

enum { MOST = 64, KEYS = 8 };

static EVP_PKEY *keys[KEYS];
static int key_count, threads;
static pthread_barrier_t all_there;

static void sign_with_all(int number) {
    for (int i = 0; i < key_count; i++)
        sign(NULL, keys[i], number);
    EVP_PKEY *fresh = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    CHECK(fresh);
    EVP_PKEY_free(fresh);
}

static void *work(void *number) {
    pthread_barrier_wait(&all_there);
    sign_with_all(*(int *)number);
    return NULL;
}

static void run_threads(size_t stack) {
    pthread_t started[MOST];
    int numbers[MOST];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    if (stack > 0)
        CHECK(pthread_attr_setstacksize(&attributes, stack) == 0);
    CHECK(pthread_barrier_init(&all_there, NULL, threads) == 0);
    for (int i = 0; i < threads; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&started[i], &attributes, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(started[i], NULL) == 0);
    pthread_barrier_destroy(&all_there);
}

static int job(void *arg) {
    (void)arg;
    sign_with_all(0);
    return 1;
}

static void run_jobs(void) {
    ASYNC_JOB *jobs[MOST] = {NULL};
    ASYNC_WAIT_CTX *waits[MOST];
    int results[MOST], done[MOST] = {0}, left = threads;
    for (int i = 0; i < threads; i++)
        CHECK(waits[i] = ASYNC_WAIT_CTX_new());
    while (left > 0)
        for (int i = 0; i < threads; i++)
            if (!done[i]) {
                int state = ASYNC_start_job(&jobs[i], waits[i], &results[i], job, NULL, 0);
                CHECK(state == ASYNC_PAUSE || (state == ASYNC_FINISH && results[i] == 1));
                left -= done[i] = state == ASYNC_FINISH;
            }
    for (int i = 0; i < threads; i++)
        ASYNC_WAIT_CTX_free(waits[i]);
    ASYNC_cleanup_thread();
}

static int anonymous_memory(void) {
    char line[256];
    int kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "Anonymous: %d kB", &kib);
    fclose(file);
    CHECK(kib > 0);
    return kib;
}

int main(int argc, char **argv) {
    CHECK(argc > 2 && argc - 2 <= KEYS);
    threads = atoi(argv[1]);
    CHECK(threads > 0 && threads <= MOST);
    alarm(50);
    /* A huge page for one byte says nothing of what is kept. */
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    for (key_count = 0; key_count < argc - 2; key_count++)
        keys[key_count] = read_key(NULL, argv[2 + key_count]);
    run_threads(0);
    run_threads(64 * 1024);
    run_jobs();
    malloc_trim(0);
    printf("%d\n", anonymous_memory());
    return 0;
}
