/* A differential fuzzer over the dispatch tables of lockstep.so.
 *
 * Each input is a program of small operations on key, signature, decryption, exchange and
 * derivation objects. Every operation runs twice: through the module's tables and through the
 * tables of the default provider of the same libcrypto. Return codes, lengths and deterministic
 * bytes must be equal; a signature with randomness in it must verify by the default provider. The
 * operations come in the order that libcrypto uses, and in others that the default provider
 * survives: NULL where the interface allows it, short buffers, repeated imports, duplicates, and
 * objects that are freed while others still use their key. Some run inside an asynchronous job.
 *
 * The oracle needs no knowledge of the inside of the module, so a redesign of it does not touch
 * this file. `FUZZ_MODULES` names the directory of lockstep.so, `FUZZ_KEYS` one for key files. */
#include "common.h"

/* ---- tables ---- */

enum { RSA_KEYS, PSS_KEYS, EC_KEYS, X25519_KEYS, ED25519_KEYS, KEY_TYPES };
static struct algorithm keymgmt[KEY_TYPES] = {
    {OSSL_OP_KEYMGMT, "RSA"},    {OSSL_OP_KEYMGMT, "RSA-PSS"}, {OSSL_OP_KEYMGMT, "EC"},
    {OSSL_OP_KEYMGMT, "X25519"}, {OSSL_OP_KEYMGMT, "ED25519"},
};
static struct algorithm rsa_signature = {OSSL_OP_SIGNATURE, "RSA"},
                        ecdsa = {OSSL_OP_SIGNATURE, "ECDSA"},
                        ed25519 = {OSSL_OP_SIGNATURE, "ED25519"},
                        rsa_cipher = {OSSL_OP_ASYM_CIPHER, "RSA"}, ecdh = {OSSL_OP_KEYEXCH, "ECDH"},
                        x25519 = {OSSL_OP_KEYEXCH, "X25519"},
                        tls13_kdf = {OSSL_OP_KDF, "TLS13-KDF"};

/* ---- keys that imports start from ---- */

