/* A differential fuzzer over the module's tables for ML-KEM and its hybrids.
 *
 * Each input is a program of small operations on keys and encapsulations. Every operation runs
 * twice: through the module's tables and through those of the default provider of the same
 * libcrypto, which must be OpenSSL 3.5 or later. Return codes, lengths and bytes that follow from
 * the input must be equal. A random key is made in one world and imported into the other; a random
 * secret is sent by one world and received by the other. Shares, keys and ciphertexts are damaged,
 * cut short and made of the input. Some operations run inside an asynchronous job.
 *
 * OpenSSL's own hybrids with NIST curves neither export private keys nor import them. Each world makes
 * one then, and the other has its share. */
#include "common.h"

/* ---- tables ---- */

enum { MLKEM512, MLKEM768, MLKEM1024, X25519MLKEM, P256MLKEM, P384MLKEM, TYPES };
static const char *const names[TYPES] = {"ML-KEM-512",     "ML-KEM-768",        "ML-KEM-1024",
                                         "X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"};
static struct algorithm keymgmt[TYPES], kem[TYPES];

/* Bytes of a point that is ahead of ML-KEM's part, if the curve is a NIST curve. */
static size_t point_of(int type) {
    return type == P256MLKEM ? 65 : type == P384MLKEM ? 97 : 0;
}

#define KEYS(type, w, id, signature) CALL(keymgmt[type].table[w], id, signature *)
#define KEM(type, w, id, signature) CALL(kem[type].table[w], id, signature *)

/* ---- objects ---- */

enum { SLOTS = 5, MOST = 4096 };

struct key {
    int used, type, is_pair;
    void **source; /* whose public key it is, if it is a source's */
    void *data[WORLDS];
    void *hidden[WORLDS]; /* what the share in the other world belongs to */
};
struct operation {
    int used, type;
    enum { IDLE, SENDS, RECEIVES } mode;
    int is_known;       /* what it sends follows from the input */
    void *pair[WORLDS]; /* what receives the same, if the private key is known */
    struct key *key;    /* OpenSSL's contexts take no reference to it, as libcrypto has one */
    void *ctx[WORLDS];
};
static struct key keys[SLOTS];
static struct operation operations[SLOTS];

/* Key pairs that imports start from, and what was last sent. */
enum { SOURCES = 2 };
static OSSL_PARAM sources[TYPES][SOURCES][4];
static void *source_keys[TYPES][SOURCES][WORLDS];
static uint8_t sent[MOST];
static size_t sent_length;

static void free_operation(struct operation *operation) {
    for (int w = 0; operation->used && w < WORLDS; w++)
        KEM(operation->type, w, OSSL_FUNC_KEM_FREECTX, OSSL_FUNC_kem_freectx_fn)
    (operation->ctx[w]);
    memset(operation, 0, sizeof *operation);
}

static void free_key(struct key *key) {
    for (int i = 0; i < SLOTS; i++)
        if (operations[i].key == key) free_operation(&operations[i]);
    for (int w = 0; key->used && w < WORLDS; w++) {
        KEYS(key->type, w, OSSL_FUNC_KEYMGMT_FREE, OSSL_FUNC_keymgmt_free_fn)(key->data[w]);
        KEYS(key->type, w, OSSL_FUNC_KEYMGMT_FREE, OSSL_FUNC_keymgmt_free_fn)(key->hidden[w]);
    }
    memset(key, 0, sizeof *key);
}

/* A key that is used and of this type, or any type if that is negative. */
static struct key *some_key(int type) {
    unsigned from = pick(SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        struct key *key = &keys[(from + i) % SLOTS];
        if (key->used && (type < 0 || key->type == type)) return key;
    }
    return NULL;
}

static struct key *free_slot(void) {
    struct key *key = &keys[pick(SLOTS)];
    free_key(key);
    return key;
}

/* Keeps a key that both worlds have, or neither. */
static void keep(struct key *key, int type, const char *what, const int *value) {
    key->used = 1;
    key->type = type;
    int failed = value[OURS] <= 0 || value[STOCK] <= 0, has[WORLDS];
    agree(what, value[OURS], value[STOCK]);
    if (failed) {
        free_key(key);
        return;
    }
    for (int w = 0; w < WORLDS; w++)
        has[w] = KEYS(type, w, OSSL_FUNC_KEYMGMT_HAS, OSSL_FUNC_keymgmt_has_fn)(
            key->data[w], OSSL_KEYMGMT_SELECT_PRIVATE_KEY);
    agree("has a private key", has[OURS], has[STOCK]);
    key->is_pair = has[STOCK] > 0;
}

