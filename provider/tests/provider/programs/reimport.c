/* Drives the module's dispatch tables itself: fills one RSA object several times, as libcrypto
 * would if a key were exported in pieces. Usage: reimport WAY KEY.pem DIRECTORY OTHER.pem
 * (DIRECTORY is where lockstep.so is); see `ways` for the ways. Every signature and decryption must
 * be the one that stock OpenSSL makes with the key that was filled in last. */
#include "common.h"
#include <openssl/core_dispatch.h>

static OSSL_LIB_CTX *libctx;
static OSSL_PROVIDER *lockstep;
static void *provctx;

static const OSSL_DISPATCH *table(int operation, const char *name) {
    int no_cache = 0;
    const OSSL_ALGORITHM *all = OSSL_PROVIDER_query_operation(lockstep, operation, &no_cache);
    size_t length = strlen(name);
    CHECK(all);
    for (; all->algorithm_names; all++)
        if (strncmp(all->algorithm_names, name, length) == 0 &&
            (all->algorithm_names[length] == ':' || all->algorithm_names[length] == 0))
            return all->implementation;
    CHECK(!"an algorithm");
    return NULL;
}

static void (*function(const OSSL_DISPATCH *table, int id))(void) {
    for (; table->function_id; table++)
        if (table->function_id == id)
            return table->function;
    CHECK(!"a function");
    return NULL;
}

#define FUNCTION(operation, type, id) ((OSSL_FUNC_##type##_fn *)function(table(operation, "RSA"), id))

/* A key as stock OpenSSL has it, and as parameters. */
struct key {
    EVP_PKEY *stock;
    OSSL_PARAM *params;
};

static struct key read_parts(const char *path) {
    struct key key = {read_key(NULL, path), NULL};
    CHECK(EVP_PKEY_todata(key.stock, EVP_PKEY_KEYPAIR, &key.params) == 1);
    return key;
}

static void *made(void) {
    void *object = FUNCTION(OSSL_OP_KEYMGMT, keymgmt_new, OSSL_FUNC_KEYMGMT_NEW)(provctx);
    CHECK(object);
    return object;
}

static void import(void *object, struct key key, int selection) {
    CHECK(FUNCTION(OSSL_OP_KEYMGMT, keymgmt_import, OSSL_FUNC_KEYMGMT_IMPORT)(object, selection, key.params) == 1);
}

static void import_private(void *object, struct key key) {
    import(object, key, OSSL_KEYMGMT_SELECT_KEYPAIR);
}

static void drop(void *object) {
    FUNCTION(OSSL_OP_KEYMGMT, keymgmt_free, OSSL_FUNC_KEYMGMT_FREE)(object);
}

/* A signature by the object; returns whether it was made. */
static int signed_by(void *object, unsigned char *signature, size_t *length) {
    unsigned char digest[32] = {1};
    void *ctx = FUNCTION(OSSL_OP_SIGNATURE, signature_newctx, OSSL_FUNC_SIGNATURE_NEWCTX)(provctx, NULL);
    CHECK(ctx);
    CHECK(FUNCTION(OSSL_OP_SIGNATURE, signature_sign_init, OSSL_FUNC_SIGNATURE_SIGN_INIT)(ctx, object, NULL) == 1);
    int result = FUNCTION(OSSL_OP_SIGNATURE, signature_sign, OSSL_FUNC_SIGNATURE_SIGN)(
        ctx, signature, length, *length, digest, sizeof digest);
    FUNCTION(OSSL_OP_SIGNATURE, signature_freectx, OSSL_FUNC_SIGNATURE_FREECTX)(ctx);
    return result == 1;
}

static void sign_like(void *object, struct key key) {
    unsigned char ours[1024], stock[1024], digest[32] = {1};
    size_t length = sizeof ours, stock_length = sizeof stock;
    CHECK(signed_by(object, ours, &length));
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key.stock, NULL);
    CHECK(ctx && EVP_PKEY_sign_init(ctx) == 1);
    CHECK(EVP_PKEY_sign(ctx, stock, &stock_length, digest, sizeof digest) == 1);
    EVP_PKEY_CTX_free(ctx);
    CHECK(length == stock_length && memcmp(ours, stock, length) == 0);
}

