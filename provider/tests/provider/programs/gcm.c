/* AES-GCM by EVP: random programs of calls, each made through the module's implementation and
 * through OpenSSL's own. What every call returns, writes, leaves in the queue of errors and changes
 * in the context must be the same.
 *
 * Usage: gcm SEED PROGRAMS. The last line says how many contexts of the module have had a key. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "left.h"
#include <openssl/rand.h>

enum { OURS, STOCK, BOTH, ROOM = 20000, GUARD = 32, CALLS = 24 };

static uint64_t state;

static uint32_t below(uint32_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % bound);
}

static void fill(unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)below(256);
}

/* What one call did. */
struct outcome {
    int result, length;
    unsigned long errors[8];
    unsigned char bytes[ROOM];
};

static EVP_CIPHER *ciphers[BOTH];
static EVP_CIPHER_CTX *contexts[BOTH];
static struct outcome outcomes[BOTH];
/* The last right tag. */
static unsigned char tag[16];
/* Whether the contexts have a cipher, may encrypt, may take a record next, and have found a wrong
 * tag. */
static int keyed, encrypts, is_record, spoiled;
static int program, call;
static long counted;
static char what[200];

static void take_errors(struct outcome *of) {
    memset(of->errors, 0, sizeof of->errors);
    for (int i = 0; i < 8; i++) {
        unsigned long error = ERR_get_error();
        of->errors[i] = error ? ERR_PACK(ERR_GET_LIB(error), 0, ERR_GET_REASON(error)) : 0;
    }
    ERR_clear_error();
}

static void begin(void) {
    for (int i = 0; i < BOTH; i++) {
        outcomes[i].result = outcomes[i].length = -77;
        memset(outcomes[i].bytes, 0x5a, sizeof outcomes[i].bytes);
    }
    ERR_clear_error();
}

static void compare(void) {
    struct outcome *a = &outcomes[OURS], *b = &outcomes[STOCK];
    if (getenv("GCM_LOG"))
        fprintf(stderr, "%d.%d %s: %d\n", program, call, what, b->result);
    if (a->result == b->result && a->length == b->length &&
        memcmp(a->errors, b->errors, sizeof a->errors) == 0 && memcmp(a->bytes, b->bytes, ROOM) == 0)
        return;
    size_t at = 0;
    while (at < ROOM && a->bytes[at] == b->bytes[at])
        at++;
    fprintf(stderr, "program %d, call %d, %s: results %d and %d, lengths %d and %d, ", program, call,
            what, a->result, b->result, a->length, b->length);
    fprintf(stderr, "errors %lx %lx and %lx %lx, bytes differ at %zu\n", a->errors[0], a->errors[1],
            b->errors[0], b->errors[1], at);
    _exit(1);
}

/* Each statement runs for both, with the outcome as `o`, its context as `ctx` and bytes as `to`. */
#define EACH(...)                                     \
    do {                                              \
        begin();                                      \
        for (int i = 0; i < BOTH; i++) {              \
            struct outcome *o = &outcomes[i];         \
            EVP_CIPHER_CTX *ctx = contexts[i];        \
            unsigned char *to = o->bytes + GUARD;     \
            (void)ctx, (void)to;                      \
            __VA_ARGS__;                              \
            take_errors(o);                           \
        }                                             \
        compare();                                    \
    } while (0)

static int result(void) {
    return outcomes[STOCK].result;
}

static size_t size_of(const char *name) {
    size_t size = 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(name, &size), OSSL_PARAM_construct_end()};
    CHECK(EVP_CIPHER_CTX_get_params(contexts[STOCK], params) == 1);
    return size;
}

static int usual_or(int usual, int bound) {
    return below(4) ? usual : (int)below(bound);
}

/* Whether the context has an IV. */
static int has_iv(void) {
    unsigned char iv[128];
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("iv", iv, sizeof iv),
                           OSSL_PARAM_construct_end()};
    return EVP_CIPHER_CTX_get_params(contexts[STOCK], params) == 1;
}

static void renew(void) {
    for (int i = 0; i < BOTH; i++) {
        EVP_CIPHER_CTX_free(contexts[i]);
        CHECK(contexts[i] = EVP_CIPHER_CTX_new());
    }
    keyed = encrypts = is_record = spoiled = 0;
}

