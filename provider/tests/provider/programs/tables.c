/* Calls every function of the module's dispatch tables that is not OpenSSL's own, in an async job
 * whose stack ends at a guard page, and finds out how much of the stack each takes. Fails where a
 * table has a function that is not called here. Then it has the functions of key encapsulation
 * fail in every way, and expects a reason in the queue of errors for each.
 *
 * Usage: tables     (the module is in OPENSSL_CONF)
 * Prints a line for each function: operation, algorithm, number, and bytes of stack. */
#define _GNU_SOURCE
#include "common.h"
#include <openssl/async.h>
#include <openssl/core_dispatch.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdint.h>
#include <sys/mman.h>

/* ---- the stack of a job ---- */

/* What OpenSSL gives a job. */
enum { STACK = 32768, PAGE = 4096, MARK = 0xa5, OWN = 512 };

static char *stack_base;

/* The functions are replaced, but the memory is this process's own: lanes serve. */
static void *take(size_t size, const char *file, int line) {
    (void)file, (void)line;
    if (size != STACK)
        return malloc(size);
    char *memory = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE) != 0)
        return NULL;
    return stack_base = memory + PAGE;
}

static void *take_more(void *memory, size_t size, const char *file, int line) {
    (void)file, (void)line;
    return realloc(memory, size);
}

static void give_back(void *memory, const char *file, int line) {
    (void)file, (void)line;
    if (memory != stack_base)
        free(memory);
}

static __attribute__((noinline)) void paint(void) {
    char *top = (char *)__builtin_frame_address(0) - OWN;
    for (volatile char *at = stack_base; at < top; at++)
        *at = (char)MARK;
}

static __attribute__((noinline)) size_t depth(void) {
    char *top = __builtin_frame_address(0), *at = stack_base;
    while (at < top && *(volatile unsigned char *)at == MARK)
        at++;
    return top - at;
}

/* ---- tables ---- */

typedef void (*function)(void);

static OSSL_PROVIDER *ours, *stock;
static const char *operation_name, *algorithm;
static const OSSL_DISPATCH *table, *stock_table;
static int operation;
static unsigned char called[64];

static function in(const OSSL_DISPATCH *from, int id) {
    for (; from && from->function_id; from++)
        if (from->function_id == id)
            return from->function;
    return NULL;
}

/* Whether a function is OpenSSL's own, of any algorithm of the operation. */
static int is_stock(int id, function f) {
    int no_cache;
    const OSSL_ALGORITHM *all = OSSL_PROVIDER_query_operation(stock, operation, &no_cache);
    for (; all && all->algorithm_names; all++)
        if (in(all->implementation, id) == f)
            return 1;
    return 0;
}

static void measured(int id) {
    size_t bytes = depth();
    called[id] = 1;
    if (!is_stock(id, in(table, id)))
        printf("%s %s %d %zu\n", operation_name, algorithm, id, bytes);
}

#define HAS(id) (in(table, id) != NULL)
/* Calls a function of the table, if it is there. */
#define RUN(id, type, ...)                                                        \
    do {                                                                          \
        if (HAS(id)) {                                                            \
            paint();                                                              \
            ((type *)in(table, id))(__VA_ARGS__);                                 \
            measured(id);                                                         \
        }                                                                         \
    } while (0)
/* The same, and keeps what it returns. */
#define GET(result, id, type, ...)                                                \
    do {                                                                          \
        if (HAS(id)) {                                                            \
            paint();                                                              \
            (result) = ((type *)in(table, id))(__VA_ARGS__);                      \
            measured(id);                                                         \
        }                                                                         \
    } while (0)
/* The same, and expects success. */
#define DO(...) DO_(__VA_ARGS__)
#define DO_(id, type, ...)                                                        \
    do {                                                                          \
        int done = 1;                                                             \
        GET(done, id, type, __VA_ARGS__);                                         \
        if (done <= 0)                                                            \
            fprintf(stderr, "%s %s %d\n", operation_name, algorithm, id);         \
        CHECK(done > 0);                                                          \
    } while (0)
/* A function fails, and leaves a reason. */
#define REFUSES(...) REFUSES_(__VA_ARGS__)
#define REFUSES_(id, type, ...)                                                   \
    do {                                                                          \
        ERR_clear_error();                                                        \
        CHECK(((type *)in(table, id))(__VA_ARGS__) <= 0);                         \
        CHECK(ERR_peek_error() != 0);                                             \
        ERR_clear_error();                                                        \
        refusals++;                                                               \
    } while (0)
#define REFUSES_ANY(id, type, ...)                                                \
    do {                                                                          \
        ERR_clear_error();                                                        \
        CHECK(((type *)in(table, id))(__VA_ARGS__) == NULL);                      \
        CHECK(ERR_peek_error() != 0);                                             \
        ERR_clear_error();                                                        \
        refusals++;                                                               \
    } while (0)
static int refusals;

/* Looks at the table of an algorithm; 0 if there is none. */
static int look_at(int of, const char *name_of, const char *name) {
    int no_cache;
    operation = of, operation_name = name_of, algorithm = name;
    table = stock_table = NULL;
    memset(called, 0, sizeof called);
    const OSSL_ALGORITHM *all = OSSL_PROVIDER_query_operation(ours, of, &no_cache);
    for (int turn = 0; turn < 2; turn++) {
        for (; all && all->algorithm_names; all++) {
            size_t length = strlen(name);
            if (strncmp(all->algorithm_names, name, length) == 0 &&
                strchr(":", all->algorithm_names[length]))
                *(turn ? &stock_table : &table) = all->implementation;
        }
        all = OSSL_PROVIDER_query_operation(stock, of, &no_cache);
    }
    return table != NULL;
}

