/* Signs in async jobs.
 * Usage: async WAY KEY.pem JOBS ROUNDS
 *   fd waits for the jobs' descriptors with poll callback waits for the jobs' callbacks spin
 *   resumes jobs again and again without waiting abandon starts jobs and frees their wait contexts;
 *   then signs without jobs, and expects the
 *                     descriptors to be closed
 *   abandon-callback  the same with callbacks
 *   exit              starts jobs and exits
 *   exit-callback     the same with callbacks */
#include "common.h"
#include <dirent.h>
#include <openssl/async.h>
#include <poll.h>
#include <stdatomic.h>

struct slot {
    ASYNC_JOB *job;
    ASYNC_WAIT_CTX *wait;
    atomic_int called;
    int rounds; /* left */
};

static int woken(void *arg) {
    atomic_store((atomic_int *)arg, 1);
    return 1;
}

/* Whether the job may be resumed. */
static int ready(struct slot *slot, int callbacks) {
    OSSL_ASYNC_FD fds[8];
    size_t count = 0;
    if (callbacks)
        return atomic_exchange(&slot->called, 0);
    CHECK(ASYNC_WAIT_CTX_get_all_fds(slot->wait, NULL, &count) == 1 && count == 1);
    CHECK(ASYNC_WAIT_CTX_get_all_fds(slot->wait, fds, &count) == 1);
    struct pollfd poll_fd = {.fd = fds[0], .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* How many eventfds are open. */
static int eventfds(void) {
    DIR *open = opendir("/proc/self/fd");
    CHECK(open);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(open));) {
        char what[32] = "";
        if (readlinkat(dirfd(open), entry->d_name, what, sizeof what - 1) > 0)
            count += strcmp(what, "anon_inode:[eventfd]") == 0;
    }
    closedir(open);
    return count;
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    const char *way = argv[1];
    int jobs = atoi(argv[3]), rounds = atoi(argv[4]);
    int callbacks = strstr(way, "callback") != NULL, spin = strcmp(way, "spin") == 0;
    EVP_PKEY *key = read_key(NULL, argv[2]);
    CHECK(ASYNC_init_thread(jobs, jobs) == 1);
    struct slot *slots = calloc(jobs, sizeof *slots);
    for (int i = 0; i < jobs; i++) {
        slots[i].rounds = rounds;
        CHECK(slots[i].wait = ASYNC_WAIT_CTX_new());
        if (callbacks)
            CHECK(ASYNC_WAIT_CTX_set_callback(slots[i].wait, woken, &slots[i].called) == 1);
    }
    int left = jobs, paused = 0;
    while (left > 0) {
        for (int i = 0; i < jobs; i++) {
            struct slot *slot = &slots[i];
            struct task task = {key, i};
            int result = 0;
            if (slot->rounds == 0 || (slot->job && !spin && !ready(slot, callbacks)))
                continue;
            switch (ASYNC_start_job(&slot->job, slot->wait, &result, sign_task, &task, sizeof task)) {
            case ASYNC_PAUSE:
                paused++;
                break;
            case ASYNC_FINISH:
                CHECK(result == 1);
                slot->job = NULL;
                if (--slot->rounds == 0)
                    left--;
                break;
            default:
                CHECK(!"a job");
            }
        }
        if (strncmp(way, "abandon", 7) == 0) {
            CHECK(paused > 0);
            /* Workers are still busy with these. The jobs themselves leak, as in libssl. */
            for (int i = 0; i < jobs; i++)
                ASYNC_WAIT_CTX_free(slots[i].wait);
            for (int i = 0; i < 4; i++)
                sign(NULL, key, i);
            /* No descriptor leaks, once the workers are done: for callbacks there is one in all. */
            for (int i = 0; i < 500 && eventfds() > callbacks; i++)
                usleep(10000);
            CHECK(eventfds() <= callbacks);
            break;
        }
        if (strncmp(way, "exit", 4) == 0)
            break;
    }
    if (strcmp(way, "fd") == 0)
        for (int i = 0; i < jobs; i++)
            ASYNC_WAIT_CTX_free(slots[i].wait);
    EVP_PKEY_free(key);
    printf("%d pauses\n", paused);
    return 0;
}