struct source {
    const char *file, *generate;
    int type;
    OSSL_PARAM *params;
};
static struct source sources[] = {
    {"rsa1024", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024", RSA_KEYS},
    {"rsa1024b", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024", RSA_KEYS},
    {"rsa1024e3",
     "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024 -pkeyopt rsa_keygen_pubexp:3", RSA_KEYS},
    {"rsa1536", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1536", RSA_KEYS},
    {"rsa2048", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048", RSA_KEYS},
    {"rsa2048p3",
     "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_primes:3", RSA_KEYS},
    {"pss1024", "genpkey -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:1024", PSS_KEYS},
    {"pss1024s",
     "genpkey -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:1024 -pkeyopt rsa_pss_keygen_md:sha256"
     " -pkeyopt rsa_pss_keygen_mgf1_md:sha256 -pkeyopt rsa_pss_keygen_saltlen:32",
     PSS_KEYS},
    {"p256", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", EC_KEYS},
    {"p256b", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", EC_KEYS},
    {"p384", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384", EC_KEYS},
    {"p384b", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384", EC_KEYS},
    {"p521", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521", EC_KEYS},
    {"k256", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:secp256k1", EC_KEYS},
    {"p256x",
     "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:explicit",
     EC_KEYS},
    {"x25519", "genpkey -algorithm X25519", X25519_KEYS},
    {"x25519b", "genpkey -algorithm X25519", X25519_KEYS},
    {"ed25519", "genpkey -algorithm ED25519", ED25519_KEYS},
    {"ed25519b", "genpkey -algorithm ED25519", ED25519_KEYS},
};
enum { SOURCES = sizeof sources / sizeof *sources };

static void load(struct source *source) {
    char path[4096], command[8192];
    const char *directory = getenv("FUZZ_KEYS");
    NEED(directory);
    snprintf(path, sizeof path, "%s/%s.pem", directory, source->file);
    if (access(path, R_OK) != 0) {
        snprintf(command, sizeof command, "openssl %s -out %s 2> /dev/null", source->generate,
                 path);
        NEED(system(command) == 0);
    }
    FILE *file = fopen(path, "r");
    NEED(file);
    EVP_PKEY *key = PEM_read_PrivateKey_ex(file, NULL, NULL, NULL, worlds[STOCK].libctx, NULL);
    fclose(file);
    NEED(key && EVP_PKEY_todata(key, EVP_PKEY_KEYPAIR, &source->params) == 1);
    EVP_PKEY_free(key);
}

/* ---- objects ---- */

enum { SLOTS = 6, RECORDED = 4 };

struct key {
    int type, used, many_primes, touched; /* touched: an operation has had it */
    const struct source *source;
    void *data[WORLDS];
};
struct operation {
    const struct algorithm *algorithm;
    int key_type; /* whose keys it takes */
    int mode;     /* what it was last initialised for */
    int size;     /* an RSA signature's: its buffer in the default provider never grows */
    int failed;   /* the last initialisation failed: only freeing, duplicating and initialising */
    char digest[16];
    OSSL_PARAM *recorded[RECORDED];
    int recorded_count, lost_record;
    void *ctx[WORLDS];
};
enum { IDLE, SIGN, VERIFY, DIGEST_SIGN, DIGEST_VERIFY, ENCRYPT, DECRYPT, DERIVE };

static struct key keys[SLOTS];
static struct operation operations[SLOTS];
/* What signing or encrypting gave last, and for which data. */
static uint8_t result[1024], data[512];
static size_t result_length;

static void free_key(struct key *key) {
    for (int w = 0; key->used && w < WORLDS; w++)
        CALL(keymgmt[key->type].table[w], OSSL_FUNC_KEYMGMT_FREE, OSSL_FUNC_keymgmt_free_fn *)
    (key->data[w]);
    memset(key, 0, sizeof *key);
}

static int freectx_id(const struct algorithm *algorithm) {
    switch (algorithm->operation) {
    case OSSL_OP_SIGNATURE: return OSSL_FUNC_SIGNATURE_FREECTX;
    case OSSL_OP_ASYM_CIPHER: return OSSL_FUNC_ASYM_CIPHER_FREECTX;
    case OSSL_OP_KEYEXCH: return OSSL_FUNC_KEYEXCH_FREECTX;
    default: return OSSL_FUNC_KDF_FREECTX;
    }
}

static void forget_records(struct operation *operation) {
    for (int i = 0; i < operation->recorded_count; i++)
        OSSL_PARAM_free(operation->recorded[i]);
    operation->recorded_count = operation->lost_record = 0;
}

static void free_operation(struct operation *operation) {
    if (operation->algorithm)
        for (int w = 0; w < WORLDS; w++)
            CALL(operation->algorithm->table[w], freectx_id(operation->algorithm),
                 OSSL_FUNC_signature_freectx_fn *)
    (operation->ctx[w]);
    forget_records(operation);
    memset(operation, 0, sizeof *operation);
}

/* ---- parameters ---- */

/* The default provider signs with whatever public key it was given beside an Ed25519 seed, which
 * makes a signature that nobody accepts; the lanes compute the right one. Not a finding: one does
 * not change without the other, here and where a key is imported once more. */
static int is_half_of_ed25519(int type, const OSSL_PARAM *param) {
    return type == ED25519_KEYS && (strcmp(param->key, OSSL_PKEY_PARAM_PUB_KEY) == 0 ||
                                    strcmp(param->key, OSSL_PKEY_PARAM_PRIV_KEY) == 0);
}

/* A copy of the parameters of `source` with damage as the input says. `hold` keeps the bytes. */
static OSSL_PARAM *damaged(const struct source *source, OSSL_PARAM *to, size_t room, uint8_t *hold,
                           size_t hold_room) {
    size_t n = 0;
    for (const OSSL_PARAM *from = source->params; from->key && n + 1 < room; from++) {
        OSSL_PARAM copy = *from;
        switch (pick(24)) {
        case 20: continue; /* left out */
        case 21:           /* one bit */
            if (copy.data_size && copy.data_size <= hold_room &&
                copy.data_type != OSSL_PARAM_UTF8_STRING &&
                !is_half_of_ed25519(source->type, &copy)) {
                memcpy(hold, copy.data, copy.data_size);
                hold[u8() % copy.data_size] ^= 1 << pick(8);
                copy.data = hold;
                hold += copy.data_size;
                hold_room -= copy.data_size;
            }
            break;
        case 22: /* shorter */
            if (copy.data_type != OSSL_PARAM_UTF8_STRING && copy.data_size > 1)
                copy.data_size -= 1 + pick(copy.data_size - 1 < 8 ? copy.data_size - 1 : 8);
            break;
        case 23: /* of another type */
            if (copy.data_type == OSSL_PARAM_UNSIGNED_INTEGER ||
                copy.data_type == OSSL_PARAM_OCTET_STRING)
                copy.data_type = copy.data_type == OSSL_PARAM_OCTET_STRING
                                     ? OSSL_PARAM_UNSIGNED_INTEGER
                                     : OSSL_PARAM_OCTET_STRING;
            break;
        }
        to[n++] = copy;
    }
    to[n] = OSSL_PARAM_construct_end();
    return to;
}

/* ---- operations on keys ---- */

static void tell_params(const OSSL_PARAM *params) {
    for (; logging && params && params->key; params++) {
        LOG("  %s, type %u:", params->key, params->data_type);
        if (params->data_type == OSSL_PARAM_UTF8_STRING)
            LOG(" %s", (const char *)params->data);
        else
            for (size_t i = 0; i < params->data_size && i < 64; i++)
                LOG(" %02x", ((const uint8_t *)params->data)[i]);
        LOG("\n");
    }
}

static struct key *key_of(int type, int wanted) {
    unsigned from = pick(SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        struct key *key = &keys[(from + i) % SLOTS];
        if (wanted ? key->used && key->type == type : !key->used) return key;
    }
    return NULL;
}

/* Which parts of a key there are; the two worlds agree about them. */
static int holds(const struct key *key, int selection) {
    int value[WORLDS];
    for (int w = 0; w < WORLDS; w++)
        value[w] = CALL(keymgmt[key->type].table[w], OSSL_FUNC_KEYMGMT_HAS,
                        OSSL_FUNC_keymgmt_has_fn *)(key->data[w], selection);
    agree("has", value[OURS], value[STOCK]);
    return value[STOCK];
}

/* The size of a signature with this key. */
static int size_of(const struct key *key) {
    int size = 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_int(OSSL_PKEY_PARAM_MAX_SIZE, &size),
                           OSSL_PARAM_construct_end()};
    CALL(keymgmt[key->type].table[STOCK], OSSL_FUNC_KEYMGMT_GET_PARAMS,
         OSSL_FUNC_keymgmt_get_params_fn *)
    (key->data[STOCK], params);
    ERR_clear_error();
    return size;
}

static void import_key(int again) {
    static const int selections[] = {EVP_PKEY_KEYPAIR, OSSL_KEYMGMT_SELECT_ALL, EVP_PKEY_PUBLIC_KEY,
                                     OSSL_KEYMGMT_SELECT_PRIVATE_KEY, EVP_PKEY_KEYPAIR};
    const struct source *source = &sources[pick(SOURCES)];
    struct key *key = again ? key_of(source->type, 1) : key_of(source->type, 0);
    /* A second import of more than two primes is a use after free in the default provider. */
    int many_primes = strstr(source->file, "p3") != NULL;
    if (!keymgmt[source->type].table[OURS] || !key || (again && (many_primes || key->many_primes)))
        return;
    OSSL_PARAM params[48];
    static uint8_t hold[8192];
    int selection = selections[pick(5)], value[WORLDS];
    const OSSL_PARAM *used =
        rarely(3) ? damaged(source, params, 48, hold, sizeof hold) : source->params;
    /* The default provider goes on with the modulus of before where it has used an RSA key: what it
     * makes is wrong, and where the key grows, it writes past a buffer. */
    int changes = used != source->params || key->source != source;
    if (again && (source->type == RSA_KEYS || source->type == PSS_KEYS) && key->touched && changes)
        return;
    /* It crashes where an EC key changes under an operation, also with stock in both worlds. */
    if (again && source->type == EC_KEYS && key->touched && changes) return;
    /* libcrypto does not change a key in use; the lanes take the seed when an operation begins. */
    if (again && source->type == ED25519_KEYS && changes &&
        (key->touched || used != source->params || !(selection & OSSL_KEYMGMT_SELECT_PRIVATE_KEY)))
        return;
    /* What it holds then, if it is one of the sources. */
    if (again && changes)
        key->source = NULL;
    else if (!again)
        key->source = used == source->params ? source : NULL;
    if (!again) {
        key->type = source->type;
        for (int w = 0; w < WORLDS; w++) {
            key->data[w] = CALL(keymgmt[key->type].table[w], OSSL_FUNC_KEYMGMT_NEW,
                                OSSL_FUNC_keymgmt_new_fn *)(worlds[w].provctx);
            NEED(key->data[w]);
        }
        key->used = 1;
        key->many_primes = many_primes;
    }
    for (int w = 0; w < WORLDS; w++)
        value[w] = CALL(keymgmt[key->type].table[w], OSSL_FUNC_KEYMGMT_IMPORT,
                        OSSL_FUNC_keymgmt_import_fn *)(key->data[w], selection, used);
    LOG("  %s into key %d%s, selection %#x\n", source->file, (int)(key - keys),
         used == source->params ? "" : ", damaged", selection);
    tell_params(used == source->params ? NULL : used);
    agree("import", value[OURS], value[STOCK]);
    /* libcrypto frees what a failed import leaves. In 3.0 the default provider frees parts of some
     * RSA keys twice then: those are leaked here. */
    if (value[STOCK] <= 0) {
        if (key->type == RSA_KEYS || key->type == PSS_KEYS)
            memset(key, 0, sizeof *key);
        else
            free_key(key);
    }
}

struct exported {
    uint8_t bytes[16384];
    size_t length;
};

static int note(const OSSL_PARAM params[], void *arg) {
    struct exported *exported = arg;
    for (; params->key; params++) {
        size_t key = strlen(params->key) + 1;
        if (exported->length + key + params->data_size > sizeof exported->bytes) break;
        memcpy(exported->bytes + exported->length, params->key, key);
        exported->length += key;
        memcpy(exported->bytes + exported->length, params->data, params->data_size);
        exported->length += params->data_size;
    }
    return 1;
}

static void export_key(void) {
    static const int selections[] = {EVP_PKEY_KEYPAIR, EVP_PKEY_PUBLIC_KEY, OSSL_KEYMGMT_SELECT_ALL,
                                     OSSL_KEYMGMT_SELECT_ALL_PARAMETERS};
    struct key *key = &keys[pick(SLOTS)];
    static struct exported exported[WORLDS];
    int selection = selections[pick(4)], value[WORLDS];
    if (!key->used || !HAS(&keymgmt[key->type], OSSL_FUNC_KEYMGMT_EXPORT)) return;
    for (int w = 0; w < WORLDS; w++) {
        exported[w].length = 0;
        value[w] = CALL(keymgmt[key->type].table[w], OSSL_FUNC_KEYMGMT_EXPORT,
                        OSSL_FUNC_keymgmt_export_fn *)(key->data[w], selection, note, &exported[w]);
    }
    agree("export", value[OURS], value[STOCK]);
    if (exported[OURS].length != exported[STOCK].length ||
        memcmp(exported[OURS].bytes, exported[STOCK].bytes, exported[OURS].length) != 0)
        FINDING("an exported key differs");
}

static void duplicate_key(void) {
    struct key *key = &keys[pick(SLOTS)], *copy = key_of(0, 0);
    int selection = pick(4) ? OSSL_KEYMGMT_SELECT_ALL : EVP_PKEY_PUBLIC_KEY;
    if (!key->used || !copy || !HAS(&keymgmt[key->type], OSSL_FUNC_KEYMGMT_DUP)) return;
    for (int w = 0; w < WORLDS; w++)
        copy->data[w] = CALL(keymgmt[key->type].table[w], OSSL_FUNC_KEYMGMT_DUP,
                             OSSL_FUNC_keymgmt_dup_fn *)(key->data[w], selection);
    agree("dup", copy->data[OURS] != NULL, copy->data[STOCK] != NULL);
    if (copy->data[STOCK]) {
        copy->used = 1;
        copy->type = key->type;
        copy->many_primes = key->many_primes;
        copy->touched = key->touched;
        copy->source = key->source;
    } else {
        memset(copy, 0, sizeof *copy);
    }
}

static void look_at_key(void) {
    struct key *key = &keys[pick(SLOTS)], *other = &keys[pick(SLOTS)];
    int selection = pick(2) ? EVP_PKEY_KEYPAIR : EVP_PKEY_PUBLIC_KEY, value[WORLDS];
    if (!key->used) return;
    const struct algorithm *algorithm = &keymgmt[key->type];
    switch (pick(4)) {
    case 0: holds(key, 1 << pick(8)); break;
    case 1:
        if (!HAS(algorithm, OSSL_FUNC_KEYMGMT_VALIDATE)) return;
        for (int w = 0; w < WORLDS; w++)
            value[w] = CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_VALIDATE,
                            OSSL_FUNC_keymgmt_validate_fn *)(key->data[w], selection,
                                                             OSSL_KEYMGMT_VALIDATE_QUICK_CHECK);
        agree("validate", value[OURS], value[STOCK]);
        break;
    case 2:
        if (!other->used || other->type != key->type) return;
        for (int w = 0; w < WORLDS; w++)
            value[w] = CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_MATCH,
                            OSSL_FUNC_keymgmt_match_fn *)(key->data[w], other->data[w], selection);
        agree("match", value[OURS], value[STOCK]);
        break;
    default: {
        int bits[WORLDS] = {-1, -1}, size[WORLDS] = {-1, -1};
        static uint8_t public[WORLDS][512];
        size_t length[WORLDS];
        for (int w = 0; w < WORLDS; w++) {
            OSSL_PARAM params[] = {
                OSSL_PARAM_construct_int(OSSL_PKEY_PARAM_BITS, &bits[w]),
                OSSL_PARAM_construct_int(OSSL_PKEY_PARAM_MAX_SIZE, &size[w]),
                OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY, public[w],
                                                  sizeof *public),
                OSSL_PARAM_construct_end(),
            };
            memset(public[w], 0, sizeof *public);
            value[w] = CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_GET_PARAMS,
                            OSSL_FUNC_keymgmt_get_params_fn *)(key->data[w], params);
            length[w] = params[2].return_size;
        }
        agree("get_params", value[OURS], value[STOCK]);
        if (bits[OURS] != bits[STOCK] || size[OURS] != size[STOCK] ||
            length[OURS] != length[STOCK] ||
            memcmp(public[OURS], public[STOCK], sizeof *public) != 0)
            FINDING("the parameters of a key differ");
    }
    }
}

/* libcrypto always gives a callback for progress. */
static int progress(const OSSL_PARAM params[], void *arg) {
    (void)params, (void)arg;
    return 1;
}

static void generate_key(void) {
    static const char *const groups[] = {"P-256", "P-384", "P-521", "secp256k1", "nonsense"};
    static const int types[] = {EC_KEYS, X25519_KEYS, X25519_KEYS, EC_KEYS, RSA_KEYS};
    int type = types[pick(5)], value[WORLDS];
    /* RSA keys take stock's time: seldom. */
    if (type == RSA_KEYS && !rarely(64)) type = EC_KEYS;
    const struct algorithm *algorithm = &keymgmt[type];
    const char *group = groups[pick(5)];
    size_t bits = 512;
    unsigned order = u8();
    int selection = pick(4) ? EVP_PKEY_KEYPAIR : OSSL_KEYMGMT_SELECT_ALL_PARAMETERS;
    struct key *key = key_of(type, 0), *template = order & 1 ? key_of(type, 1) : NULL;
    void *genctx[WORLDS];
    if (!key || !HAS(algorithm, OSSL_FUNC_KEYMGMT_GEN)) return;
    OSSL_PARAM params[] = {
        type == EC_KEYS
            ? OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)group, 0)
        : type == RSA_KEYS
            ? OSSL_PARAM_construct_size_t(OSSL_PKEY_PARAM_RSA_BITS, &bits)
            : OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, "x25519", 0),
        OSSL_PARAM_construct_end(),
    };
    for (int w = 0; w < WORLDS; w++)
        genctx[w] =
            CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_GEN_INIT, OSSL_FUNC_keymgmt_gen_init_fn *)(
                worlds[w].provctx, selection, order & 2 ? params : NULL);
    agree("gen_init", genctx[OURS] != NULL, genctx[STOCK] != NULL);
    if (!genctx[STOCK]) return;
    if (template && HAS(algorithm, OSSL_FUNC_KEYMGMT_GEN_SET_TEMPLATE)) {
        for (int w = 0; w < WORLDS; w++)
            value[w] = CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_GEN_SET_TEMPLATE,
                            OSSL_FUNC_keymgmt_gen_set_template_fn *)(genctx[w], template->data[w]);
        agree("gen_set_template", value[OURS], value[STOCK]);
    }
    if (order & 4 || type == RSA_KEYS) {
        for (int w = 0; w < WORLDS; w++)
            value[w] = CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_GEN_SET_PARAMS,
                            OSSL_FUNC_keymgmt_gen_set_params_fn *)(genctx[w], params);
        agree("gen_set_params", value[OURS], value[STOCK]);
    }
    if (!(order & 8) || type == RSA_KEYS) {
        for (int w = 0; w < WORLDS; w++)
            key->data[w] = CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_GEN,
                                OSSL_FUNC_keymgmt_gen_fn *)(genctx[w], progress, NULL);
        agree("gen", key->data[OURS] != NULL, key->data[STOCK] != NULL);
    }
    for (int w = 0; w < WORLDS; w++)
        CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_GEN_CLEANUP, OSSL_FUNC_keymgmt_gen_cleanup_fn *)
    (genctx[w]);
    if (!key->data[STOCK]) {
        memset(key, 0, sizeof *key);
        return;
    }
    key->used = 1;
    key->type = type;
    /* The worlds made different keys: compare what is public about them, then let them go. */
    holds(key, EVP_PKEY_KEYPAIR);
    for (int w = 0; w < WORLDS; w++)
        value[w] = !HAS(algorithm, OSSL_FUNC_KEYMGMT_VALIDATE)
                       ? 1
                       : CALL(algorithm->table[w], OSSL_FUNC_KEYMGMT_VALIDATE,
                              OSSL_FUNC_keymgmt_validate_fn *)(key->data[w], EVP_PKEY_KEYPAIR,
                                                               OSSL_KEYMGMT_VALIDATE_FULL_CHECK);
    agree("validate of a new key", value[OURS], value[STOCK]);
    free_key(key);
}

