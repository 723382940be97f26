/* Signs and verifies with a key of ML-DSA by each way of EVP, in two library contexts: one has the
 * default provider alone, the other is the program's own. Both must answer alike, and sign alike
 * where nothing is drawn: in each form, and in so many cases that follow from a number. Functions
 * that older headers do not have are looked up.
 * Usage: ml_dsa ML-DSA-44 CASES NUMBER (the module is in OPENSSL_CONF) */
#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>
#include <openssl/x509.h>

enum { ALONE, TRIED, SIDES, MOST = 5000, MESSAGE = 3000, LONG = 17000 };

static OSSL_LIB_CTX *contexts[SIDES];
static EVP_PKEY *keys[SIDES];
static EVP_SIGNATURE *algorithms[SIDES];
static unsigned char message[LONG];
static const char *name;
static int has_pieces; /* OpenSSL 3.5 has no messages in pieces */

typedef int init_with(EVP_PKEY_CTX *ctx, EVP_SIGNATURE *algorithm, const OSSL_PARAM *params);
typedef int with_bytes(EVP_PKEY_CTX *ctx, const unsigned char *bytes, size_t length);
static init_with *sign_init, *verify_init;
static with_bytes *sign_update, *verify_update, *set_signature;
static int (*sign_final)(EVP_PKEY_CTX *ctx, unsigned char *signature, size_t *length);
static int (*verify_final)(EVP_PKEY_CTX *ctx);

/* How a message is signed: all that a context can be told. */
struct form {
    const char *context;
    size_t length; /* of the context, unless it is a string */
    int raw, hashed, deterministic, entropy, repeated;
};

static OSSL_PARAM *parameters(const struct form *form) {
    static unsigned char entropy[32] = {1, 2, 3};
    static int off, on = 1;
    static OSSL_PARAM all[8];
    OSSL_PARAM *to = all;
    if (form->context)
        *to++ = OSSL_PARAM_construct_octet_string("context-string", (void *)form->context,
                                                  form->length ? form->length
                                                               : strlen(form->context));
    if (form->repeated)
        *to++ = OSSL_PARAM_construct_octet_string("context-string", "other", 5);
    if (form->raw) *to++ = OSSL_PARAM_construct_int("message-encoding", &off);
    if (form->hashed) *to++ = OSSL_PARAM_construct_int("mu", &on);
    if (form->deterministic) *to++ = OSSL_PARAM_construct_int("deterministic", &on);
    if (form->entropy) *to++ = OSSL_PARAM_construct_octet_string("test-entropy", entropy, 32);
    *to = OSSL_PARAM_construct_end();
    return all;
}

/* The ways of EVP: a digest context in one call, a signature in one call, one in pieces. */
enum { DIGEST, WHOLE, PIECES, WAYS };

/* The result, and a signature if it is 1. */
static int signed_by(int side, int way, const struct form *form, size_t length,
                     unsigned char *to, size_t *room) {
    OSSL_PARAM *params = parameters(form);
    int done;
    if (way == DIGEST) {
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        done = EVP_DigestSignInit_ex(ctx, NULL, NULL, contexts[side], NULL, keys[side], params);
        size_t needed = 0;
        if (done == 1) done = EVP_DigestSign(ctx, NULL, &needed, message, length);
        if (done == 1) {
            /* A copy of the context signs as the context does. */
            EVP_MD_CTX *copy = EVP_MD_CTX_new();
            CHECK(EVP_MD_CTX_copy_ex(copy, ctx) == 1);
            done = EVP_DigestSign(copy, to, room, message, length);
            CHECK(done != 1 || *room == needed);
            EVP_MD_CTX_free(copy);
        }
        EVP_MD_CTX_free(ctx);
        return done;
    }
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(contexts[side], keys[side], NULL);
    done = sign_init(ctx, algorithms[side], params);
    if (way == WHOLE) {
        if (done == 1) done = EVP_PKEY_sign(ctx, to, room, message, length);
    } else {
        size_t half = length / 2;
        if (done == 1) done = sign_update(ctx, message, half);
        if (done == 1) done = sign_update(ctx, message + half, length - half);
        if (done == 1) done = sign_final(ctx, to, room);
    }
    EVP_PKEY_CTX_free(ctx);
    return done;
}

