/* A differential fuzzer over the module's tables for ML-DSA.
 *
 * Each input is a program of small operations on keys and contexts of signatures. Every operation
 * runs twice: through the module's tables and through those of the default provider of the same
 * libcrypto, which must be OpenSSL 3.5 or later. Return codes, lengths and bytes that follow from
 * the input must be equal. A signature with random parts is verified by the other world. Keys,
 * signatures, messages and contexts are damaged, cut short and made of the input. Some operations
 * run inside an asynchronous job. */
#include "common.h"

/* ---- tables ---- */

enum { TYPES = 3 };
static const char *const names[TYPES] = {"ML-DSA-44", "ML-DSA-65", "ML-DSA-87"};
static const size_t lengths[TYPES] = {2420, 3309, 4627};
static struct algorithm keymgmt[TYPES], signature[TYPES];

#define KEYS(type, w, id, f) CALL(keymgmt[type].table[w], id, f *)
#define SIG(type, w, id, f) CALL(signature[type].table[w], id, f *)

/* ---- objects ---- */

enum { SLOTS = 4, MOST = 5000, LONGEST = 400 };

struct key {
    int used, type, is_private;
    void *data[WORLDS];
};
struct context {
    int used, type;
    enum { IDLE, SIGNS, CHECKS } mode;
    int by_message; /* begun for a message, not for a digest's */
    int is_fixed;   /* the same input has the same signature */
    int has_entropy;
    int is_hash;    /* what stands for a message is given in its place */
    struct key *key;
    void *ctx[WORLDS];
};
static struct key keys[SLOTS];
static struct context contexts[SLOTS];

/* What keys are imported from. */
enum { PARTS = 3, SOURCES = 2 };
static const char *const parts[PARTS] = {OSSL_PKEY_PARAM_PUB_KEY, OSSL_PKEY_PARAM_PRIV_KEY, "seed"};
static struct source {
    size_t length[PARTS];
    uint8_t bytes[PARTS][MOST];
} sources[TYPES][SOURCES];

/* The last signature of each kind, and what it is of. */
static uint8_t made[TYPES][MOST], message[LONGEST];

static void free_context(struct context *context) {
    for (int w = 0; context->used && w < WORLDS; w++)
        SIG(context->type, w, OSSL_FUNC_SIGNATURE_FREECTX, OSSL_FUNC_signature_freectx_fn)
    (context->ctx[w]);
    memset(context, 0, sizeof *context);
}

static void free_key(struct key *key) {
    for (int i = 0; i < SLOTS; i++)
        if (contexts[i].key == key) free_context(&contexts[i]);
    for (int w = 0; key->used && w < WORLDS; w++)
        KEYS(key->type, w, OSSL_FUNC_KEYMGMT_FREE, OSSL_FUNC_keymgmt_free_fn)(key->data[w]);
    memset(key, 0, sizeof *key);
}

static struct key *some_key(int type) {
    unsigned from = pick(SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        struct key *key = &keys[(from + i) % SLOTS];
        if (key->used && (type < 0 || key->type == type)) return key;
    }
    return NULL;
}

/* A copy of the bytes, with damage as the input says. Returns its length. */
static size_t damage(const uint8_t *from, size_t length, uint8_t *to) {
    memcpy(to, from, length);
    size_t at = length ? (u8() | u8() << 8) % length : 0;
    switch (pick(8)) {
    case 0:
        if (length) to[at] ^= 1 << pick(8);
        break;
    case 1: /* hints, and their counts, are at the end */
        at = pick(90);
        if (at < length) to[length - 1 - at] = u8();
        break;
    case 2: return length ? length - 1 - u8() % length : 0;
    case 3: memset(to + length, 0x5a, 40); return length + 1 + pick(40);
    case 4: { /* a stretch of one byte: coefficients at their borders */
        size_t most = length - at, count = 1 + (u8() | u8() << 8);
        memset(to + at, (int[]){0, 0xff, 0x80, 0x55}[pick(4)], count < most ? count : most);
        break;
    }
    default: break; /* none */
    }
    return length;
}

/* ---- operations on keys ---- */