/* ---- contexts ---- */

static struct operation *free_slot(void) {
    unsigned from = pick(SLOTS);
    for (int i = 0; i < SLOTS; i++)
        if (!operations[(from + i) % SLOTS].algorithm) return &operations[(from + i) % SLOTS];
    return NULL;
}

static void new_operation(void) {
    static const struct {
        const struct algorithm *algorithm;
        int key_type;
    } kinds[] = {
        {&rsa_signature, RSA_KEYS}, {&rsa_signature, PSS_KEYS}, {&ecdsa, EC_KEYS},
        {&ed25519, ED25519_KEYS},   {&rsa_cipher, RSA_KEYS},    {&ecdh, EC_KEYS},
        {&x25519, X25519_KEYS},     {&tls13_kdf, -1},
    };
    unsigned kind = pick(8);
    struct operation *operation = free_slot();
    if (!operation || !kinds[kind].algorithm->table[OURS]) return;
    operation->algorithm = kinds[kind].algorithm;
    operation->key_type = kinds[kind].key_type;
    for (int w = 0; w < WORLDS; w++) {
        /* The constructor has id 1 everywhere; a signature's takes a query too. */
        operation->ctx[w] = operation->algorithm->operation == OSSL_OP_SIGNATURE
                                ? CALL(operation->algorithm->table[w], OSSL_FUNC_SIGNATURE_NEWCTX,
                                       OSSL_FUNC_signature_newctx_fn *)(worlds[w].provctx, NULL)
                                : CALL(operation->algorithm->table[w], OSSL_FUNC_KEYEXCH_NEWCTX,
                                       OSSL_FUNC_keyexch_newctx_fn *)(worlds[w].provctx);
        NEED(operation->ctx[w]);
    }
}