/* All functions of the table that are not OpenSSL's own have been called. */
static void all_called(void) {
    for (const OSSL_DISPATCH *at = table; at->function_id; at++)
        if (!called[at->function_id] && !is_stock(at->function_id, at->function)) {
            fprintf(stderr, "%s %s: function %d is not called here\n", operation_name, algorithm,
                    at->function_id);
            _exit(1);
        }
}

static void *context(void) {
    return OSSL_PROVIDER_get0_provider_ctx(ours);
}

/* ---- keys ---- */

struct kind {
    const char *name;
    const char *group; /* of curves, for generation */
};

static OSSL_PARAM kept[32];
static unsigned char bytes[32][4096];
static size_t kept_count;

static int keep(const OSSL_PARAM *params, void *arg) {
    (void)arg;
    for (kept_count = 0; params->key && kept_count < 31; params++, kept_count++) {
        CHECK(params->data_size < sizeof *bytes);
        memset(bytes[kept_count], 0, sizeof *bytes);
        kept[kept_count] = *params;
        memcpy(bytes[kept_count], params->data, params->data_size);
        kept[kept_count].data = bytes[kept_count];
    }
    kept[kept_count] = OSSL_PARAM_construct_end();
    return 1;
}

static OSSL_PARAM *kept_part(const char *name) {
    for (size_t i = 0; i < kept_count; i++)
        if (strcmp(kept[i].key, name) == 0)
            return &kept[i];
    return NULL;
}

/* A key pair, made by the functions of the table. */
static void *pair_of(const struct kind *kind) {
    size_t bits = 2048;
    OSSL_PARAM none[] = {OSSL_PARAM_construct_end()}, params[] = {
        kind->group ? OSSL_PARAM_construct_utf8_string("group", (char *)kind->group, 0)
                    : OSSL_PARAM_construct_size_t("bits", &bits),
        OSSL_PARAM_construct_end(),
    };
    OSSL_PARAM *wanted = kind->group || strncmp(kind->name, "RSA", 3) == 0 ? params : none;
    void *gen = NULL, *key = NULL;
    GET(gen, OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn, context(), EVP_PKEY_KEYPAIR, none);
    CHECK(gen);
    DO(OSSL_FUNC_KEYMGMT_GEN_SET_PARAMS, OSSL_FUNC_keymgmt_gen_set_params_fn, gen, wanted);
    RUN(OSSL_FUNC_KEYMGMT_GEN_SETTABLE_PARAMS, OSSL_FUNC_keymgmt_gen_settable_params_fn, gen, context());
    RUN(15, OSSL_FUNC_keymgmt_get_params_fn, gen, none);
    RUN(16, OSSL_FUNC_keymgmt_gen_settable_params_fn, gen, context());
    paint();
    key = ((OSSL_FUNC_keymgmt_gen_fn *)in(table, OSSL_FUNC_KEYMGMT_GEN))(gen, keep, NULL);
    measured(OSSL_FUNC_KEYMGMT_GEN);
    CHECK(key);
    RUN(OSSL_FUNC_KEYMGMT_GEN_SET_TEMPLATE, OSSL_FUNC_keymgmt_gen_set_template_fn, gen, key);
    RUN(OSSL_FUNC_KEYMGMT_GEN_CLEANUP, OSSL_FUNC_keymgmt_gen_cleanup_fn, gen);
    return key;
}

static void *fresh(void) {
    void *key = NULL;
    GET(key, OSSL_FUNC_KEYMGMT_NEW, OSSL_FUNC_keymgmt_new_fn, context());
    CHECK(key);
    return key;
}

static void free_key(void *key) {
    RUN(OSSL_FUNC_KEYMGMT_FREE, OSSL_FUNC_keymgmt_free_fn, key);
}

static void of_a_seed(void) {
    static unsigned char seed[64] = {1, 2, 3};
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("seed", seed, sizeof seed),
                           OSSL_PARAM_construct_end()};
    void *gen = NULL, *key;
    GET(gen, OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn, context(), EVP_PKEY_KEYPAIR, params);
    CHECK(gen);
    paint();
    key = ((OSSL_FUNC_keymgmt_gen_fn *)in(table, OSSL_FUNC_KEYMGMT_GEN))(gen, keep, NULL);
    measured(OSSL_FUNC_KEYMGMT_GEN);
    CHECK(key);
    free_key(key);
    RUN(OSSL_FUNC_KEYMGMT_GEN_CLEANUP, OSSL_FUNC_keymgmt_gen_cleanup_fn, gen);
    key = fresh();
    DO(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, key, EVP_PKEY_KEYPAIR, params);
    free_key(key);
}

