/* Key encapsulation by EVP.
 *
 * Usage: encapsulate ALGORITHM      all ways of a key pair, and of bad inputs
 *        encapsulate from SEED      prints the public key of ML-KEM-768 that follows from a seed
 *        encapsulate to PUBLIC COINS    prints a ciphertext and its secret
 *        encapsulate open SEED CIPHERTEXT    prints the secret in a ciphertext
 *        encapsulate settings ALGORITHM    how keys are made, by the module and by OpenSSL
 *        encapsulate jobs ALGORITHM COUNT    so many secrets in async jobs; prints how often a job
 *                                            paused
 *
 * Bytes are in hexadecimal digits. */
#include "left.h"
#include <openssl/async.h>
#include <openssl/core_names.h>
#include <openssl/param_build.h>
#include <openssl/proverr.h>
#include <poll.h>

enum { MOST = 4096 };
typedef struct {
    unsigned char bytes[MOST];
    size_t length;
} Octets;

static const char *algorithm;
/* Whose implementation. */
static const char *properties;

/* Whether a curve is beside ML-KEM. */
static int is_hybrid(void) {
    return strncmp(algorithm, "ML-KEM-", 7) != 0;
}

/* The parameter set of ML-KEM: 512, 768 or 1024. */
static int set(void) {
    return strstr(algorithm, "1024") ? 1024 : strstr(algorithm, "768") ? 768 : 512;
}

/* Bytes of a scalar that are ahead of ML-KEM's private key; the point is twice as long, and one. */
static int scalar(void) {
    return strstr(algorithm, "P256") ? 32 : strstr(algorithm, "P384") ? 48 : 0;
}

static EVP_PKEY_CTX *by_name(void) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, algorithm, properties);
    CHECK(ctx);
    return ctx;
}

static EVP_PKEY *generated(const OSSL_PARAM *params) {
    EVP_PKEY_CTX *ctx = by_name();
    EVP_PKEY *key = NULL;
    CHECK(EVP_PKEY_keygen_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_params(ctx, params) == 1);
    CHECK(EVP_PKEY_generate(ctx, &key) == 1);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

static const OSSL_PARAM none[] = {OSSL_PARAM_END};

/* A seed is for one key: the next one of the same context is another. */
static void use_seed_once(void) {
    unsigned char seed[64] = {1};
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("seed", seed, sizeof seed),
                           OSSL_PARAM_construct_end()};
    EVP_PKEY_CTX *ctx = by_name();
    EVP_PKEY *keys[3] = {NULL, NULL, NULL};
    CHECK(EVP_PKEY_keygen_init(ctx) == 1);
    for (int i = 0; i < 3; i++) {
        CHECK(i == 1 || EVP_PKEY_CTX_set_params(ctx, params) == 1);
        CHECK(EVP_PKEY_generate(ctx, &keys[i]) == 1);
    }
    CHECK(EVP_PKEY_eq(keys[0], keys[1]) != 1 && EVP_PKEY_eq(keys[0], keys[2]) == !is_hybrid());
    for (int i = 0; i < 3; i++)
        EVP_PKEY_free(keys[i]);
    EVP_PKEY_CTX_free(ctx);
}

static Octets part(EVP_PKEY *key, const char *name) {
    Octets octets;
    CHECK(EVP_PKEY_get_octet_string_param(key, name, octets.bytes, MOST, &octets.length) == 1);
    return octets;
}