/* A key, an IV, both or neither, with or without parameters. */
static void initialize(void) {
    unsigned char key[32], iv[160];
    size_t iv_length = below(12) ? 12 + below(5) * 4 : below(135);
    fill(key, sizeof key);
    fill(iv, sizeof iv);
    int with_key = below(4) != 0, with_iv = below(4) != 0, with_cipher = !keyed || below(8) == 0;
    int direction = below(3) - 1, with_params = below(4) == 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t("ivlen", &iv_length),
                           OSSL_PARAM_construct_octet_string("tag", tag, 16),
                           OSSL_PARAM_construct_end()};
    if (below(2))
        params[1] = OSSL_PARAM_construct_end();
    if (with_cipher)
        renew();
    snprintf(what, sizeof what, "init %d %d %d %d, %zu", with_cipher, with_key, with_iv, direction,
             iv_length);
    EACH(o->result = EVP_CipherInit_ex2(ctx, with_cipher ? ciphers[i] : NULL, with_key ? key : NULL,
                                        with_iv ? iv : NULL, direction, with_params ? params : NULL));
    if (direction >= 0)
        encrypts = result() == 1 ? direction : encrypts | direction;
    if (with_iv || with_key)
        spoiled = 0;
    if (with_cipher)
        keyed = 1;
    if (with_key && result() == 1 && with_cipher)
        counted++;
    else if (with_key && !with_cipher)
        counted++;
}

static void set_iv_length(void) {
    int length = usual_or(12, 140) - (below(20) == 0);
    snprintf(what, sizeof what, "IV length %d", length);
    EACH(o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, length, NULL));
}

/* Bytes to encrypt or decrypt: in place, elsewhere, or in a place that overlaps. */
static void transform(void) {
    static unsigned char from[ROOM];
    int length = below(3) ? (int)below(300) : (int)below(ROOM - 4 * GUARD);
    int way = below(3), shift = below(GUARD);
    fill(from, 64);
    for (int i = 64; i < length; i++)
        from[i] = (unsigned char)(from[i - 61] * 5 + i);
    if (is_record && size_of("ivlen") < 8)
        return;
    snprintf(what, sizeof what, "data, %d bytes, way %d", length, way);
    EACH({
        unsigned char *source = way == 0 ? from : way == 1 ? to : to + shift;
        memcpy(source, from, length);
        o->result = EVP_CipherUpdate(ctx, to, &o->length, source, length);
        if (way == 2 && length > 0)
            memset(to + length, 0, shift);
    });
    is_record = is_record && length == 0;
}

static void authenticate(void) {
    unsigned char bytes[600];
    int length = below(3) ? below(40) : below(600);
    fill(bytes, length);
    snprintf(what, sizeof what, "additional data, %d bytes", length);
    EACH(o->result = EVP_CipherUpdate(ctx, NULL, &o->length, bytes, length));
    is_record = is_record && length == 0;
}

static void finish(void) {
    static const unsigned char zeros[16];
    /* OpenSSL makes another tag of a message that had a wrong one; the module makes none. Where a
     * key was set in the middle of the message, and no IV, OpenSSL's tag is zeros each time. */
    if (spoiled && (encrypts || memcmp(tag, zeros, sizeof zeros) == 0))
        return;
    snprintf(what, sizeof what, "final");
    EACH(o->result = EVP_CipherFinal_ex(ctx, to, &o->length));
    spoiled |= result() != 1;
    is_record = 0;
}

static void get_tag(void) {
    int length = usual_or(16, 19);
    snprintf(what, sizeof what, "tag of %d bytes", length);
    EACH(o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, length, to));
    if (result() == 1 && length == 16)
        memcpy(tag, outcomes[STOCK].bytes + GUARD, 16);
}

static void set_tag(void) {
    unsigned char bytes[20];
    int length = below(3) ? 16 : (int)below(16) + 4;
    fill(bytes, sizeof bytes);
    if (below(2))
        memcpy(bytes, tag, 16);
    if (below(10) == 0)
        length = 0;
    snprintf(what, sizeof what, "set tag of %d bytes", length);
    int absent = below(12) == 0;
    EACH(o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, length, absent ? NULL : bytes));
}

