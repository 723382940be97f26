/* Signs with keys and makes others, in a process and in a child that it forks then, and waits in
 * both until its standard input ends. The work is done on a stack that is unmapped afterwards: what
 * compilers leave on stacks is not looked for here. Prints the secrets of the keys that it made and
 * freed, as hex digits of bytes that are changed by MASK: printing must not leave the secrets
 * behind. Usage: key_memory KEY.pem... */
#include "common.h"
#include <openssl/crypto.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MASK = 0x5a, MADE = 6, EACH = 20 };

static void show(const char *what, unsigned char *secret, size_t length) {
    printf("%s ", what);
    for (size_t i = 0; i < length; i++)
        printf("%02x", secret[i] ^= MASK);
    printf("\n");
}

static EVP_PKEY *keys[8];
static int count;

static void *use(void *arg) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < EACH; j++)
            sign(NULL, keys[i], j);
    return arg;
}

static void on_own_stack(void *(*work)(void *), void *arg) {
    const size_t size = 1 << 20;
    pthread_attr_t attributes;
    pthread_t thread;
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED && pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, stack, size) == 0);
    CHECK(pthread_create(&thread, &attributes, work, arg) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(munmap(stack, size) == 0);
}

static void agree(EVP_PKEY *key) {
    unsigned char secret[64];
    size_t length = sizeof secret;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, key) == 1);
    CHECK(EVP_PKEY_derive(ctx, secret, &length) == 1);
    OPENSSL_cleanse(secret, sizeof secret);
    EVP_PKEY_CTX_free(ctx);
}

static void *make_and_free(void *arg) {
    for (int i = 0; i < MADE; i++) {
        unsigned char secret[32];
        size_t length = sizeof secret;
        EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
        CHECK(key);
        agree(key);
        CHECK(EVP_PKEY_get_raw_private_key(key, secret, &length) == 1);
        show("x25519", secret, length);
        EVP_PKEY_free(key);

        BIGNUM *number = NULL;
        key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
        CHECK(key);
        agree(key);
        CHECK(EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1);
        CHECK(BN_bn2binpad(number, secret, sizeof secret) == sizeof secret);
        show("p256", secret, sizeof secret);
        BN_clear_free(number);
        EVP_PKEY_free(key);
    }
    return arg;
}

static void *read_keys(void *arg) {
    char **paths = arg;
    for (int i = 0; i < count; i++)
        keys[i] = read_key(NULL, paths[i]);
    return NULL;
}

int main(int argc, char **argv) {
    count = argc - 1;
    CHECK(count > 0 && count <= 8);
    alarm(50);
    on_own_stack(read_keys, argv + 1);
    on_own_stack(use, NULL);
    on_own_stack(make_and_free, NULL);
    fflush(stdout);
    pid_t worker = fork();
    CHECK(worker >= 0);
    if (worker == 0) {
        alarm(50);
        on_own_stack(use, NULL);
        printf("worker %d\n", (int)getpid());
        fflush(stdout);
    }
    char end;
    CHECK(read(0, &end, 1) == 0);
    if (worker != 0)
        CHECK(wait(NULL) == worker);
    return 0;
}