/* NULL if the parts are refused. */
static EVP_PKEY *imported(int selection, const Octets *public, const Octets *private) {
    EVP_PKEY_CTX *ctx = by_name();
    EVP_PKEY *key = NULL;
    OSSL_PARAM params[3], *p = params;
    if (public)
        *p++ = OSSL_PARAM_construct_octet_string("pub", (void *)public->bytes, public->length);
    if (private)
        *p++ = OSSL_PARAM_construct_octet_string("priv", (void *)private->bytes, private->length);
    *p = OSSL_PARAM_construct_end();
    CHECK(EVP_PKEY_fromdata_init(ctx) == 1);
    if (EVP_PKEY_fromdata(ctx, &key, selection, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    return key;
}

/* What libssl does with a peer's share. NULL if it is refused. */
static EVP_PKEY *with_share(const Octets *public) {
    EVP_PKEY_CTX *ctx = by_name();
    EVP_PKEY *key = NULL;
    CHECK(EVP_PKEY_paramgen_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_group_name(ctx, algorithm) == 1);
    CHECK(EVP_PKEY_paramgen(ctx, &key) == 1);
    EVP_PKEY_CTX_free(ctx);
    if (EVP_PKEY_set1_encoded_public_key(key, public->bytes, public->length) == 1)
        return key;
    EVP_PKEY_free(key);
    return NULL;
}

/* 0 if it fails. */
static int sealed(EVP_PKEY *key, const OSSL_PARAM *params, Octets *ciphertext, Octets *secret) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(ctx && EVP_PKEY_encapsulate_init(ctx, params) == 1);
    CHECK(EVP_PKEY_encapsulate(ctx, NULL, &ciphertext->length, NULL, &secret->length) == 1);
    size_t lengths[] = {ciphertext->length, secret->length};
    CHECK(lengths[0] <= MOST && lengths[1] <= 80);
    ciphertext->length--;
    CHECK(EVP_PKEY_encapsulate(ctx, ciphertext->bytes, &ciphertext->length, secret->bytes,
                               &secret->length) != 1);
    /* Coins are for one attempt. */
    CHECK(!params || EVP_PKEY_encapsulate_init(ctx, params) == 1);
    ciphertext->length = MOST;
    secret->length = 80;
    int done = EVP_PKEY_encapsulate(ctx, ciphertext->bytes, &ciphertext->length, secret->bytes,
                                    &secret->length);
    CHECK(done != 1 || (ciphertext->length == lengths[0] && secret->length == lengths[1]));
    EVP_PKEY_CTX_free(ctx);
    return done == 1;
}

/* 0 if it fails. */
static int opened(EVP_PKEY *key, const Octets *ciphertext, Octets *secret) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL), *copy;
    CHECK(ctx && EVP_PKEY_decapsulate_init(ctx, NULL) == 1);
    copy = EVP_PKEY_CTX_dup(ctx);
    CHECK(copy);
    EVP_PKEY_CTX_free(ctx);
    CHECK(EVP_PKEY_decapsulate(copy, NULL, &secret->length, ciphertext->bytes, ciphertext->length) ==
          1);
    int done = EVP_PKEY_decapsulate(copy, secret->bytes, &secret->length, ciphertext->bytes,
                                    ciphertext->length);
    EVP_PKEY_CTX_free(copy);
    return done == 1;
}

static int same(const Octets *a, const Octets *b) {
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

/* Coins make ML-KEM's secret; hybrids ignore them, whatever their length, and do not list them. */
static void give_coins(EVP_PKEY *key) {
    unsigned char coins[32] = {1};
    Octets ciphertexts[2], secret;
    for (int length = 31; length <= 33; length++) {
        OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("ikme", coins, length % 33),
                               OSSL_PARAM_construct_end()};
        EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
        CHECK((EVP_PKEY_encapsulate_init(ctx, params) == 1) == (is_hybrid() || length == 32));
        if (length == 32) {
            const OSSL_PARAM *settable = EVP_PKEY_CTX_settable_params(ctx);
            CHECK((OSSL_PARAM_locate_const(settable, "ikme") == NULL) == is_hybrid());
            for (int i = 0; i < 2; i++)
                CHECK(sealed(key, params, &ciphertexts[i], &secret));
            CHECK(same(&ciphertexts[0], &ciphertexts[1]) == !is_hybrid());
        }
        EVP_PKEY_CTX_free(ctx);
    }
}

/* A copy of a context sends, and not by the coins of the first one. */
static void send_by_copy(EVP_PKEY *key) {
    unsigned char coins[32] = {2};
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("ikme", coins, sizeof coins),
                           OSSL_PARAM_construct_end()};
    EVP_PKEY_CTX *contexts[2] = {EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL)};
    Octets ciphertexts[2], sent[2], received;
    CHECK(EVP_PKEY_encapsulate_init(contexts[0], params) == 1);
    CHECK(contexts[1] = EVP_PKEY_CTX_dup(contexts[0]));
    for (int i = 0; i < 2; i++) {
        ciphertexts[i].length = sent[i].length = MOST;
        CHECK(EVP_PKEY_encapsulate(contexts[i], ciphertexts[i].bytes, &ciphertexts[i].length,
                                   sent[i].bytes, &sent[i].length) == 1);
        CHECK(opened(key, &ciphertexts[i], &received) && same(&sent[i], &received));
        EVP_PKEY_CTX_free(contexts[i]);
    }
    CHECK(!same(&ciphertexts[0], &ciphertexts[1]) && !same(&sent[0], &sent[1]));
}