static void ask(void) {
    static const char *names[] = {"ivlen", "keylen", "taglen", "tlsaadpad", "iv", "updated-iv", "tag",
                                  "none such"};
    int first = below(8), second = below(8), count = 1 + below(2), room = below(4) ? 128 : below(129);
    int pointer = below(6) == 0, small = below(4) == 0;
    snprintf(what, sizeof what, "ask for %s and %s of %d", names[first], names[second], count);
    EACH({
        OSSL_PARAM params[3];
        void *places[2] = {NULL, NULL};
        for (int n = 0; n < 2; n++) {
            int which = n ? second : first;
            unsigned char *place = to + n * 256;
            if (which < 4 && small)
                params[n] = OSSL_PARAM_construct_uint(names[which], (unsigned *)place);
            else if (which < 4)
                params[n] = OSSL_PARAM_construct_size_t(names[which], (size_t *)place);
            else if (pointer && which < 6)
                params[n] = OSSL_PARAM_construct_octet_ptr(names[which], &places[n], room);
            else
                params[n] =
                    OSSL_PARAM_construct_octet_string(names[which], place, which == 6 ? room % 18 : room);
        }
        params[count] = params[2] = OSSL_PARAM_construct_end();
        o->result = EVP_CIPHER_CTX_get_params(ctx, params);
        for (int n = 0; n < count; n++) {
            if (places[n])
                memcpy(to + n * 256, places[n], params[n].return_size);
            memcpy(to + 600 + n * 8, &params[n].return_size, 8);
        }
    });
}

/* A tag that is asked for as text: how long it is, is said nevertheless. */
static void ask_for_tag_as_text(void) {
    snprintf(what, sizeof what, "tag as text");
    EACH({
        OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("tag", (char *)to, 16),
                               OSSL_PARAM_construct_end()};
        o->result = EVP_CIPHER_CTX_get_params(ctx, params);
        o->length = (int)params[0].return_size;
    });
}

/* The header of a record, whose length is right or not. */
static void record_header(int length) {
    unsigned char header[14];
    int size = below(12) ? 13 : 12 + below(3);
    fill(header, sizeof header);
    header[11] = (unsigned char)(length >> 8);
    header[12] = (unsigned char)length;
    snprintf(what, sizeof what, "header of %d bytes, length %d", size, length);
    EACH(o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_TLS1_AAD, size, header));
    is_record |= size == 13;
}

/* What is fixed of the IV. Where the rest is random, ours gets that of OpenSSL. */
static void fix_iv(void) {
    unsigned char bytes[160];
    int iv_length = (int)size_of("ivlen"), length = usual_or(4, 160);
    fill(bytes, sizeof bytes);
    if (below(6) == 0)
        length = -1;
    /* OpenSSL writes beyond its IV. */
    if (length > iv_length)
        return;
    snprintf(what, sizeof what, "fix %d bytes of the IV of %d", length, iv_length);
    EACH(o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IV_FIXED, length, bytes));
    if (result() == 1 && length >= 0) {
        OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("iv", bytes, iv_length),
                               OSSL_PARAM_construct_end()};
        unsigned char ours[160];
        CHECK(EVP_CIPHER_CTX_get_params(contexts[STOCK], params) == 1);
        params[0].data = ours;
        CHECK(EVP_CIPHER_CTX_get_params(contexts[OURS], params) == 1);
        CHECK(memcmp(ours, bytes, length) == 0);
        CHECK(encrypts || memcmp(ours, bytes, iv_length) == 0);
        EACH(o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IV_FIXED, -1, bytes));
    }
}

static void next_iv(void) {
    int iv_length = (int)size_of("ivlen"), length = usual_or(8, 20);
    unsigned char bytes[20];
    fill(bytes, sizeof bytes);
    /* OpenSSL reads and writes before its IV. */
    if (length > iv_length || iv_length < 8)
        return;
    snprintf(what, sizeof what, "next IV, %d bytes", length);
    if (below(2))
        EACH(o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_IV_GEN, length, to));
    else
        EACH(o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_IV_INV, length, bytes));
    spoiled = spoiled && result() != 1;
}

/* EVP_Cipher: a record or a message in one piece, or the end of one. */
static void in_one_piece(void) {
    int length = below(4) ? 24 + (int)below(400) : (int)below(ROOM - 4 * GUARD), in_place = below(8) != 0;
    if (is_record && size_of("ivlen") < 8)
        return;
    unsigned char from[ROOM];
    fill(from, 64);
    memset(from + 64, 0x33, sizeof from - 64);
    int ends = below(10) == 0;
    if (!is_record && length == 0)
        return;
    ends = ends && !spoiled;
    snprintf(what, sizeof what, "in one piece, %d bytes, %d %d", length, in_place, ends);
    EACH({
        memcpy(to, from, length);
        o->result = EVP_Cipher(ctx, to, ends ? NULL : in_place ? to : from, ends ? 0 : length);
    });
    spoiled |= ends && result() < 0;
    is_record = 0;
}

