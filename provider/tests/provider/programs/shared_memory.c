/* Objects of OpenSSL that one process makes, others use, and another one frees, as Kamailio's
 * workers do with connections.
 *
 * Usage: shared_memory shared WORKERS ROUNDS KEY.pem CERTIFICATE.pem ...
 *        shared_memory private 1 ROUNDS KEY.pem CERTIFICATE.pem ...
 *
 * OpenSSL's memory is an arena that all processes share, or the process's own by functions that the
 * program gives OpenSSL all the same. Worker processes do what they are told, one at a time: each
 * step of an object's life is done by one that is chosen by lot. Prints how many objects lived, or
 * what went wrong. */
#define _GNU_SOURCE
#include "common.h"
#include <openssl/kdf.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* ---- memory ---- */

enum { ARENA = 512 << 20, CLASSES = 32, HEAD = 16, ALIVE = 24, MOST_WORKERS = 8, PAIRS = 8 };

struct arena {
    pthread_mutex_t lock;
    size_t used;
    void *unused[CLASSES];
};
static struct arena *arena;

static int class_of(size_t size) {
    int class = 4;
    while (((size_t)1 << class) < size + HEAD)
        class++;
    return class;
}

static void *arena_malloc(size_t size, const char *file, int line) {
    (void)file, (void)line;
    int class = class_of(size);
    pthread_mutex_lock(&arena->lock);
    char *block = arena->unused[class];
    if (block) {
        arena->unused[class] = *(void **)(block + HEAD);
    } else if (arena->used + ((size_t)1 << class) <= ARENA) {
        block = (char *)arena + arena->used;
        arena->used += (size_t)1 << class;
        *(size_t *)block = class;
    }
    pthread_mutex_unlock(&arena->lock);
    return block ? block + HEAD : NULL;
}

static void arena_free(void *memory, const char *file, int line) {
    (void)file, (void)line;
    if (!memory)
        return;
    char *block = (char *)memory - HEAD;
    size_t class = *(size_t *)block;
    /* As the malloc of a library would: what was given by another one. */
    if (block < (char *)arena || block >= (char *)arena + ARENA || class >= CLASSES)
        abort();
    pthread_mutex_lock(&arena->lock);
    *(void **)memory = arena->unused[class];
    arena->unused[class] = block;
    pthread_mutex_unlock(&arena->lock);
}

static void *arena_realloc(void *memory, size_t size, const char *file, int line) {
    if (!memory)
        return arena_malloc(size, file, line);
    size_t class = *(size_t *)((char *)memory - HEAD), room = ((size_t)1 << class) - HEAD;
    if (size <= room)
        return memory;
    void *moved = arena_malloc(size, file, line);
    if (moved) {
        memcpy(moved, memory, room);
        arena_free(memory, file, line);
    }
    return moved;
}

static void *own_malloc(size_t size, const char *file, int line) {
    (void)file, (void)line;
    return malloc(size);
}

static void *own_realloc(void *memory, size_t size, const char *file, int line) {
    (void)file, (void)line;
    return realloc(memory, size);
}

static void own_free(void *memory, const char *file, int line) {
    (void)file, (void)line;
    free(memory);
}

/* ---- objects ---- */

/* An object's life, in memory that all processes share. */
struct object {
    int kind, step, number;
    EVP_PKEY *key, *peer;
    EVP_PKEY_CTX *ctx;
    EVP_MD_CTX *md;
    EVP_CIPHER_CTX *cipher;
    EVP_KDF_CTX *kdf;
    SSL *server, *client;
    unsigned char bytes[2048], secret[64];
    size_t length, count;
};

static struct object *objects;
static EVP_PKEY *keys[PAIRS];
static SSL_CTX *servers[PAIRS], *client_ctx[2];
static int pairs;

/* A step fails: says where, without ending the process, whose parent asks for the reason. */
#define EXPECT(condition)                                                                  \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                \
            ERR_print_errors_fp(stderr);                                                   \
            return -1;                                                                     \
        }                                                                                  \
    } while (0)

static const char *digest_for(EVP_PKEY *key) {
    return EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
}

