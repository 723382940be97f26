/* Loads the module by itself, without a configuration file.
 * Usage: contexts WAY KEY.pem DIRECTORY (where lockstep.so is); see `ways` for the ways. */
#include "context.h"
#include <pthread.h>

static void sign_times(struct context *c, int times) {
    for (int i = 0; i < times; i++)
        sign(c->libctx, c->key, i);
}

static void two(void) {
    struct context a = load_with(0), b = load_with(0);
    for (int i = 0; i < 20; i++) {
        sign_times(&a, 1);
        sign_times(&b, 1);
    }
    unload(a);
    unload(b);
}

static void *sign_forty(void *context) {
    sign_times(context, 40);
    return NULL;
}

static void free_one(void) {
    struct context a = load_with(0), b = load_with(0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sign_forty, &a) == 0);
    sign_times(&b, 10);
    unload(b);
    b = load_with(0);
    sign_times(&b, 10);
    unload(b);
    CHECK(pthread_join(thread, NULL) == 0);
    unload(a);
}

static void reload(void) {
    for (int i = 0; i < 5; i++) {
        struct context c = load_with(0);
        sign_times(&c, 10);
        unload(c);
    }
}

/* The provider's handle is given back first; what still refers to it keeps it alive. */
static void unload_first(void) {
    unsigned char signature[1024];
    size_t length = sizeof signature;
    struct context c = load_with(0);
    sign_times(&c, 1);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(EVP_DigestSignInit_ex(ctx, NULL, "SHA256", c.libctx, NULL, c.key, NULL) == 1);
    CHECK(OSSL_PROVIDER_unload(c.lockstep) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)"m", 1) == 1);
    EVP_PKEY_free(c.key);
    length = sizeof signature;
    /* The operation holds the key. */
    CHECK(EVP_DigestSignInit_ex(ctx, NULL, NULL, NULL, NULL, NULL, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)"n", 1) == 1);
    CHECK(OSSL_PROVIDER_unload(c.stock) == 1);
    OSSL_LIB_CTX_free(c.libctx);
    EVP_MD_CTX_free(ctx);
}

static void leave(void) {
    struct context c = load_with(0);
    sign_times(&c, 3);
}

static void leave_at_once(void) {
    struct context c = load_with(0);
    sign_times(&c, 3);
    _exit(0);
}

static uint64_t counter(struct context *c, const char *name) {
    uint64_t value = ~0ull;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_uint64(name, &value), OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c->lockstep, params) == 1 && OSSL_PARAM_modified(params));
    return value;
}

static void parameters(void) {
    struct context c = load_with(0);
    const char *names[] = {"name", "version", "buildinfo", "backend"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text = NULL;
        OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_ptr(names[i], &text, 0), OSSL_PARAM_END};
        CHECK(OSSL_PROVIDER_get_params(c.lockstep, params) == 1 && text && *text);
    }
    /* A line for each operation that is not accelerated; here there is none but key derivation. */
    char *text = NULL;
    OSSL_PARAM named[] = {OSSL_PARAM_construct_utf8_ptr("lockstep-unaccelerated", &text, 0), OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, named) == 1 && text);
    CHECK(!*text || strncmp(text, "TLS 1.3 key derivation: ", 24) == 0);
    unsigned status = 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_uint("status", &status), OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, params) == 1 && status == 1);
    CHECK(counter(&c, "lockstep-operations") == 0);
    sign_times(&c, 3);
    CHECK(counter(&c, "lockstep-operations") == 3);
    CHECK(counter(&c, "lockstep-batches") == 3 && counter(&c, "lockstep-passes") == 3);
    CHECK(counter(&c, "lockstep-fallbacks") == 0);
    CHECK(counter(&c, "lockstep-failed-checks") == 0);
    CHECK(counter(&c, "lockstep-async-submitted") == 0);
    /* Everything that is announced can be had, with the type and size that are announced. */
    const OSSL_PARAM *known = OSSL_PROVIDER_gettable_params(c.lockstep);
    CHECK(known);
    int count = 0;
    for (; known->key; known++, count++) {
        uint64_t space = 0;
        OSSL_PARAM one[] = {*known, OSSL_PARAM_END};
        one[0].data = &space;
        one[0].return_size = OSSL_PARAM_UNMODIFIED;
        CHECK(OSSL_PROVIDER_get_params(c.lockstep, one) == 1 && OSSL_PARAM_modified(one));
    }
    CHECK(count >= 12);
    unload(c);
}