static void new_in_both(struct key *key, int type) {
    for (int w = 0; w < WORLDS; w++)
        NEED(key->data[w] = KEYS(type, w, OSSL_FUNC_KEYMGMT_NEW,
                                 OSSL_FUNC_keymgmt_new_fn)(worlds[w].provctx));
}

/* ---- damage ---- */

/* A copy of the bytes, with damage as the input says. Returns its length. */
static size_t damage(const uint8_t *from, size_t length, uint8_t *to) {
    memcpy(to, from, length);
    switch (pick(8)) {
    case 0: /* a bit of any byte */
        if (length) to[(u8() | u8() << 8) % length] ^= 1 << pick(8);
        break;
    case 1: /* a byte at the seam of a hybrid, or at an end */
        if (length) to[(size_t[]){0, 64, 65, 96, 97, 1088, 1184, length - 1}[pick(8)] % length] ^= 1 + u8();
        break;
    case 2: return length ? length - 1 - u8() % length : 0;
    case 3:
        memset(to + length, 0x5a, 40);
        return length + 1 + pick(40);
    case 4: { /* a stretch of one byte: points at infinity, coefficients that are too large */
        size_t at = length ? (u8() | u8() << 8) % length : 0, most = length - at;
        size_t count = 1 + (u8() | u8() << 8);
        memset(to + at, (int[]){0, 0xff, 4, 0xd0}[pick(4)], count < most ? count : most);
        break;
    }
    default: break; /* none */
    }
    return length;
}

/* OpenSSL takes the hybrid form of a point (SEC 1, 2.3.4), which TLS does not allow: none is tried. */
static void avoid_hybrid_form(int type, uint8_t *share, size_t length) {
    if (point_of(type) && length && (share[0] == 6 || share[0] == 7)) share[0] = 5;
}

/* ---- operations on keys ---- */

static int initialise_in(int w, int type, void *ctx, void *key, int sends, OSSL_PARAM *params) {
    if (sends)
        return KEM(type, w, OSSL_FUNC_KEM_ENCAPSULATE_INIT,
                   OSSL_FUNC_kem_encapsulate_init_fn)(ctx, key, params);
    return KEM(type, w, OSSL_FUNC_KEM_DECAPSULATE_INIT,
               OSSL_FUNC_kem_decapsulate_init_fn)(ctx, key, params);
}

struct sending {
    int type, w;
    void *ctx;
    uint8_t *to, *secret;
    size_t length, secret_length;
};

static int send_secret(void *arg) {
    struct sending *s = arg;
    return KEM(s->type, s->w, OSSL_FUNC_KEM_ENCAPSULATE, OSSL_FUNC_kem_encapsulate_fn)(
        s->ctx, s->to, &s->length, s->secret, &s->secret_length);
}

static int validate(int type, int w, void *key, int selection) {
    return KEYS(type, w, OSSL_FUNC_KEYMGMT_VALIDATE,
                OSSL_FUNC_keymgmt_validate_fn)(key, selection, 0);
}

/* The module finds out that a point is not on its curve when it is used, and when somebody asks for a
 * check: OpenSSL's own, before. */
static void expect_no_point(int type, void *key, int *value) {
    static uint8_t to[MOST], secret[128];
    if (value[OURS] <= 0 || value[STOCK] > 0) return;
    void *ctx = KEM(type, OURS, OSSL_FUNC_KEM_NEWCTX,
                    OSSL_FUNC_kem_newctx_fn)(worlds[OURS].provctx);
    struct sending s = {type, OURS, ctx, to, secret, sizeof to, sizeof secret};
    NEED(ctx);
    if (initialise_in(OURS, type, ctx, key, 1, NULL) > 0 && send_secret(&s) > 0)
        FINDING("sent to a point that is not on the curve");
    if (validate(type, OURS, key, EVP_PKEY_PUBLIC_KEY) > 0)
        FINDING("a point that is not on the curve is valid");
    KEM(type, OURS, OSSL_FUNC_KEM_FREECTX, OSSL_FUNC_kem_freectx_fn)(ctx);
    value[OURS] = 0;
}