static void duplicate_operation(void) {
    struct operation *from = &operations[pick(SLOTS)], *to = free_slot();
    int id;
    if (!from->algorithm || !to || from->failed) return;
    switch (from->algorithm->operation) {
    case OSSL_OP_SIGNATURE: id = OSSL_FUNC_SIGNATURE_DUPCTX; break;
    case OSSL_OP_ASYM_CIPHER: id = OSSL_FUNC_ASYM_CIPHER_DUPCTX; break;
    case OSSL_OP_KEYEXCH: id = OSSL_FUNC_KEYEXCH_DUPCTX; break;
    default: id = OSSL_FUNC_KDF_DUPCTX;
    }
    if (!HAS(from->algorithm, id)) return;
    for (int w = 0; w < WORLDS; w++)
        to->ctx[w] =
            CALL(from->algorithm->table[w], id, OSSL_FUNC_signature_dupctx_fn *)(from->ctx[w]);
    agree("dupctx", to->ctx[OURS] != NULL, to->ctx[STOCK] != NULL);
    if (!to->ctx[STOCK]) {
        memset(to, 0, sizeof *to);
        return;
    }
    void *ours_ctx = to->ctx[OURS], *stock_ctx = to->ctx[STOCK];
    *to = *from;
    to->ctx[OURS] = ours_ctx;
    to->ctx[STOCK] = stock_ctx;
    for (int i = 0; i < to->recorded_count; i++)
        to->recorded[i] = OSSL_PARAM_dup(from->recorded[i]);
}

static void tell_operation(const struct operation *operation) {
    LOG("  operation %d, %s, mode %d, %d recorded, lost %d\n", (int)(operation - operations),
         operation->algorithm ? operation->algorithm->name : "none", operation->mode,
         operation->recorded_count, operation->lost_record);
}

