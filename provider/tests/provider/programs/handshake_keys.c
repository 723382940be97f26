/* Derives the keys of a full TLS 1.3 handshake as a server's libssl does: the calls of TLS13-KDF
 * that `openssl s_server` made (3.0.19, no pre-shared key, two tickets), in their order.
 *
 * Usage: handshake_keys MODE [CONFIGURATION...]. All modes but the last two print what they derive,
 * and "derivations NUMBER" at the end.
 *
 *   sequence    some handshakes with either digest
 *   neighbours  expansions in all orders, of secrets that differ in the last byte only
 *   threads     two threads that derive the same keys in turns
 *   fork        a child goes on where its parent was
 *   dump        stops in the middle of a handshake, prints the secrets so far, changed by MASK, and
 *               waits until the standard input ends; none is left in the program's own memory
 *   speed       nanoseconds for a handshake with OpenSSL alone and with each configuration, in
 *               interleaved rounds: the least of them, and the ratio to OpenSSL alone */
#include "common.h"
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { MASK = 0x5a, LONGEST = 48 };
enum { EARLY, AGREED, HANDSHAKE, S_HS, C_HS, MASTER, S_AP, C_AP, RESUMPTION, KEY, SECRETS };

struct suite {
    const char *digest;
    int size, key;
};
static const struct suite suites[] = {{"SHA2-256", 32, 16}, {"SHA2-384", 48, 32}};

/* A length of zero is the digest's, one of -1 the key's. */
static const struct call {
    const char *label;
    int from, to, length, transcript;
} calls[] = {
    {"derived", -1, EARLY, 0, 0},
    {"derived", EARLY, HANDSHAKE, 0, 0},
    {"s hs traffic", HANDSHAKE, S_HS, 0, 1},
    {"key", S_HS, KEY, -1, 0},
    {"iv", S_HS, KEY, 12, 0},
    {"finished", S_HS, KEY, 0, 0},
    {"c hs traffic", HANDSHAKE, C_HS, 0, 1},
    {"key", C_HS, KEY, -1, 0},
    {"iv", C_HS, KEY, 12, 0},
    {"finished", C_HS, KEY, 0, 0},
    {"derived", HANDSHAKE, MASTER, 0, 0},
    {"s ap traffic", MASTER, S_AP, 0, 2},
    {"key", S_AP, KEY, -1, 0},
    {"iv", S_AP, KEY, 12, 0},
    {"exp master", MASTER, KEY, 0, 2},
    {"res master", MASTER, RESUMPTION, 0, 3},
    {"c ap traffic", MASTER, C_AP, 0, 2},
    {"key", C_AP, KEY, -1, 0},
    {"iv", C_AP, KEY, 12, 0},
    {"resumption", RESUMPTION, KEY, 0, -1},
    {"resumption", RESUMPTION, KEY, 0, -2},
};
enum { CALLS = sizeof calls / sizeof *calls };

struct handshake {
    OSSL_LIB_CTX *libctx;
    const struct suite *suite;
    unsigned char secrets[SECRETS][LONGEST];
    /* All that was derived, added up. */
    unsigned char sum[LONGEST];
};

static int derivations;

/* As libssl does it: a context for each derivation. */
static void derive(struct handshake *h, int mode, const unsigned char *key, int key_size,
                   const unsigned char *salt, const char *label, const unsigned char *data,
                   int data_size, unsigned char *out, int size) {
    EVP_KDF *kdf = EVP_KDF_fetch(h->libctx, "TLS13-KDF", NULL);
    EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
    OSSL_PARAM params[8], *p = params;
    EVP_KDF_free(kdf);
    *p++ = OSSL_PARAM_construct_int("mode", &mode);
    *p++ = OSSL_PARAM_construct_utf8_string("digest", (char *)h->suite->digest, 0);
    if (key)
        *p++ = OSSL_PARAM_construct_octet_string("key", (void *)key, key_size);
    if (salt)
        *p++ = OSSL_PARAM_construct_octet_string("salt", (void *)salt, h->suite->size);
    *p++ = OSSL_PARAM_construct_octet_string("prefix", "tls13 ", 6);
    *p++ = OSSL_PARAM_construct_octet_string("label", (void *)label, strlen(label));
    if (data)
        *p++ = OSSL_PARAM_construct_octet_string("data", (void *)data, data_size);
    *p = OSSL_PARAM_construct_end();
    CHECK(EVP_KDF_derive(ctx, out, size, params) == 1);
    EVP_KDF_CTX_free(ctx);
    for (int i = 0; i < size; i++)
        h->sum[i] = (unsigned char)(31 * h->sum[i] + out[i]);
}