static int passes(int (*check)(EVP_PKEY_CTX *), EVP_PKEY *key) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(ctx);
    int passed = check(ctx) == 1;
    EVP_PKEY_CTX_free(ctx);
    return passed;
}

/* A secret goes from the one key to the other. */
static void exchange(EVP_PKEY *public, EVP_PKEY *private) {
    Octets ciphertext, sent, received;
    CHECK(sealed(public, NULL, &ciphertext, &sent) && opened(private, &ciphertext, &received));
    CHECK(same(&sent, &received));
}

static void all_ways(void) {
    EVP_PKEY *key = generated(none), *other = generated(none), *copy = EVP_PKEY_dup(key);
    Octets public = part(key, "pub"), private = part(key, "priv");
    Octets encoded = part(key, "encoded-pub-key");
    EVP_PKEY *half = imported(EVP_PKEY_PUBLIC_KEY, &public, NULL);
    EVP_PKEY *whole = imported(EVP_PKEY_KEYPAIR, &public, &private);
    EVP_PKEY *alone = imported(EVP_PKEY_KEYPAIR, NULL, &private);
    EVP_PKEY *share = with_share(&public);
    CHECK(copy && half && whole && alone && share && same(&public, &encoded));
    CHECK(EVP_PKEY_eq(key, whole) == 1 && EVP_PKEY_eq(key, share) == 1);
    CHECK(EVP_PKEY_eq(key, alone) == 1 && EVP_PKEY_eq(key, other) != 1);
    CHECK(EVP_PKEY_get_security_bits(key) == set() / 4 && EVP_PKEY_get_bits(key) == set());
    int category = 0;
    CHECK(EVP_PKEY_get_int_param(key, "security-category", &category) == 1);
    CHECK(category == 2 * (set() / 256) - 3);
    EVP_PKEY *public_ones[] = {key, half, whole, alone, share, copy};
    EVP_PKEY *private_ones[] = {key, whole, alone, copy};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++)
            exchange(public_ones[i], private_ones[j]);
    CHECK(EVP_PKEY_get_size(key) > set());
    for (int i = 0; i < 6; i++)
        CHECK(passes(EVP_PKEY_public_check, public_ones[i]));
    for (int i = 0; i < 4; i++)
        CHECK(passes(EVP_PKEY_check, private_ones[i]) &&
              passes(EVP_PKEY_pairwise_check, private_ones[i]));
    CHECK(!passes(EVP_PKEY_check, half) && !passes(EVP_PKEY_pairwise_check, half));

    /* A key is not changed. */
    Octets of_other = part(other, "pub");
    CHECK(EVP_PKEY_set1_encoded_public_key(share, of_other.bytes, of_other.length) != 1);
    exchange(share, key);

    /* Without a private key nothing is opened. */
    Octets ciphertext, sent, received;
    CHECK(sealed(half, NULL, &ciphertext, &sent));
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, half, NULL);
    CHECK(ctx && EVP_PKEY_decapsulate_init(ctx, NULL) != 1);
    EVP_PKEY_CTX_free(ctx);

    /* A changed ciphertext gives another secret, or none. */
    int others = 0;
    for (size_t i = 0; i < ciphertext.length; i += 73) {
        ciphertext.bytes[i] ^= 1;
        if (opened(key, &ciphertext, &received)) {
            CHECK(received.length == sent.length && !same(&received, &sent));
            others++;
        }
        ciphertext.bytes[i] ^= 1;
    }
    CHECK(others >= (int)ciphertext.length / 73 - 2);
    ciphertext.length--;
    CHECK(!opened(key, &ciphertext, &received));
    ciphertext.length += 2;
    CHECK(!opened(key, &ciphertext, &received));

    /* Public keys that are too short, too long, or have a coefficient of 4095. A hybrid's private
     * key makes the one beside it unneeded, but for its length. */
    int at = scalar() ? 2 * scalar() + 1 : 0, vector = set() / 256 * 384;
    for (int kind = 0; kind < 3; kind++) {
        Octets bad = public;
        if (kind == 2)
            bad.bytes[at + 300] = 0xff, bad.bytes[at + 301] |= 0x0f;
        else
            bad.length += kind == 0 ? -1 : 1;
        CHECK(!imported(EVP_PKEY_PUBLIC_KEY, &bad, NULL) && !with_share(&bad));
        EVP_PKEY *pair = imported(EVP_PKEY_KEYPAIR, &bad, &private);
        CHECK((pair != NULL) == (is_hybrid() && kind == 2));
        EVP_PKEY_free(pair);
    }
    /* A private key whose hash is not that of its public key; another's public key beside it. */
    Octets bad = private;
    bad.bytes[scalar() + vector + vector + 32] ^= 1;
    CHECK(!imported(EVP_PKEY_KEYPAIR, &public, &bad) && !imported(EVP_PKEY_KEYPAIR, NULL, &bad));
    EVP_PKEY *pair = imported(EVP_PKEY_KEYPAIR, &of_other, &private);
    CHECK(is_hybrid() ? EVP_PKEY_eq(pair, key) == 1 : pair == NULL);
    EVP_PKEY_free(pair);
    bad.length--;
    CHECK(!imported(EVP_PKEY_KEYPAIR, NULL, &bad));
    /* A private key with another coefficient, and its own public key. */
    for (int i = 0; i < 9; i++) {
        bad = private;
        bad.bytes[scalar() + i] ^= 1;
        CHECK(!imported(EVP_PKEY_KEYPAIR, NULL, &bad) && !imported(EVP_PKEY_KEYPAIR, &public, &bad));
    }
    /* A point that is not on its curve. */
    if (at) {
        bad = public;
        bad.bytes[at - 1] ^= 1;
        EVP_PKEY *off_curve = imported(EVP_PKEY_PUBLIC_KEY, &bad, NULL);
        CHECK(off_curve && !passes(EVP_PKEY_public_check, off_curve));
        EVP_PKEY_free(off_curve);
    }

    give_coins(key);
    send_by_copy(key);

    EVP_PKEY *all[] = {key, other, copy, half, whole, alone, share};
    for (int i = 0; i < 7; i++)
        EVP_PKEY_free(all[i]);
}