/* Parameters for a context, static until the next call. */
static OSSL_PARAM *context_params(const struct operation *operation) {
    static OSSL_PARAM params[8];
    static int number, mode, salt, tls[2];
    static unsigned version[2];
    static char *texts[] = {"SHA256",   "SHA1",     "SHA384",   "SHA512", "MD5",
                            "SHA3-256", "nonsense", "none",     "pkcs1",  "pss",
                            "x931",     "digest",   "max",      "auto",   "32",
                            "-1",       "oaep",     "SHA2-256", ""};
    static uint8_t label[16] = "label";
    size_t n = 0;
    unsigned count = pick(4);
    (void)tls;
    while (n < count) {
        char *text = texts[pick(sizeof texts / sizeof *texts)];
        number = pick(10);
        if (operation->algorithm->operation == OSSL_OP_SIGNATURE) {
            switch (pick(7)) {
            case 0:
                mode = (int[]){1, 3, 5, 6, 4, 0, 77}[pick(7)];
                params[n++] = OSSL_PARAM_construct_int(OSSL_SIGNATURE_PARAM_PAD_MODE, &mode);
                break;
            case 1:
                params[n++] =
                    OSSL_PARAM_construct_utf8_string(OSSL_SIGNATURE_PARAM_PAD_MODE, text, 0);
                break;
            case 2:
                salt = (int)pick(80) - 5;
                params[n++] = OSSL_PARAM_construct_int(OSSL_SIGNATURE_PARAM_PSS_SALTLEN, &salt);
                break;
            case 3:
                params[n++] =
                    OSSL_PARAM_construct_utf8_string(OSSL_SIGNATURE_PARAM_PSS_SALTLEN, text, 0);
                break;
            case 4:
                params[n++] =
                    OSSL_PARAM_construct_utf8_string(OSSL_SIGNATURE_PARAM_DIGEST, text, 0);
                break;
            case 5:
                params[n++] =
                    OSSL_PARAM_construct_utf8_string(OSSL_SIGNATURE_PARAM_MGF1_DIGEST, text, 0);
                break;
            default: params[n++] = OSSL_PARAM_construct_int("unknown", &number);
            }
        } else if (operation->algorithm->operation == OSSL_OP_ASYM_CIPHER) {
            switch (pick(7)) {
            case 0:
                mode = (int[]){1, 3, 4, 7, 8, 6, 77}[pick(7)];
                params[n++] = OSSL_PARAM_construct_int(OSSL_ASYM_CIPHER_PARAM_PAD_MODE, &mode);
                break;
            case 1:
                params[n++] =
                    OSSL_PARAM_construct_utf8_string(OSSL_ASYM_CIPHER_PARAM_PAD_MODE, text, 0);
                break;
            case 2:
                params[n++] =
                    OSSL_PARAM_construct_utf8_string(OSSL_ASYM_CIPHER_PARAM_OAEP_DIGEST, text, 0);
                break;
            case 3:
                params[n++] =
                    OSSL_PARAM_construct_utf8_string(OSSL_ASYM_CIPHER_PARAM_MGF1_DIGEST, text, 0);
                break;
            case 4:
                params[n++] = OSSL_PARAM_construct_octet_string(OSSL_ASYM_CIPHER_PARAM_OAEP_LABEL,
                                                                label, pick(16));
                break;
            case 5:
                version[0] = (unsigned[]){0x0303, 0x0302, 0x0301, 0}[pick(4)];
                params[n++] = OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION,
                                                        &version[0]);
                break;
            default:
                version[1] = (unsigned[]){0x0303, 0x0302, 0x0301, 0}[pick(4)];
                params[n++] = OSSL_PARAM_construct_uint(
                    OSSL_ASYM_CIPHER_PARAM_TLS_NEGOTIATED_VERSION, &version[1]);
            }
        } else {
            switch (pick(4)) {
            case 0:
                params[n++] =
                    OSSL_PARAM_construct_int(OSSL_EXCHANGE_PARAM_EC_ECDH_COFACTOR_MODE, &number);
                break;
            case 1:
                params[n++] = OSSL_PARAM_construct_utf8_string(OSSL_EXCHANGE_PARAM_KDF_TYPE,
                                                               pick(2) ? "X963KDF" : "", 0);
                break;
            case 2:
                params[n++] =
                    OSSL_PARAM_construct_utf8_string(OSSL_EXCHANGE_PARAM_KDF_DIGEST, text, 0);
                break;
            default: params[n++] = OSSL_PARAM_construct_int("unknown", &number);
            }
        }
    }
    params[n] = OSSL_PARAM_construct_end();
    return params;
}

static void record(struct operation *operation, const OSSL_PARAM *params) {
    if (!params || !params->key) return;
    if (operation->recorded_count == RECORDED)
        operation->lost_record = 1;
    else
        operation->recorded[operation->recorded_count++] = OSSL_PARAM_dup(params);
}

static void initialise(void) {
    static const char *const digests[] = {"SHA256", "SHA384",   "SHA1",     "SHA512",
                                          "MD5",    "SHA3-256", "MD5-SHA1", "nonsense"};
    struct operation *operation = &operations[pick(SLOTS)];
    if (!operation->algorithm || operation->key_type < 0) return;
    /* Without a key it is the last one again; the default provider wants one the first time. */
    int same = rarely(6) && operation->mode != IDLE && !operation->failed;
    struct key *key = same ? NULL : key_of(operation->key_type, 1);
    if (!key && !same) return;
    OSSL_PARAM *params = rarely(3) ? context_params(operation) : NULL;
    const struct algorithm *algorithm = operation->algorithm;
    int value[WORLDS], mode, id;
    const char *digest = digests[pick(8)];
    unsigned way = pick(4);
    if (algorithm->operation == OSSL_OP_SIGNATURE) {
        mode = (int[]){SIGN, VERIFY, DIGEST_SIGN, DIGEST_VERIFY}[way];
        id = (int[]){OSSL_FUNC_SIGNATURE_SIGN_INIT, OSSL_FUNC_SIGNATURE_VERIFY_INIT,
                     OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT,
                     OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_INIT}[way];
        if (algorithm == &ed25519 && pick(8)) digest = NULL;
    } else if (algorithm->operation == OSSL_OP_ASYM_CIPHER) {
        mode = way & 1 ? ENCRYPT : DECRYPT;
        id = way & 1 ? OSSL_FUNC_ASYM_CIPHER_ENCRYPT_INIT : OSSL_FUNC_ASYM_CIPHER_DECRYPT_INIT;
    } else {
        mode = DERIVE;
        id = OSSL_FUNC_KEYEXCH_INIT;
        /* libcrypto never initialises an exchange without a key. */
        if (same) return;
    }
    if (!HAS(algorithm, id)) return;
    /* The default provider dereferences a private key that is missing in some of these. */
    if (key && (mode == SIGN || mode == DIGEST_SIGN || mode == DECRYPT || mode == DERIVE) &&
        !holds(key, OSSL_KEYMGMT_SELECT_PRIVATE_KEY) && !rarely(4))
        return;
    if (key && !holds(key, OSSL_KEYMGMT_SELECT_PUBLIC_KEY)) return;
    /* The same buffer: libcrypto takes a new context for another key. */
    if (key && algorithm == &rsa_signature) {
        if (operation->size != 0 && operation->size != size_of(key)) return;
        operation->size = size_of(key);
    }
    tell_operation(operation);
    LOG("  initialised for mode %d with key %d, digest %s\n", mode, key ? (int)(key - keys) : -1,
         digest ? digest : "none");
    tell_params(params);
    if (key) key->touched = 1;
    for (int w = 0; w < WORLDS; w++) {
        void *keydata = key ? key->data[w] : NULL;
        value[w] = mode == DIGEST_SIGN || mode == DIGEST_VERIFY
                       ? CALL(algorithm->table[w], id, OSSL_FUNC_signature_digest_sign_init_fn *)(
                             operation->ctx[w], digest, keydata, params)
                       : CALL(algorithm->table[w], id, OSSL_FUNC_signature_sign_init_fn *)(
                             operation->ctx[w], keydata, params);
    }
    agree("init", value[OURS], value[STOCK]);
    if (!same) forget_records(operation);
    operation->failed = value[STOCK] <= 0;
    operation->mode = operation->failed ? IDLE : mode;
    snprintf(operation->digest, sizeof operation->digest, "%s", digest ? digest : "");
    if (!operation->failed) record(operation, params);
}