static int use_keys(void *arg) {
    const struct kind *kind = *(const struct kind **)arg;
    static unsigned char text[4096], encoded[4096];
    int bits = 0, most = 0;
    OSSL_PARAM none[] = {OSSL_PARAM_construct_end()}, asked[] = {
        OSSL_PARAM_construct_int("bits", &bits),
        OSSL_PARAM_construct_int("max-size", &most),
        OSSL_PARAM_construct_octet_string("encoded-pub-key", text, sizeof text),
        OSSL_PARAM_construct_end(),
    };
    if (!look_at(OSSL_OP_KEYMGMT, "keymgmt", kind->name))
        return 1;
    void *key = pair_of(kind), *other = NULL, *share = fresh();
    RUN(17, OSSL_FUNC_keymgmt_gen_settable_params_fn, NULL, NULL);
    DO(OSSL_FUNC_KEYMGMT_HAS, OSSL_FUNC_keymgmt_has_fn, key, EVP_PKEY_KEYPAIR);
    DO(OSSL_FUNC_KEYMGMT_VALIDATE, OSSL_FUNC_keymgmt_validate_fn, key, EVP_PKEY_KEYPAIR, 0);
    DO(OSSL_FUNC_KEYMGMT_VALIDATE, OSSL_FUNC_keymgmt_validate_fn, key, EVP_PKEY_PUBLIC_KEY, 0);
    DO(OSSL_FUNC_KEYMGMT_MATCH, OSSL_FUNC_keymgmt_match_fn, key, key, EVP_PKEY_PUBLIC_KEY);
    DO(OSSL_FUNC_KEYMGMT_GET_PARAMS, OSSL_FUNC_keymgmt_get_params_fn, key, asked);
    RUN(OSSL_FUNC_KEYMGMT_GETTABLE_PARAMS, OSSL_FUNC_keymgmt_gettable_params_fn, context());
    RUN(OSSL_FUNC_KEYMGMT_SETTABLE_PARAMS, OSSL_FUNC_keymgmt_settable_params_fn, context());
    RUN(OSSL_FUNC_KEYMGMT_IMPORT_TYPES, OSSL_FUNC_keymgmt_import_types_fn, EVP_PKEY_KEYPAIR);
    RUN(OSSL_FUNC_KEYMGMT_EXPORT_TYPES, OSSL_FUNC_keymgmt_export_types_fn, EVP_PKEY_KEYPAIR);
    int all = kind->group ? OSSL_KEYMGMT_SELECT_ALL : EVP_PKEY_KEYPAIR;
    DO(OSSL_FUNC_KEYMGMT_EXPORT, OSSL_FUNC_keymgmt_export_fn, key, all, keep, NULL);
    void *copy = fresh();
    DO(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, copy, all, kept);
    free_key(copy);
    copy = fresh();
    DO(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, copy, EVP_PKEY_PUBLIC_KEY, kept);
    free_key(copy);
    GET(other, OSSL_FUNC_KEYMGMT_DUP, OSSL_FUNC_keymgmt_dup_fn, key, OSSL_KEYMGMT_SELECT_ALL);
    CHECK(other || !HAS(OSSL_FUNC_KEYMGMT_DUP));
    if (other)
        free_key(other);
    /* A share, as libssl sets it: into a key that has the parameters only. */
    if (asked[2].return_size != OSSL_PARAM_UNMODIFIED && HAS(OSSL_FUNC_KEYMGMT_SET_PARAMS)) {
        size_t length = asked[2].return_size;
        memcpy(encoded, text, length);
        OSSL_PARAM set[] = {OSSL_PARAM_construct_octet_string("encoded-pub-key", encoded, length),
                            OSSL_PARAM_construct_end()};
        if (kind->group)
            DO(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, share,
               OSSL_KEYMGMT_SELECT_ALL_PARAMETERS, kept);
        DO(OSSL_FUNC_KEYMGMT_SET_PARAMS, OSSL_FUNC_keymgmt_set_params_fn, share, set);
    }
    free_key(share);
    /* What a decoder of OpenSSL's own has made. */
    if (HAS(OSSL_FUNC_KEYMGMT_LOAD) && in(stock_table, OSSL_FUNC_KEYMGMT_NEW)) {
        void *made = ((OSSL_FUNC_keymgmt_new_fn *)in(stock_table, OSSL_FUNC_KEYMGMT_NEW))(context());
        CHECK(made && ((OSSL_FUNC_keymgmt_import_fn *)in(stock_table, OSSL_FUNC_KEYMGMT_IMPORT))(
                          made, all, kept) == 1);
        void *loaded = NULL;
        GET(loaded, OSSL_FUNC_KEYMGMT_LOAD, OSSL_FUNC_keymgmt_load_fn, &made, sizeof made);
        CHECK(loaded);
        free_key(loaded);
    }
    if (strcmp(kind->name, "ML-KEM-768") == 0)
        of_a_seed();
    (void)none;
    free_key(key);
    all_called();
    return 1;
}

/* ---- operations ---- */

/* A key pair of our own management, and the table of an operation again. */
static void *key_for(const struct kind *kind, int of, const char *name_of, const char *name) {
    CHECK(look_at(OSSL_OP_KEYMGMT, "keymgmt", kind->name));
    void *key = pair_of(kind);
    ((void)0);
    CHECK(look_at(of, name_of, name));
    return key;
}

static void free_key_of(const struct kind *kind, void *key) {
    CHECK(look_at(OSSL_OP_KEYMGMT, "keymgmt", kind->name));
    free_key(key);
}

struct use {
    struct kind key;
    const char *name;
    int one_shot; /* messages in place of digests */
};