static const int selections[] = {EVP_PKEY_KEYPAIR,
                                 EVP_PKEY_PUBLIC_KEY,
                                 OSSL_KEYMGMT_SELECT_PRIVATE_KEY,
                                 OSSL_KEYMGMT_SELECT_ALL,
                                 OSSL_KEYMGMT_SELECT_ALL_PARAMETERS,
                                 0};

/* What an import may have and an export gives. */
static const char *const parts[] = {OSSL_PKEY_PARAM_PUB_KEY, OSSL_PKEY_PARAM_PRIV_KEY, "seed"};

static const OSSL_PARAM *part(const OSSL_PARAM *params, const char *name) {
    return OSSL_PARAM_locate_const(params, name);
}

static void import_key(void) {
    static uint8_t bytes[3][MOST];
    int type = pick(TYPES), selection = selections[pick(6)], value[WORLDS];
    const OSSL_PARAM *source = sources[type][pick(SOURCES)];
    OSSL_PARAM params[4], *to = params;
    unsigned chosen = u8();
    for (int i = 0; i < 3; i++) {
        const OSSL_PARAM *from = part(source, parts[i]);
        if (!from || !(chosen >> i & 1) || (point_of(type) && i > 0)) continue;
        size_t length = from->data_size;
        if (chosen >> (i + 3) & 1)
            length = damage(from->data, length, bytes[i]);
        else
            memcpy(bytes[i], from->data, length);
        if (i == 0) avoid_hybrid_form(type, bytes[i], length);
        LOG("  %s: %s, %zu bytes of %zu\n", names[type], parts[i], length, from->data_size);
        *to++ = OSSL_PARAM_construct_octet_string(parts[i], bytes[i], length);
    }
    *to = OSSL_PARAM_construct_end();
    LOG("  selection %#x\n", selection);
    struct key *key = free_slot();
    new_in_both(key, type);
    for (int w = 0; w < WORLDS; w++)
        value[w] = KEYS(type, w, OSSL_FUNC_KEYMGMT_IMPORT,
                        OSSL_FUNC_keymgmt_import_fn)(key->data[w], selection, params);
    const OSSL_PARAM *public = part(source, OSSL_PKEY_PARAM_PUB_KEY), *given = part(params, "pub");
    if (point_of(type) && given && given->data_size == public->data_size &&
        memcmp(given->data, public->data, point_of(type)) != 0)
        expect_no_point(type, key->data[OURS], value);
    keep(key, type, "import", value);
}

struct exported {
    int calls;
    size_t length[3];
    uint8_t bytes[3][MOST];
};

static int take(const OSSL_PARAM params[], void *arg) {
    struct exported *to = arg;
    to->calls++;
    for (int i = 0; i < 3; i++) {
        const OSSL_PARAM *from = part(params, parts[i]);
        if (!from) continue;
        if (from->data_size > MOST) FINDING("%s has %zu bytes", parts[i], from->data_size);
        to->length[i] = from->data_size;
        memcpy(to->bytes[i], from->data, from->data_size);
    }
    return 1;
}

/* The parts that there are, as parameters. */
static void as_params(struct exported *exported, OSSL_PARAM *to) {
    for (int i = 0; i < 3; i++)
        if (exported->length[i])
            *to++ = OSSL_PARAM_construct_octet_string(parts[i], exported->bytes[i],
                                                      exported->length[i]);
    *to = OSSL_PARAM_construct_end();
}

static int export_from(const struct key *key, int w, int selection, struct exported *to) {
    memset(to, 0, sizeof *to);
    return KEYS(key->type, w, OSSL_FUNC_KEYMGMT_EXPORT,
                OSSL_FUNC_keymgmt_export_fn)(key->data[w], selection, take, to);
}

static void export_key(void) {
    static struct exported exported[WORLDS];
    struct key *key = some_key(-1);
    int selection = selections[pick(6)], value[WORLDS];
    if (!key) return;
    LOG("  %s, pair %d, selection %#x\n", names[key->type], key->is_pair, selection);
    /* Nobody asks for what there is not. */
    if (!key->is_pair && !(selection & OSSL_KEYMGMT_SELECT_PUBLIC_KEY)) return;
    for (int w = 0; w < WORLDS; w++)
        value[w] = export_from(key, w, selection, &exported[w]);
    agree("export", value[OURS], value[STOCK]);
    if (value[STOCK] > 0 && !key->hidden[OURS] &&
        memcmp(&exported[OURS], &exported[STOCK], sizeof *exported) != 0)
        FINDING("exported keys differ");
}

