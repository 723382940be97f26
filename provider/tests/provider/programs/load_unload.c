/* Threads that each load the module into a library context of their own, sign, and take all of it
 * down again, so that the last instance of the provider goes while another one comes.
 * Usage: load_unload THREADS ROUNDS KEY.pem DIRECTORY (where lockstep.so is). Prints how many
 * signatures it made. */
#include "common.h"
#include <pthread.h>

static const char *key_path, *directory;
static int rounds;

static void *thread(void *argument) {
    (void)argument;
    for (int round = 0; round < rounds; round++) {
        OSSL_LIB_CTX *libctx = OSSL_LIB_CTX_new();
        CHECK(libctx && OSSL_PROVIDER_set_default_search_path(libctx, directory) == 1);
        OSSL_PROVIDER *stock = OSSL_PROVIDER_load(libctx, "default");
        OSSL_PROVIDER *lockstep = OSSL_PROVIDER_load(libctx, "lockstep");
        CHECK(stock && lockstep);
        EVP_PKEY *key = read_key(libctx, key_path);
        unsigned char digest[32] = {1}, signature[1024];
        for (int i = 0; i < 2; i++) {
            size_t length = sizeof signature;
            EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(libctx, key, "provider=lockstep");
            CHECK(ctx && EVP_PKEY_sign_init(ctx) == 1);
            CHECK(EVP_PKEY_sign(ctx, signature, &length, digest, sizeof digest) == 1);
            EVP_PKEY_CTX_free(ctx);
        }
        EVP_PKEY_free(key);
        CHECK(OSSL_PROVIDER_unload(lockstep) == 1);
        CHECK(OSSL_PROVIDER_unload(stock) == 1);
        OSSL_LIB_CTX_free(libctx);
    }
    return NULL;
}

int main(int argc, char **argv) {
    enum { MOST = 64 };
    pthread_t threads[MOST];
    CHECK(argc == 5);
    int count = atoi(argv[1]);
    CHECK(count > 0 && count <= MOST);
    rounds = atoi(argv[2]);
    key_path = argv[3];
    directory = argv[4];
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("%d\n", 2 * count * rounds);
    return 0;
}