static int use_signature(void *arg) {
    const struct use *use = *(const struct use **)arg;
    static unsigned char digest[32] = {1}, made[1024];
    size_t length = 0, room = sizeof made;
    OSSL_PARAM none[] = {OSSL_PARAM_construct_end()};
    void *key = key_for(&use->key, OSSL_OP_SIGNATURE, "signature", use->name), *ctx = NULL, *copy = NULL;
    GET(ctx, OSSL_FUNC_SIGNATURE_NEWCTX, OSSL_FUNC_signature_newctx_fn, context(), NULL);
    CHECK(ctx);
    if (use->one_shot) {
        RUN(OSSL_FUNC_SIGNATURE_SIGN_INIT, OSSL_FUNC_signature_sign_init_fn, ctx, key, none);
        RUN(OSSL_FUNC_SIGNATURE_SIGN, OSSL_FUNC_signature_sign_fn, ctx, made, &length, room, digest, 32);
        RUN(OSSL_FUNC_SIGNATURE_VERIFY_INIT, OSSL_FUNC_signature_verify_init_fn, ctx, key, none);
        RUN(OSSL_FUNC_SIGNATURE_VERIFY, OSSL_FUNC_signature_verify_fn, ctx, made, 64, digest, 32);
        RUN(26, OSSL_FUNC_signature_freectx_fn, NULL);
        if (HAS(27)) {
            DO(27, OSSL_FUNC_signature_sign_init_fn, ctx, key, none);
            DO(OSSL_FUNC_SIGNATURE_SIGN, OSSL_FUNC_signature_sign_fn, ctx, made, &length, room, digest, 32);
            DO(30, OSSL_FUNC_signature_verify_init_fn, ctx, key, none);
            DO(OSSL_FUNC_SIGNATURE_VERIFY, OSSL_FUNC_signature_verify_fn, ctx, made, length, digest, 32);
        }
        DO(OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, OSSL_FUNC_signature_digest_sign_init_fn, ctx, NULL, key, none);
        DO(OSSL_FUNC_SIGNATURE_DIGEST_SIGN, OSSL_FUNC_signature_digest_sign_fn, ctx, made, &length, room, digest, 32);
        DO(OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_INIT, OSSL_FUNC_signature_digest_verify_init_fn, ctx, NULL, key, none);
        DO(OSSL_FUNC_SIGNATURE_DIGEST_VERIFY, OSSL_FUNC_signature_digest_verify_fn, ctx, made, length, digest, 32);
    } else {
        DO(OSSL_FUNC_SIGNATURE_SIGN_INIT, OSSL_FUNC_signature_sign_init_fn, ctx, key, none);
        DO(OSSL_FUNC_SIGNATURE_SIGN, OSSL_FUNC_signature_sign_fn, ctx, made, &length, room, digest, 32);
        /* The functions that compute are those of the key's method. */
        printf("%s %s sign %zu\n", operation_name, use->key.name, depth());
        DO(OSSL_FUNC_SIGNATURE_VERIFY_INIT, OSSL_FUNC_signature_verify_init_fn, ctx, key, none);
        DO(OSSL_FUNC_SIGNATURE_VERIFY, OSSL_FUNC_signature_verify_fn, ctx, made, length, digest, 32);
        printf("%s %s verify %zu\n", operation_name, use->key.name, depth());
    }
    GET(copy, OSSL_FUNC_SIGNATURE_DUPCTX, OSSL_FUNC_signature_dupctx_fn, ctx);
    if (copy)
        RUN(OSSL_FUNC_SIGNATURE_FREECTX, OSSL_FUNC_signature_freectx_fn, copy);
    RUN(OSSL_FUNC_SIGNATURE_GET_CTX_PARAMS, OSSL_FUNC_signature_get_ctx_params_fn, ctx, none);
    RUN(OSSL_FUNC_SIGNATURE_GETTABLE_CTX_PARAMS, OSSL_FUNC_signature_gettable_ctx_params_fn, ctx, context());
    RUN(OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, OSSL_FUNC_signature_set_ctx_params_fn, ctx, none);
    RUN(OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, OSSL_FUNC_signature_settable_ctx_params_fn, ctx, context());
    RUN(OSSL_FUNC_SIGNATURE_FREECTX, OSSL_FUNC_signature_freectx_fn, ctx);
    all_called();
    free_key_of(&use->key, key);
    return 1;
}

static int use_exchange(void *arg) {
    const struct use *use = *(const struct use **)arg;
    static unsigned char secret[64];
    size_t length = 0;
    OSSL_PARAM none[] = {OSSL_PARAM_construct_end()};
    void *key = key_for(&use->key, OSSL_OP_KEYEXCH, "keyexch", use->name), *ctx = NULL, *copy = NULL;
    GET(ctx, OSSL_FUNC_KEYEXCH_NEWCTX, OSSL_FUNC_keyexch_newctx_fn, context());
    CHECK(ctx);
    DO(OSSL_FUNC_KEYEXCH_INIT, OSSL_FUNC_keyexch_init_fn, ctx, key, none);
    DO(OSSL_FUNC_KEYEXCH_SET_PEER, OSSL_FUNC_keyexch_set_peer_fn, ctx, key);
    DO(OSSL_FUNC_KEYEXCH_DERIVE, OSSL_FUNC_keyexch_derive_fn, ctx, secret, &length, sizeof secret);
    printf("%s %s derive %zu\n", operation_name, use->name, depth());
    GET(copy, OSSL_FUNC_KEYEXCH_DUPCTX, OSSL_FUNC_keyexch_dupctx_fn, ctx);
    if (copy)
        RUN(OSSL_FUNC_KEYEXCH_FREECTX, OSSL_FUNC_keyexch_freectx_fn, copy);
    RUN(OSSL_FUNC_KEYEXCH_SET_CTX_PARAMS, OSSL_FUNC_keyexch_set_ctx_params_fn, ctx, none);
    RUN(OSSL_FUNC_KEYEXCH_SETTABLE_CTX_PARAMS, OSSL_FUNC_keyexch_settable_ctx_params_fn, ctx, context());
    RUN(OSSL_FUNC_KEYEXCH_GET_CTX_PARAMS, OSSL_FUNC_keyexch_get_ctx_params_fn, ctx, none);
    RUN(OSSL_FUNC_KEYEXCH_GETTABLE_CTX_PARAMS, OSSL_FUNC_keyexch_gettable_ctx_params_fn, ctx, context());
    RUN(OSSL_FUNC_KEYEXCH_FREECTX, OSSL_FUNC_keyexch_freectx_fn, ctx);
    all_called();
    free_key_of(&use->key, key);
    return 1;
}

