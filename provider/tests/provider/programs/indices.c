/* A program with ex_data of its own in RSA and EC_KEY objects, in another library context than the
 * one that was the thread's default when the module was loaded. There libcrypto gives out the same
 * numbers of ex_data again.
 * Usage: indices KEY.pem DIRECTORY (where lockstep.so is). */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "context.h"
#include <openssl/crypto.h>
#include <openssl/ec.h>

/* More than the module could have had before them. */
enum { INDICES = 4 };

/* What the program keeps in an object. */
struct value {
    int index;
    int alive;
};

static int live, copied;

static void made(void *object, void *nothing, CRYPTO_EX_DATA *data, int index, long l, void *p) {
    (void)object, (void)l, (void)p;
    CHECK(!nothing);
    struct value *value = malloc(sizeof *value);
    CHECK(value);
    *value = (struct value){index, 1};
    live++;
    CHECK(CRYPTO_set_ex_data(data, index, value) == 1);
}

static int duplicated(CRYPTO_EX_DATA *to, const CRYPTO_EX_DATA *from, void **value, int index, long l, void *p) {
    (void)to, (void)from, (void)l, (void)p;
    struct value *original = *value;
    CHECK(original && original->index == index && original->alive);
    /* What `made` has put into the copy. */
    struct value *own = CRYPTO_get_ex_data(to, index);
    CHECK(own && own != original && own->index == index && own->alive);
    *value = own;
    copied++;
    return 1;
}

static void freed(void *object, void *freed, CRYPTO_EX_DATA *data, int index, long l, void *p) {
    (void)object, (void)data, (void)l, (void)p;
    struct value *value = freed;
    /* An object that is older than the index. */
    if (!value)
        return;
    CHECK(value->index == index && value->alive);
    value->alive = 0;
    live--;
    free(value);
}

/* Indices with functions, or without. */
static void take_indices(int class, int with_functions) {
    for (int i = 0; i < INDICES; i++)
        CHECK(CRYPTO_get_ex_new_index(class, 0, NULL, with_functions ? made : NULL,
                                      with_functions ? duplicated : NULL, with_functions ? freed : NULL) > 0);
}

/* Uses a key, and copies of it, while an operation holds it. */
static void use(struct context *c, EVP_PKEY *key) {
    unsigned char signature[1024];
    size_t length = sizeof signature;
    CHECK(key);
    sign(c->libctx, key, 1);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(EVP_DigestSignInit_ex(ctx, NULL, "SHA256", c->libctx, NULL, key, NULL) == 1);
    EVP_PKEY *first = EVP_PKEY_dup(key), *second = EVP_PKEY_dup(key);
    CHECK(first && second && EVP_PKEY_eq(first, key) == 1);
    EVP_PKEY_free(first);
    CHECK(EVP_DigestSign(ctx, signature, &length, (unsigned char *)"m", 1) == 1);
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    sign(c->libctx, second, 2);
    EVP_PKEY_free(second);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    key_path = argv[1];
    directory = argv[2];
    /* The module is loaded while the thread's default is a context of its own. */
    OSSL_LIB_CTX *first = OSSL_LIB_CTX_new();
    OSSL_LIB_CTX *global = OSSL_LIB_CTX_set0_default(first);
    struct context c = load_with(0);
    OSSL_LIB_CTX *plain = OSSL_LIB_CTX_new();
    for (int with_functions = 0; with_functions < 2; with_functions++) {
        OSSL_LIB_CTX_set0_default(with_functions ? global : plain);
        take_indices(CRYPTO_EX_INDEX_RSA, with_functions);
        take_indices(CRYPTO_EX_INDEX_EC_KEY, with_functions);
        use(&c, read_key(c.libctx, key_path));
        if (EVP_PKEY_is_a(c.key, "EC"))
            use(&c, EVP_PKEY_Q_keygen(c.libctx, NULL, "EC", "P-256"));
    }
    CHECK(live == 0 && (copied > 0 || !EVP_PKEY_is_a(c.key, "EC")));
    /* Made and freed under different defaults: libcrypto frees nothing then, as without the module. */
    OSSL_LIB_CTX_set0_default(first);
    EVP_PKEY *key = read_key(c.libctx, key_path);
    OSSL_LIB_CTX_set0_default(plain);
    use(&c, key);
    OSSL_LIB_CTX_set0_default(global);
    unload(c);
    OSSL_LIB_CTX_free(plain);
    OSSL_LIB_CTX_free(first);
}