static void import_key(void) {
    static uint8_t bytes[PARTS][MOST + 64];
    static const int selections[] = {EVP_PKEY_KEYPAIR, EVP_PKEY_PUBLIC_KEY,
                                     OSSL_KEYMGMT_SELECT_PRIVATE_KEY, OSSL_KEYMGMT_SELECT_ALL};
    int type = pick(TYPES), selection = selections[pick(4)], value[WORLDS], has[WORLDS];
    const struct source *source = &sources[type][pick(SOURCES)];
    OSSL_PARAM params[PARTS + 1], *to = params;
    unsigned chosen = u8();
    for (int i = 0; i < PARTS; i++) {
        if (!(chosen >> i & 1)) continue;
        size_t length = source->length[i];
        if (chosen >> (i + PARTS) & 1)
            length = damage(source->bytes[i], length, bytes[i]);
        else
            memcpy(bytes[i], source->bytes[i], length);
        *to++ = OSSL_PARAM_construct_octet_string(parts[i], bytes[i], length);
    }
    *to = OSSL_PARAM_construct_end();
    struct key *key = &keys[pick(SLOTS)];
    free_key(key);
    key->used = 1;
    key->type = type;
    for (int w = 0; w < WORLDS; w++) {
        NEED(key->data[w] = KEYS(type, w, OSSL_FUNC_KEYMGMT_NEW,
                                 OSSL_FUNC_keymgmt_new_fn)(worlds[w].provctx));
        value[w] = KEYS(type, w, OSSL_FUNC_KEYMGMT_IMPORT,
                        OSSL_FUNC_keymgmt_import_fn)(key->data[w], selection, params);
        has[w] = KEYS(type, w, OSSL_FUNC_KEYMGMT_HAS,
                      OSSL_FUNC_keymgmt_has_fn)(key->data[w], OSSL_KEYMGMT_SELECT_PRIVATE_KEY);
    }
    agree("import", value[OURS], value[STOCK]);
    agree("has a private key", has[OURS], has[STOCK]);
    key->is_private = has[STOCK] > 0;
    if (value[STOCK] <= 0) free_key(key);
}

static void duplicate_key(void) {
    struct key *from = some_key(-1), *to = &keys[pick(SLOTS)];
    static const int selections[] = {OSSL_KEYMGMT_SELECT_ALL, EVP_PKEY_PUBLIC_KEY};
    int selection = selections[pick(2)];
    if (!from || from == to) return;
    free_key(to);
    struct key copy = {.used = 1, .type = from->type};
    for (int w = 0; w < WORLDS; w++)
        copy.data[w] = KEYS(from->type, w, OSSL_FUNC_KEYMGMT_DUP,
                            OSSL_FUNC_keymgmt_dup_fn)(from->data[w], selection);
    agree("duplicate", copy.data[OURS] != NULL, copy.data[STOCK] != NULL);
    if (!copy.data[STOCK]) return;
    copy.is_private = KEYS(copy.type, STOCK, OSSL_FUNC_KEYMGMT_HAS, OSSL_FUNC_keymgmt_has_fn)(
                          copy.data[STOCK], OSSL_KEYMGMT_SELECT_PRIVATE_KEY) > 0;
    *to = copy;
}

/* ---- contexts ---- */

static struct context *some_context(int mode) {
    unsigned from = pick(SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        struct context *context = &contexts[(from + i) % SLOTS];
        if (context->used && (mode < 0 || (int)context->mode == mode)) return context;
    }
    return NULL;
}

/* Parameters of a signature, as the input says. They end up in `params`, and what they change of a
 * context in `own`. */
static void parameters(OSSL_PARAM *params, struct context *own) {
    static uint8_t word[300], entropy[40];
    static int encoding, deterministic, mu;
    unsigned chosen = u8();
    for (size_t i = 0; i < sizeof word; i++)
        word[i] = i;
    memset(entropy, u8(), sizeof entropy);
    if (chosen & 1) {
        size_t length = rarely(4) ? 250 + pick(10) : pick(12);
        *params++ = OSSL_PARAM_construct_octet_string("context-string", word, length);
    }
    if (chosen & 2) {
        encoding = rarely(8) ? 2 : pick(2);
        *params++ = OSSL_PARAM_construct_int("message-encoding", &encoding);
    }
    if (chosen & 4) {
        deterministic = rarely(8) ? 2 : pick(2);
        own->is_fixed = deterministic == 1; /* OpenSSL takes no other number for yes */
        *params++ = OSSL_PARAM_construct_int("deterministic", &deterministic);
    }
    if (chosen & 8) {
        mu = rarely(8) ? 2 : pick(2);
        own->is_hash = mu != 0;
        *params++ = OSSL_PARAM_construct_int("mu", &mu);
    }
    if ((chosen & 48) == 48) {
        *params++ = OSSL_PARAM_construct_octet_string("test-entropy", entropy,
                                                      rarely(4) ? pick(40) : 32);
        own->is_fixed = own->has_entropy = 1;
    }
    *params = OSSL_PARAM_construct_end();
    own->is_fixed |= own->has_entropy;
}