/* A key that is duplicated, signs and verifies. Returns 1 when its life is over. */
static int step_key(struct object *o) {
    switch (o->step) {
    case 0:
        EXPECT(o->key = EVP_PKEY_dup(keys[o->number % pairs]));
        return 0;
    case 1:
    case 2:
    case 3:
        EXPECT(o->md = EVP_MD_CTX_new());
        o->length = sizeof o->bytes;
        EXPECT(EVP_DigestSignInit_ex(o->md, NULL, digest_for(o->key), NULL, NULL, o->key, NULL) == 1);
        EXPECT(EVP_DigestSign(o->md, o->bytes, &o->length, (unsigned char *)&o->number, 4) == 1);
        EVP_MD_CTX_free(o->md);
        EXPECT(o->md = EVP_MD_CTX_new());
        EXPECT(EVP_DigestVerifyInit_ex(o->md, NULL, digest_for(o->key), NULL, NULL, o->key, NULL) == 1);
        EXPECT(EVP_DigestVerify(o->md, o->bytes, o->length, (unsigned char *)&o->number, 4) == 1);
        EVP_MD_CTX_free(o->md);
        return 0;
    default:
        EVP_PKEY_free(o->key);
        return 1;
    }
}

/* A signature that one process begins, and another one makes. */
static int step_md(struct object *o) {
    EVP_PKEY *key = keys[o->number % pairs];
    switch (o->step) {
    case 0:
        EXPECT(o->md = EVP_MD_CTX_new());
        EXPECT(EVP_DigestSignInit_ex(o->md, NULL, digest_for(key), NULL, NULL, key, NULL) == 1);
        return 0;
    case 1:
        o->length = sizeof o->bytes;
        EXPECT(EVP_DigestSign(o->md, o->bytes, &o->length, (unsigned char *)&o->number, 4) == 1);
        return 0;
    case 2:
        EVP_MD_CTX_free(o->md);
        EXPECT(o->md = EVP_MD_CTX_new());
        EXPECT(EVP_DigestVerifyInit_ex(o->md, NULL, digest_for(key), NULL, NULL, key, NULL) == 1);
        return 0;
    case 3:
        EXPECT(EVP_DigestVerify(o->md, o->bytes, o->length, (unsigned char *)&o->number, 4) == 1);
        return 0;
    default:
        EVP_MD_CTX_free(o->md);
        return 1;
    }
}

/* The same with the context of a key: digests are signed. */
static int step_pkey(struct object *o) {
    EVP_PKEY *key = keys[o->number % pairs];
    unsigned char digest[32] = {o->number};
    if (EVP_PKEY_is_a(key, "ED25519"))
        return 1;
    switch (o->step) {
    case 0:
        EXPECT(o->ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL));
        EXPECT(EVP_PKEY_sign_init(o->ctx) == 1);
        return 0;
    case 1:
        o->length = sizeof o->bytes;
        EXPECT(EVP_PKEY_sign(o->ctx, o->bytes, &o->length, digest, sizeof digest) == 1);
        return 0;
    case 2:
        EXPECT(EVP_PKEY_verify_init(o->ctx) == 1);
        EXPECT(EVP_PKEY_verify(o->ctx, o->bytes, o->length, digest, sizeof digest) == 1);
        return 0;
    default:
        EVP_PKEY_CTX_free(o->ctx);
        return 1;
    }
}

static EVP_PKEY *fresh(const char *name) {
    int is_nist = strncmp(name, "P-", 2) == 0;
    EVP_PKEY *made = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, is_nist ? "EC" : name, NULL);
    if (ctx && EVP_PKEY_keygen_init(ctx) == 1 &&
        (!is_nist || EVP_PKEY_CTX_set_group_name(ctx, name) == 1))
        EVP_PKEY_generate(ctx, &made);
    EVP_PKEY_CTX_free(ctx);
    return made;
}

/* An agreement of two new keys. */
static int step_exchange(struct object *o) {
    static const char *const names[] = {"X25519", "P-256", "P-384"};
    const char *name = names[o->number % 3];
    switch (o->step) {
    case 0:
        EXPECT(o->key = fresh(name));
        return 0;
    case 1:
        EXPECT(o->peer = fresh(name));
        EXPECT(o->ctx = EVP_PKEY_CTX_new_from_pkey(NULL, o->key, NULL));
        EXPECT(EVP_PKEY_derive_init(o->ctx) == 1);
        return 0;
    case 2:
        EXPECT(EVP_PKEY_derive_set_peer(o->ctx, o->peer) == 1);
        return 0;
    case 3:
        o->count = sizeof o->secret;
        EXPECT(EVP_PKEY_derive(o->ctx, o->secret, &o->count) == 1);
        EVP_PKEY_CTX_free(o->ctx);
        EXPECT(o->ctx = EVP_PKEY_CTX_new_from_pkey(NULL, o->peer, NULL));
        EXPECT(EVP_PKEY_derive_init(o->ctx) == 1);
        EXPECT(EVP_PKEY_derive_set_peer(o->ctx, o->key) == 1);
        return 0;
    case 4:
        o->length = sizeof o->bytes;
        EXPECT(EVP_PKEY_derive(o->ctx, o->bytes, &o->length) == 1);
        EXPECT(o->length == o->count && memcmp(o->bytes, o->secret, o->count) == 0);
        return 0;
    default:
        EVP_PKEY_CTX_free(o->ctx);
        EVP_PKEY_free(o->key);
        EVP_PKEY_free(o->peer);
        return 1;
    }
}