static int use_decryption(void *arg) {
    const struct use *use = *(const struct use **)arg;
    static unsigned char sealed[512], opened[512];
    size_t length = 0, count = 0;
    int padding = RSA_PKCS1_OAEP_PADDING;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_int("pad-mode", &padding), OSSL_PARAM_construct_end()};
    void *key = key_for(&use->key, OSSL_OP_ASYM_CIPHER, "asym_cipher", use->name), *ctx = NULL;
    GET(ctx, OSSL_FUNC_ASYM_CIPHER_NEWCTX, OSSL_FUNC_asym_cipher_newctx_fn, context());
    CHECK(ctx);
    DO(OSSL_FUNC_ASYM_CIPHER_ENCRYPT_INIT, OSSL_FUNC_asym_cipher_encrypt_init_fn, ctx, key, params);
    DO(OSSL_FUNC_ASYM_CIPHER_ENCRYPT, OSSL_FUNC_asym_cipher_encrypt_fn, ctx, sealed, &length, sizeof sealed, (const unsigned char *)"a", 1);
    DO(OSSL_FUNC_ASYM_CIPHER_DECRYPT_INIT, OSSL_FUNC_asym_cipher_decrypt_init_fn, ctx, key, params);
    DO(OSSL_FUNC_ASYM_CIPHER_DECRYPT, OSSL_FUNC_asym_cipher_decrypt_fn, ctx, opened, &count, sizeof opened, sealed, length);
    printf("%s %s decrypt %zu\n", operation_name, use->name, depth());
    RUN(OSSL_FUNC_ASYM_CIPHER_FREECTX, OSSL_FUNC_asym_cipher_freectx_fn, ctx);
    all_called();
    free_key_of(&use->key, key);
    return 1;
}

static int use_kem(void *arg) {
    const struct use *use = *(const struct use **)arg;
    static unsigned char sealed[2048], sent[64], received[64];
    size_t length = sizeof sealed, count = sizeof sent;
    OSSL_PARAM none[] = {OSSL_PARAM_construct_end()};
    void *key = key_for(&use->key, OSSL_OP_KEM, "kem", use->name), *ctx = NULL, *copy = NULL;
    GET(ctx, OSSL_FUNC_KEM_NEWCTX, OSSL_FUNC_kem_newctx_fn, context());
    CHECK(ctx);
    DO(OSSL_FUNC_KEM_ENCAPSULATE_INIT, OSSL_FUNC_kem_encapsulate_init_fn, ctx, key, none);
    DO(OSSL_FUNC_KEM_SET_CTX_PARAMS, OSSL_FUNC_kem_set_ctx_params_fn, ctx, none);
    RUN(OSSL_FUNC_KEM_SETTABLE_CTX_PARAMS, OSSL_FUNC_kem_settable_ctx_params_fn, ctx, context());
    GET(copy, OSSL_FUNC_KEM_DUPCTX, OSSL_FUNC_kem_dupctx_fn, ctx);
    CHECK(copy);
    RUN(OSSL_FUNC_KEM_FREECTX, OSSL_FUNC_kem_freectx_fn, copy);
    DO(OSSL_FUNC_KEM_ENCAPSULATE, OSSL_FUNC_kem_encapsulate_fn, ctx, sealed, &length, sent, &count);
    DO(OSSL_FUNC_KEM_DECAPSULATE_INIT, OSSL_FUNC_kem_decapsulate_init_fn, ctx, key, none);
    DO(OSSL_FUNC_KEM_DECAPSULATE, OSSL_FUNC_kem_decapsulate_fn, ctx, received, &count, sealed, length);
    CHECK(memcmp(sent, received, count) == 0);
    RUN(OSSL_FUNC_KEM_FREECTX, OSSL_FUNC_kem_freectx_fn, ctx);
    all_called();
    free_key_of(&use->key, key);
    return 1;
}

static int use_kdf(void *arg) {
    static char *digests[] = {"SHA2-256", "SHA2-384"};
    static unsigned char secret[48] = {1}, out[48];
    (void)arg;
    if (!look_at(OSSL_OP_KDF, "kdf", "TLS13-KDF"))
        return 1;
    OSSL_PARAM none[] = {OSSL_PARAM_construct_end()};
    for (int i = 0; i < 4; i++) {
        int is_expand = i / 2;
        int mode = is_expand ? EVP_KDF_HKDF_MODE_EXPAND_ONLY : EVP_KDF_HKDF_MODE_EXTRACT_ONLY;
        size_t size = i % 2 ? 48 : 32;
        OSSL_PARAM params[] = {
            OSSL_PARAM_construct_int("mode", &mode),
            OSSL_PARAM_construct_utf8_string("digest", digests[i % 2], 0),
            OSSL_PARAM_construct_octet_string("key", secret, size),
            OSSL_PARAM_construct_octet_string("prefix", "tls13 ", 6),
            OSSL_PARAM_construct_octet_string("label", is_expand ? "key" : "derived", is_expand ? 3 : 7),
            OSSL_PARAM_construct_end(),
        };
        void *ctx = NULL, *copy = NULL;
        GET(ctx, OSSL_FUNC_KDF_NEWCTX, OSSL_FUNC_kdf_newctx_fn, context());
        CHECK(ctx);
        DO(OSSL_FUNC_KDF_DERIVE, OSSL_FUNC_kdf_derive_fn, ctx, out, is_expand ? 16 : size, params);
        RUN(OSSL_FUNC_KDF_RESET, OSSL_FUNC_kdf_reset_fn, ctx);
        DO(OSSL_FUNC_KDF_SET_CTX_PARAMS, OSSL_FUNC_kdf_set_ctx_params_fn, ctx, params);
        RUN(OSSL_FUNC_KDF_GET_CTX_PARAMS, OSSL_FUNC_kdf_get_ctx_params_fn, ctx, none);
        RUN(OSSL_FUNC_KDF_SETTABLE_CTX_PARAMS, OSSL_FUNC_kdf_settable_ctx_params_fn, ctx, context());
        RUN(OSSL_FUNC_KDF_GETTABLE_CTX_PARAMS, OSSL_FUNC_kdf_gettable_ctx_params_fn, ctx, context());
        GET(copy, OSSL_FUNC_KDF_DUPCTX, OSSL_FUNC_kdf_dupctx_fn, ctx);
        if (copy)
            RUN(OSSL_FUNC_KDF_FREECTX, OSSL_FUNC_kdf_freectx_fn, copy);
        RUN(OSSL_FUNC_KDF_FREECTX, OSSL_FUNC_kdf_freectx_fn, ctx);
    }
    all_called();
    return 1;
}