static void new_context(void) {
    struct context *context = &contexts[pick(SLOTS)];
    free_context(context);
    context->used = 1;
    context->type = pick(TYPES);
    for (int w = 0; w < WORLDS; w++)
        NEED(context->ctx[w] =
                 SIG(context->type, w, OSSL_FUNC_SIGNATURE_NEWCTX,
                     OSSL_FUNC_signature_newctx_fn)(worlds[w].provctx, NULL));
}

static void duplicate_context(void) {
    struct context *from = some_context(-1), *to = &contexts[pick(SLOTS)];
    if (!from || from == to) return;
    free_context(to);
    struct context copy = *from;
    for (int w = 0; w < WORLDS; w++)
        copy.ctx[w] = SIG(from->type, w, OSSL_FUNC_SIGNATURE_DUPCTX,
                          OSSL_FUNC_signature_dupctx_fn)(from->ctx[w]);
    agree("duplicate context", copy.ctx[OURS] != NULL, copy.ctx[STOCK] != NULL);
    if (copy.ctx[STOCK]) *to = copy;
}

static int begin_in(const struct context *own, int w, int signs, void *key, OSSL_PARAM *params) {
    int type = own->type;
    if (own->by_message && signs)
        return SIG(type, w, OSSL_FUNC_SIGNATURE_SIGN_MESSAGE_INIT,
                   OSSL_FUNC_signature_sign_message_init_fn)(own->ctx[w], key, params);
    if (own->by_message)
        return SIG(type, w, OSSL_FUNC_SIGNATURE_VERIFY_MESSAGE_INIT,
                   OSSL_FUNC_signature_verify_message_init_fn)(own->ctx[w], key, params);
    if (signs)
        return SIG(type, w, OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT,
                   OSSL_FUNC_signature_digest_sign_init_fn)(own->ctx[w], NULL, key, params);
    return SIG(type, w, OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_INIT,
               OSSL_FUNC_signature_digest_verify_init_fn)(own->ctx[w], NULL, key, params);
}

static void begin(void) {
    struct context *context = some_context(-1);
    if (!context) return;
    struct key *key = some_key(context->type);
    int signs = pick(2), again = context->key && rarely(6), value[WORLDS];
    if (!key && !again) return;
    if (again) key = context->key;
    context->by_message = pick(2);
    context->is_hash = 0;
    OSSL_PARAM params[8];
    parameters(params, context);
    for (int w = 0; w < WORLDS; w++)
        value[w] = begin_in(context, w, signs, again ? NULL : key->data[w], params);
    agree("begin", value[OURS], value[STOCK]);
    /* One that has failed may have noted a part of the parameters. */
    if (value[STOCK] <= 0) {
        free_context(context);
        return;
    }
    context->key = key;
    context->mode = signs ? SIGNS : CHECKS;
}

static void set_parameters(void) {
    struct context *context = some_context(-1);
    if (!context || context->mode == IDLE) return;
    OSSL_PARAM params[8];
    int value[WORLDS];
    parameters(params, context);
    for (int w = 0; w < WORLDS; w++)
        value[w] = SIG(context->type, w, OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS,
                       OSSL_FUNC_signature_set_ctx_params_fn)(context->ctx[w], params);
    agree("parameters", value[OURS], value[STOCK]);
    if (value[STOCK] <= 0) free_context(context);
}

/* ---- signatures ---- */

struct call_of {
    const struct context *own;
    int w;
    uint8_t *to;
    size_t length, room;
    const uint8_t *message;
    size_t message_length;
};