struct generating {
    int type, w;
    void *gen, *key;
};

static int generate_one(void *arg) {
    struct generating *g = arg;
    g->key = KEYS(g->type, g->w, OSSL_FUNC_KEYMGMT_GEN, OSSL_FUNC_keymgmt_gen_fn)(g->gen, NULL, NULL);
    return g->key != NULL;
}

/* Makes a key pair in one world and imports it into the other; from a seed, in both. */
static void generate_key(void) {
    static struct exported exported;
    int type = pick(P256MLKEM), w = pick(WORLDS), asynchronous = rarely(3);
    int seeded = type <= MLKEM1024 && rarely(2);
    uint8_t seed[80];
    size_t seed_length = rarely(4) ? pick(80) : 64;
    for (size_t i = 0; i < sizeof seed; i++)
        seed[i] = i < 4 ? u8() : 7 * i;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("seed", seed, seed_length),
                           OSSL_PARAM_construct_end()};
    struct key *key = free_slot();
    int value[WORLDS] = {0, 0};
    for (int i = 0; i < WORLDS; i++) {
        if (!seeded && i != w) continue;
        void *gen = KEYS(type, i, OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn)(
            worlds[i].provctx, EVP_PKEY_KEYPAIR, seeded ? params : NULL);
        struct generating g = {type, i, gen, NULL};
        if (gen) ours(asynchronous && i == OURS, generate_one, &g);
        key->data[i] = g.key;
        if (gen)
            KEYS(type, i, OSSL_FUNC_KEYMGMT_GEN_CLEANUP, OSSL_FUNC_keymgmt_gen_cleanup_fn)(gen);
        value[i] = key->data[i] != NULL;
    }
    key->type = type;
    if (!seeded) {
        if (!value[w]) FINDING("no key pair of %s", names[type]);
        if (export_from(key, w, EVP_PKEY_KEYPAIR, &exported) <= 0 || exported.calls != 1)
            FINDING("a new key pair is not exported");
        OSSL_PARAM pair[4];
        as_params(&exported, pair);
        NEED(key->data[!w] = KEYS(type, !w, OSSL_FUNC_KEYMGMT_NEW,
                                  OSSL_FUNC_keymgmt_new_fn)(worlds[!w].provctx));
        if (KEYS(type, !w, OSSL_FUNC_KEYMGMT_IMPORT,
                 OSSL_FUNC_keymgmt_import_fn)(key->data[!w], EVP_PKEY_KEYPAIR, pair) <= 0)
            FINDING("a new key pair of world %d is not imported", w);
        value[!w] = 1;
    }
    keep(key, type, "generation", value);
}

/* A key that waits for a peer's share, which is set then. */
static void *with_share(int type, int w, uint8_t *share, size_t length, int *value) {
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY, share, length),
        OSSL_PARAM_construct_end()};
    void *gen = KEYS(type, w, OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn)(
        worlds[w].provctx, OSSL_KEYMGMT_SELECT_ALL_PARAMETERS, NULL);
    struct generating g = {type, w, gen, NULL};
    NEED(gen && generate_one(&g));
    KEYS(type, w, OSSL_FUNC_KEYMGMT_GEN_CLEANUP, OSSL_FUNC_keymgmt_gen_cleanup_fn)(gen);
    *value = KEYS(type, w, OSSL_FUNC_KEYMGMT_SET_PARAMS,
                  OSSL_FUNC_keymgmt_set_params_fn)(g.key, params);
    return g.key;
}

/* A key pair in each world, and its share in the other one. */
static void generate_both(void) {
    static struct exported exported;
    int asynchronous = rarely(3), type = P256MLKEM + pick(2), value[WORLDS];
    struct key *key = free_slot(), made = {.type = type};
    for (int w = 0; w < WORLDS; w++) {
        void *gen = KEYS(type, w, OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn)(
            worlds[w].provctx, EVP_PKEY_KEYPAIR, NULL);
        struct generating g = {type, w, gen, NULL};
        NEED(gen);
        ours(asynchronous && w == OURS, generate_one, &g);
        if (!g.key) FINDING("no key pair of %s in world %d", names[type], w);
        KEYS(type, w, OSSL_FUNC_KEYMGMT_GEN_CLEANUP, OSSL_FUNC_keymgmt_gen_cleanup_fn)(gen);
        key->hidden[w] = made.data[w] = g.key;
    }
    for (int w = 0; w < WORLDS; w++) {
        if (export_from(&made, !w, EVP_PKEY_PUBLIC_KEY, &exported) <= 0)
            FINDING("world %d does not export a public key", !w);
        key->data[w] = with_share(type, w, exported.bytes[0], exported.length[0], &value[w]);
        if (value[w] <= 0) FINDING("world %d does not take a share", w);
    }
    keep(key, type, "generation in both worlds", value);
}