static void set_params(void) {
    struct operation *operation = &operations[pick(SLOTS)];
    int value[WORLDS], id;
    if (!operation->algorithm || operation->mode == IDLE || operation->key_type < 0) return;
    switch (operation->algorithm->operation) {
    case OSSL_OP_SIGNATURE: id = OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS; break;
    case OSSL_OP_ASYM_CIPHER: id = OSSL_FUNC_ASYM_CIPHER_SET_CTX_PARAMS; break;
    default: id = OSSL_FUNC_KEYEXCH_SET_CTX_PARAMS;
    }
    if (!HAS(operation->algorithm, id)) return;
    OSSL_PARAM *params = context_params(operation);
    tell_operation(operation);
    tell_params(params);
    for (int w = 0; w < WORLDS; w++)
        value[w] = CALL(operation->algorithm->table[w], id,
                        OSSL_FUNC_signature_set_ctx_params_fn *)(operation->ctx[w], params);
    agree("set_ctx_params", value[OURS], value[STOCK]);
    if (value[STOCK] > 0)
        record(operation, params);
    else
        operation->lost_record = 1; /* Some of them may have taken effect. */
}

/* ---- the work ---- */

struct work {
    int id, world;
    const struct operation *operation;
    uint8_t out[1024];
    uint8_t *to; /* exactly `size` bytes, so that one more is seen */
    size_t length, size;
    const uint8_t *in;
    size_t in_length;
};

static int work(void *arg) {
    struct work *w = arg;
    function run = entry(w->operation->algorithm->table[w->world], w->id);
    void *ctx = w->operation->ctx[w->world];
    if (w->operation->algorithm->operation == OSSL_OP_KEYEXCH)
        return ((OSSL_FUNC_keyexch_derive_fn *)run)(ctx, w->to, &w->length, w->size);
    /* Signing, encryption and decryption have one type. */
    return ((OSSL_FUNC_signature_sign_fn *)run)(ctx, w->to, &w->length, w->size, w->in,
                                                w->in_length);
}

/* Whether the default provider gives the same bytes once more. It does not for an RSA key whose
 * parts do not belong together, as after a second import: the blinding then stays in the result. */
static int repeats(const struct work *first) {
    static struct work again;
    again = *first;
    NEED(again.to = malloc(first->size ? first->size : 1));
    again.length = first->size;
    int same = work(&again) > 0 && again.length == first->length &&
               memcmp(again.to, first->out, first->length) == 0;
    free(again.to);
    LOG("  stock's result once more: %s\n", same ? "the same" : "another");
    return same;
}

/* Whether the default provider accepts what we signed. */
static int verifies(const struct operation *operation, const uint8_t *signature, size_t length,
                    const uint8_t *in, size_t in_length, struct key *key) {
    const OSSL_DISPATCH *table = operation->algorithm->table[STOCK];
    void *ctx = CALL(table, OSSL_FUNC_SIGNATURE_NEWCTX,
                     OSSL_FUNC_signature_newctx_fn *)(worlds[STOCK].provctx, NULL);
    int good = 0, digest = operation->mode == DIGEST_SIGN;
    key->touched = 1;
    good = digest ? CALL(table, OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_INIT,
                         OSSL_FUNC_signature_digest_verify_init_fn *)(ctx, operation->digest,
                                                                      key->data[STOCK], NULL)
                  : CALL(table, OSSL_FUNC_SIGNATURE_VERIFY_INIT,
                         OSSL_FUNC_signature_verify_init_fn *)(ctx, key->data[STOCK], NULL);
    for (int i = 0; good > 0 && i < operation->recorded_count; i++)
        good = CALL(table, OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS,
                    OSSL_FUNC_signature_set_ctx_params_fn *)(ctx, operation->recorded[i]);
    if (good <= 0) {
        good = -1; /* It cannot be set up the same way: nothing is known. */
    } else if (digest) {
        good = CALL(table, OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_UPDATE,
                    OSSL_FUNC_signature_digest_verify_update_fn *)(ctx, in, in_length) > 0 &&
               CALL(table, OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_FINAL,
                    OSSL_FUNC_signature_digest_verify_final_fn *)(ctx, signature, length) > 0;
    } else {
        good = CALL(table, OSSL_FUNC_SIGNATURE_VERIFY,
                    OSSL_FUNC_signature_verify_fn *)(ctx, signature, length, in, in_length) > 0;
    }
    CALL(table, OSSL_FUNC_SIGNATURE_FREECTX, OSSL_FUNC_signature_freectx_fn *)(ctx);
    ERR_clear_error();
    return good;
}

static const uint8_t *some_data(size_t *length) {
    static const size_t lengths[] = {32, 0, 1, 20, 36, 48, 64, 100, 117, 128, 127, 129, 256};
    *length = lengths[pick(13)];
    unsigned seed = u8();
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(seed * (i + 1) + (i >> 3));
    if (seed & 1) data[0] = 0;
    return data;
}

