/* Derives keys with TLS13-KDF in usual and unusual ways, and prints what came of each: the bytes,
 * or the error. The last line says how many of them were such as libssl asks for. */
#include "common.h"
#include <openssl/kdf.h>
#include <openssl/params.h>

enum { EXTRACT = EVP_KDF_HKDF_MODE_EXTRACT_ONLY, EXPAND = EVP_KDF_HKDF_MODE_EXPAND_ONLY };

static unsigned char bytes[512];
static int usual;

/* What one derivation is given; lengths below zero leave a parameter out. */
struct inputs {
    int mode;
    const char *digest;
    int key, salt;
    const char *prefix, *label;
    int data;
};

static void octets(OSSL_PARAM **p, const char *name, const void *from, int length) {
    if (length >= 0)
        *(*p)++ = OSSL_PARAM_construct_octet_string(name, (void *)from, length);
}

/* At most twelve. */
static void params_of(struct inputs *in, OSSL_PARAM *p) {
    if (in->mode >= 0)
        *p++ = OSSL_PARAM_construct_int("mode", &in->mode);
    if (in->digest)
        *p++ = OSSL_PARAM_construct_utf8_string("digest", (char *)in->digest, 0);
    octets(&p, "key", bytes + 1, in->key);
    octets(&p, "salt", bytes + 64, in->salt);
    octets(&p, "prefix", in->prefix, in->prefix ? (int)strlen(in->prefix) : -1);
    octets(&p, "label", in->label, in->label ? (int)strlen(in->label) : -1);
    octets(&p, "data", bytes + 128, in->data);
    *p = OSSL_PARAM_construct_end();
}

static EVP_KDF_CTX *new_ctx(void) {
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
    EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
    CHECK(ctx);
    EVP_KDF_free(kdf);
    return ctx;
}

/* Derives `length` bytes and prints them. */
static int derive(const char *what, EVP_KDF_CTX *ctx, const OSSL_PARAM *params, size_t length) {
    unsigned char out[2048];
    memset(out, 0xa5, sizeof out);
    CHECK(length < sizeof out);
    int done = EVP_KDF_derive(ctx, out, length, params);
    unsigned long error = ERR_get_error();
    const char *reason = error ? ERR_reason_error_string(error) : NULL;
    printf("%s, %zu bytes: %d %s ", what, length, done, reason ? reason : "");
    for (size_t i = 0; done > 0 && i < length; i++)
        printf("%02x", out[i]);
    for (size_t i = length; i < sizeof out; i++)
        CHECK(out[i] == 0xa5);
    puts("");
    ERR_clear_error();
    return done;
}

/* In a context of its own, all parameters at once. */
static void at_once(const char *what, int is_usual, struct inputs in, size_t length) {
    OSSL_PARAM params[12];
    EVP_KDF_CTX *ctx = new_ctx();
    params_of(&in, params);
    int done = derive(what, ctx, params, length);
    CHECK(!is_usual || done == 1);
    usual += is_usual;
    EVP_KDF_CTX_free(ctx);
}

static void lengths(void) {
    const char *digests[] = {"SHA256", "sha2-384", "SHA512", "SHA1", "SHA2-256/128"};
    const int sizes[] = {32, 48, 64, 20, 0};
    for (int d = 0; d < 5; d++) {
        int size = sizes[d], tls = d < 2;
        for (int length = 0; length <= 2 * size + 1; length++)
            at_once(digests[d], tls && length > 0 && length <= size,
                    (struct inputs){EXPAND, digests[d], size, -1, "tls13 ", "key", -1}, length);
        for (int key = -1; key <= 136; key++) {
            struct inputs in = {EXTRACT, digests[d], key, -1, "tls13 ", "derived", -1};
            at_once("extract", tls && key != 0, in, size);
            in.salt = size;
            at_once("extract with salt", tls && key != 0, in, size);
            in.mode = EXPAND;
            in.salt = -1;
            at_once("expand", tls && key == size, in, 16);
        }
        for (int data = -1; data <= 66; data++)
            at_once("data", tls && data != 0 && data <= 64,
                    (struct inputs){EXPAND, digests[d], size, -1, "tls13 ", "c hs traffic", data}, 12);
        for (int salt = 0; salt < 66; salt++)
            if (salt != size)
                at_once("salt", 0,
                        (struct inputs){EXTRACT, digests[d], 32, salt, "tls13 ", "derived", -1}, size);
    }
}