/* Since OpenSSL 3.5; the headers of an earlier one lack them. */
enum { NULL_LENGTH_POINTER = 247, WRONG_CIPHERTEXT_SIZE = 251 };

static int last_reason(void) {
    unsigned long error = ERR_peek_last_error();
    ERR_clear_error();
    return ERR_GET_LIB(error) == ERR_LIB_PROV ? ERR_GET_REASON(error) : 0;
}

/* A call fails, and this reason is the last in the queue; 0 for none of a provider. */
#define REFUSED(reason, call)                 \
    do {                                      \
        ERR_clear_error();                    \
        CHECK((call) <= 0);                   \
        CHECK(last_reason() == (int)(reason)); \
    } while (0)

/* Where OpenSSL's own ML-KEM leaves no reason, the module leaves one. */
static int says_all(void) {
    return is_hybrid() || strcmp(properties, "provider=default") != 0;
}

/* Where OpenSSL's own leave no reason. */
static int by_module(int reason) {
    return strcmp(properties, "provider=default") != 0 ? reason : 0;
}

static void operations_say_why(void) {
    EVP_PKEY *key = generated(none), *half;
    Octets public = part(key, "encoded-pub-key"), ciphertext, untouched, secret;
    half = imported(EVP_PKEY_PUBLIC_KEY, &public, NULL);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, properties);
    unsigned char *to = ciphertext.bytes, *shared = secret.bytes;
    size_t *length = &ciphertext.length, *shared_length = &secret.length;
    memset(ciphertext.bytes, 0xee, MOST);
    untouched = ciphertext;

    CHECK(EVP_PKEY_encapsulate_init(ctx, NULL) == 1);
    *length = EVP_PKEY_get_size(key) - 1, *shared_length = 80;
    REFUSED(PROV_R_OUTPUT_BUFFER_TOO_SMALL,
            EVP_PKEY_encapsulate(ctx, to, length, shared, shared_length));
    *length = MOST, *shared_length = 31;
    REFUSED(PROV_R_OUTPUT_BUFFER_TOO_SMALL,
            EVP_PKEY_encapsulate(ctx, to, length, shared, shared_length));
    *length = MOST, *shared_length = 80;
    REFUSED(NULL_LENGTH_POINTER, EVP_PKEY_encapsulate(ctx, to, NULL, shared, shared_length));
    REFUSED(NULL_LENGTH_POINTER, EVP_PKEY_encapsulate(ctx, to, length, shared, NULL));
    REFUSED(NULL_LENGTH_POINTER, EVP_PKEY_encapsulate(ctx, to, NULL, shared, NULL));
    REFUSED(by_module(NULL_LENGTH_POINTER), EVP_PKEY_encapsulate(ctx, NULL, NULL, NULL, NULL));
    CHECK(memcmp(ciphertext.bytes, untouched.bytes, MOST) == 0);
    *length = MOST, *shared_length = 80;
    CHECK(EVP_PKEY_encapsulate(ctx, to, length, shared, shared_length) == 1);

    CHECK(EVP_PKEY_decapsulate_init(ctx, NULL) == 1);
    REFUSED(says_all() ? WRONG_CIPHERTEXT_SIZE : 0,
            EVP_PKEY_decapsulate(ctx, shared, shared_length, to, *length - 1));
    *shared_length = 31;
    REFUSED(PROV_R_OUTPUT_BUFFER_TOO_SMALL,
            EVP_PKEY_decapsulate(ctx, shared, shared_length, to, *length));
    CHECK(EVP_PKEY_decapsulate(ctx, shared, NULL, to, *length) == 1);
    EVP_PKEY_CTX_free(ctx);

    ctx = EVP_PKEY_CTX_new_from_pkey(NULL, half, properties);
    REFUSED(PROV_R_MISSING_KEY, EVP_PKEY_decapsulate_init(ctx, NULL));
    OSSL_PARAM coins[] = {OSSL_PARAM_construct_octet_string("ikme", to, 31),
                          OSSL_PARAM_construct_end()};
    if (!is_hybrid())
        REFUSED(PROV_R_INVALID_SEED_LENGTH, EVP_PKEY_encapsulate_init(ctx, coins));
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(half);
    EVP_PKEY_free(key);
}