static void produce(void) {
    struct operation *operation = &operations[pick(SLOTS)];
    static struct work w[WORLDS];
    int value[WORLDS], id, asynchronous = rarely(4), random = 0;
    size_t in_length;
    if (!operation->algorithm) return;
    switch (operation->mode) {
    case SIGN: id = OSSL_FUNC_SIGNATURE_SIGN; break;
    case DIGEST_SIGN:
        if (operation->algorithm != &ed25519) return; /* by update and final, below */
        id = OSSL_FUNC_SIGNATURE_DIGEST_SIGN;
        break;
    case ENCRYPT:
        id = OSSL_FUNC_ASYM_CIPHER_ENCRYPT;
        random = 1;
        break;
    case DECRYPT: id = OSSL_FUNC_ASYM_CIPHER_DECRYPT; break;
    case DERIVE: id = OSSL_FUNC_KEYEXCH_DERIVE; break;
    default: return;
    }
    if (!HAS(operation->algorithm, id)) return;
    const uint8_t *in = some_data(&in_length);
    if (operation->mode == DECRYPT && pick(4)) {
        in = result;
        in_length = result_length;
        if (in_length && rarely(4)) result[u8() % in_length] ^= 1 << pick(8);
    }
    unsigned shape = pick(8);
    size_t size = shape == 0 ? u8() : sizeof w->out;
    tell_operation(operation);
    LOG("  %zu bytes in, room for %zu\n", in_length, shape == 1 ? 0 : size);
    for (int i = 0; i < WORLDS; i++) {
        memset(&w[i], 0, sizeof w[i]);
        w[i].id = id;
        w[i].world = i;
        w[i].operation = operation;
        NEED(shape == 1 || (w[i].to = malloc(size ? size : 1)));
        /* A question for the length goes with size 0. */
        w[i].length = w[i].size = shape == 1 ? 0 : size;
        w[i].in = in;
        w[i].in_length = in_length;
    }
    value[OURS] = ours(asynchronous, work, &w[OURS]);
    value[STOCK] = work(&w[STOCK]);
    for (int i = 0; i < WORLDS; i++) {
        if (shape != 1 && value[i] > 0 && w[i].length <= size)
            memcpy(w[i].out, w[i].to, w[i].length);
        free(w[i].to);
    }
    if (operation->mode == DECRYPT) {
        /* Bad padding for TLS gives random bytes, and always success. */
        agree("decrypt", value[OURS], value[STOCK]);
        if (value[STOCK] > 0 && w[OURS].length != w[STOCK].length)
            FINDING("lengths of plaintexts: %zu, %zu", w[OURS].length, w[STOCK].length);
        int tls = 0;
        for (int i = 0; i < operation->recorded_count; i++)
            for (const OSSL_PARAM *p = operation->recorded[i]; p->key; p++)
                tls |= strcmp(p->key, OSSL_ASYM_CIPHER_PARAM_PAD_MODE) == 0 &&
                       p->data_type == OSSL_PARAM_INTEGER && *(int *)p->data == 7;
        if (value[STOCK] > 0 && !tls && !operation->lost_record && shape != 1 &&
            memcmp(w[OURS].out, w[STOCK].out, w[STOCK].length) != 0 && repeats(&w[STOCK]))
            FINDING("plaintexts differ");
        return;
    }
    agree("sign, encrypt or derive", value[OURS], value[STOCK]);
    if (value[STOCK] <= 0 || shape == 1) {
        if (value[STOCK] > 0 && operation->algorithm != &ecdsa && w[OURS].length != w[STOCK].length)
            FINDING("lengths asked for: %zu, %zu", w[OURS].length, w[STOCK].length);
        return;
    }
    if (operation->algorithm == &rsa_signature || operation->algorithm == &ecdsa) {
        /* PSS and ECDSA are random; what the two made equal needs no further look. */
        random = w[OURS].length != w[STOCK].length ||
                 memcmp(w[OURS].out, w[STOCK].out, w[OURS].length) != 0;
        if (random && operation->algorithm == &rsa_signature && operation->key_type == RSA_KEYS &&
            operation->recorded_count == 0 && !operation->lost_record && repeats(&w[STOCK]))
            FINDING("deterministic signatures differ");
    } else if (!random && (w[OURS].length != w[STOCK].length ||
                           memcmp(w[OURS].out, w[STOCK].out, w[OURS].length) != 0)) {
        FINDING("results differ");
    }
    if (operation->mode != DERIVE) {
        result_length = w[OURS].length;
        memcpy(result, w[OURS].out, result_length);
    }
    if (random && operation->mode == SIGN && !operation->lost_record)
        for (int i = 0; i < SLOTS; i++) {
            /* The context's key may be gone; any key under which it verifies will do. */
            if (!keys[i].used || keys[i].type != operation->key_type ||
                !holds(&keys[i], EVP_PKEY_PUBLIC_KEY))
                continue;
            int ours_good =
                verifies(operation, w[OURS].out, w[OURS].length, in, in_length, &keys[i]);
            int stock_good =
                verifies(operation, w[STOCK].out, w[STOCK].length, in, in_length, &keys[i]);
            if (ours_good != stock_good)
                FINDING("a signature verifies: ours %d, stock %d", ours_good, stock_good);
        }
}

struct digest_work {
    const struct operation *operation;
    int world;
    const uint8_t *in;
    size_t in_length, cut, length, size;
    uint8_t *to, out[1024];
};

static int digest_sign(void *arg) {
    struct digest_work *w = arg;
    const OSSL_DISPATCH *table = w->operation->algorithm->table[w->world];
    void *ctx = w->operation->ctx[w->world];
    OSSL_FUNC_signature_digest_sign_update_fn *update = CALL(
        table, OSSL_FUNC_SIGNATURE_DIGEST_SIGN_UPDATE, OSSL_FUNC_signature_digest_sign_update_fn *);
    return update(ctx, w->in, w->cut) > 0 &&
           update(ctx, w->in + w->cut, w->in_length - w->cut) > 0 &&
           CALL(table, OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL,
                OSSL_FUNC_signature_digest_sign_final_fn *)(ctx, w->to, &w->length, w->size) > 0;
}

static void sign_by_parts(void) {
    struct operation *operation = &operations[pick(SLOTS)];
    static struct digest_work w[WORLDS];
    int value[WORLDS], asynchronous = rarely(4);
    size_t length;
    if (!operation->algorithm || operation->mode != DIGEST_SIGN ||
        !HAS(operation->algorithm, OSSL_FUNC_SIGNATURE_DIGEST_SIGN_FINAL))
        return;
    const uint8_t *in = some_data(&length);
    tell_operation(operation);
    size_t cut = length ? u8() % (length + 1) : 0;
    size_t size = rarely(6) ? u8() : sizeof w->out;
    for (int i = 0; i < WORLDS; i++)
        w[i] = (struct digest_work){operation, i, in, length, cut, 0, size, malloc(size ? size : 1),
                                    {0}};
    value[OURS] = ours(asynchronous, digest_sign, &w[OURS]);
    value[STOCK] = digest_sign(&w[STOCK]);
    for (int i = 0; i < WORLDS; i++) {
        if (value[i] > 0 && w[i].length <= size) memcpy(w[i].out, w[i].to, w[i].length);
        free(w[i].to);
    }
    agree("digest_sign", value[OURS], value[STOCK]);
    if (value[STOCK] > 0) {
        result_length = w[OURS].length;
        memcpy(result, w[OURS].out, result_length);
        for (int i = 0; i < SLOTS; i++) {
            if (!keys[i].used || keys[i].type != operation->key_type || operation->lost_record ||
                !holds(&keys[i], EVP_PKEY_PUBLIC_KEY))
                continue;
            int ours_good = verifies(operation, w[OURS].out, w[OURS].length, in, length, &keys[i]);
            int stock_good =
                verifies(operation, w[STOCK].out, w[STOCK].length, in, length, &keys[i]);
            if (ours_good != stock_good)
                FINDING("a signature of parts verifies: ours %d, stock %d", ours_good, stock_good);
        }
    }
    /* libcrypto finishes a context once: it is done. */
    operation->mode = IDLE;
    operation->failed = 1;
}

struct check {
    const struct operation *operation;
    int world;
    const uint8_t *in;
    size_t in_length;
};

static int check(void *arg) {
    struct check *c = arg;
    const OSSL_DISPATCH *table = c->operation->algorithm->table[c->world];
    void *ctx = c->operation->ctx[c->world];
    if (c->operation->mode == VERIFY)
        return CALL(table, OSSL_FUNC_SIGNATURE_VERIFY, OSSL_FUNC_signature_verify_fn *)(
            ctx, result, result_length, c->in, c->in_length);
    if (c->operation->algorithm == &ed25519)
        return CALL(table, OSSL_FUNC_SIGNATURE_DIGEST_VERIFY,
                    OSSL_FUNC_signature_digest_verify_fn *)(ctx, result, result_length, c->in,
                                                            c->in_length);
    return CALL(table, OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_UPDATE,
                OSSL_FUNC_signature_digest_verify_update_fn *)(ctx, c->in, c->in_length) > 0 &&
           CALL(table, OSSL_FUNC_SIGNATURE_DIGEST_VERIFY_FINAL,
                OSSL_FUNC_signature_digest_verify_final_fn *)(ctx, result, result_length) > 0;
}