static void oddities(void) {
    char label[300];
    memset(label, 'x', sizeof label);
    for (int length = 0; length < 260; length += length < 120 ? 7 : 1) {
        label[length] = 0;
        at_once("label", length > 0 && length <= 136,
                (struct inputs){EXPAND, "SHA256", 32, -1, "tls13 ", label, 32}, 32);
        label[length] = 'x';
    }
    const struct inputs good = {EXPAND, "SHA256", 32, -1, "tls13 ", "finished", -1};
    struct inputs in = good;
    at_once("good", 1, in, 32);
    in.prefix = NULL;
    at_once("no prefix", 0, in, 32);
    in = good;
    in.label = NULL;
    at_once("no label", 0, in, 32);
    in = good;
    in.digest = NULL;
    at_once("no digest", 0, in, 32);
    in = good;
    in.digest = "no such digest";
    at_once("unknown digest", 0, in, 32);
    for (int mode = -1; mode < 5; mode++) {
        in = good;
        in.mode = mode;
        at_once("mode", mode == EXTRACT || mode == EXPAND, in, 32);
    }
    /* Parameters of other types, unknown ones, and some twice. */
    OSSL_PARAM params[14], *end;
    int mode = EXPAND;
    for (int way = 0; way < 9; way++) {
        in = good;
        if (way == 0)
            in.mode = -1;
        if (way == 8)
            in.digest = NULL;
        params_of(&in, params);
        for (end = params; end->key; end++)
            ;
        long wide = EXPAND;
        switch (way) {
        case 0: *end++ = OSSL_PARAM_construct_utf8_string("mode", "EXPAND_ONLY", 0); break;
        case 1: *end++ = OSSL_PARAM_construct_utf8_string("properties", "provider=default", 0); break;
        case 2: *end++ = OSSL_PARAM_construct_octet_string("key", bytes + 9, 32); break;
        case 3: *end++ = OSSL_PARAM_construct_octet_string("label", "other", 5); break;
        case 4: *end++ = OSSL_PARAM_construct_int("mode", &mode); break;
        case 5: *end++ = OSSL_PARAM_construct_octet_string("info", bytes, 5); break;
        case 6: *end++ = OSSL_PARAM_construct_utf8_string("salt", "text", 0); break;
        case 7: *end++ = OSSL_PARAM_construct_long("mode", &wide); break;
        case 8: *end++ = OSSL_PARAM_construct_octet_string("digest", "SHA256", 6); break;
        }
        *end = OSSL_PARAM_construct_end();
        EVP_KDF_CTX *ctx = new_ctx();
        derive("odd", ctx, params, 32);
        derive("odd again", ctx, NULL, 32);
        EVP_KDF_CTX_free(ctx);
    }
}

/* Contexts used several times, asked, copied and reset: parameters stay as long as stock keeps
 * them. */