/* A record that one context makes and another opens, as libssl does; one in four is changed. */
static void records(void) {
    EVP_CIPHER_CTX *sides[BOTH][2];
    unsigned char key[32], fixed[12];
    static unsigned char record[ROOM];
    fill(key, sizeof key);
    fill(fixed, sizeof fixed);
    for (int i = 0; i < BOTH; i++)
        for (int side = 0; side < 2; side++) {
            EVP_CIPHER_CTX *ctx = sides[i][side] = EVP_CIPHER_CTX_new();
            CHECK(EVP_CipherInit_ex(ctx, ciphers[i], NULL, key, NULL, side == 0) == 1);
            CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IV_FIXED, 4, fixed) == 1);
            CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IV_FIXED, -1, fixed) == 1);
        }
    counted += 2;
    for (int number = 0; number < 4; number++) {
        int length = below(3) ? (int)below(1500) : (int)below(16385), changed = below(4) == 0;
        unsigned char header[13];
        fill(header, sizeof header);
        fill(record, 64);
        for (int i = 64; i < length + 24; i++)
            record[i] = (unsigned char)i;
        header[11] = (unsigned char)((length + 8) >> 8);
        header[12] = (unsigned char)(length + 8);
        snprintf(what, sizeof what, "record %d of %d bytes", number, length);
        EACH({
            CHECK(EVP_CIPHER_CTX_ctrl(sides[i][0], EVP_CTRL_AEAD_TLS1_AAD, 13, header) == 16);
            memcpy(to, record, length + 24);
            o->result = EVP_CipherUpdate(sides[i][0], to, &o->length, to, length + 24);
        });
        CHECK(result() == 1 && outcomes[STOCK].length == length + 24);
        memcpy(record, outcomes[STOCK].bytes + GUARD, length + 24);
        if (changed)
            record[8 + below(length + 16)] ^= 1 << below(8);
        header[11] = (unsigned char)((length + 24) >> 8);
        header[12] = (unsigned char)(length + 24);
        EACH({
            CHECK(EVP_CIPHER_CTX_ctrl(sides[i][1], EVP_CTRL_AEAD_TLS1_AAD, 13, header) == 16);
            memcpy(to, record, length + 24);
            o->result = EVP_CipherUpdate(sides[i][1], to, &o->length, to, length + 24);
        });
        CHECK(result() == !changed);
    }
    for (int i = 0; i < BOTH; i++)
        for (int side = 0; side < 2; side++)
            EVP_CIPHER_CTX_free(sides[i][side]);
}

static void copy(void) {
    snprintf(what, sizeof what, "copy");
    EVP_CIPHER_CTX *copies[BOTH] = {EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_new()};
    EACH(o->result = EVP_CIPHER_CTX_copy(copies[i], ctx));
    for (int i = 0; i < BOTH; i++) {
        EVP_CIPHER_CTX *old = contexts[i];
        if (result() == 1) {
            contexts[i] = copies[i];
            copies[i] = old;
        }
        EVP_CIPHER_CTX_free(copies[i]);
    }
}

/* Several parameters at once, some of them of wrong types. */
static void set_several(void) {
    size_t length = usual_or(12, 140);
    unsigned small = (unsigned)length;
    unsigned char header[13] = {0};
    fill(header, sizeof header);
    OSSL_PARAM all[] = {OSSL_PARAM_construct_size_t("ivlen", &length),
                        OSSL_PARAM_construct_uint("ivlen", &small),
                        OSSL_PARAM_construct_octet_string("ivlen", tag, 8),
                        OSSL_PARAM_construct_octet_string("tag", tag, 16),
                        OSSL_PARAM_construct_utf8_string("tag", "text", 4),
                        OSSL_PARAM_construct_octet_string("tlsaad", header, 13),
                        OSSL_PARAM_construct_size_t("tlsaad", &length),
                        OSSL_PARAM_construct_size_t("tlsivfixed", &length),
                        OSSL_PARAM_construct_octet_string("tlsivinv", NULL, 8),
                        OSSL_PARAM_construct_octet_string("tlsivinv", NULL, 0),
                        OSSL_PARAM_construct_size_t("none such", &length)};
    OSSL_PARAM params[4];
    int count = below(4);
    for (int n = 0; n < count; n++)
        params[n] = all[below(sizeof all / sizeof *all)];
    params[count] = OSSL_PARAM_construct_end();
    snprintf(what, sizeof what, "set %s and %s of %d", count ? params[0].key : "",
             count > 1 ? params[1].key : "", count);
    EACH(o->result = EVP_CIPHER_CTX_set_params(ctx, params));
    for (int n = 0; n < count; n++)
        is_record |= strcmp(params[n].key, "tlsaad") == 0;
}