static void expand(struct handshake *h, const unsigned char *secret, const char *label, int size,
                   unsigned char *out) {
    derive(h, EVP_KDF_HKDF_MODE_EXPAND_ONLY, secret, h->suite->size, NULL, label, NULL, 0, out, size);
}

/* Call number `i`. */
static void call(struct handshake *h, int i) {
    const struct call *c = &calls[i];
    const struct suite *suite = h->suite;
    unsigned char data[LONGEST];
    if (strcmp(c->label, "derived") == 0) {
        int agreed = c->to == HANDSHAKE;
        derive(h, EVP_KDF_HKDF_MODE_EXTRACT_ONLY, agreed ? h->secrets[AGREED] : NULL, 32,
               c->from < 0 ? NULL : h->secrets[c->from], c->label, NULL, 0, h->secrets[c->to],
               suite->size);
        return;
    }
    memset(data, c->transcript, sizeof data);
    derive(h, EVP_KDF_HKDF_MODE_EXPAND_ONLY, h->secrets[c->from], suite->size, NULL, c->label,
           c->transcript ? data : NULL, c->transcript < 0 ? 8 : suite->size, h->secrets[c->to],
           c->length > 0 ? c->length : c->length < 0 ? suite->key : suite->size);
}

static void begin(struct handshake *h, OSSL_LIB_CTX *libctx, const struct suite *suite, int number) {
    memset(h, 0, sizeof *h);
    h->libctx = libctx;
    h->suite = suite;
    for (int i = 0; i < 32; i++)
        h->secrets[AGREED][i] = (unsigned char)(number * 7 + i);
}

static void show(const char *what, const unsigned char *bytes, int size) {
    printf("%s ", what);
    for (int i = 0; i < size; i++)
        printf("%02x", bytes[i]);
    puts("");
}

static void sequence(void) {
    struct handshake h;
    for (int number = 0; number < 6; number++) {
        begin(&h, NULL, &suites[number % 2], number);
        for (int i = 0; i < CALLS; i++)
            call(&h, i);
        derivations += CALLS;
        show("sequence", h.sum, LONGEST);
    }
}

static void neighbours(void) {
    const char *labels[] = {"key", "iv", "finished", "traffic upd"};
    for (int d = 0; d < 2; d++) {
        struct handshake h;
        begin(&h, NULL, &suites[d], d);
        const int sizes[] = {suites[d].key, 12, suites[d].size, suites[d].size};
        unsigned char secret[2][LONGEST], out[LONGEST];
        memset(secret, 0x77, sizeof secret);
        secret[1][suites[d].size - 1] ^= 1;
        /* Every sequence of four expansions, each of one of two secrets. */
        for (int order = 0; order < 8 * 8 * 8 * 8; order++) {
            for (int rest = order, i = 0; i < 4; i++, rest /= 8) {
                expand(&h, secret[rest & 1], labels[rest / 2 % 4], sizes[rest / 2 % 4], out);
                derivations++;
            }
            if (order % 64 == 63)
                show("neighbours", h.sum, LONGEST);
        }
    }
}

static pthread_barrier_t turn;

static void *in_turns(void *arg) {
    struct handshake *h = arg;
    for (int i = 0; i < CALLS; i++) {
        pthread_barrier_wait(&turn);
        call(h, i);
    }
    return NULL;
}

static void threads(void) {
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0);
    for (int number = 0; number < 20; number++) {
        struct handshake h[2];
        pthread_t thread[2];
        for (int i = 0; i < 2; i++) {
            begin(&h[i], NULL, &suites[number % 2], number);
            CHECK(pthread_create(&thread[i], NULL, in_turns, &h[i]) == 0);
        }
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_join(thread[i], NULL) == 0);
            show("threads", h[i].sum, LONGEST);
        }
        derivations += 2 * CALLS;
    }
}