static void unsuitable(void) {
    struct context c = load_with(0);
    unsigned char byte = 0x55;
    uint64_t value = 77;
    char text[64] = "untouched", *pointer = NULL;
    OSSL_PARAM nothing[] = {OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, nothing) == 1);
    /* Unknown names are left alone. */
    OSSL_PARAM unknown[] = {OSSL_PARAM_construct_uint64("lockstep-nothing", &value), OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, unknown) == 1);
    CHECK(!OSSL_PARAM_modified(unknown) && value == 77);
    /* Too little space for a number. */
    OSSL_PARAM small[] = {{"lockstep-operations", OSSL_PARAM_UNSIGNED_INTEGER, &byte, 1, 0}, OSSL_PARAM_END};
    OSSL_PROVIDER_get_params(c.lockstep, small);
    CHECK(byte == 0x55 || byte == 0);
    OSSL_PARAM three[] = {{"status", OSSL_PARAM_UNSIGNED_INTEGER, text, 3, 0}, OSSL_PARAM_END};
    OSSL_PROVIDER_get_params(c.lockstep, three);
    CHECK(strcmp(text + 3, "ouched") == 0);
    /* A number is not a text, and a text is not a number. */
    strcpy(text, "untouched");
    OSSL_PARAM as_text[] = {OSSL_PARAM_construct_utf8_string("lockstep-operations", text, sizeof text), OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, as_text) == 0);
    CHECK(strcmp(text, "untouched") == 0);
    OSSL_PARAM as_number[] = {OSSL_PARAM_construct_uint64("version", &value), OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, as_number) == 0 && value == 77);
    OSSL_PARAM as_real[] = {{"lockstep-operations", OSSL_PARAM_REAL, &value, 8, 0}, OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, as_real) == 0 && value == 77);
    /* Without a buffer the size is returned. */
    OSSL_PARAM size[] = {{"lockstep-operations", OSSL_PARAM_UNSIGNED_INTEGER, NULL, 0, 0}, OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, size) == 1 && size[0].return_size == 8);
    OSSL_PARAM length[] = {{"version", OSSL_PARAM_UTF8_PTR, NULL, 0, 0}, OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, length) == 1 && length[0].return_size > 0);
    /* A good one after a bad one: the call fails, nothing is torn. */
    OSSL_PARAM mixed[] = {OSSL_PARAM_construct_uint64("version", &value),
                          OSSL_PARAM_construct_utf8_ptr("name", &pointer, 0), OSSL_PARAM_END};
    CHECK(OSSL_PROVIDER_get_params(c.lockstep, mixed) == 0 && value == 77);
    unload(c);
}