/* An encapsulated secret, if there is such an algorithm. */
static int step_kem(struct object *o) {
    static const char *const names[] = {"ML-KEM-768", "X25519MLKEM768", "SecP256r1MLKEM768"};
    const char *name = names[o->number % 3];
    switch (o->step) {
    case 0: {
        EVP_KEM *kem = EVP_KEM_fetch(NULL, name, NULL);
        EVP_KEM_free(kem);
        if (!kem) {
            ERR_clear_error();
            return 1;
        }
        EXPECT(o->key = fresh(name));
        return 0;
    }
    case 1:
        EXPECT(o->ctx = EVP_PKEY_CTX_new_from_pkey(NULL, o->key, NULL));
        EXPECT(EVP_PKEY_encapsulate_init(o->ctx, NULL) == 1);
        return 0;
    case 2:
        o->length = sizeof o->bytes, o->count = sizeof o->secret;
        EXPECT(EVP_PKEY_encapsulate(o->ctx, o->bytes, &o->length, o->secret, &o->count) == 1);
        return 0;
    case 3:
        EXPECT(EVP_PKEY_decapsulate_init(o->ctx, NULL) == 1);
        return 0;
    case 4: {
        unsigned char received[64];
        size_t count = sizeof received;
        EXPECT(EVP_PKEY_decapsulate(o->ctx, received, &count, o->bytes, o->length) == 1);
        EXPECT(count == o->count && memcmp(received, o->secret, count) == 0);
        return 0;
    }
    default:
        EVP_PKEY_CTX_free(o->ctx);
        EVP_PKEY_free(o->key);
        return 1;
    }
}

/* A message of AES-GCM that one process begins, and others go on with. */
static int step_cipher(struct object *o) {
    static const char *const names[] = {"AES-128-GCM", "AES-256-GCM"};
    unsigned char key[32], iv[12] = {o->number}, text[48];
    int length, is_sealed = o->step < 4;
    memset(key, o->number, sizeof key);
    memset(text, 3 * o->number, sizeof text);
    switch (o->step) {
    case 0:
    case 4: {
        EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, names[o->number % 2], NULL);
        EXPECT(cipher);
        if (is_sealed)
            EXPECT(o->cipher = EVP_CIPHER_CTX_new());
        EXPECT(EVP_CipherInit_ex2(o->cipher, cipher, key, iv, is_sealed, NULL) == 1);
        EVP_CIPHER_free(cipher);
        return 0;
    }
    case 1:
    case 2:
        EXPECT(EVP_CipherUpdate(o->cipher, o->bytes + o->length, &length, text, sizeof text) == 1);
        o->length += length;
        return 0;
    case 3:
        EXPECT(EVP_CipherFinal_ex(o->cipher, o->bytes + o->length, &length) == 1);
        EXPECT(EVP_CIPHER_CTX_ctrl(o->cipher, EVP_CTRL_AEAD_GET_TAG, 16, o->secret) == 1);
        return 0;
    case 5: {
        unsigned char opened[2 * sizeof text];
        EXPECT(EVP_CIPHER_CTX_ctrl(o->cipher, EVP_CTRL_AEAD_SET_TAG, 16, o->secret) == 1);
        EXPECT(EVP_CipherUpdate(o->cipher, opened, &length, o->bytes, (int)o->length) == 1);
        EXPECT(memcmp(opened, text, sizeof text) == 0);
        EXPECT(memcmp(opened + sizeof text, text, sizeof text) == 0);
        return 0;
    }
    case 6:
        EXPECT(EVP_CipherFinal_ex(o->cipher, o->bytes, &length) == 1);
        return 0;
    default:
        EVP_CIPHER_CTX_free(o->cipher);
        return 1;
    }
}