static int verified_by(int side, int way, const struct form *form, size_t length,
                       const unsigned char *signature, size_t size) {
    OSSL_PARAM *params = parameters(form);
    int done;
    if (way == DIGEST) {
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        done = EVP_DigestVerifyInit_ex(ctx, NULL, NULL, contexts[side], NULL, keys[side], params);
        if (done == 1) done = EVP_DigestVerify(ctx, signature, size, message, length);
        EVP_MD_CTX_free(ctx);
        return done;
    }
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(contexts[side], keys[side], NULL);
    done = verify_init(ctx, algorithms[side], params);
    if (way == WHOLE) {
        if (done == 1) done = EVP_PKEY_verify(ctx, signature, size, message, length);
    } else {
        if (done == 1) done = set_signature(ctx, signature, size);
        if (done == 1) done = verify_update(ctx, message, length);
        if (done == 1) done = verify_final(ctx);
    }
    EVP_PKEY_CTX_free(ctx);
    return done;
}

static void compare(const char *what, int alone, int tried) {
    if (alone == tried) return;
    fprintf(stderr, "%s: %d, OpenSSL alone: %d\n", what, tried, alone);
    exit(1);
}

static void try_form(int way, const struct form *form, size_t length) {
    static unsigned char made[SIDES][MOST];
    size_t size[SIDES] = {MOST, MOST};
    int done[SIDES], is_alike = form->deterministic || form->entropy;
    for (int side = 0; side < SIDES; side++)
        done[side] = signed_by(side, way, form, length, made[side], &size[side]);
    compare("signed", done[ALONE], done[TRIED]);
    if (done[ALONE] != 1) return;
    CHECK(size[ALONE] == size[TRIED]);
    compare("signed alike", is_alike, memcmp(made[ALONE], made[TRIED], size[ALONE]) == 0);
    for (int side = 0; side < SIDES; side++) {
        for (int other = 0; other < WAYS; other++) {
            if (other == PIECES && (form->hashed || !has_pieces)) continue;
            CHECK(verified_by(side, other, form, length, made[!side], size[!side]) == 1);
        }
        int is_shown = length > 0;
        message[0] ^= 1;
        if (is_shown) CHECK(verified_by(side, way, form, length, made[!side], size[!side]) != 1);
        message[0] ^= 1;
        made[!side][7] ^= 1;
        CHECK(verified_by(side, way, form, length, made[!side], size[!side]) != 1);
        made[!side][7] ^= 1;
        CHECK(verified_by(side, way, form, length, made[!side], size[!side] - 1) != 1);
    }
    /* Too little room for a signature. */
    for (int side = 0; side < SIDES; side++) {
        size[side]--;
        done[side] = signed_by(side, way, form, length, made[side], &size[side]);
    }
    compare("signed without room", done[ALONE], done[TRIED]);
    compare("the length without room", (int)size[ALONE], (int)size[TRIED]);
}

/* A context that begins again without a key has the last one, and what it was told before. */
static void begin_again(void) {
    struct form first = {.context = "word", .raw = 1, .hashed = 1, .deterministic = 1};
    struct form second = {.context = "other"};
    static unsigned char made[SIDES][MOST];
    size_t size[SIDES] = {MOST, MOST};
    for (int side = 0; side < SIDES; side++) {
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        CHECK(EVP_DigestSignInit_ex(ctx, NULL, NULL, contexts[side], NULL, keys[side],
                                    parameters(&first)) == 1);
        CHECK(EVP_DigestSignInit_ex(ctx, NULL, NULL, contexts[side], NULL, NULL,
                                    parameters(&second)) == 1);
        CHECK(EVP_DigestSign(ctx, made[side], &size[side], message, 100) == 1);
        EVP_MD_CTX_free(ctx);
    }
    CHECK(size[ALONE] == size[TRIED] && memcmp(made[ALONE], made[TRIED], size[ALONE]) == 0);
}