static int sign_one(void *arg) {
    struct call_of *c = arg;
    if (c->own->by_message)
        return SIG(c->own->type, c->w, OSSL_FUNC_SIGNATURE_SIGN, OSSL_FUNC_signature_sign_fn)(
            c->own->ctx[c->w], c->to, &c->length, c->room, c->message, c->message_length);
    return SIG(c->own->type, c->w, OSSL_FUNC_SIGNATURE_DIGEST_SIGN,
               OSSL_FUNC_signature_digest_sign_fn)(c->own->ctx[c->w], c->to, &c->length, c->room,
                                                   c->message, c->message_length);
}

static int check_one(void *arg) {
    struct call_of *c = arg;
    if (c->own->by_message)
        return SIG(c->own->type, c->w, OSSL_FUNC_SIGNATURE_VERIFY, OSSL_FUNC_signature_verify_fn)(
            c->own->ctx[c->w], c->to, c->length, c->message, c->message_length);
    return SIG(c->own->type, c->w, OSSL_FUNC_SIGNATURE_DIGEST_VERIFY,
               OSSL_FUNC_signature_digest_verify_fn)(c->own->ctx[c->w], c->to, c->length,
                                                     c->message, c->message_length);
}

/* A message: often as long as what may stand for one. */
static size_t some_message(uint8_t *to) {
    size_t length = rarely(3) ? (u8() | u8() << 8) % LONGEST : 64;
    memcpy(to, message, length);
    if (rarely(4) && length) to[u8() % length] ^= 1;
    return length;
}

static void sign(void) {
    static uint8_t to[WORLDS][MOST], text[LONGEST];
    struct context *context = some_context(SIGNS);
    int asynchronous = rarely(3), question = rarely(10), value[WORLDS];
    if (!context) return;
    size_t length = some_message(text), room = rarely(8) ? pick(256) : MOST;
    struct call_of c[WORLDS];
    for (int w = 0; w < WORLDS; w++)
        c[w] = (struct call_of){context, w, question ? NULL : to[w], 7, room, text, length};
    value[OURS] = ours(asynchronous, sign_one, &c[OURS]);
    value[STOCK] = sign_one(&c[STOCK]);
    agree("sign", value[OURS], value[STOCK]);
    if (value[STOCK] <= 0) return;
    if (c[OURS].length != c[STOCK].length)
        FINDING("lengths: %zu, stock %zu", c[OURS].length, c[STOCK].length);
    if (question) return;
    if (context->is_fixed && memcmp(to[OURS], to[STOCK], c[STOCK].length) != 0)
        FINDING("signatures differ");
    memcpy(made[context->type], to[pick(WORLDS)], c[STOCK].length);
    /* Each by the other world, with the key and the parameters of the context. */
    struct context copy = *context;
    for (int w = 0; !context->is_fixed && w < WORLDS; w++)
        if (!(copy.ctx[w] = SIG(context->type, w, OSSL_FUNC_SIGNATURE_DUPCTX,
                                OSSL_FUNC_signature_dupctx_fn)(context->ctx[w])))
            FINDING("a context is not copied");
    for (int w = 0; !context->is_fixed && w < WORLDS; w++) {
        /* It is forgotten when a context begins again. */
        OSSL_PARAM params[] = {OSSL_PARAM_construct_int("mu", &copy.is_hash),
                               OSSL_PARAM_construct_end()};
        struct call_of check = {&copy, w, to[!w], c[!w].length, 0, text, length};
        if (begin_in(&copy, w, 0, NULL, params) <= 0 || check_one(&check) <= 0)
            FINDING("world %d does not take the signature of the other", w);
        SIG(copy.type, w, OSSL_FUNC_SIGNATURE_FREECTX, OSSL_FUNC_signature_freectx_fn)
        (copy.ctx[w]);
    }
    ERR_clear_error();
}

static void check(void) {
    static uint8_t from[MOST + 64], text[LONGEST];
    struct context *context = some_context(CHECKS);
    int asynchronous = rarely(3), value[WORLDS];
    if (!context) return;
    size_t length = damage(made[context->type], lengths[context->type], from);
    size_t text_length = some_message(text);
    struct call_of c[WORLDS];
    for (int w = 0; w < WORLDS; w++)
        c[w] = (struct call_of){context, w, from, length, 0, text, text_length};
    value[OURS] = ours(asynchronous, check_one, &c[OURS]);
    value[STOCK] = check_one(&c[STOCK]);
    agree("check", value[OURS], value[STOCK]);
}