/* TLS 1.3's key derivation. */
static int step_kdf(struct object *o) {
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    unsigned char secret[32], again[32];
    memset(secret, o->number, sizeof secret);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int("mode", &mode),
        OSSL_PARAM_construct_utf8_string("digest", "SHA2-256", 0),
        OSSL_PARAM_construct_octet_string("key", secret, sizeof secret),
        OSSL_PARAM_construct_octet_string("prefix", "tls13 ", 6),
        OSSL_PARAM_construct_octet_string("label", "c hs traffic", 12),
        OSSL_PARAM_construct_octet_string("data", secret, sizeof secret),
        OSSL_PARAM_construct_end(),
    };
    switch (o->step) {
    case 0: {
        EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
        EXPECT(kdf && (o->kdf = EVP_KDF_CTX_new(kdf)));
        EVP_KDF_free(kdf);
        return 0;
    }
    case 1:
        EXPECT(EVP_KDF_derive(o->kdf, o->secret, 32, params) == 1);
        return 0;
    case 2:
        EXPECT(EVP_KDF_derive(o->kdf, again, 32, NULL) == 1);
        EXPECT(memcmp(again, o->secret, 32) == 0);
        return 0;
    default:
        EVP_KDF_CTX_free(o->kdf);
        return 1;
    }
}

/* Hands over what one side has written to the other. */
static int carry(SSL *from, SSL *to) {
    char *data;
    long length = BIO_get_mem_data(SSL_get_wbio(from), &data);
    if (length > 0)
        EXPECT(BIO_write(SSL_get_rbio(to), data, (int)length) == length);
    (void)BIO_reset(SSL_get_wbio(from));
    return 0;
}

static SSL *side(SSL_CTX *ctx, int is_server) {
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (!ssl || !in || !out)
        return NULL;
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    if (is_server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

/* One record to the other side, which must be what was written. */
static int send_record(struct object *o, SSL *from, SSL *to) {
    unsigned char text[100], read[200];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = o->number + 7 * i;
    EXPECT(SSL_write(from, text, sizeof text) == sizeof text);
    EXPECT(carry(from, to) == 0);
    EXPECT(SSL_read(to, read, sizeof read) == sizeof text);
    EXPECT(memcmp(read, text, sizeof text) == 0);
    return 0;
}

/* A connection of TLS 1.2 or 1.3: every turn of the handshake and every record by some process. */
static int step_tls(struct object *o) {
    int result;
    if (o->step == 0) {
        EXPECT(o->server = side(servers[o->number % pairs], 1));
        return 0;
    }
    if (o->step == 1) {
        EXPECT(o->client = side(client_ctx[o->number / pairs % 2], 0));
        return 0;
    }
    if (o->step < 12) {
        SSL *turn = o->step % 2 ? o->server : o->client, *other = o->step % 2 ? o->client : o->server;
        if (!SSL_is_init_finished(turn)) {
            result = SSL_do_handshake(turn);
            EXPECT(result == 1 || SSL_get_error(turn, result) == SSL_ERROR_WANT_READ);
            EXPECT(carry(turn, other) == 0);
        }
        return 0;
    }
    if (o->step < 20) {
        EXPECT(SSL_is_init_finished(o->server) && SSL_is_init_finished(o->client));
        return o->step % 2 ? send_record(o, o->server, o->client)
                           : send_record(o, o->client, o->server);
    }
    if (o->step == 20) {
        SSL_free(o->server);
        return 0;
    }
    SSL_free(o->client);
    return 1;
}

static int (*const kinds[])(struct object *) = {
    step_key, step_md, step_pkey, step_exchange, step_kem, step_cipher, step_kdf, step_tls, step_tls,
};
static const char *const names[] = {
    "key",    "signature", "context of a key", "exchange",   "encapsulation",
    "cipher", "derivation", "connection",      "connection",
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- processes ---- */

/* What the module says of itself, if it is loaded, and how many threads there are. */
static void describe(void) {
    char *said = NULL, line[256];
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_ptr("lockstep-unaccelerated", &said, 0),
                           OSSL_PARAM_construct_end()};
    if (OSSL_PROVIDER_available(NULL, "lockstep")) {
        OSSL_PROVIDER *module = OSSL_PROVIDER_load(NULL, "lockstep");
        CHECK(module && OSSL_PROVIDER_get_params(module, params) == 1 && said);
        printf("unaccelerated: %s\n", said);
        OSSL_PROVIDER_unload(module);
    }
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "Threads:", 8) == 0)
            printf("threads: %d\n", atoi(line + 8));
    if (status)
        fclose(status);
}