/* As libssl makes a key of a peer's share. */
static void take_share(void) {
    static uint8_t share[MOST];
    int type = pick(TYPES), value[WORLDS];
    int number = pick(SOURCES);
    const OSSL_PARAM *from = part(sources[type][number], OSSL_PKEY_PARAM_PUB_KEY);
    size_t length = damage(from->data, from->data_size, share);
    avoid_hybrid_form(type, share, length);
    int is_whole = length == from->data_size && memcmp(share, from->data, length) == 0;
    struct key *key = free_slot();
    for (int w = 0; w < WORLDS; w++)
        key->data[w] = with_share(type, w, share, length, &value[w]);
    if (point_of(type) && length == from->data_size &&
        memcmp(share, from->data, point_of(type)) != 0)
        expect_no_point(type, key->data[OURS], value);
    keep(key, type, "share", value);
    if (key->used && is_whole && !point_of(type)) key->source = source_keys[type][number];
}

static void look_at_key(void) {
    static uint8_t bytes[WORLDS][2][MOST];
    struct key *key = some_key(-1), *other = key ? some_key(key->type) : NULL;
    int selection = selections[pick(6)], value[WORLDS], number[WORLDS][3];
    size_t room = rarely(3) ? pick(256) * 16 : MOST, length[WORLDS][2];
    if (!key) return;
    for (int w = 0; w < WORLDS; w++)
        value[w] = KEYS(key->type, w, OSSL_FUNC_KEYMGMT_HAS,
                        OSSL_FUNC_keymgmt_has_fn)(key->data[w], selection);
    int has = value[STOCK];
    agree("has", value[OURS], value[STOCK]);
    /* Without a part of the keys it is not said what is compared. */
    if ((selection & EVP_PKEY_KEYPAIR) && !key->hidden[OURS] && !other->hidden[OURS]) {
        for (int w = 0; w < WORLDS; w++)
            value[w] = KEYS(key->type, w, OSSL_FUNC_KEYMGMT_MATCH, OSSL_FUNC_keymgmt_match_fn)(
                key->data[w], other->data[w], selection);
        agree("match", value[OURS], value[STOCK]);
    }
    /* OpenSSL's hybrids have no such function; they checked what they took. */
    for (int w = 0; w < WORLDS; w++)
        value[w] = HAS(&keymgmt[key->type], OSSL_FUNC_KEYMGMT_VALIDATE) || w == OURS
                       ? validate(key->type, w, key->data[w], selection)
                       : has;
    agree("validation", value[OURS], value[STOCK]);
    int secret = rarely(3);
    for (int w = 0; w < WORLDS; w++) {
        memset(bytes[w], 0, sizeof bytes[w]);
        memset(number[w], 0, sizeof number[w]);
        OSSL_PARAM params[] = {
            OSSL_PARAM_construct_int(OSSL_PKEY_PARAM_BITS, &number[w][0]),
            OSSL_PARAM_construct_int(OSSL_PKEY_PARAM_SECURITY_BITS, &number[w][1]),
            OSSL_PARAM_construct_int(OSSL_PKEY_PARAM_MAX_SIZE, &number[w][2]),
            OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY, bytes[w][0], room),
            secret ? OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PRIV_KEY, bytes[w][1], room)
                   : OSSL_PARAM_construct_end(),
            OSSL_PARAM_construct_end()};
        value[w] = KEYS(key->type, w, OSSL_FUNC_KEYMGMT_GET_PARAMS,
                        OSSL_FUNC_keymgmt_get_params_fn)(key->data[w], params);
        length[w][0] = params[3].return_size;
        length[w][1] = secret ? params[4].return_size : 0;
    }
    agree("parameters", value[OURS], value[STOCK]);
    if (value[STOCK] > 0 && (memcmp(number[OURS], number[STOCK], sizeof *number) != 0 ||
                             memcmp(length[OURS], length[STOCK], sizeof *length) != 0 ||
                             (!key->hidden[OURS] &&
                              memcmp(bytes[OURS], bytes[STOCK], sizeof *bytes) != 0)))
        FINDING("parameters differ: %d %d %d, stock %d %d %d, lengths %zu %zu, stock %zu %zu",
                number[OURS][0], number[OURS][1], number[OURS][2], number[STOCK][0],
                number[STOCK][1], number[STOCK][2], length[OURS][0], length[OURS][1],
                length[STOCK][0], length[STOCK][1]);
}

