/* Uses keys of the curves directly. Usage: curves agree KIND | curves sign KEY.pem | curves fork
 * KIND | curves change x25519, where KIND is x25519 or a curve
 *   agree  makes key pairs, agrees in both directions, with duplicated and reused operations, short
 *          buffers and parts of keys; 4 key pairs and 6 agreements
 *   sign signs and verifies with an operation that is begun again, duplicated and given odd
 *   buffers;
 *          4 signatures and 3 verifications
 *   change gives a peer, and then a key of its own, another public key while an operation uses it;
 *          3 key pairs and 3 agreements
 *   fork   makes key pairs in processes that fork in between, and prints the public ones */
#include "common.h"
#include <sys/wait.h>

static EVP_PKEY *make(const char *kind) {
    EVP_PKEY *key = strcmp(kind, "x25519") == 0 ? EVP_PKEY_Q_keygen(NULL, NULL, "X25519")
                                                 : EVP_PKEY_Q_keygen(NULL, NULL, "EC", kind);
    CHECK(key);
    return key;
}

static EVP_PKEY_CTX *exchange(EVP_PKEY *own, EVP_PKEY *peer) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);
    CHECK(ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, peer) == 1);
    return ctx;
}

static size_t derive(EVP_PKEY_CTX *ctx, unsigned char *secret) {
    size_t length = 0;
    CHECK(EVP_PKEY_derive(ctx, NULL, &length) == 1 && length >= 32 && length <= 48);
    CHECK(EVP_PKEY_derive(ctx, secret, &length) == 1);
    return length;
}

static void agree(const char *kind) {
    unsigned char one[64], other[64], shorter[64];
    EVP_PKEY *a = make(kind), *b = make(kind), *c = make(kind), *d = make(kind);
    EVP_PKEY_CTX *ab = exchange(a, b), *ba = exchange(b, a);
    size_t length = derive(ab, one);
    CHECK(derive(ba, other) == length && memcmp(one, other, length) == 0);
    /* A copy goes on with the same keys, after the original is gone. */
    EVP_PKEY_CTX *copy = EVP_PKEY_CTX_dup(ab);
    EVP_PKEY_CTX_free(ab);
    CHECK(copy && derive(copy, other) == length && memcmp(one, other, length) == 0);
    /* Another peer. */
    CHECK(EVP_PKEY_derive_set_peer(copy, c) == 1);
    CHECK(derive(copy, other) == length && memcmp(one, other, length) != 0);
    EVP_PKEY_CTX *ca = exchange(c, a);
    CHECK(derive(ca, one) == length && memcmp(one, other, length) == 0);
    /* A short buffer: an error for X25519, a part of the secret for ECDH. */
    size_t half = length / 2;
    memset(shorter, 0x55, sizeof shorter);
    int cut = EVP_PKEY_derive(ca, shorter, &half);
    if (strcmp(kind, "x25519") == 0)
        CHECK(cut <= 0 && shorter[0] == 0x55);
    else
        CHECK(cut == 1 && half == length / 2 && memcmp(one, shorter, half) == 0);
    CHECK(shorter[length / 2] == 0x55);
    /* A copy of a key. */
    EVP_PKEY *twin = EVP_PKEY_dup(d);
    CHECK(twin && EVP_PKEY_eq(twin, d) == 1);
    EVP_PKEY_free(d);
    if (strcmp(kind, "x25519") == 0) {
        EVP_PKEY_CTX *last = exchange(twin, a);
        derive(last, one);
        EVP_PKEY_CTX_free(last);
    }
    /* Without a peer there is nothing to derive. */
    EVP_PKEY_CTX *alone = EVP_PKEY_CTX_new_from_pkey(NULL, twin, NULL);
    CHECK(alone && EVP_PKEY_derive_init(alone) == 1);
    length = sizeof one;
    CHECK(EVP_PKEY_derive(alone, one, &length) <= 0);
    /* A public key derives nothing. */
    unsigned char *encoded = NULL;
    size_t size = EVP_PKEY_get1_encoded_public_key(a, &encoded);
    EVP_PKEY *public = EVP_PKEY_new();
    CHECK(size > 0 && public && EVP_PKEY_copy_parameters(public, b) == 1);
    if (strcmp(kind, "x25519") == 0) {
        EVP_PKEY_free(public);
        public = EVP_PKEY_new_raw_public_key_ex(NULL, "X25519", NULL, encoded, size);
        CHECK(public);
    } else {
        CHECK(EVP_PKEY_set1_encoded_public_key(public, encoded, size) == 1);
    }
    CHECK(EVP_PKEY_eq(public, a) == 1);
    EVP_PKEY_CTX *never = EVP_PKEY_CTX_new_from_pkey(NULL, public, NULL);
    length = sizeof one;
    CHECK(never);
    CHECK(EVP_PKEY_derive_init(never) <= 0 || EVP_PKEY_derive_set_peer(never, b) <= 0 ||
          EVP_PKEY_derive(never, one, &length) <= 0);
    EVP_PKEY_CTX_free(never);
    EVP_PKEY_CTX_free(alone);
    EVP_PKEY_CTX_free(ca);
    EVP_PKEY_CTX_free(ba);
    EVP_PKEY_CTX_free(copy);
    OPENSSL_free(encoded);
    EVP_PKEY_free(public);
    EVP_PKEY_free(twin);
    EVP_PKEY_free(c);
    EVP_PKEY_free(b);
    EVP_PKEY_free(a);
}