/* Keys of both sides are equal, and so are their copies and encodings. */
static void look_at_keys(void) {
    unsigned char *encoded[SIDES] = {0}, *public[SIDES] = {0};
    int length[SIDES], public_length[SIDES];
    CHECK(EVP_PKEY_eq(keys[ALONE], keys[TRIED]) == 1);
    for (int side = 0; side < SIDES; side++) {
        EVP_PKEY *copy = EVP_PKEY_dup(keys[side]), *other;
        CHECK(copy && EVP_PKEY_eq(copy, keys[!side]) == 1);
        length[side] = i2d_PrivateKey(copy, &encoded[side]);
        public_length[side] = i2d_PUBKEY(copy, &public[side]);
        CHECK(length[side] > 0 && public_length[side] > 0);
        EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(contexts[side], copy, NULL);
        CHECK(EVP_PKEY_check(ctx) == 1 && EVP_PKEY_pairwise_check(ctx) == 1);
        EVP_PKEY_CTX_free(ctx);
        CHECK((other = EVP_PKEY_Q_keygen(contexts[side], NULL, name)));
        CHECK(EVP_PKEY_eq(copy, other) == 0);
        EVP_PKEY_free(other);
        EVP_PKEY_free(copy);
        /* Without its private half it verifies and does not sign. */
        const unsigned char *from = public[side];
        copy = d2i_PUBKEY_ex(NULL, &from, public_length[side], contexts[side], NULL);
        CHECK(copy && EVP_PKEY_eq(copy, keys[side]) == 1);
        size_t room = MOST;
        unsigned char made[MOST];
        ctx = EVP_PKEY_CTX_new_from_pkey(contexts[side], copy, NULL);
        struct form none = {0};
        CHECK(sign_init(ctx, algorithms[side], parameters(&none)) != 1 ||
              EVP_PKEY_sign(ctx, made, &room, message, 100) != 1);
        EVP_PKEY_CTX_free(ctx);
        EVP_PKEY_free(copy);
    }
    CHECK(length[ALONE] == length[TRIED] && public_length[ALONE] == public_length[TRIED]);
    CHECK(memcmp(encoded[ALONE], encoded[TRIED], length[ALONE]) == 0);
    CHECK(memcmp(public[ALONE], public[TRIED], public_length[ALONE]) == 0);
    for (int side = 0; side < SIDES; side++) {
        OPENSSL_free(encoded[side]);
        OPENSSL_free(public[side]);
    }
}

/* Both sides have the same key. */
static void new_keys(void) {
    EVP_PKEY *key = EVP_PKEY_Q_keygen(contexts[ALONE], NULL, name);
    unsigned char *encoded = NULL;
    int length = i2d_PrivateKey(key, &encoded);
    CHECK(key && length > 0);
    for (int side = 0; side < SIDES; side++) {
        const unsigned char *from = encoded;
        EVP_PKEY_free(keys[side]);
        keys[side] = d2i_AutoPrivateKey_ex(NULL, &from, length, contexts[side], NULL);
        CHECK(keys[side]);
    }
    OPENSSL_free(encoded);
    EVP_PKEY_free(key);
}

/* KiB that the process has locked. */
static long locked(void) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long found = -1;
    while (status && found < 0 && fgets(line, sizeof line, status))
        if (sscanf(line, "VmLck: %ld", &found) != 1) found = -1;
    if (status) fclose(status);
    return found;
}

/* A public key takes no memory for keys. Before there is any other key. */
static void begin_with_public_key(void) {
    unsigned char *public = NULL;
    EVP_PKEY *key = EVP_PKEY_Q_keygen(contexts[ALONE], NULL, name);
    int length = i2d_PUBKEY(key, &public);
    const unsigned char *from = public;
    EVP_PKEY_free(key);
    CHECK((key = d2i_PUBKEY_ex(NULL, &from, length, contexts[TRIED], NULL)));
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    long before = locked();
    CHECK(EVP_DigestVerifyInit_ex(ctx, NULL, NULL, contexts[TRIED], NULL, key, NULL) == 1);
    CHECK(locked() == before);
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    OPENSSL_free(public);
}

static unsigned long state;

/* A number below a limit, by a generator that is no secret. */
static unsigned below(unsigned limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % limit;
}