static void verify(void) {
    struct operation *operation = &operations[pick(SLOTS)];
    int value[WORLDS], asynchronous = rarely(4);
    size_t length;
    if (!operation->algorithm || (operation->mode != VERIFY && operation->mode != DIGEST_VERIFY))
        return;
    const uint8_t *in = some_data(&length);
    if (result_length && rarely(3)) result[u8() % result_length] ^= 1 << pick(8);
    if (rarely(8)) result_length = u8();
    struct check c[WORLDS] = {{operation, OURS, in, length}, {operation, STOCK, in, length}};
    if (operation->mode == VERIFY && !HAS(operation->algorithm, OSSL_FUNC_SIGNATURE_VERIFY)) return;
    value[OURS] = ours(asynchronous, check, &c[OURS]);
    value[STOCK] = check(&c[STOCK]);
    agree("verify", value[OURS], value[STOCK]);
    if (operation->mode == DIGEST_VERIFY && operation->algorithm != &ed25519) {
        operation->mode = IDLE;
        operation->failed = 1;
    }
}

static void set_peer(void) {
    struct operation *operation = &operations[pick(SLOTS)];
    struct key *key = operation->algorithm ? key_of(operation->key_type, 1) : NULL;
    int value[WORLDS];
    if (!key || operation->mode != DERIVE || !holds(key, EVP_PKEY_PUBLIC_KEY)) return;
    for (int w = 0; w < WORLDS; w++)
        value[w] = CALL(operation->algorithm->table[w], OSSL_FUNC_KEYEXCH_SET_PEER,
                        OSSL_FUNC_keyexch_set_peer_fn *)(operation->ctx[w], key->data[w]);
    agree("set_peer", value[OURS], value[STOCK]);
    if (value[STOCK] <= 0) free_operation(operation);
}

static void derive_key(void) {
    static const char *const digests[] = {"SHA2-256", "SHA256", "sha384",
                                          "SHA2-384", "SHA512", "nonsense"};
    static uint8_t zeros[512];
    struct operation *operation = &operations[pick(SLOTS)];
    uint8_t out[WORLDS][128];
    int value[WORLDS], mode = (int[]){1, 2, 0, 3, 1, 2}[pick(6)];
    OSSL_PARAM params[10];
    size_t n = 0, size = (size_t[]){32, 48, 16, 12, 0, 1, 64, 128}[pick(8)], length;
    if (!operation->algorithm || operation->key_type >= 0) return;
    if (rarely(8)) {
        for (int w = 0; w < WORLDS; w++)
            CALL(tls13_kdf.table[w], OSSL_FUNC_KDF_RESET, OSSL_FUNC_kdf_reset_fn *)
        (operation->ctx[w]);
        return;
    }
    const uint8_t *bytes = some_data(&length);
    if (!rarely(10)) params[n++] = OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode);
    if (!rarely(10))
        params[n++] =
            OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)digests[pick(6)], 0);
    if (!rarely(5))
        params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY,
                                                        pick(4) ? (uint8_t *)bytes : zeros,
                                                        pick(3) ? (pick(2) ? 32 : 48) : length);
    if (!rarely(5))
        params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (uint8_t *)bytes + 8,
                                                        pick(3) ? (pick(2) ? 32 : 48) : u8());
    if (!rarely(6))
        params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, "tls13 ", 6);
    if (!rarely(6)) {
        char *label = pick(3) ? "derived" : "c hs traffic";
        params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, label, strlen(label));
    }
    if (rarely(3))
        params[n++] =
            OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_DATA, (uint8_t *)bytes, u8());
    params[n] = OSSL_PARAM_construct_end();
    int separately = rarely(4);
    for (int w = 0; w < WORLDS; w++) {
        memset(out[w], 0, sizeof out[w]);
        if (separately)
            value[w] = CALL(tls13_kdf.table[w], OSSL_FUNC_KDF_SET_CTX_PARAMS,
                            OSSL_FUNC_kdf_set_ctx_params_fn *)(operation->ctx[w], params);
        else
            value[w] = CALL(tls13_kdf.table[w], OSSL_FUNC_KDF_DERIVE,
                            OSSL_FUNC_kdf_derive_fn *)(operation->ctx[w], out[w], size, params);
    }
    agree("derivation", value[OURS], value[STOCK]);
    if (value[STOCK] > 0 && memcmp(out[OURS], out[STOCK], sizeof *out) != 0)
        FINDING("derived keys differ");
    if (separately && pick(2)) {
        for (int w = 0; w < WORLDS; w++)
            value[w] = CALL(tls13_kdf.table[w], OSSL_FUNC_KDF_DERIVE,
                            OSSL_FUNC_kdf_derive_fn *)(operation->ctx[w], out[w], size, NULL);
        agree("derivation from what was set", value[OURS], value[STOCK]);
        if (value[STOCK] > 0 && memcmp(out[OURS], out[STOCK], size) != 0)
            FINDING("keys derived from what was set differ");
    }
}

/* ---- libFuzzer's side ---- */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    start_worlds();
    for (int i = 0; i < KEY_TYPES; i++)
        find(&keymgmt[i]);
    struct algorithm *others[] = {&rsa_signature, &ecdsa,  &ed25519,  &rsa_cipher,
                                  &ecdh,          &x25519, &tls13_kdf};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        find(others[i]);
    for (int i = 0; i < SOURCES; i++)
        load(&sources[i]);
    NEED(rsa_signature.table[OURS] && keymgmt[RSA_KEYS].table[OURS]);
    return 0;
}

static const char *const steps[] = {
    "import",    "import",         "import again", "duplicate key", "free key",
    "export",    "look at key",    "generate",     "new operation", "new operation",
    "duplicate", "free operation", "initialise",   "initialise",    "set parameters",
    "produce",   "sign by parts",  "verify",       "set peer",      "derive key"};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    begin_input(bytes, length);
    result_length = 0;
    for (int done = 0; next_byte < last_byte && done < 64; done++) {
        unsigned step = pick(20);
        LOG("step %s\n", steps[step]);
        switch (step) {
        case 0:
        case 1: import_key(0); break;
        case 2: import_key(1); break;
        case 3: duplicate_key(); break;
        case 4: free_key(&keys[pick(SLOTS)]); break;
        case 5: export_key(); break;
        case 6: look_at_key(); break;
        case 7: generate_key(); break;
        case 8:
        case 9: new_operation(); break;
        case 10: duplicate_operation(); break;
        case 11: free_operation(&operations[pick(SLOTS)]); break;
        case 12:
        case 13: initialise(); break;
        case 14: set_params(); break;
        case 15: produce(); break;
        case 16: sign_by_parts(); break;
        case 17: verify(); break;
        case 18: set_peer(); break;
        default: derive_key();
        }
    }
    for (int i = 0; i < SLOTS; i++)
        free_key(&keys[i]);
    for (int i = 0; i < SLOTS; i++)
        free_operation(&operations[i]);
    ERR_clear_error();
    return 0;
}