static int use_cipher(void *arg) {
    const char *name = *(const char **)arg;
    static unsigned char key[32] = {1}, iv[12] = {2}, plain[20000], sealed[20000], tag[16];
    size_t length = 0, key_length = name[4] == '1' && name[5] == '2' ? 16 : name[4] == '1' ? 24 : 32;
    if (!look_at(OSSL_OP_CIPHER, "cipher", name))
        return 1;
    OSSL_PARAM none[] = {OSSL_PARAM_construct_end()}, asked[] = {
        OSSL_PARAM_construct_octet_string("tag", tag, sizeof tag), OSSL_PARAM_construct_end()};
    void *ctx = NULL, *copy = NULL;
    GET(ctx, OSSL_FUNC_CIPHER_NEWCTX, OSSL_FUNC_cipher_newctx_fn, context());
    CHECK(ctx);
    RUN(OSSL_FUNC_CIPHER_GET_PARAMS, OSSL_FUNC_cipher_get_params_fn, none);
    RUN(OSSL_FUNC_CIPHER_GETTABLE_PARAMS, OSSL_FUNC_cipher_gettable_params_fn, context());
    RUN(OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, OSSL_FUNC_cipher_gettable_ctx_params_fn, ctx, context());
    RUN(OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, OSSL_FUNC_cipher_settable_ctx_params_fn, ctx, context());
    /* Without an IV: OpenSSL's own implementation makes one. */
    DO(OSSL_FUNC_CIPHER_ENCRYPT_INIT, OSSL_FUNC_cipher_encrypt_init_fn, ctx, key, key_length, NULL, 0, none);
    DO(OSSL_FUNC_CIPHER_UPDATE, OSSL_FUNC_cipher_update_fn, ctx, sealed, &length, sizeof sealed, plain, 16);
    DO(OSSL_FUNC_CIPHER_ENCRYPT_INIT, OSSL_FUNC_cipher_encrypt_init_fn, ctx, key, key_length, iv, sizeof iv, none);
    DO(OSSL_FUNC_CIPHER_UPDATE, OSSL_FUNC_cipher_update_fn, ctx, sealed, &length, sizeof sealed, plain, sizeof plain);
    GET(copy, OSSL_FUNC_CIPHER_DUPCTX, OSSL_FUNC_cipher_dupctx_fn, ctx);
    if (copy)
        RUN(OSSL_FUNC_CIPHER_FREECTX, OSSL_FUNC_cipher_freectx_fn, copy);
    DO(OSSL_FUNC_CIPHER_FINAL, OSSL_FUNC_cipher_final_fn, ctx, sealed, &length, 16);
    DO(OSSL_FUNC_CIPHER_GET_CTX_PARAMS, OSSL_FUNC_cipher_get_ctx_params_fn, ctx, asked);
    DO(OSSL_FUNC_CIPHER_DECRYPT_INIT, OSSL_FUNC_cipher_decrypt_init_fn, ctx, key, key_length, iv, sizeof iv, none);
    DO(OSSL_FUNC_CIPHER_SET_CTX_PARAMS, OSSL_FUNC_cipher_set_ctx_params_fn, ctx, asked);
    DO(OSSL_FUNC_CIPHER_CIPHER, OSSL_FUNC_cipher_cipher_fn, ctx, plain, &length, sizeof plain, sealed, sizeof sealed);
    RUN(OSSL_FUNC_CIPHER_FREECTX, OSSL_FUNC_cipher_freectx_fn, ctx);
    all_called();
    return 1;
}

/* ---- failures of key encapsulation ---- */