/* OpenSSL 3.5 fails to duplicate a key pair. A copy of ours takes its place, with all it holds. */
static void duplicate_key(void) {
    static struct exported exported[2];
    struct key *key = some_key(-1);
    int selection = pick(2) ? EVP_PKEY_KEYPAIR : OSSL_KEYMGMT_SELECT_ALL;
    if (!key || key->hidden[OURS]) return;
    void *copy = KEYS(key->type, OURS, OSSL_FUNC_KEYMGMT_DUP,
                      OSSL_FUNC_keymgmt_dup_fn)(key->data[OURS], selection);
    if (!copy) FINDING("no duplicate");
    export_from(key, OURS, EVP_PKEY_KEYPAIR, &exported[0]);
    for (int i = 0; i < SLOTS; i++)
        if (operations[i].pair[OURS] == key->data[OURS]) operations[i].pair[OURS] = copy;
    KEYS(key->type, OURS, OSSL_FUNC_KEYMGMT_FREE, OSSL_FUNC_keymgmt_free_fn)(key->data[OURS]);
    key->data[OURS] = copy;
    export_from(key, OURS, EVP_PKEY_KEYPAIR, &exported[1]);
    if (memcmp(&exported[0], &exported[1], sizeof *exported) != 0) FINDING("a duplicate differs");
}

/* ---- encapsulation ---- */

static void new_operation(void) {
    struct operation *operation = &operations[pick(SLOTS)];
    free_operation(operation);
    operation->used = 1;
    operation->type = pick(TYPES);
    for (int w = 0; w < WORLDS; w++)
        NEED(operation->ctx[w] = KEM(operation->type, w, OSSL_FUNC_KEM_NEWCTX,
                                     OSSL_FUNC_kem_newctx_fn)(worlds[w].provctx));
}

static void duplicate_operation(void) {
    struct operation *from = &operations[pick(SLOTS)], *to = &operations[pick(SLOTS)];
    /* The default provider's hybrids cannot be duplicated. */
    if (!from->used || from == to || !HAS(&kem[from->type], OSSL_FUNC_KEM_DUPCTX)) return;
    free_operation(to);
    for (int w = 0; w < WORLDS; w++)
        NEED(to->ctx[w] = KEM(from->type, w, OSSL_FUNC_KEM_DUPCTX,
                              OSSL_FUNC_kem_dupctx_fn)(from->ctx[w]));
    to->used = 1;
    to->type = from->type;
    to->mode = from->mode;
    to->is_known = from->is_known;
    memcpy(to->pair, from->pair, sizeof to->pair);
    to->key = from->key;
}

static void initialise(void) {
    struct operation *operation = &operations[pick(SLOTS)];
    int sends = pick(2), value[WORLDS];
    static uint8_t coins[40];
    if (!operation->used) new_operation();
    struct key *key = operation->used ? some_key(operation->type) : NULL;
    if (!key) return;
    int known = sends && operation->type <= MLKEM1024 && rarely(2);
    size_t length = rarely(4) ? pick(40) : 32;
    for (size_t i = 0; i < sizeof coins; i++)
        coins[i] = i < 3 ? u8() : 11 * i;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("ikme", coins, length),
                           OSSL_PARAM_construct_end()};
    for (int w = 0; w < WORLDS; w++)
        value[w] = initialise_in(w, operation->type, operation->ctx[w], key->data[w], sends,
                                 known ? params : NULL);
    agree(sends ? "begin to send" : "begin to receive", value[OURS], value[STOCK]);
    if (value[STOCK] <= 0) {
        free_operation(operation);
        return;
    }
    operation->mode = sends ? SENDS : RECEIVES;
    operation->is_known = known;
    operation->key = key;
    for (int w = 0; w < WORLDS; w++)
        operation->pair[w] = !sends          ? NULL
                             : key->is_pair   ? key->data[w]
                             : key->hidden[w] ? key->hidden[w]
                             : key->source    ? key->source[w]
                                              : NULL;
}