static struct {
    int to, from;
    pid_t pid;
} workers[MOST_WORKERS];

static void serve(int in, int out, int is_shared) {
    int which;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(in, &which, sizeof which) == sizeof which) {
        struct object *o = &objects[which];
        int result = kinds[o->kind](o);
        o->step++;
        ERR_clear_error();
        CHECK(write(out, &result, sizeof result) == sizeof result);
    }
    /* OpenSSL's own end is not safe where others go on with its objects. */
    if (is_shared)
        _exit(0);
    exit(0);
}

static void start(int number, int is_shared) {
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(to[1]);
        close(from[0]);
        for (int i = 0; i < number; i++)
            close(workers[i].to);
        serve(to[0], from[1], is_shared);
    }
    close(to[0]);
    close(from[1]);
    workers[number].to = to[1];
    workers[number].from = from[0];
    workers[number].pid = pid;
}

int main(int argc, char **argv) {
    CHECK(argc >= 6 && argc % 2 == 0);
    int is_shared = strcmp(argv[1], "shared") == 0, count = atoi(argv[2]), rounds = atoi(argv[3]);
    CHECK(count <= MOST_WORKERS);
    int kind = is_shared ? MAP_SHARED : MAP_PRIVATE;
    arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    objects = mmap(NULL, ALIVE * sizeof *objects, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(arena != MAP_FAILED && objects != MAP_FAILED);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&arena->lock, &attributes);
    arena->used = 4096;
    if (is_shared)
        CHECK(CRYPTO_set_mem_functions(arena_malloc, arena_realloc, arena_free) == 1);
    else
        CHECK(CRYPTO_set_mem_functions(own_malloc, own_realloc, own_free) == 1);

    /* As a server does: it reads its keys before it forks. */
    for (int i = 4; i < argc; i += 2, pairs++) {
        CHECK(pairs < PAIRS);
        keys[pairs] = read_key(NULL, argv[i]);
        CHECK(servers[pairs] = SSL_CTX_new(TLS_server_method()));
        CHECK(SSL_CTX_use_PrivateKey(servers[pairs], keys[pairs]) == 1);
        CHECK(SSL_CTX_use_certificate_file(servers[pairs], argv[i + 1], SSL_FILETYPE_PEM) == 1);
        SSL_CTX_set_session_cache_mode(servers[pairs], SSL_SESS_CACHE_OFF);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(client_ctx[i] = SSL_CTX_new(TLS_client_method()));
        CHECK(SSL_CTX_set_max_proto_version(client_ctx[i], i ? TLS1_3_VERSION : TLS1_2_VERSION) == 1);
        CHECK(SSL_CTX_set_cipher_list(client_ctx[i], "ECDHE+AESGCM") == 1);
        CHECK(SSL_CTX_set_ciphersuites(client_ctx[i], "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384") == 1);
    }
    fflush(stdout);
    for (int i = 0; i < count; i++)
        start(i, is_shared);

    srand(1);
    int lived = 0, begun = 0;
    for (int i = 0; i < ALIVE; i++)
        objects[i].kind = -1;
    while (lived < rounds) {
        int which = rand() % ALIVE;
        struct object *o = &objects[which];
        if (o->kind < 0) {
            memset(o, 0, sizeof *o);
            o->kind = begun % KINDS;
            o->number = begun++ / KINDS;
        }
        int worker = rand() % count, result;
        const char *name = names[o->kind];
        int step = o->step, number = o->number;
        CHECK(write(workers[worker].to, &which, sizeof which) == sizeof which);
        if (read(workers[worker].from, &result, sizeof result) != sizeof result) {
            int status = 0;
            waitpid(workers[worker].pid, &status, 0);
            printf("a worker ended with status %#x in step %d of a %s, number %d\n", status, step,
                   name, number);
            fflush(stdout);
            _exit(1);
        }
        if (result < 0) {
            printf("step %d of a %s fails, number %d\n", step, name, number);
            fflush(stdout);
            _exit(1);
        }
        if (result == 1) {
            o->kind = -1;
            lived++;
        }
    }
    for (int i = 0; i < count; i++) {
        int status;
        close(workers[i].to);
        CHECK(waitpid(workers[i].pid, &status, 0) == workers[i].pid);
        CHECK(status == 0);
    }
    describe();
    printf("%d objects lived\n", lived);
    fflush(stdout);
    _exit(0);
}
