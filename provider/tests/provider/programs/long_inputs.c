/* Inputs whose size the caller chooses, in a process that has little address space left.
 * Usage: long_inputs ED25519.pem P256.pem P384.pem RSA.pem   messages and digests
 *        long_inputs query KEY.pem BYTES LEFT   a property query, with LEFT KiB of address space
 *        long_inputs key - PART LEFT            an RSA key with a part of 4 MiB
 * Prints what is the same with every implementation. */
#include "common.h"
#include <openssl/bn.h>
#include <openssl/param_build.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { HUGE_INPUT = 64 << 20, BOUND = 16 << 10 };

static unsigned char *input;

static void limit(unsigned long left) {
    unsigned long pages;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    struct rlimit most = {pages * 4096 + 1024 * left, pages * 4096 + 1024 * left};
    CHECK(setrlimit(RLIMIT_AS, &most) == 0);
}

static void print(const char *what, size_t size, const unsigned char *bytes, size_t length) {
    printf("%s of %zu: ", what, size);
    for (size_t at = 0; at < length; at++)
        printf("%02x", bytes[at]);
    printf("\n");
}

static void ed25519(EVP_PKEY *key, size_t size) {
    unsigned char signature[64];
    size_t length = sizeof signature;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, input, size) == 1);
    EVP_MD_CTX_free(ctx);
    print("ed25519", size, signature, length);
    for (int wrong = 0; wrong < 2; wrong++) {
        signature[40] ^= wrong;
        CHECK(ctx = EVP_MD_CTX_new());
        CHECK(EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key) == 1);
        printf("verified: %d\n", EVP_DigestVerify(ctx, signature, length, input, size) == 1);
        EVP_MD_CTX_free(ctx);
    }
}

/* Signs and verifies a "digest" of any length, of which only the first bytes count. */
static void ecdsa(EVP_PKEY *key, size_t size, size_t counts) {
    unsigned char signature[200];
    size_t length = sizeof signature;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_sign_init(ctx) == 1);
    int signed_it = EVP_PKEY_sign(ctx, signature, &length, input, size);
    printf("ecdsa of %zu: %d\n", size, signed_it);
    CHECK(EVP_PKEY_verify_init(ctx) == 1);
    for (int shorter = 0; shorter < 2 && signed_it == 1; shorter++) {
        size_t of = shorter && counts < size ? counts : size;
        printf("verified: %d\n", EVP_PKEY_verify(ctx, signature, length, input, of));
    }
    EVP_PKEY_CTX_free(ctx);
}

/* A property query that nothing meets, of any length; whether it fails at once or later. */
static void query(EVP_PKEY *key, size_t size, unsigned long left) {
    char *text = mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(text != MAP_FAILED);
    memset(text, 'a', size);
    memcpy(text, "?x=", 3);
    text[size] = 0;
    limit(left);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(ctx);
    int begins = EVP_DigestSignInit_ex(ctx, NULL, "SHA256", NULL, text, key, NULL) == 1;
    printf("query of %zu: %d\n", size, begins);
    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
}

/* A key whose parts are too long for any use. */
static void huge_key(int place, unsigned long left) {
    static const char *const NAMES[] = {OSSL_PKEY_PARAM_RSA_N,        OSSL_PKEY_PARAM_RSA_E,
                                        OSSL_PKEY_PARAM_RSA_D,        OSSL_PKEY_PARAM_RSA_FACTOR1,
                                        OSSL_PKEY_PARAM_RSA_FACTOR2,  OSSL_PKEY_PARAM_RSA_EXPONENT1,
                                        OSSL_PKEY_PARAM_RSA_EXPONENT2, OSSL_PKEY_PARAM_RSA_COEFFICIENT1};
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    EVP_PKEY *key = NULL;
    CHECK(build && ctx);
    for (int i = 0; i < 8; i++) {
        BIGNUM *part = BN_new();
        CHECK(part && BN_set_word(part, 65537));
        if (i == place)
            CHECK(BN_lshift(part, part, 8 * (4 << 20)) == 1);
        CHECK(OSSL_PARAM_BLD_push_BN(build, NAMES[i], part) == 1);
    }
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    CHECK(params);
    limit(left);
    int made = EVP_PKEY_fromdata_init(ctx) == 1 &&
               EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, params) == 1;
    int begins = 0;
    if (made) {
        EVP_MD_CTX *sign = EVP_MD_CTX_new();
        begins = EVP_DigestSignInit(sign, NULL, EVP_sha256(), NULL, key) == 1;
        EVP_MD_CTX_free(sign);
    }
    printf("key with a huge %s: %d %d\n", NAMES[place], made, begins);
    ERR_clear_error();
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    if (strcmp(argv[1], "query") == 0) {
        query(read_key(NULL, argv[2]), strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
    } else if (strcmp(argv[1], "key") == 0) {
        huge_key(atoi(argv[3]), strtoul(argv[4], NULL, 10));
    } else {
        EVP_PKEY *keys[4];
        for (int i = 0; i < 4; i++) {
            keys[i] = read_key(NULL, argv[i + 1]);
            sign(NULL, keys[i], i);
        }
        input = mmap(NULL, HUGE_INPUT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(input != MAP_FAILED);
        for (size_t at = 0; at < HUGE_INPUT; at += 997)
            input[at] = at;
        limit(24 << 10);
        static const size_t SIZES[] = {0, 1, BOUND - 1, BOUND, BOUND + 1, HUGE_INPUT};
        for (int i = 0; i < 6; i++)
            ed25519(keys[0], SIZES[i]);
        static const size_t DIGESTS[] = {1, 31, 32, 33, 47, 48, 49, 64, 4096, HUGE_INPUT};
        for (int i = 0; i < 10; i++) {
            ecdsa(keys[1], DIGESTS[i], 32);
            ecdsa(keys[2], DIGESTS[i], 48);
        }
    }
    fflush(stdout);
    _exit(0);
}