/* In all types and sizes of numbers. */
static void numbers_fit_what_asks(void) {
    EVP_PKEY *key = generated(none);
    static const struct {
        unsigned type, size;
    } kinds[] = {{OSSL_PARAM_INTEGER, 2},          {OSSL_PARAM_INTEGER, 4},
                 {OSSL_PARAM_UNSIGNED_INTEGER, 8}, {OSSL_PARAM_UNSIGNED_INTEGER, 16},
                 {OSSL_PARAM_REAL, sizeof(double)}};
    for (int i = 0; i < 5; i++) {
        unsigned char bytes[16];
        memset(bytes, 0x5a, sizeof bytes);
        OSSL_PARAM params[] = {{"bits", kinds[i].type, bytes, kinds[i].size, 0},
                               OSSL_PARAM_construct_end()};
        CHECK(EVP_PKEY_get_params(key, params) == 1 && params[0].return_size == kinds[i].size);
        double real = 0;
        if (kinds[i].type == OSSL_PARAM_REAL)
            memcpy(&real, bytes, sizeof real);
        else
            for (int at = kinds[i].size - 1; at >= 0; at--)
                real = real * 256 + bytes[at];
        CHECK(real == set());
    }
    BIGNUM *number = NULL;
    CHECK(EVP_PKEY_get_bn_param(key, "security-bits", &number) == 1 && BN_is_word(number, set() / 4));
    BN_free(number);
    OSSL_PARAM sizes[] = {{"bits", OSSL_PARAM_INTEGER, NULL, 0, 0}, OSSL_PARAM_construct_end()};
    CHECK(EVP_PKEY_get_params(key, sizes) == 1);
    /* OpenSSL's own ML-KEM answers as for a size_t since 3.6. */
    CHECK(sizes[0].return_size == sizeof(int) || strcmp(properties, "provider=default") == 0);
    EVP_PKEY_free(key);
}