struct receiving {
    int type, w;
    void *ctx;
    uint8_t *secret;
    size_t length;
    const uint8_t *from;
    size_t from_length;
};

static int receive_secret(void *arg) {
    struct receiving *r = arg;
    return KEM(r->type, r->w, OSSL_FUNC_KEM_DECAPSULATE, OSSL_FUNC_kem_decapsulate_fn)(
        r->ctx, r->secret, &r->length, r->from, r->from_length);
}

static void encapsulate(void) {
    static uint8_t to[WORLDS][MOST], secret[WORLDS][128];
    struct operation *operation = &operations[pick(SLOTS)];
    int asynchronous = rarely(3), value[WORLDS], question = rarely(6), is_short = rarely(6);
    struct sending s[WORLDS];
    if (!operation->used || operation->mode != SENDS) return;
    size_t room = is_short ? 16 * u8() : MOST, secret_room = is_short ? pick(80) : 128;
    for (int w = 0; w < WORLDS; w++) {
        memset(to[w], 0, sizeof to[w]);
        memset(secret[w], 0, sizeof secret[w]);
        s[w] = (struct sending){operation->type, w, operation->ctx[w], question ? NULL : to[w],
                                question ? NULL : secret[w], room, secret_room};
    }
    value[OURS] = ours(asynchronous, send_secret, &s[OURS]);
    value[STOCK] = send_secret(&s[STOCK]);
    agree("send", value[OURS], value[STOCK]);
    if (value[STOCK] <= 0) {
        operation->is_known = 0; /* the coins are gone */
        return;
    }
    if (s[OURS].length != s[STOCK].length || s[OURS].secret_length != s[STOCK].secret_length)
        FINDING("lengths: %zu and %zu, stock %zu and %zu", s[OURS].length, s[OURS].secret_length,
                s[STOCK].length, s[STOCK].secret_length);
    if (question) return;
    int is_known = operation->is_known;
    operation->is_known = 0;
    if (is_known && (memcmp(to[OURS], to[STOCK], MOST) != 0 ||
                                memcmp(secret[OURS], secret[STOCK], sizeof *secret) != 0))
        FINDING("what follows from the coins differs");
    for (int w = 0; w < WORLDS && operation->pair[w]; w++) {
        /* The other world receives what this one has sent. */
        uint8_t found[128];
        int v = !w;
        void *ctx = KEM(operation->type, v, OSSL_FUNC_KEM_NEWCTX,
                        OSSL_FUNC_kem_newctx_fn)(worlds[v].provctx);
        struct receiving r = {operation->type, v, ctx, found, sizeof found, to[w], s[w].length};
        NEED(ctx && initialise_in(v, operation->type, ctx, operation->pair[v], 0, NULL) > 0);
        if (receive_secret(&r) <= 0) FINDING("world %d does not receive from the other", v);
        if (r.length != s[w].secret_length || memcmp(found, secret[w], r.length) != 0)
            FINDING("world %d receives another secret than was sent", v);
        size_t point = point_of(operation->type), shared = point / 2;
        if (point && v == OURS) {
            uint8_t changed[MOST], other[128];
            size_t at = (u8() | u8() << 8) % s[w].length;
            memcpy(changed, to[w], s[w].length);
            changed[at] ^= 1 << pick(8);
            r.from = changed;
            r.secret = other;
            r.length = sizeof other;
            int got = receive_secret(&r);
            if (at < point ? got > 0 : got <= 0) FINDING("byte %zu is changed: %d", at, got);
            if (got > 0 && (memcmp(found, other, shared) != 0 ||
                            memcmp(found + shared, other + shared, 32) == 0))
                FINDING("byte %zu is changed, and the wrong half of the secret", at);
            ERR_clear_error();
        }
        KEM(operation->type, v, OSSL_FUNC_KEM_FREECTX, OSSL_FUNC_kem_freectx_fn)(ctx);
    }
    int w = pick(WORLDS);
    memcpy(sent, to[w], s[w].length);
    sent_length = s[w].length;
}