static void histories(void) {
    const char *digests[] = {"SHA256", "SHA384"};
    for (int d = 0; d < 2; d++) {
        int size = d ? 48 : 32;
        for (int way = 0; way < 10; way++) {
            struct inputs in = {EXPAND, digests[d], size, -1, "tls13 ", "key", 32};
            OSSL_PARAM params[12], iv[2] = {OSSL_PARAM_construct_octet_string("label", "iv", 2),
                                            OSSL_PARAM_construct_end()};
            EVP_KDF_CTX *ctx = new_ctx(), *copy;
            params_of(&in, params);
            if (way < 9) {
                CHECK(derive("first", ctx, params, 16) == 1);
                usual++;
            }
            switch (way) {
            case 0: derive("again", ctx, NULL, 16); break;
            case 1: derive("another label", ctx, iv, 12); break;
            case 2: derive("the same", ctx, params, 16); break;
            case 3:
                CHECK(EVP_KDF_CTX_set_params(ctx, iv) == 1);
                derive("set", ctx, NULL, 12);
                break;
            case 4: printf("size %zu\n", EVP_KDF_CTX_get_kdf_size(ctx)); break;
            case 5:
                copy = EVP_KDF_CTX_dup(ctx);
                printf("copied %d\n", copy != NULL);
                EVP_KDF_CTX_free(ctx);
                if (copy)
                    derive("copy", copy, iv, 12);
                ctx = copy;
                break;
            case 6:
                EVP_KDF_CTX_reset(ctx);
                derive("nothing left", ctx, NULL, 16);
                break;
            case 7:
                EVP_KDF_CTX_reset(ctx);
                derive("after reset", ctx, params, 16);
                usual++;
                break;
            case 8:
                derive("too long", ctx, NULL, 255 * size + 1 < 2048 ? 255 * size + 1 : 2000);
                break;
            case 9:
                CHECK(EVP_KDF_CTX_set_params(ctx, params) == 1);
                derive("set first", ctx, NULL, 16);
                derive("set first, then given", ctx, params, 16);
                break;
            }
            EVP_KDF_CTX_free(ctx);
        }
    }
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
    const OSSL_PARAM *settable = EVP_KDF_settable_ctx_params(kdf);
    for (; settable && settable->key; settable++)
        printf("settable %s %u\n", settable->key, settable->data_type);
    const OSSL_PARAM *gettable = EVP_KDF_gettable_ctx_params(kdf);
    for (; gettable && gettable->key; gettable++)
        printf("gettable %s %u\n", gettable->key, gettable->data_type);
    EVP_KDF_free(kdf);
}

/* The stages of a handshake without a key from before, and what is nearly so. */
static void stages(void) {
    const char *digests[] = {"SHA256", "SHA384"};
    for (int d = 0; d < 2; d++) {
        int size = d ? 48 : 32;
        unsigned char *salt = bytes + 64;
        struct inputs in = {EXTRACT, digests[d], -1, -1, "tls13 ", "derived", -1};
        OSSL_PARAM params[12];
        EVP_KDF_CTX *ctx = new_ctx();
        params_of(&in, params);
        CHECK(EVP_KDF_derive(ctx, salt, size, params) == 1);
        EVP_KDF_CTX_free(ctx);
        usual++;
        in.salt = size;
        at_once("handshake secret without agreement", 1, in, size);
        in.key = 32;
        at_once("handshake secret", 1, in, size);
        in.label = "derives";
        at_once("another label", 1, in, size);
        in.prefix = "tls12 ";
        in.label = "derived";
        at_once("another prefix", 1, in, size);
        in.prefix = "tls13 ";
        salt[size - 1] ^= 1;
        at_once("another secret", 1, in, size);
    }
}

/* The bytes that are derived go where those lie that they are derived from. */
static void in_place(void) {
    for (int mode = EXTRACT; mode <= EXPAND; mode++) {
        unsigned char both[32];
        memcpy(both, bytes, sizeof both);
        struct inputs in = {mode, "SHA256", -1, -1, "tls13 ", "key", 32};
        OSSL_PARAM params[12], *end = params;
        params_of(&in, params);
        while (end->key)
            end++;
        *end++ = OSSL_PARAM_construct_octet_string("key", both, sizeof both);
        *end = OSSL_PARAM_construct_end();
        EVP_KDF_CTX *ctx = new_ctx();
        CHECK(EVP_KDF_derive(ctx, both, sizeof both, params) == 1);
        usual++;
        printf("in place ");
        for (size_t i = 0; i < sizeof both; i++)
            printf("%02x", both[i]);
        puts("");
        EVP_KDF_CTX_free(ctx);
    }
}

int main(void) {
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 41 + 7);
    lengths();
    oddities();
    histories();
    in_place();
    stages();
    printf("usual %d\n", usual);
    return 0;
}