static int imports(OSSL_PARAM *params, int selection) {
    EVP_PKEY_CTX *ctx = by_name();
    EVP_PKEY *key = NULL;
    CHECK(EVP_PKEY_fromdata_init(ctx) == 1);
    int done = EVP_PKEY_fromdata(ctx, &key, selection, params);
    EVP_PKEY_free(key);
    EVP_PKEY_CTX_free(ctx);
    return done;
}

static void keys_say_why(void) {
    EVP_PKEY *key = generated(none), *empty = NULL, *other = NULL, *share;
    Octets public = part(key, "encoded-pub-key"), large = public;
    EVP_PKEY_CTX *ctx = by_name();
    OSSL_PARAM *exported = NULL, parts[] = {OSSL_PARAM_construct_end(), OSSL_PARAM_construct_end()};
    size_t length;

    /* Without material. */
    CHECK(EVP_PKEY_paramgen_init(ctx) == 1 && EVP_PKEY_paramgen(ctx, &empty) == 1);
    CHECK(EVP_PKEY_paramgen(ctx, &other) == 1 && EVP_PKEY_eq(empty, other) == 1);
    CHECK(EVP_PKEY_eq(empty, key) != 1);
    EVP_PKEY_free(other);
    REFUSED(PROV_R_MISSING_KEY, EVP_PKEY_todata(empty, EVP_PKEY_KEYPAIR, &exported));
    REFUSED(PROV_R_MISSING_KEY, imports(parts, EVP_PKEY_KEYPAIR));
    EVP_PKEY_CTX_free(ctx);
    ctx = EVP_PKEY_CTX_new_from_pkey(NULL, empty, properties);
    REFUSED(PROV_R_MISSING_KEY, EVP_PKEY_encapsulate_init(ctx, NULL));
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(empty);

    /* Of a wrong length, and with coefficients that are too large. */
    parts[0] = OSSL_PARAM_construct_octet_string("pub", public.bytes, public.length - 1);
    REFUSED(PROV_R_INVALID_KEY_LENGTH, imports(parts, EVP_PKEY_PUBLIC_KEY));
    parts[0].key = "priv";
    REFUSED(PROV_R_INVALID_KEY_LENGTH, imports(parts, EVP_PKEY_KEYPAIR));
    memset(large.bytes + 300, 0xff, 3);
    parts[0] = OSSL_PARAM_construct_octet_string("pub", large.bytes, large.length);
    REFUSED(PROV_R_INVALID_KEY, imports(parts, EVP_PKEY_PUBLIC_KEY));
    parts[0] = OSSL_PARAM_construct_octet_string("seed", large.bytes, 63);
    if (!is_hybrid()) {
        REFUSED(PROV_R_INVALID_SEED_LENGTH, imports(parts, EVP_PKEY_KEYPAIR));
        ctx = by_name();
        CHECK(EVP_PKEY_keygen_init(ctx) == 1);
        REFUSED(PROV_R_INVALID_SEED_LENGTH, EVP_PKEY_CTX_set_params(ctx, parts));
        EVP_PKEY_CTX_free(ctx);
    }

    /* A share that is set again, and one that does not fit where it is wanted. */
    CHECK(share = with_share(&public));
    REFUSED(PROV_R_OPERATION_NOT_SUPPORTED_FOR_THIS_KEYTYPE,
            EVP_PKEY_set1_encoded_public_key(share, public.bytes, public.length));
    REFUSED(says_all() ? PROV_R_OUTPUT_BUFFER_TOO_SMALL : 0,
            EVP_PKEY_get_octet_string_param(share, "encoded-pub-key", large.bytes, 7, &length));
    EVP_PKEY_free(share);

    /* A part that is reached by a pointer, and one that is empty. */
    void *pointer = public.bytes;
    parts[0] = OSSL_PARAM_construct_octet_ptr("pub", &pointer, public.length);
    CHECK(imports(parts, EVP_PKEY_PUBLIC_KEY) == 1);
    parts[0] = OSSL_PARAM_construct_octet_string("pub", NULL, 0);
    REFUSED(PROV_R_MISSING_KEY, imports(parts, EVP_PKEY_PUBLIC_KEY));
    Octets private = {.length = 0};
    if (EVP_PKEY_get_octet_string_param(key, "priv", private.bytes, MOST, &private.length) == 1) {
        OSSL_PARAM both[] = {parts[0],
                             OSSL_PARAM_construct_octet_string("priv", private.bytes,
                                                               private.length),
                             OSSL_PARAM_construct_end()};
        CHECK(imports(both, EVP_PKEY_KEYPAIR) == 1);
    }
    EVP_PKEY_free(key);
}