/* What counts is what a key holds when a secret is derived, and not what it held before. */
static void change(const char *kind) {
    unsigned char right[64], now[64], *encoded = NULL;
    EVP_PKEY *a = make(kind), *b = make(kind), *c = make(kind);
    EVP_PKEY_CTX *ac = exchange(a, c), *ab = exchange(a, b);
    size_t length = derive(ac, right), size = EVP_PKEY_get1_encoded_public_key(c, &encoded);
    CHECK(derive(ab, now) == length && memcmp(right, now, length) != 0);
    CHECK(EVP_PKEY_set1_encoded_public_key(b, encoded, size) == 1);
    CHECK(derive(ab, now) == length && memcmp(right, now, length) == 0);
    /* It loses its private key by that. */
    CHECK(EVP_PKEY_set1_encoded_public_key(a, encoded, size) == 1);
    CHECK(EVP_PKEY_derive(ab, now, &length) <= 0);
    OPENSSL_free(encoded);
    EVP_PKEY_CTX_free(ab);
    EVP_PKEY_CTX_free(ac);
    EVP_PKEY_free(c);
    EVP_PKEY_free(b);
    EVP_PKEY_free(a);
}

static void sign_with(const char *path) {
    unsigned char first[64], next[64];
    const unsigned char *message = (const unsigned char *)"message";
    size_t length = 0;
    EVP_PKEY *key = read_key(NULL, path);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new(), *copy = EVP_MD_CTX_new();
    CHECK(ctx && copy && EVP_DigestSignInit_ex(ctx, NULL, NULL, NULL, NULL, key, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, NULL, &length, message, 7) == 1 && length == sizeof first);
    length = 63;
    CHECK(EVP_DigestSign(ctx, next, &length, message, 7) <= 0);
    length = sizeof first;
    CHECK(EVP_DigestSignInit_ex(ctx, NULL, NULL, NULL, NULL, key, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, first, &length, message, 7) == 1 && length == sizeof first);
    /* Begun again without a key: the same one. */
    CHECK(EVP_DigestSignInit(ctx, NULL, NULL, NULL, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, next, &length, message, 7) == 1 && memcmp(first, next, 64) == 0);
    CHECK(EVP_DigestSignInit(ctx, NULL, NULL, NULL, NULL) == 1);
    CHECK(EVP_MD_CTX_copy_ex(copy, ctx) == 1);
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    CHECK(EVP_DigestSign(copy, next, &length, message, 7) == 1 && memcmp(first, next, 64) == 0);
    /* No message at all. */
    CHECK(EVP_DigestSignInit(copy, NULL, NULL, NULL, NULL) == 1);
    CHECK(EVP_DigestSign(copy, next, &length, NULL, 0) == 1 && memcmp(first, next, 64) != 0);
    EVP_MD_CTX_free(copy);
    key = read_key(NULL, path);
    CHECK(ctx = EVP_MD_CTX_new());
    CHECK(EVP_DigestVerifyInit_ex(ctx, NULL, NULL, NULL, NULL, key, NULL) == 1);
    CHECK(EVP_DigestVerify(ctx, first, 64, message, 7) == 1);
    CHECK(EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, NULL) == 1);
    CHECK(EVP_DigestVerify(ctx, next, 64, NULL, 0) == 1);
    CHECK(EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, NULL) == 1);
    CHECK(EVP_DigestVerify(ctx, next, 64, message, 7) != 1);
    CHECK(EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, NULL) == 1);
    CHECK(EVP_DigestVerify(ctx, first, 63, message, 7) != 1);
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
}

/* Prints public keys of new pairs, one in a line and each by one write. */
static void print_keys(const char *kind, int count) {
    for (int i = 0; i < count; i++) {
        unsigned char *encoded = NULL;
        char line[256];
        EVP_PKEY *key = make(kind);
        size_t size = EVP_PKEY_get1_encoded_public_key(key, &encoded);
        CHECK(size > 0 && 2 * size + 1 < sizeof line);
        for (size_t at = 0; at < size; at++)
            snprintf(line + 2 * at, 3, "%02x", encoded[at]);
        line[2 * size] = '\n';
        CHECK(write(1, line, 2 * size + 1) == (ssize_t)(2 * size + 1));
        OPENSSL_free(encoded);
        EVP_PKEY_free(key);
    }
}

static void fork_and_print(const char *kind, int generations) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return;
    if (generations > 1)
        fork_and_print(kind, generations - 1);
    print_keys(kind, 20);
    if (generations > 1)
        CHECK(wait(NULL) > 0);
    exit(0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    alarm(50);
    if (strcmp(argv[1], "agree") == 0) {
        agree(argv[2]);
    } else if (strcmp(argv[1], "change") == 0) {
        change(argv[2]);
    } else if (strcmp(argv[1], "sign") == 0) {
        sign_with(argv[2]);
    } else if (strcmp(argv[1], "fork") == 0) {
        /* The rest of the pool is there when the process forks. */
        print_keys(argv[2], 3);
        for (int i = 0; i < 4; i++)
            fork_and_print(argv[2], 2);
        print_keys(argv[2], 20);
        for (int i = 0; i < 4; i++) {
            int status = 0;
            CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
    } else {
        CHECK(!"a way");
    }
    return 0;
}