/* Whether the next message would begin with a random IV, which the two cannot have in common. */
static int is_random(void) {
    return keyed && encrypts && !has_iv();
}

static void run(void) {
    renew();
    initialize();
    for (call = 0; call < CALLS; call++) {
        if (is_random() && !below(4)) {
            initialize();
            continue;
        }
        switch (below(16)) {
        case 0: initialize(); break;
        case 1: set_iv_length(); break;
        case 2: ask(); break;
        case 3: copy(); break;
        case 4: set_tag(); break;
        case 5: below(4) ? get_tag() : ask_for_tag_as_text(); break;
        case 6: set_several(); break;
        case 7: fix_iv(); break;
        case 8: next_iv(); break;
        case 9: record_header(below(3) ? 24 + (int)below(400) : (int)below(65536)); break;
        case 10:
        case 11:
            if (!is_random())
                authenticate();
            break;
        case 12:
            if (!is_random())
                in_one_piece();
            break;
        case 13:
            if (!is_random())
                finish();
            break;
        default:
            if (!is_random())
                transform();
        }
    }
}

/* What is not fixed of the IV of a context that encrypts is random; it is counted on. */
static void counted_ivs(void) {
    for (int length = 12; length <= 128; length++)
        for (int fixed = 4; fixed <= length - 8; fixed += 1 + fixed / 3) {
            unsigned char key[32], bytes[128], iv[3][128];
            size_t iv_length = length;
            OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t("ivlen", &iv_length),
                                   OSSL_PARAM_construct_end()};
            fill(key, sizeof key);
            fill(bytes, sizeof bytes);
            for (int again = 0; again < 3; again++) {
                EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
                CHECK(EVP_EncryptInit_ex2(ctx, ciphers[OURS], key, NULL, params) == 1);
                CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IV_FIXED, fixed, bytes) == 1);
                CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_IV_GEN, -1, iv[again]) == 1);
                CHECK(memcmp(iv[again], bytes, fixed) == 0);
                if (again == 2) {
                    unsigned char next[128];
                    CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_IV_GEN, 0, next) == 1);
                    for (int at = length - 1; at >= length - 8 && ++iv[2][at] == 0; at--)
                        ;
                    CHECK(memcmp(iv[2], next, length) == 0);
                }
                EVP_CIPHER_CTX_free(ctx);
                counted++;
            }
            CHECK(memcmp(iv[0] + fixed, iv[1] + fixed, length - fixed) != 0);
        }
}

/* Messages that a context without an IV encrypts: the other implementation opens them. */
static void random_ivs(void) {
    for (int length = 11; length <= 128; length++)
        for (int maker = 0; maker < BOTH; maker++) {
            unsigned char key[32], iv[2][128], text[100] = {0}, made[100], opened[100], mark[16];
            size_t iv_length = length;
            int n;
            OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t("ivlen", &iv_length),
                                   OSSL_PARAM_construct_end()};
            fill(key, sizeof key);
            for (int again = 0; again < 2; again++) {
                EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new(), *other = EVP_CIPHER_CTX_new();
                CHECK(EVP_EncryptInit_ex2(ctx, ciphers[maker], key, NULL, params) == 1);
                int done = EVP_EncryptUpdate(ctx, made, &n, text, sizeof text);
                CHECK(done == (length >= 12));
                ERR_clear_error();
                if (done) {
                    CHECK(EVP_EncryptFinal_ex(ctx, NULL, &n) == 1);
                    CHECK(EVP_CIPHER_CTX_get_updated_iv(ctx, iv[again], iv_length) == 1);
                    CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, mark) == 1);
                    CHECK(EVP_DecryptInit_ex2(other, ciphers[!maker], key, iv[again], params) == 1);
                    CHECK(EVP_CIPHER_CTX_ctrl(other, EVP_CTRL_AEAD_SET_TAG, 16, mark) == 1);
                    CHECK(EVP_DecryptUpdate(other, opened, &n, made, sizeof made) == 1);
                    CHECK(EVP_DecryptFinal_ex(other, NULL, &n) == 1);
                    CHECK(memcmp(opened, text, sizeof text) == 0);
                }
                EVP_CIPHER_CTX_free(ctx);
                EVP_CIPHER_CTX_free(other);
                counted += maker == OURS || done;
            }
            CHECK(length < 12 || memcmp(iv[0], iv[1], length) != 0);
        }
}