static Octets secret_half, its_ciphertext;

static void import_and_use(void) {
    Octets secret;
    EVP_PKEY *key = imported(EVP_PKEY_KEYPAIR, NULL, &secret_half);
    CHECK(key && passes(EVP_PKEY_check, key) && opened(key, &its_ciphertext, &secret));
    EVP_PKEY_free(key);
}

/* The import of a private key, its check and its use leave nothing of it on the stack. */
static void keys_leave_nothing(void) {
    EVP_PKEY *key = generated(none);
    Octets secret;
    secret_half = part(key, "priv");
    CHECK(sealed(key, NULL, &its_ciphertext, &secret));
    /* What begins and ends the private key of ML-KEM, and the scalar beside it. */
    size_t places[] = {0, 16, 32, secret_half.length - 32, secret_half.length - 16};
    for (int i = 0; i < 5; i++)
        CHECK(!is_left_by(import_and_use, secret_half.bytes + places[i], 16));
    EVP_PKEY_free(key);
}

/* What OpenSSL's own code does, where it has the algorithm, and the module. */
static void answer_as_openssl(void) {
    for (int who = 0; who < 2; who++) {
        properties = who ? "provider=default" : "provider=lockstep";
        EVP_KEM *kem = EVP_KEM_fetch(NULL, algorithm, properties);
        if (kem) {
            operations_say_why();
            keys_say_why();
            numbers_fit_what_asks();
        }
        CHECK(kem || who);
        EVP_KEM_free(kem);
    }
    ERR_clear_error();
    properties = NULL;
}

/* What a job has: the stack of one is small. */
struct secret {
    EVP_PKEY *key;
    Octets ciphertext, sent, received;
};

static int send_secret(void *arg) {
    struct secret *secret = *(struct secret **)arg;
    return sealed(secret->key, NULL, &secret->ciphertext, &secret->sent) &&
           opened(secret->key, &secret->ciphertext, &secret->received);
}

/* Until the job may go on: its one descriptor says so. */
static void wait_for(ASYNC_WAIT_CTX *wait) {
    OSSL_ASYNC_FD fd;
    size_t count = 0;
    CHECK(ASYNC_WAIT_CTX_get_all_fds(wait, NULL, &count) == 1 && count == 1);
    CHECK(ASYNC_WAIT_CTX_get_all_fds(wait, &fd, &count) == 1);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    CHECK(poll(&poll_fd, 1, 60000) == 1);
}

/* Returns how often a job paused. */
static int in_jobs(int count) {
    EVP_PKEY *key = generated(none);
    struct secret *secrets = calloc(count, sizeof *secrets);
    ASYNC_JOB **jobs = calloc(count, sizeof(ASYNC_JOB *));
    ASYNC_WAIT_CTX **waits = calloc(count, sizeof(ASYNC_WAIT_CTX *));
    int paused = 0;
    CHECK(ASYNC_init_thread(count, count) == 1);
    for (int left = count, started = 0; left > 0; started = 1) {
        for (int i = 0; i < count; i++) {
            struct secret *secret = &secrets[i];
            int result = 0;
            if (!started) {
                secret->key = key;
                CHECK(waits[i] = ASYNC_WAIT_CTX_new());
            } else if (!jobs[i]) {
                continue;
            } else {
                wait_for(waits[i]);
            }
            switch (ASYNC_start_job(&jobs[i], waits[i], &result, send_secret, &secret,
                                    sizeof secret)) {
            case ASYNC_PAUSE:
                paused++;
                break;
            case ASYNC_FINISH:
                CHECK(result == 1 && same(&secret->sent, &secret->received));
                jobs[i] = NULL;
                ASYNC_WAIT_CTX_free(waits[i]);
                left--;
                break;
            default:
                CHECK(!"a job");
            }
        }
    }
    EVP_PKEY_free(key);
    return paused;
}