/* A signature by both sides, and the verdicts of both on what becomes of it by damage. */
static void try_case(void) {
    static unsigned char made[SIDES][MOST];
    static char context[256];
    size_t size[SIDES] = {MOST, MOST}, length = below(8) ? below(300) : below(MESSAGE);
    for (unsigned i = 0; i < sizeof context; i++) context[i] = (char)below(256);
    struct form form = {.raw = !below(4), .deterministic = 1, .entropy = !below(3)};
    form.length = below(256);
    if (form.length && below(4)) form.context = context;
    if (!below(4)) {
        form.hashed = 1;
        length = below(8) ? 64 : below(100);
    }
    for (size_t i = 0; i < length; i++) message[i] = (unsigned char)below(256);
    int done[SIDES], way = below(PIECES);
    for (int side = 0; side < SIDES; side++)
        done[side] = signed_by(side, way, &form, length, made[side], &size[side]);
    compare("signed", done[ALONE], done[TRIED]);
    if (done[ALONE] != 1) return;
    CHECK(size[ALONE] == size[TRIED] && memcmp(made[ALONE], made[TRIED], size[ALONE]) == 0);
    for (int i = 0; i < 4; i++) {
        unsigned char *signature = made[ALONE];
        size_t short_by = i == 3 ? below(3) : 0;
        /* Of the challenge, of the response, of the hints at the end. */
        size_t at = i == 1 ? size[ALONE] - 1 - below(90) : below((unsigned)size[ALONE]);
        unsigned char kept = signature[at];
        if (i == 2) signature[at] = (unsigned char)below(256);
        else if (i < 2) signature[at] ^= (unsigned char)(1 << below(8));
        for (int side = 0; side < SIDES; side++)
            done[side] = verified_by(side, way, &form, length, signature, size[ALONE] - short_by);
        compare("verified", done[ALONE], done[TRIED]);
        signature[at] = kept;
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    int cases = atoi(argv[2]);
    state = strtoul(argv[3], NULL, 10);
    name = argv[1];
    contexts[ALONE] = OSSL_LIB_CTX_new();
    CHECK(contexts[ALONE] && OSSL_PROVIDER_load(contexts[ALONE], "default"));
    sign_init = dlsym(RTLD_DEFAULT, "EVP_PKEY_sign_message_init");
    verify_init = dlsym(RTLD_DEFAULT, "EVP_PKEY_verify_message_init");
    sign_update = dlsym(RTLD_DEFAULT, "EVP_PKEY_sign_message_update");
    verify_update = dlsym(RTLD_DEFAULT, "EVP_PKEY_verify_message_update");
    set_signature = dlsym(RTLD_DEFAULT, "EVP_PKEY_CTX_set_signature");
    sign_final = dlsym(RTLD_DEFAULT, "EVP_PKEY_sign_message_final");
    verify_final = dlsym(RTLD_DEFAULT, "EVP_PKEY_verify_message_final");
    algorithms[ALONE] = EVP_SIGNATURE_fetch(contexts[ALONE], name, NULL);
    if (!sign_init || !algorithms[ALONE]) {
        printf("skipped: this OpenSSL has no %s (3.5)\n", name);
        return 0;
    }
    CHECK((algorithms[TRIED] = EVP_SIGNATURE_fetch(contexts[TRIED], name, NULL)));
    for (int i = 0; i < LONG; i++) message[i] = (unsigned char)(7 * i + i / 256);
    begin_with_public_key();
    new_keys();
    const struct form none = {0};
    unsigned char made[MOST];
    size_t room = MOST;
    has_pieces = signed_by(ALONE, PIECES, &none, 100, made, &room) == 1;
    const struct form forms[] = {
        {0},
        {.deterministic = 1},
        {.entropy = 1},
        {.entropy = 1, .deterministic = 1},
        {.context = "", .deterministic = 1},
        {.context = "a word", .deterministic = 1},
        {.context = "a word", .deterministic = 1, .repeated = 1},
        {.context = "a word", .deterministic = 1, .raw = 1},
        {.deterministic = 1, .raw = 1},
        {.deterministic = 1, .hashed = 1},
        {.context = "a word", .hashed = 1, .entropy = 1},
    };
    const size_t lengths[] = {0, 1, 63, 64, 65, 200, MESSAGE, 9000, LONG};
    for (unsigned form = 0; form < sizeof forms / sizeof *forms; form++)
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int way = 0; way < WAYS; way++) {
                if (form > 2 && i != 3 && i != 6) continue;
                try_form(way, &forms[form], lengths[i]);
            }
    /* A context that is too long. */
    static char words[400];
    for (unsigned length = 255; length < 258; length++) {
        memset(words, 'w', length);
        struct form of = {.context = words, .deterministic = 1};
        for (int way = 0; way < WAYS; way++) try_form(way, &of, 100);
    }
    begin_again();
    look_at_keys();
    for (int i = 0; i < cases; i++) {
        if (i % 16 == 0) new_keys();
        try_case();
    }
    for (int side = 0; side < SIDES; side++) {
        EVP_PKEY_free(keys[side]);
        EVP_SIGNATURE_free(algorithms[side]);
    }
    return 0;
}
