/* Digests, random generators and properties of the application's own library context.
 * Usage: foreign WAY KEY.pem DIRECTORY (where lockstep.so is); see `ways` for the ways. */
#include "context.h"
#include <openssl/evp.h>
#include <openssl/rand.h>

/* Signs with a digest and a query; whether that worked. */
static int sign_with(struct context *c, const char *digest, const char *query) {
    unsigned char signature[1024];
    size_t length = sizeof signature;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int done = EVP_DigestSignInit_ex(ctx, NULL, digest, c->libctx, query, c->key, NULL) == 1
               && EVP_DigestSign(ctx, signature, &length, (unsigned char *)"m", 1) == 1;
    EVP_MD_CTX_free(ctx);
    return done;
}

/* A query holds for the digest too, but for what it says about the module. */
static void queries(void) {
    struct context c = load_with(1);
    CHECK(EVP_set_default_properties(c.libctx, "") == 1);
    CHECK(sign_with(&c, "SHA256", "provider=lockstep"));
    CHECK(sign_with(&c, "MD4", "provider=lockstep"));
    CHECK(sign_with(&c, "MD4", "?provider=lockstep"));
    CHECK(sign_with(&c, "MD4", "provider!=default"));
    CHECK(!sign_with(&c, "SHA256", "provider!=default"));
    unload(c);
}

/* OAEP with a digest of another provider. */
static void decrypt(void) {
    struct context c = load_with(1);
    unsigned char sealed[1024], opened[1024];
    size_t length = sizeof sealed, opened_length = sizeof opened;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(c.libctx, c.key, NULL);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("pad-mode", "oaep", 0),
                           OSSL_PARAM_construct_utf8_string("digest", "MD4", 0), OSSL_PARAM_END};
    CHECK(ctx && EVP_PKEY_encrypt_init_ex(ctx, params) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, sealed, &length, (unsigned char *)"secret", 6) == 1);
    CHECK(EVP_PKEY_decrypt_init_ex(ctx, params) == 1);
    CHECK(EVP_PKEY_decrypt(ctx, opened, &opened_length, sealed, length) == 1);
    CHECK(opened_length == 6 && memcmp(opened, "secret", 6) == 0);
    EVP_PKEY_CTX_free(ctx);
    unload(c);
}

/* How often the generator has been seeded. */
static unsigned seeds(EVP_RAND_CTX *generator) {
    unsigned count = 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_uint("reseed_counter", &count), OSSL_PARAM_END};
    CHECK(EVP_RAND_CTX_get_params(generator, params) == 1 && OSSL_PARAM_modified(params));
    return count;
}

/* The salt of PSS comes from the random generator of the context. */
static void salt(void) {
    struct context c = load_with(1);
    EVP_RAND_CTX *generator = RAND_get0_public(c.libctx);
    unsigned one = 1;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_uint("reseed_requests", &one), OSSL_PARAM_END};
    CHECK(generator && EVP_RAND_CTX_set_params(generator, params) == 1);
    unsigned before = seeds(generator);
    for (int i = 0; i < 4; i++) {
        unsigned char signature[1024];
        size_t length = sizeof signature;
        EVP_PKEY_CTX *options = NULL;
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        CHECK(EVP_DigestSignInit_ex(ctx, &options, "SHA256", c.libctx, NULL, c.key, NULL) == 1);
        CHECK(EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1);
        CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)"m", 1) == 1);
        EVP_MD_CTX_free(ctx);
    }
    CHECK(seeds(generator) >= before + 3);
    unload(c);
}

/* The module keeps the default provider's context alive, but not the provider active. */
static void given_up(void) {
    struct context c = load_with(1);
    unsigned char signature[1024];
    size_t length = sizeof signature;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(EVP_DigestSignInit_ex(ctx, NULL, "SHA256", c.libctx, NULL, c.key, NULL) == 1);
    CHECK(OSSL_PROVIDER_unload(c.stock) == 1);
    CHECK(!OSSL_PROVIDER_available(c.libctx, "default"));
    CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)"m", 1) == 1);
    CHECK(sign_with(&c, "MD4", NULL));
    CHECK(!sign_with(&c, "SHA512", NULL));
    EVP_PKEY_free(c.key);
    CHECK(OSSL_PROVIDER_unload(c.lockstep) == 1);
    CHECK(OSSL_PROVIDER_unload(c.legacy) == 1);
    OSSL_LIB_CTX_free(c.libctx);
    /* The last reference to the module goes with this. */
    EVP_MD_CTX_free(ctx);
}

static long resident(void) {
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &size, &pages) == 2);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Contexts come and go without a trace, whichever provider goes first. */
static void often(void) {
    long before = 0;
    for (int i = 0; i < 600; i++) {
        OSSL_LIB_CTX *libctx = OSSL_LIB_CTX_new();
        CHECK(libctx && OSSL_PROVIDER_set_default_search_path(libctx, directory) == 1);
        OSSL_PROVIDER *stock = i % 3 ? OSSL_PROVIDER_load(libctx, "default") : NULL;
        OSSL_PROVIDER *lockstep = OSSL_PROVIDER_load(libctx, "lockstep");
        CHECK(lockstep);
        if (i % 3 == 1)
            CHECK(OSSL_PROVIDER_unload(stock) == 1 && OSSL_PROVIDER_unload(lockstep) == 1);
        else
            CHECK(OSSL_PROVIDER_unload(lockstep) == 1 && (!stock || OSSL_PROVIDER_unload(stock) == 1));
        OSSL_LIB_CTX_free(libctx);
        if (i == 100)
            before = resident();
    }
    /* A default provider that stays takes more than 100 KiB. */
    CHECK(resident() < before + (4 << 20));
    struct context c = load_with(1);
    sign(c.libctx, c.key, 1);
    unload(c);
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {{"queries", queries},   {"decrypt", decrypt}, {"salt", salt},
            {"given-up", given_up}, {"often", often}};

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