/* ---- libFuzzer's side ---- */

static int take(const OSSL_PARAM params[], void *arg) {
    struct source *to = arg;
    for (int i = 0; i < PARTS; i++) {
        const OSSL_PARAM *from = OSSL_PARAM_locate_const(params, parts[i]);
        NEED(from && from->data_size <= MOST);
        to->length[i] = from->data_size;
        memcpy(to->bytes[i], from->data, from->data_size);
    }
    return 1;
}

/* A key of a seed, the same in each run, and a signature with it. */
static void make_source(int type, int i) {
    uint8_t seed[32];
    memset(seed, 16 * type + i, sizeof seed);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("seed", seed, sizeof seed),
                           OSSL_PARAM_construct_end()};
    void *gen = KEYS(type, STOCK, OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn)(
        worlds[STOCK].provctx, EVP_PKEY_KEYPAIR, params);
    NEED(gen);
    void *key = KEYS(type, STOCK, OSSL_FUNC_KEYMGMT_GEN, OSSL_FUNC_keymgmt_gen_fn)(gen, NULL, NULL);
    NEED(key && KEYS(type, STOCK, OSSL_FUNC_KEYMGMT_EXPORT, OSSL_FUNC_keymgmt_export_fn)(
                    key, EVP_PKEY_KEYPAIR, take, &sources[type][i]) == 1);
    KEYS(type, STOCK, OSSL_FUNC_KEYMGMT_GEN_CLEANUP, OSSL_FUNC_keymgmt_gen_cleanup_fn)(gen);
    struct context own = {.type = type};
    own.ctx[STOCK] = SIG(type, STOCK, OSSL_FUNC_SIGNATURE_NEWCTX,
                         OSSL_FUNC_signature_newctx_fn)(worlds[STOCK].provctx, NULL);
    NEED(own.ctx[STOCK] && begin_in(&own, STOCK, 1, key, NULL) == 1);
    struct call_of c = {&own, STOCK, made[type], 0, MOST, message, 64};
    NEED(sign_one(&c) == 1 && c.length == lengths[type]);
    SIG(type, STOCK, OSSL_FUNC_SIGNATURE_FREECTX, OSSL_FUNC_signature_freectx_fn)(own.ctx[STOCK]);
    KEYS(type, STOCK, OSSL_FUNC_KEYMGMT_FREE, OSSL_FUNC_keymgmt_free_fn)(key);
}

static uint8_t first[TYPES][MOST];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    start_worlds();
    for (size_t i = 0; i < sizeof message; i++)
        message[i] = i;
    for (int type = 0; type < TYPES; type++) {
        keymgmt[type] = (struct algorithm){OSSL_OP_KEYMGMT, names[type]};
        signature[type] = (struct algorithm){OSSL_OP_SIGNATURE, names[type]};
        find(&keymgmt[type]);
        find(&signature[type]);
        NEED(keymgmt[type].table[OURS] && signature[type].table[OURS]);
        for (int i = 0; i < SOURCES; i++)
            make_source(type, i);
    }
    memcpy(first, made, sizeof made);
    return 0;
}

static const struct {
    const char *name;
    void (*run)(void);
} steps[] = {{"import", import_key},
             {"import", import_key},
             {"duplicate key", duplicate_key},
             {"new context", new_context},
             {"new context", new_context},
             {"duplicate context", duplicate_context},
             {"begin", begin},
             {"begin", begin},
             {"parameters", set_parameters},
             {"sign", sign},
             {"sign", sign},
             {"check", check},
             {"check", check}};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    begin_input(bytes, length);
    memcpy(made, first, sizeof made);
    for (int done = 0; next_byte < last_byte && done < 32; done++) {
        unsigned step = pick(15);
        if (step == 13)
            free_key(&keys[pick(SLOTS)]);
        else if (step == 14)
            free_context(&contexts[pick(SLOTS)]);
        else {
            LOG("step %s\n", steps[step].name);
            steps[step].run();
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        free_context(&contexts[i]);
        free_key(&keys[i]);
    }
    ERR_clear_error();
    return 0;
}
