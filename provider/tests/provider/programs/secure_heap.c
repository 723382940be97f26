/* How many copies of private keys lie in the ordinary heap of a program that has a secure heap.
 *
 * Usage: secure_heap before|after KEY.pem...    (the secure heap is made before or after OpenSSL
 *                                                reads its configuration)
 *
 * Prints a line for each key that is generated, or read and used: what was done, and a count. */
#define _GNU_SOURCE
#include "common.h"
#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/mman.h>

enum { MASK = 0x5a, MOST = 32 };

/* The first bytes of a secret, changed so that the search does not find them here. */
static unsigned char wanted[MOST];

static void want(const unsigned char *bytes) {
    for (int i = 0; i < MOST; i++)
        wanted[i] = bytes[i] ^ MASK;
}

static int is_wanted(const unsigned char *at) {
    for (int i = 0; i < MOST; i++)
        if ((at[i] ^ MASK) != wanted[i])
            return 0;
    return 1;
}

static int in_heap(void) {
    char line[512];
    int found = 0, memory = open("/proc/self/mem", O_RDONLY);
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(memory >= 0 && maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (!strstr(line, "[heap]") || sscanf(line, "%lx-%lx", &start, &end) != 2)
            continue;
        size_t size = end - start;
        unsigned char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(copy != MAP_FAILED);
        ssize_t count = pread(memory, copy, size, start);
        for (ssize_t i = 0; i + MOST <= count; i++)
            found += is_wanted(copy + i);
        munmap(copy, size);
    }
    fclose(maps);
    close(memory);
    return found;
}

static void want_number(EVP_PKEY *key, const char *name) {
    BIGNUM *number = BN_secure_new();
    unsigned char *bytes = OPENSSL_secure_malloc(1024);
    CHECK(number && bytes && EVP_PKEY_get_bn_param(key, name, &number) == 1);
    CHECK(BN_bn2lebinpad(number, bytes, 512) == 512);
    want(bytes);
    OPENSSL_secure_clear_free(bytes, 1024);
    BN_clear_free(number);
}

static void want_octets(EVP_PKEY *key) {
    unsigned char *bytes = OPENSSL_secure_malloc(64);
    size_t length = 64;
    CHECK(bytes && EVP_PKEY_get_raw_private_key(key, bytes, &length) == 1 && length == MOST);
    want(bytes);
    OPENSSL_secure_clear_free(bytes, 64);
}

static void want_part(EVP_PKEY *key, const char *name) {
    if (EVP_PKEY_is_a(key, "RSA") || EVP_PKEY_is_a(key, "EC"))
        want_number(key, name);
    else
        want_octets(key);
}

static EVP_PKEY *made(const char *name, const char *group) {
    return group ? EVP_PKEY_Q_keygen(NULL, NULL, name, group) : EVP_PKEY_Q_keygen(NULL, NULL, name);
}

static void generate(const char *name, const char *group) {
    /* The pool of the lanes gives the next ones. */
    EVP_PKEY *first = made(name, group), *key = made(name, group);
    CHECK(first && key);
    want_part(key, "priv");
    printf("made %s %d\n", group ? group : name, in_heap());
    EVP_PKEY_free(first);
    EVP_PKEY_free(key);
}

static void use(EVP_PKEY *key) {
    unsigned char out[1024];
    size_t length = sizeof out;
    if (!EVP_PKEY_is_a(key, "X25519")) {
        sign(NULL, key, 0);
        return;
    }
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, key) == 1);
    CHECK(EVP_PKEY_derive(ctx, out, &length) == 1);
    EVP_PKEY_CTX_free(ctx);
}

static void read_and_use(const char *file, const char *part) {
    EVP_PKEY *another = read_key(NULL, file);
    want_part(another, part);
    EVP_PKEY_free(another);
    EVP_PKEY *key = read_key(NULL, file);
    use(key);
    printf("used %s %s %d\n", file, part, in_heap());
    EVP_PKEY_free(key);
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    int is_before = strcmp(argv[1], "before") == 0;
    if (is_before)
        CHECK(CRYPTO_secure_malloc_init(1 << 20, 16) == 1);
    CHECK(OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    if (!is_before)
        CHECK(CRYPTO_secure_malloc_init(1 << 20, 16) == 1);
    generate("EC", "P-256");
    generate("EC", "P-384");
    generate("X25519", NULL);
    generate("ED25519", NULL);
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], "rsa", 3) == 0) {
            static const char *const parts[] = {"d", "rsa-factor1", "rsa-factor2", "rsa-exponent1"};
            for (int j = 0; j < 4; j++)
                read_and_use(argv[i], parts[j]);
        } else {
            read_and_use(argv[i], "priv");
        }
    }
    return 0;
}