static Octets from_hex(const char *text) {
    Octets octets;
    CHECK(OPENSSL_hexstr2buf_ex(octets.bytes, MOST, &octets.length, text, 0) == 1);
    return octets;
}

static void print(const Octets *octets) {
    for (size_t i = 0; i < octets->length; i++)
        printf("%02x", octets->bytes[i]);
    printf("\n");
}

static EVP_PKEY *of_seed(const char *text) {
    Octets seed = from_hex(text);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("seed", seed.bytes, seed.length),
                           OSSL_PARAM_construct_end()};
    return generated(params);
}

static int has_seed(EVP_PKEY *key) {
    unsigned char seed[64];
    size_t length = 0;
    CHECK(key);
    int has = EVP_PKEY_get_octet_string_param(key, "seed", seed, sizeof seed, &length) == 1;
    EVP_PKEY_free(key);
    return has && length == sizeof seed;
}

static EVP_PKEY *of_parts(unsigned char *seed, Octets *private) {
    OSSL_PARAM params[3], *p = params;
    EVP_PKEY_CTX *ctx = by_name();
    EVP_PKEY *key = NULL;
    *p++ = OSSL_PARAM_construct_octet_string("seed", seed, 64);
    if (private)
        *p++ = OSSL_PARAM_construct_octet_string("priv", private->bytes, private->length);
    *p = OSSL_PARAM_construct_end();
    CHECK(EVP_PKEY_fromdata_init(ctx) == 1);
    if (EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    return key;
}

/* What the settings of the default provider change. */
static void show_settings(void) {
    unsigned char seed[64] = {7};
    EVP_PKEY *key = generated(none), *of_seed = of_parts(seed, NULL);
    Octets private = part(key, "priv"), bad;
    EVP_PKEY *of_both = of_parts(seed, &private), *pair = NULL;
    const char *counts = !of_both ? "neither" : EVP_PKEY_eq(of_both, key) == 1 ? "key" : "seed";
    /* Unless the coefficient is too large. */
    for (int i = 0; i < 9 && !pair; i++) {
        bad = private;
        bad.bytes[i] ^= 1;
        pair = imported(EVP_PKEY_KEYPAIR, NULL, &bad);
    }
    CHECK(!pair || (EVP_PKEY_eq(pair, key) == 1 && passes(EVP_PKEY_public_check, pair)));
    CHECK(!pair || (!passes(EVP_PKEY_check, pair) && !passes(EVP_PKEY_pairwise_check, pair)));
    printf("generated %d, imported %d, ", has_seed(key), has_seed(of_seed));
    printf("%s counts, damaged %d\n", counts, pair != NULL);
    EVP_PKEY_free(of_both);
    EVP_PKEY_free(pair);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    if (strcmp(argv[1], "settings") == 0) {
        algorithm = argv[2];
        for (int who = 0; who < 2; who++) {
            properties = who ? "provider=default" : "provider=lockstep";
            EVP_KEM *kem = EVP_KEM_fetch(NULL, algorithm, properties);
            CHECK(kem || who);
            if (kem)
                show_settings();
            EVP_KEM_free(kem);
        }
        return 0;
    }
    algorithm = argc == 2 ? argv[1] : "ML-KEM-768";
    if (argc == 2) {
        all_ways();
        use_seed_once();
        answer_as_openssl();
        keys_leave_nothing();
    } else if (strcmp(argv[1], "from") == 0) {
        Octets public = part(of_seed(argv[2]), "pub");
        print(&public);
    } else if (strcmp(argv[1], "to") == 0) {
        Octets public = from_hex(argv[2]), coins = from_hex(argv[3]), ciphertext, secret;
        OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("ikme", coins.bytes, coins.length),
                               OSSL_PARAM_construct_end()};
        CHECK(sealed(imported(EVP_PKEY_PUBLIC_KEY, &public, NULL), params, &ciphertext, &secret));
        print(&ciphertext);
        print(&secret);
    } else if (strcmp(argv[1], "jobs") == 0) {
        algorithm = argv[2];
        printf("%d pauses\n", in_jobs(atoi(argv[3])));
    } else {
        Octets ciphertext = from_hex(argv[3]), secret;
        CHECK(opened(of_seed(argv[2]), &ciphertext, &secret));
        print(&secret);
    }
    return 0;
}