/* A context whose IV is fixed as TLS 1.2 does it, and a key. */
static void fix_whole_iv(int direction) {
    unsigned char key[32], iv[12];
    fill(key, sizeof key);
    fill(iv, sizeof iv);
    renew();
    snprintf(what, sizeof what, "fixed IV");
    EACH({
        o->result = EVP_CipherInit_ex(ctx, ciphers[i], NULL, key, NULL, direction);
        o->length = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IV_FIXED, -1, iv);
    });
    counted++;
}

/* An explicit part of an IV that is not there begins no message. */
static void explicit_parts_that_are_absent(void) {
    unsigned char byte = 0;
    for (int absent = 0; absent < 2; absent++) {
        void *part = absent ? NULL : &byte;
        OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("tlsivinv", part, 0),
                               OSSL_PARAM_construct_end()};
        fix_whole_iv(0);
        snprintf(what, sizeof what, "explicit part, absent %d", absent);
        EACH(o->result = EVP_CIPHER_CTX_set_params(ctx, params));
        CHECK(result() == !absent);
    }
}

static int give_nothing(unsigned char *bytes, int count) {
    (void)bytes, (void)count;
    return 0;
}

/* Without random bytes there is no message, and the errors are the same. */
static void ivs_without_randomness(void) {
    static const RAND_METHOD failing = {.bytes = give_nothing, .pseudorand = give_nothing};
    const RAND_METHOD *usual = RAND_get_rand_method();
    unsigned char key[32], bytes[16];
    fill(key, sizeof key);
    fill(bytes, sizeof bytes);
    CHECK(RAND_set_rand_method(&failing) == 1);
    for (int way = 0; way < 4; way++) {
        renew();
        snprintf(what, sizeof what, "no randomness, way %d", way);
        EACH({
            CHECK(EVP_EncryptInit_ex(ctx, ciphers[i], NULL, key, NULL) == 1);
            switch (way) {
            case 0: o->result = EVP_EncryptUpdate(ctx, to, &o->length, bytes, 16); break;
            case 1: o->result = EVP_Cipher(ctx, to, bytes, 16); break;
            case 2: o->result = EVP_EncryptFinal_ex(ctx, to, &o->length); break;
            default: o->result = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IV_FIXED, 4, bytes);
            }
        });
        CHECK(result() <= 0);
        counted++;
    }
    CHECK(RAND_set_rand_method(usual) == 1);
}

static void copy_context(void) {
    EVP_CIPHER_CTX *to = EVP_CIPHER_CTX_new();
    CHECK(to && EVP_CIPHER_CTX_copy(to, contexts[OURS]) == 1);
    EVP_CIPHER_CTX_free(to);
}

/* A copy of a context leaves no key on the stack of the caller. */
static void copies_leave_no_key(void) {
    unsigned char key[32], iv[12] = {0};
    renew();
    fill(key, sizeof key);
    CHECK(EVP_EncryptInit_ex(contexts[OURS], ciphers[OURS], NULL, key, iv) == 1);
    counted++;
    CHECK(!is_left_by(copy_context, key, 16));
}

int main(int argc, char **argv) {
    static const char *names[] = {"AES-128-GCM", "AES-192-GCM", "AES-256-GCM"};
    CHECK(argc == 3);
    state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
    int programs = atoi(argv[2]);
    for (program = 0; program < programs; program++) {
        for (int i = 0; i < BOTH; i++) {
            EVP_CIPHER_free(ciphers[i]);
            ciphers[i] = EVP_CIPHER_fetch(NULL, names[program % 3],
                                          i == OURS ? "provider=lockstep" : "provider=default");
            CHECK(ciphers[i]);
        }
        run();
        records();
        if (program < 3) {
            random_ivs();
            counted_ivs();
            copies_leave_no_key();
            explicit_parts_that_are_absent();
            ivs_without_randomness();
        }
    }
    renew();
    EVP_CIPHER *usual = EVP_CIPHER_fetch(NULL, "id-aes256-GCM", NULL);
    printf("%s has AES-GCM; at most %ld contexts\n",
           OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(usual)), counted);
    return 0;
}