/* Opens what stock OpenSSL sealed, with OAEP, which is the default of neither. */
static void decrypt_like(void *object, struct key key) {
    unsigned char sealed[1024], opened[1024], message[16] = "attack at dawn";
    size_t length = sizeof sealed, opened_length = sizeof opened;
    EVP_PKEY_CTX *encrypt = EVP_PKEY_CTX_new(key.stock, NULL);
    CHECK(encrypt && EVP_PKEY_encrypt_init(encrypt) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(encrypt, RSA_PKCS1_OAEP_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(encrypt, sealed, &length, message, sizeof message) == 1);
    EVP_PKEY_CTX_free(encrypt);
    char oaep[] = OSSL_PKEY_RSA_PAD_MODE_OAEP;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_ASYM_CIPHER_PARAM_PAD_MODE, oaep, 0),
        OSSL_PARAM_construct_end(),
    };
    void *ctx = FUNCTION(OSSL_OP_ASYM_CIPHER, asym_cipher_newctx, OSSL_FUNC_ASYM_CIPHER_NEWCTX)(provctx);
    CHECK(ctx);
    CHECK(FUNCTION(OSSL_OP_ASYM_CIPHER, asym_cipher_decrypt_init,
                   OSSL_FUNC_ASYM_CIPHER_DECRYPT_INIT)(ctx, object, params) == 1);
    CHECK(FUNCTION(OSSL_OP_ASYM_CIPHER, asym_cipher_decrypt, OSSL_FUNC_ASYM_CIPHER_DECRYPT)(
              ctx, opened, &opened_length, sizeof opened, sealed, length) == 1);
    CHECK(opened_length == sizeof message && memcmp(opened, message, sizeof message) == 0);
    FUNCTION(OSSL_OP_ASYM_CIPHER, asym_cipher_freectx, OSSL_FUNC_ASYM_CIPHER_FREECTX)(ctx);
}

static void verify(void *object, struct key key) {
    unsigned char signature[1024], digest[32] = {1};
    size_t length = sizeof signature;
    EVP_PKEY_CTX *sign = EVP_PKEY_CTX_new(key.stock, NULL);
    CHECK(sign && EVP_PKEY_sign_init(sign) == 1);
    CHECK(EVP_PKEY_sign(sign, signature, &length, digest, sizeof digest) == 1);
    EVP_PKEY_CTX_free(sign);
    void *ctx = FUNCTION(OSSL_OP_SIGNATURE, signature_newctx, OSSL_FUNC_SIGNATURE_NEWCTX)(provctx, NULL);
    CHECK(ctx);
    CHECK(FUNCTION(OSSL_OP_SIGNATURE, signature_verify_init, OSSL_FUNC_SIGNATURE_VERIFY_INIT)(ctx, object, NULL) == 1);
    CHECK(FUNCTION(OSSL_OP_SIGNATURE, signature_verify, OSSL_FUNC_SIGNATURE_VERIFY)(
              ctx, signature, length, digest, sizeof digest) == 1);
    FUNCTION(OSSL_OP_SIGNATURE, signature_freectx, OSSL_FUNC_SIGNATURE_FREECTX)(ctx);
}

static void use(void *object, struct key key) {
    sign_like(object, key);
    verify(object, key);
    decrypt_like(object, key);
}

static void twice(struct key key, struct key other) {
    (void)other;
    void *object = made();
    import_private(object, key);
    import_private(object, key);
    use(object, key);
    drop(object);
}

static void used(struct key key, struct key other) {
    (void)other;
    void *object = made();
    for (int i = 0; i < 3; i++) {
        import_private(object, key);
        use(object, key);
    }
    drop(object);
}

static void public_first(struct key key, struct key other) {
    (void)other;
    void *object = made();
    import(object, key, OSSL_KEYMGMT_SELECT_PUBLIC_KEY);
    verify(object, key);
    import_private(object, key);
    use(object, key);
    import(object, key, OSSL_KEYMGMT_SELECT_PUBLIC_KEY);
    use(object, key);
    drop(object);
}

static void another(struct key key, struct key other) {
    void *object = made();
    import_private(object, key);
    import_private(object, other);
    use(object, other);
    drop(object);
    object = made();
    import_private(object, other);
    import_private(object, key);
    use(object, key);
    drop(object);
}

/* Where the program switches the blinding off, stock computes without, as it does alone. */
static void unblinded(struct key key, struct key other) {
    (void)key;
    void *object = made();
    import_private(object, other);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    RSA_set_flags(object, RSA_FLAG_NO_BLINDING);
    sign_like(object, other);
    drop(object);
}

static const struct {
    const char *name;
    void (*run)(struct key, struct key);
} ways[] = {
    {"twice", twice}, {"used", used}, {"public-first", public_first}, {"another", another}, {"unblinded", unblinded},
};

int main(int argc, char **argv) {
    CHECK(argc == 5);
    alarm(50);
    CHECK(libctx = OSSL_LIB_CTX_new());
    CHECK(OSSL_PROVIDER_set_default_search_path(libctx, argv[3]) == 1);
    CHECK(lockstep = OSSL_PROVIDER_load(libctx, "lockstep"));
    provctx = OSSL_PROVIDER_get0_provider_ctx(lockstep);
    struct key key = read_parts(argv[2]), other = read_parts(argv[4]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, argv[1]) == 0) {
            ways[i].run(key, other);
            CHECK(OSSL_PROVIDER_unload(lockstep) == 1);
            OSSL_LIB_CTX_free(libctx);
            return 0;
        }
    CHECK(!"a way");
}
