/* A library context with the default provider and the module, which no configuration file loads. */
#include "common.h"

/* The private key's file, and where lockstep.so is. */
static const char *key_path, *directory;

struct context {
    OSSL_LIB_CTX *libctx;
    OSSL_PROVIDER *stock, *legacy, *lockstep;
    EVP_PKEY *key;
};

/* The system's providers come first, then the module. */
static inline struct context load_with(int legacy) {
    struct context c = {0};
    CHECK(c.libctx = OSSL_LIB_CTX_new());
    CHECK(c.stock = OSSL_PROVIDER_load(c.libctx, "default"));
    if (legacy)
        CHECK(c.legacy = OSSL_PROVIDER_load(c.libctx, "legacy"));
    CHECK(OSSL_PROVIDER_set_default_search_path(c.libctx, directory) == 1);
    CHECK(c.lockstep = OSSL_PROVIDER_load(c.libctx, "lockstep"));
    CHECK(EVP_set_default_properties(c.libctx, "?lockstep.fast=yes,?lockstep.keys!=yes") == 1);
    c.key = read_key(c.libctx, key_path);
    return c;
}

static inline void unload(struct context c) {
    EVP_PKEY_free(c.key);
    CHECK(OSSL_PROVIDER_unload(c.lockstep) == 1);
    CHECK(!c.legacy || OSSL_PROVIDER_unload(c.legacy) == 1);
    CHECK(OSSL_PROVIDER_unload(c.stock) == 1);
    OSSL_LIB_CTX_free(c.libctx);
}