static void decapsulate(void) {
    static uint8_t from[MOST + 64], secret[WORLDS][128];
    static uint8_t whole[TYPES][MOST];
    static const size_t lengths[TYPES] = {768, 1088, 1568, 1120, 1153, 1665};
    struct operation *operation = &operations[pick(SLOTS)];
    int asynchronous = rarely(3), value[WORLDS], question = rarely(8);
    struct receiving r[WORLDS];
    if (!operation->used || operation->mode != RECEIVES) return;
    size_t length, room = rarely(5) ? pick(80) : 128;
    if (rarely(4)) {
        for (size_t i = 0; i < lengths[operation->type]; i++)
            whole[operation->type][i] = i < 8 ? u8() : i * i;
        length = damage(whole[operation->type], lengths[operation->type], from);
    } else
        length = damage(sent, sent_length, from);
    for (int w = 0; w < WORLDS; w++) {
        memset(secret[w], 0, sizeof secret[w]);
        r[w] = (struct receiving){operation->type, w,    operation->ctx[w], question ? NULL : secret[w],
                                  room,            from, length};
    }
    value[OURS] = ours(asynchronous, receive_secret, &r[OURS]);
    value[STOCK] = receive_secret(&r[STOCK]);
    agree("receive", value[OURS], value[STOCK]);
    if (value[STOCK] <= 0) return;
    if (r[OURS].length != r[STOCK].length)
        FINDING("lengths: %zu, stock %zu", r[OURS].length, r[STOCK].length);
    if (memcmp(secret[OURS], secret[STOCK], sizeof *secret) != 0)
        FINDING("received secrets differ");
}

/* ---- libFuzzer's side ---- */

static void make_source(int type, int i) {
    static struct exported exported[TYPES][SOURCES];
    struct exported *pair = &exported[type][i];
    void *gen = KEYS(type, STOCK, OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn)(
        worlds[STOCK].provctx, EVP_PKEY_KEYPAIR, NULL);
    struct generating g = {type, STOCK, gen, NULL};
    NEED(gen && generate_one(&g));
    KEYS(type, STOCK, OSSL_FUNC_KEYMGMT_GEN_CLEANUP, OSSL_FUNC_keymgmt_gen_cleanup_fn)(gen);
    struct key key = {.used = 1, .type = type, .data = {[STOCK] = g.key}};
    int selection = point_of(type) ? EVP_PKEY_PUBLIC_KEY : EVP_PKEY_KEYPAIR;
    NEED(export_from(&key, STOCK, selection, pair) == 1);
    as_params(pair, sources[type][i]);
    for (int w = 0; !point_of(type) && w < WORLDS; w++) {
        void *made = KEYS(type, w, OSSL_FUNC_KEYMGMT_NEW, OSSL_FUNC_keymgmt_new_fn)(worlds[w].provctx);
        NEED(made && KEYS(type, w, OSSL_FUNC_KEYMGMT_IMPORT, OSSL_FUNC_keymgmt_import_fn)(
                         made, EVP_PKEY_KEYPAIR, sources[type][i]) == 1);
        source_keys[type][i][w] = made;
    }
    KEYS(type, STOCK, OSSL_FUNC_KEYMGMT_FREE, OSSL_FUNC_keymgmt_free_fn)(g.key);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    start_worlds();
    for (int type = 0; type < TYPES; type++) {
        keymgmt[type] = (struct algorithm){OSSL_OP_KEYMGMT, names[type]};
        kem[type] = (struct algorithm){OSSL_OP_KEM, names[type]};
        find(&keymgmt[type]);
        find(&kem[type]);
        NEED(keymgmt[type].table[OURS] && kem[type].table[OURS]);
        for (int i = 0; i < SOURCES; i++)
            make_source(type, i);
    }
    return 0;
}

static const struct {
    const char *name;
    void (*run)(void);
} steps[] = {{"import", import_key},
             {"generate", generate_key},
             {"generate in both worlds", generate_both},
             {"share", take_share},
             {"export", export_key},
             {"look at key", look_at_key},
             {"duplicate key", duplicate_key},
             {"new operation", new_operation},
             {"duplicate operation", duplicate_operation},
             {"initialise", initialise},
             {"initialise", initialise},
             {"send", encapsulate},
             {"send", encapsulate},
             {"receive", decapsulate},
             {"receive", decapsulate}};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    begin_input(bytes, length);
    sent_length = 0;
    for (int done = 0; next_byte < last_byte && done < 48; done++) {
        unsigned step = pick(17);
        if (step == 15)
            free_key(&keys[pick(SLOTS)]);
        else if (step == 16)
            free_operation(&operations[pick(SLOTS)]);
        else {
            LOG("step %s\n", steps[step].name);
            steps[step].run();
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        free_key(&keys[i]);
        free_operation(&operations[i]);
    }
    ERR_clear_error();
    return 0;
}