static int refuse_keys(void *arg) {
    const struct kind *kind = *(const struct kind **)arg;
    static unsigned char large[4096];
    int is_alone = strcmp(kind->name, "ML-KEM-768") == 0;
    CHECK(look_at(OSSL_OP_KEYMGMT, "keymgmt", kind->name));
    void *key = pair_of(kind), *empty = fresh();
    int number;
    OSSL_PARAM one[] = {OSSL_PARAM_construct_octet_string("pub", large, 7), OSSL_PARAM_construct_end()},
               none[] = {OSSL_PARAM_construct_end()},
               of_wrong_type[] = {OSSL_PARAM_construct_utf8_string("bits", (char *)large, 4),
                                  OSSL_PARAM_construct_end()};
    (void)number;
    DO(OSSL_FUNC_KEYMGMT_EXPORT, OSSL_FUNC_keymgmt_export_fn, key, EVP_PKEY_KEYPAIR, keep, NULL);
    OSSL_PARAM private = *kept_part("priv");
    REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, NULL, EVP_PKEY_KEYPAIR, kept);
    REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, empty, 0, kept);
    REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, empty, EVP_PKEY_KEYPAIR, none);
    REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, empty, EVP_PKEY_PUBLIC_KEY, one);
    one[0].key = "priv";
    REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, empty, EVP_PKEY_KEYPAIR, one);
    /* Of the right length, but no key. */
    memset(large, 0xff, sizeof large);
    one[0] = OSSL_PARAM_construct_octet_string("priv", large, private.data_size);
    REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, empty, EVP_PKEY_KEYPAIR, one);
    one[0] = OSSL_PARAM_construct_octet_string("pub", large, kept_part("pub")->data_size);
    REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, empty, EVP_PKEY_PUBLIC_KEY, one);
    one[0].key = "encoded-pub-key";
    REFUSES(OSSL_FUNC_KEYMGMT_SET_PARAMS, OSSL_FUNC_keymgmt_set_params_fn, empty, one);
    REFUSES(OSSL_FUNC_KEYMGMT_SET_PARAMS, OSSL_FUNC_keymgmt_set_params_fn, NULL, one);
    one[0] = *kept_part("pub"), one[0].key = "encoded-pub-key";
    REFUSES(OSSL_FUNC_KEYMGMT_SET_PARAMS, OSSL_FUNC_keymgmt_set_params_fn, key, one);
    REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, key, EVP_PKEY_KEYPAIR, kept);
    REFUSES(OSSL_FUNC_KEYMGMT_EXPORT, OSSL_FUNC_keymgmt_export_fn, empty, EVP_PKEY_KEYPAIR, keep, NULL);
    REFUSES(OSSL_FUNC_KEYMGMT_EXPORT, OSSL_FUNC_keymgmt_export_fn, key, 0, keep, NULL);
    REFUSES(OSSL_FUNC_KEYMGMT_VALIDATE, OSSL_FUNC_keymgmt_validate_fn, empty, EVP_PKEY_KEYPAIR, 0);
    one[0] = OSSL_PARAM_construct_octet_string("encoded-pub-key", large, 7);
    REFUSES(OSSL_FUNC_KEYMGMT_GET_PARAMS, OSSL_FUNC_keymgmt_get_params_fn, key, one);
    REFUSES(OSSL_FUNC_KEYMGMT_GET_PARAMS, OSSL_FUNC_keymgmt_get_params_fn, key, of_wrong_type);
    REFUSES(OSSL_FUNC_KEYMGMT_GET_PARAMS, OSSL_FUNC_keymgmt_get_params_fn, NULL, one);
    REFUSES_ANY(OSSL_FUNC_KEYMGMT_DUP, OSSL_FUNC_keymgmt_dup_fn, NULL, OSSL_KEYMGMT_SELECT_ALL);
    if (is_alone) {
        one[0] = OSSL_PARAM_construct_octet_string("seed", large, 63);
        REFUSES(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, empty, EVP_PKEY_KEYPAIR, one);
        REFUSES_ANY(OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn, context(), EVP_PKEY_KEYPAIR, one);
    }
    free_key(empty);
    free_key(key);
    return 1;
}

/* A key that has this share only. */
static void *with_share(const struct kind *kind, unsigned char *share, size_t length) {
    CHECK(look_at(OSSL_OP_KEYMGMT, "keymgmt", kind->name));
    OSSL_PARAM set[] = {OSSL_PARAM_construct_octet_string("pub", share, length), OSSL_PARAM_construct_end()};
    void *key = fresh();
    DO(OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn, key, EVP_PKEY_PUBLIC_KEY, set);
    return key;
}