/* At every call. */
static void forked(void) {
    struct handshake h;
    for (int d = 0; d < 2; d++)
        for (int at = 1; at < CALLS; at++) {
            begin(&h, NULL, &suites[d], at);
            for (int i = 0; i < at; i++)
                call(&h, i);
            fflush(stdout);
            pid_t child = fork();
            CHECK(child >= 0);
            for (int i = at; i < CALLS; i++)
                call(&h, i);
            if (child == 0) {
                show("child", h.sum, LONGEST);
                fflush(stdout);
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            show("parent", h.sum, LONGEST);
            derivations += CALLS;
        }
}

/* The thread stays, with what it keeps. */
static void *half(void *arg) {
    static const char *const names[] = {"handshake", "s hs", "c hs", "master", "s ap", "c ap"};
    static const int places[] = {HANDSHAKE, S_HS, C_HS, MASTER, S_AP, C_AP};
    struct handshake *h = arg;
    char end;
    /* As far as most is still to come of what was derived last. */
    for (int i = 0; calls[i].from != C_AP || calls[i].length < 0; i++)
        call(h, i);
    for (int i = 0; i < SECRETS; i++)
        for (int j = 0; j < LONGEST; j++)
            h->secrets[i][j] ^= MASK;
    for (int i = 0; i < 6; i++)
        show(names[i], h->secrets[places[i]], LONGEST);
    puts("ready");
    fflush(stdout);
    CHECK(read(0, &end, 1) == 0);
    return NULL;
}

/* On a stack that no core dump has: what compilers leave there is not looked for. */
static void dump(void) {
    const size_t size = 1 << 20;
    static struct handshake h;
    pthread_attr_t attributes;
    pthread_t thread;
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED && madvise(stack, size, MADV_DONTDUMP) == 0);
    begin(&h, NULL, &suites[1], getpid());
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, stack, size) == 0);
    CHECK(pthread_create(&thread, &attributes, half, &h) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void speed(char **configurations, int count) {
    enum { MOST = 8, EACH = 300, ROUNDS = 60 };
    OSSL_LIB_CTX *side[MOST];
    CHECK(count < MOST);
    for (int s = 0; s <= count; s++) {
        CHECK(side[s] = OSSL_LIB_CTX_new());
        CHECK(s == 0 || OSSL_LIB_CTX_load_config(side[s], configurations[s - 1]) == 1);
    }
    for (int d = 0; d < 2; d++) {
        double least[MOST];
        unsigned char sum[MOST][LONGEST];
        for (int round = 0; round < ROUNDS; round++)
            for (int s = 0; s <= count; s++) {
                struct handshake h;
                begin(&h, side[s], &suites[d], round);
                double start = now();
                for (int n = 0; n < EACH; n++)
                    for (int i = 0; i < CALLS; i++)
                        call(&h, i);
                double time = (now() - start) / EACH;
                least[s] = round == 0 || time < least[s] ? time : least[s];
                memcpy(sum[s], h.sum, LONGEST);
                CHECK(memcmp(sum[s], sum[0], LONGEST) == 0);
            }
        for (int s = 0; s <= count; s++)
            printf("%s %7.0f ns %.3f %s\n", suites[d].digest, least[s], least[s] / least[0],
                   s ? configurations[s - 1] : "OpenSSL alone");
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "speed") == 0) {
        speed(argv + 2, argc - 2);
        return 0;
    }
    if (strcmp(mode, "dump") == 0) {
        dump();
        return 0;
    }
    if (strcmp(mode, "sequence") == 0)
        sequence();
    else if (strcmp(mode, "neighbours") == 0)
        neighbours();
    else if (strcmp(mode, "threads") == 0)
        threads();
    else if (strcmp(mode, "fork") == 0)
        forked();
    else
        CHECK(!"a known mode");
    printf("derivations %d\n", derivations);
    return 0;
}
