/* Signs or decrypts a few times with a key, or with many threads and jobs at once.
 * Usage: first sign KEY.pem COUNT      signs so often
 *        first decrypt KEY.pem COUNT   decrypts so often, with OAEP
 *        first copies KEY.pem COUNT    signs so often with each of: the key, a duplicate, the key
 *                                      read again
 *        first fork KEY.pem COUNT IN   the parent signs so often, then a child IN times
 *        first jobs KEY.pem COUNT      starts so many jobs, each of which signs
 *        first crowd KEY.pem COUNT     eight threads, with a job that is paused beside each thread,
 *                                      sign and decrypt with a fresh key, so often anew
 * Every signature is verified, every message compared. */
#include "common.h"
#include <openssl/async.h>
#include <pthread.h>
#include <sys/wait.h>

#define THREADS 8

static void decrypt(EVP_PKEY *key) {
    unsigned char sealed[1024], opened[1024], message[16] = "attack at dawn";
    size_t length = sizeof sealed, opened_length = sizeof opened;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(ctx && EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &length, message, sizeof message) == 1);
    CHECK(EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_decrypt(ctx, opened, &opened_length, sealed, length) == 1);
    CHECK(opened_length == sizeof message && memcmp(opened, message, sizeof message) == 0);
    EVP_PKEY_CTX_free(ctx);
}

static void signs(EVP_PKEY *key, int count) {
    for (int i = 0; i < count; i++)
        sign(NULL, key, i);
}

/* Starts so many jobs that sign, and resumes them until all have ended. */
static void jobs(EVP_PKEY *key, int count) {
    ASYNC_JOB *job[64] = {NULL};
    ASYNC_WAIT_CTX *wait[64];
    int left = count, ended[64] = {0};
    CHECK(count <= 64);
    for (int i = 0; i < count; i++)
        CHECK(wait[i] = ASYNC_WAIT_CTX_new());
    while (left)
        for (int i = 0; i < count; i++) {
            struct task task = {key, i};
            int result = 0;
            if (ended[i])
                continue;
            switch (ASYNC_start_job(&job[i], wait[i], &result, sign_task, &task, sizeof task)) {
            case ASYNC_PAUSE:
                break;
            case ASYNC_FINISH:
                CHECK(result == 1);
                ended[i] = 1;
                left--;
                break;
            default:
                CHECK(!"a job");
            }
        }
    for (int i = 0; i < count; i++)
        ASYNC_WAIT_CTX_free(wait[i]);
}

static pthread_barrier_t together;
static EVP_PKEY *shared;

static void *work(void *number) {
    int own = *(int *)number;
    pthread_barrier_wait(&together);
    for (int i = 0; i < 3; i++)
        switch ((own + i) % 3) {
        case 0:
            sign(NULL, shared, own);
            break;
        case 1:
            decrypt(shared);
            break;
        default:
            jobs(shared, 4);
        }
    return NULL;
}

static void crowd(const char *path) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    shared = read_key(NULL, path);
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    EVP_PKEY_free(shared);
}

int main(int argc, char **argv) {
    CHECK(argc >= 4);
    alarm(50);
    const char *way = argv[1];
    int count = atoi(argv[3]);
    if (strcmp(way, "crowd") == 0) {
        for (int i = 0; i < count; i++)
            crowd(argv[2]);
        return 0;
    }
    EVP_PKEY *key = read_key(NULL, argv[2]);
    if (strcmp(way, "sign") == 0)
        signs(key, count);
    else if (strcmp(way, "jobs") == 0)
        jobs(key, count);
    else if (strcmp(way, "decrypt") == 0)
        for (int i = 0; i < count; i++)
            decrypt(key);
    else if (strcmp(way, "copies") == 0) {
        EVP_PKEY *copy = EVP_PKEY_dup(key), *again = read_key(NULL, argv[2]);
        CHECK(copy && again);
        signs(key, count);
        signs(copy, count);
        signs(again, count);
        EVP_PKEY_free(copy);
        EVP_PKEY_free(again);
    } else if (strcmp(way, "fork") == 0) {
        CHECK(argc == 5);
        signs(key, count);
        pid_t child = fork();
        if (child == 0) {
            signs(key, atoi(argv[4]));
            EVP_PKEY_free(key);
            return 0;
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        printf("%d\n", (int)child);
    } else
        CHECK(!"a way");
    EVP_PKEY_free(key);
    return 0;
}