static int refuse_secrets(void *arg) {
    const struct use *use = *(const struct use **)arg;
    static unsigned char share[2048], sealed[2048], damaged[2048], secret[64];
    size_t length = sizeof sealed, count = sizeof secret, little = 7;
    int is_x25519 = use->name[0] == 'X', is_p256 = use->name[0] == 'S';
    OSSL_PARAM none[] = {OSSL_PARAM_construct_end()},
               coins[] = {OSSL_PARAM_construct_octet_string("ikme", sealed, 31), OSSL_PARAM_construct_end()};
    CHECK(look_at(OSSL_OP_KEYMGMT, "keymgmt", use->name));
    void *key = pair_of(&use->key), *empty = fresh(), *ctx = NULL, *half = NULL;
    DO(OSSL_FUNC_KEYMGMT_EXPORT, OSSL_FUNC_keymgmt_export_fn, key, EVP_PKEY_KEYPAIR, keep, NULL);
    size_t share_length = kept_part("pub")->data_size;
    memcpy(share, kept_part("pub")->data, share_length);
    CHECK(look_at(OSSL_OP_KEM, "kem", use->name));
    GET(ctx, OSSL_FUNC_KEM_NEWCTX, OSSL_FUNC_kem_newctx_fn, context());
    CHECK(ctx);
#define SENDS OSSL_FUNC_KEM_ENCAPSULATE, OSSL_FUNC_kem_encapsulate_fn, ctx
#define RECEIVES OSSL_FUNC_KEM_DECAPSULATE, OSSL_FUNC_kem_decapsulate_fn, ctx
#define TO_SEND OSSL_FUNC_KEM_ENCAPSULATE_INIT, OSSL_FUNC_kem_encapsulate_init_fn, ctx
#define TO_RECEIVE OSSL_FUNC_KEM_DECAPSULATE_INIT, OSSL_FUNC_kem_decapsulate_init_fn, ctx
    REFUSES(SENDS, sealed, &length, secret, &count);
    REFUSES(RECEIVES, secret, &count, sealed, 1088);
    REFUSES(TO_SEND, NULL, none);
    REFUSES(TO_SEND, empty, none);
    REFUSES(TO_RECEIVE, NULL, none);
    REFUSES(TO_RECEIVE, empty, none);
    if (!is_x25519 && !is_p256)
        REFUSES(TO_SEND, key, coins);
    DO(TO_SEND, key, none);
    REFUSES(SENDS, NULL, NULL, NULL, NULL);
    REFUSES(SENDS, sealed, NULL, secret, &count);
    REFUSES(SENDS, sealed, &length, secret, NULL);
    REFUSES(SENDS, sealed, &length, NULL, &count);
    REFUSES(SENDS, sealed, &little, secret, &count);
    REFUSES(SENDS, sealed, &length, secret, &little);
    REFUSES(RECEIVES, secret, &count, sealed, 1088);
    DO(SENDS, sealed, &length, secret, &count);
    DO(TO_RECEIVE, key, none);
    count = sizeof secret;
    REFUSES(RECEIVES, NULL, NULL, sealed, length);
    REFUSES(RECEIVES, secret, &little, sealed, length);
    REFUSES(RECEIVES, secret, &count, sealed, length - 1);
    REFUSES(RECEIVES, secret, &count, NULL, length);
    /* Peers with a point of small order, or with none. */
    if (is_x25519 || is_p256) {
        size_t at = is_x25519 ? 1088 : 1, from = is_x25519 ? 1184 : 1;
        memcpy(damaged, sealed, length);
        memset(damaged + at, 0, 32);
        count = sizeof secret;
        REFUSES(RECEIVES, secret, &count, damaged, length);
        memset(share + from, 0, 32);
        half = with_share(&use->key, share, share_length);
        CHECK(look_at(OSSL_OP_KEM, "kem", use->name));
        DO(TO_SEND, half, none);
        length = sizeof sealed, count = sizeof secret;
        REFUSES(SENDS, sealed, &length, secret, &count);
    }
    RUN(OSSL_FUNC_KEM_FREECTX, OSSL_FUNC_kem_freectx_fn, ctx);
    CHECK(look_at(OSSL_OP_KEYMGMT, "keymgmt", use->name));
    if (half)
        free_key(half);
    free_key(empty);
    free_key(key);
    return 1;
}

/* ---- jobs ---- */

static void run(int (*work)(void *), const void *with) {
    ASYNC_JOB *job = NULL;
    ASYNC_WAIT_CTX *wait = ASYNC_WAIT_CTX_new();
    int result = 0, state;
    CHECK(wait);
    do
        state = ASYNC_start_job(&job, wait, &result, work, &with, sizeof with);
    while (state == ASYNC_PAUSE);
    CHECK(state == ASYNC_FINISH && result == 1);
    ASYNC_WAIT_CTX_free(wait);
}

int main(void) {
    static const struct kind kinds[] = {
        {"RSA", NULL},        {"RSA-PSS", NULL},         {"EC", "P-256"},
        {"EC", "P-384"},      {"X25519", NULL},          {"ED25519", NULL},
        {"ML-KEM-768", NULL}, {"X25519MLKEM768", NULL},  {"SecP256r1MLKEM768", NULL},
    };
    static const struct use signatures[] = {
        {{"RSA", NULL}, "RSA", 0}, {{"EC", "P-256"}, "ECDSA", 0}, {{"EC", "P-384"}, "ECDSA", 0},
        {{"ED25519", NULL}, "ED25519", 1},
    };
    static const struct use exchanges[] = {
        {{"EC", "P-256"}, "ECDH", 0}, {{"EC", "P-384"}, "ECDH", 0}, {{"X25519", NULL}, "X25519", 0},
    };
    static const struct use kems[] = {
        {{"ML-KEM-768", NULL}, "ML-KEM-768", 0},
        {{"X25519MLKEM768", NULL}, "X25519MLKEM768", 0},
        {{"SecP256r1MLKEM768", NULL}, "SecP256r1MLKEM768", 0},
    };
    static const struct use decryption = {{"RSA", NULL}, "RSA", 0};
    static const char *const ciphers[] = {"AES-128-GCM", "AES-192-GCM", "AES-256-GCM"};
    CHECK(CRYPTO_set_mem_functions(take, take_more, give_back) == 1);
    CHECK(ours = OSSL_PROVIDER_load(NULL, "lockstep"));
    CHECK(stock = OSSL_PROVIDER_load(NULL, "default"));
    CHECK(ASYNC_init_thread(1, 1) == 1 && stack_base);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        run(use_keys, &kinds[i]);
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        run(use_signature, &signatures[i]);
    for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++)
        run(use_exchange, &exchanges[i]);
    run(use_decryption, &decryption);
    for (size_t i = 0; i < 3; i++)
        run(use_kem, &kems[i]);
    run(use_kdf, NULL);
    for (size_t i = 0; i < 3; i++)
        run(use_cipher, ciphers[i]);
    for (size_t i = 0; i < 3; i++) {
        run(refuse_keys, &kems[i].key);
        run(refuse_secrets, &kems[i]);
    }
    printf("refusals %d\n", refusals);
    return 0;
}
