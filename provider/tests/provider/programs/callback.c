/* Wait contexts with callbacks that end before, or while, the callback is called. The argument of
 * each lies on a page of its own, which is unmapped with the context: a call with it afterwards
 * ends the program. Usage: callback WHEN KEY.pem JOBS
 *   late    frees all contexts while workers compute
 *   during  frees a context while its callback runs in another thread
 *   inside  the callback frees its own context */
#include "common.h"
#include <openssl/async.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

struct argument {
    ASYNC_WAIT_CTX *wait;
    atomic_int *calls; /* of all */
    atomic_int state; /* of the job, once it is known */
    atomic_int ended;
    int during, inside;
};

static void end(struct argument *argument) {
    ASYNC_WAIT_CTX_free(argument->wait);
    CHECK(munmap(argument, PAGE) == 0);
}

static int woken(void *arg) {
    struct argument *argument = arg;
    atomic_fetch_add(argument->calls, 1);
    if (argument->during) {
        usleep(50000);
        atomic_store(&argument->ended, 1);
    }
    if (argument->inside) {
        while (atomic_load(&argument->state) == 0)
            usleep(100);
        if (atomic_load(&argument->state) == ASYNC_PAUSE)
            end(argument);
    }
    return 1;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *when = argv[1];
    int jobs = atoi(argv[3]), during = strcmp(when, "during") == 0, inside = strcmp(when, "inside") == 0;
    EVP_PKEY *key = read_key(NULL, argv[2]);
    struct argument **arguments = calloc(jobs, sizeof *arguments);
    static atomic_int calls;
    int paused = 0;
    CHECK(ASYNC_init_thread(jobs, jobs) == 1);
    for (int i = 0; i < jobs; i++) {
        struct argument *argument =
            mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(argument != MAP_FAILED);
        *argument = (struct argument){.calls = &calls, .during = during, .inside = inside};
        ASYNC_WAIT_CTX *wait = ASYNC_WAIT_CTX_new();
        CHECK((argument->wait = wait));
        CHECK(ASYNC_WAIT_CTX_set_callback(wait, woken, argument) == 1);
        struct task task = {key, i};
        int result = 0;
        ASYNC_JOB *job = NULL;
        int state = ASYNC_start_job(&job, wait, &result, sign_task, &task, sizeof task);
        CHECK(state == ASYNC_PAUSE || state == ASYNC_FINISH);
        paused += state == ASYNC_PAUSE;
        arguments[i] = state == ASYNC_PAUSE ? argument : NULL;
        /* From here on the callback may free what it was given. */
        atomic_store(&argument->state, state);
    }
    if (during)
        while (atomic_load(&calls) == 0)
            usleep(100);
    if (inside)
        for (int i = 0; i < 10000 && atomic_load(&calls) < jobs; i++)
            usleep(1000);
    else
        for (int i = 0; i < jobs; i++)
            if (arguments[i])
                end(arguments[i]);
    /* The workers come to their end with all that they have. */
    for (int i = 0; i < 4; i++)
        sign(NULL, key, i);
    usleep(100000);
    EVP_PKEY_free(key);
    printf("%d pauses, %d calls\n", paused, atomic_load(&calls));
    return 0;
}