/* Contexts are copied after init and after update; the copies go their own ways. */
static void duplicate(void) {
    struct context c = load_with(0);
    unsigned char signature[1024], copied[1024];
    size_t length = sizeof signature, copied_length = sizeof copied;
    EVP_MD_CTX *first = EVP_MD_CTX_new(), *second = EVP_MD_CTX_new(), *third = EVP_MD_CTX_new();
    EVP_PKEY_CTX *options = NULL;
    CHECK(EVP_DigestSignInit_ex(first, &options, "SHA256", c.libctx, NULL, c.key, NULL) == 1);
    CHECK(EVP_MD_CTX_copy_ex(second, first) == 1);
    CHECK(EVP_DigestSignUpdate(first, "mess", 4) == 1 && EVP_DigestSignUpdate(second, "mess", 4) == 1);
    CHECK(EVP_MD_CTX_copy_ex(third, first) == 1);
    CHECK(EVP_DigestSignUpdate(first, "age", 3) == 1 && EVP_DigestSignUpdate(third, "age", 3) == 1);
    EVP_PKEY_free(c.key); /* The operations hold it. */
    CHECK(EVP_DigestSignFinal(first, signature, &length) == 1);
    EVP_MD_CTX_free(first);
    CHECK(EVP_DigestSignFinal(third, copied, &copied_length) == 1);
    CHECK(length == copied_length && memcmp(signature, copied, length) == 0);
    EVP_MD_CTX_free(third);
    copied_length = sizeof copied;
    CHECK(EVP_DigestSignFinal(second, copied, &copied_length) == 1);
    CHECK(memcmp(signature, copied, length) != 0);
    EVP_MD_CTX_free(second);

    /* PSS: options survive the copy. */
    c.key = read_key(c.libctx, key_path);
    first = EVP_MD_CTX_new();
    second = EVP_MD_CTX_new();
    CHECK(EVP_DigestSignInit_ex(first, &options, "SHA256", c.libctx, NULL, c.key, NULL) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_pss_saltlen(options, 0) == 1);
    CHECK(EVP_MD_CTX_copy_ex(second, first) == 1);
    length = copied_length = sizeof signature;
    CHECK(EVP_DigestSign(first, signature, &length, (unsigned char *)"m", 1) == 1);
    CHECK(EVP_DigestSign(second, copied, &copied_length, (unsigned char *)"m", 1) == 1);
    CHECK(memcmp(signature, copied, length) == 0);
    EVP_MD_CTX_free(first);
    EVP_MD_CTX_free(second);

    /* Decryption. */
    unsigned char sealed[1024], opened[1024];
    size_t sealed_length = sizeof sealed;
    EVP_PKEY_CTX *encrypt = EVP_PKEY_CTX_new_from_pkey(c.libctx, c.key, NULL);
    CHECK(EVP_PKEY_encrypt_init(encrypt) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(encrypt, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(encrypt, sealed, &sealed_length, (unsigned char *)"m", 1) == 1);
    EVP_PKEY_CTX *decrypt = EVP_PKEY_CTX_new_from_pkey(c.libctx, c.key, NULL);
    CHECK(EVP_PKEY_decrypt_init(decrypt) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(decrypt, RSA_PKCS1_OAEP_PADDING) == 1);
    EVP_PKEY_CTX *copies[3] = {decrypt, EVP_PKEY_CTX_dup(decrypt), EVP_PKEY_CTX_dup(decrypt)};
    for (int i = 0; i < 3; i++) {
        size_t opened_length = sizeof opened;
        CHECK(copies[i]);
        CHECK(EVP_PKEY_decrypt(copies[i], opened, &opened_length, sealed, sealed_length) == 1);
        CHECK(opened_length == 1 && opened[0] == 'm');
        EVP_PKEY_CTX_free(copies[i]);
    }
    EVP_PKEY_CTX_free(encrypt);
    unload(c);
}

static void keys(void) {
    struct context c = load_with(0);
    /* A copy of a key outlives the original, and the other way round. */
    EVP_PKEY *copy = EVP_PKEY_dup(c.key);
    CHECK(copy && EVP_PKEY_eq(copy, c.key) == 1);
    sign(c.libctx, copy, 1);
    EVP_PKEY_free(copy);
    sign(c.libctx, c.key, 2);
    copy = EVP_PKEY_dup(c.key);
    EVP_PKEY_free(c.key);
    sign(c.libctx, copy, 3);
    c.key = copy;

    /* A key that our own key management generates, with copies of it. */
    EVP_PKEY_CTX *generate = EVP_PKEY_CTX_new_from_name(c.libctx, "RSA", "provider=lockstep");
    EVP_PKEY *own = NULL;
    CHECK(generate && EVP_PKEY_keygen_init(generate) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_keygen_bits(generate, 2048) == 1);
    CHECK(EVP_PKEY_generate(generate, &own) == 1);
    EVP_PKEY_CTX_free(generate);
    CHECK(strcmp(OSSL_PROVIDER_get0_name(EVP_PKEY_get0_provider(own)), "lockstep") == 0);
    sign(c.libctx, own, 4);
    copy = EVP_PKEY_dup(own);
    CHECK(copy && EVP_PKEY_eq(copy, own) == 1);
    EVP_PKEY_free(own);
    sign(c.libctx, copy, 5);
    /* Its parts come out whole, as a new key of the default provider. */
    OSSL_PARAM *parts = NULL;
    CHECK(EVP_PKEY_todata(copy, EVP_PKEY_KEYPAIR, &parts) == 1);
    EVP_PKEY *again = NULL;
    EVP_PKEY_CTX *make = EVP_PKEY_CTX_new_from_name(c.libctx, "RSA", NULL);
    CHECK(make && EVP_PKEY_fromdata_init(make) == 1);
    CHECK(EVP_PKEY_fromdata(make, &again, EVP_PKEY_KEYPAIR, parts) == 1);
    CHECK(EVP_PKEY_eq(again, copy) == 1);
    OSSL_PARAM_free(parts);
    EVP_PKEY_CTX_free(make);
    EVP_PKEY_free(copy);
    sign(c.libctx, again, 6);
    EVP_PKEY_free(again);
    unload(c);
}

static void buffers(void) {
    struct context c = load_with(0);
    unsigned char digest[32] = {1}, out[1024], guard[1024];
    size_t length = 0;
    memset(out, 0xa5, sizeof out);
    memset(guard, 0xa5, sizeof guard);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(c.libctx, c.key, NULL);
    CHECK(ctx && EVP_PKEY_sign_init(ctx) == 1);
    CHECK(EVP_PKEY_sign(ctx, NULL, &length, digest, sizeof digest) == 1 && length == 256);
    length = 255;
    CHECK(EVP_PKEY_sign(ctx, out, &length, digest, sizeof digest) <= 0);
    CHECK(memcmp(out, guard, sizeof out) == 0);
    length = 256;
    CHECK(EVP_PKEY_sign(ctx, out, &length, digest, sizeof digest) == 1 && length == 256);
    CHECK(memcmp(out + 256, guard, sizeof out - 256) == 0);
    EVP_PKEY_CTX_free(ctx);

    unsigned char sealed[256];
    length = sizeof sealed;
    ctx = EVP_PKEY_CTX_new_from_pkey(c.libctx, c.key, NULL);
    CHECK(EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &length, digest, sizeof digest) == 1);
    EVP_PKEY_CTX_free(ctx);
    ctx = EVP_PKEY_CTX_new_from_pkey(c.libctx, c.key, NULL);
    CHECK(EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_decrypt(ctx, NULL, &length, sealed, sizeof sealed) == 1 && length == 256);
    length = sizeof out;
    CHECK(EVP_PKEY_decrypt(ctx, out, &length, sealed, sizeof sealed) == 1 && length == 32);
    CHECK(memcmp(out, digest, 32) == 0);
    EVP_PKEY_CTX_free(ctx);
    unload(c);
}

/* Programs may ask for the module by name, for one operation. */
static void properties(void) {
    const char *queries[] = {"provider=lockstep", "?provider=lockstep", "?lockstep.fast=yes"};
    struct context c = load_with(0);
    CHECK(EVP_set_default_properties(c.libctx, "") == 1);
    for (int i = 0; i < 3; i++) {
        unsigned char signature[1024];
        size_t length = sizeof signature;
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        CHECK(EVP_DigestSignInit_ex(ctx, NULL, "SHA256", c.libctx, queries[i], c.key, NULL) == 1);
        CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)"m", 1) == 1);
        EVP_MD_CTX_free(ctx);
    }
    unload(c);
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {
    {"two", two},           {"free-one", free_one},     {"reload", reload},
    {"unload-first", unload_first}, {"leave", leave},   {"leave-at-once", leave_at_once},
    {"parameters", parameters}, {"unsuitable", unsuitable}, {"duplicate", duplicate},
    {"keys", keys},         {"buffers", buffers},       {"properties", properties},
};

int main(int argc, char **argv) {
    CHECK(argc == 4);
    key_path = argv[2];
    directory = argv[3];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, argv[1]) == 0) {
            ways[i].run();
            return 0;
        }
    CHECK(!"a way");
}
