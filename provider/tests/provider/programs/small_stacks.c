/* Signs, and makes X25519 keys, in threads whose stacks are far smaller than a kernel needs.
 * Usage: small_stacks KEY.pem THREADS COUNT */
#include "common.h"
#include <pthread.h>

static EVP_PKEY *key;
static int count;

static void *work(void *number) {
    for (int i = 0; i < count; i++) {
        sign(NULL, key, *(int *)number + i);
        EVP_PKEY *fresh = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
        CHECK(fresh);
        EVP_PKEY_free(fresh);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    key = read_key(NULL, argv[1]);
    int threads = atoi(argv[2]);
    count = atoi(argv[3]);
    CHECK(threads > 0 && threads <= 64);
    pthread_t started[64];
    int numbers[64];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 64 * 1024) == 0);
    for (int i = 0; i < threads; i++) {
        numbers[i] = i * count;
        CHECK(pthread_create(&started[i], &attributes, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(started[i], NULL) == 0);
    return 0;
}
