/* What an operation leaves of its key in vector registers, and on the stack of a thread that has
 * room for kernels, on a CPU with AVX-512. Usage: left_behind (the module is in OPENSSL_CONF)
 *
 * Prints a line for each operation: its name, how many words of the key's secrets are in registers,
 * and how many on the stack, after a first use of the key and after further ones. */
#include "common.h"
#include <openssl/bn.h>
#include <stdint.h>

enum { REGISTERS = 32, WORDS = 8, MOST = 8192, DEPTH = 190000 };

/* ---- words of secrets ---- */

static uint64_t words[MOST];
static int count;

static void note_word(uint64_t word) {
    /* Small ones are nothing to be recognised by. */
    if (word >> 32 && (uint32_t)word && count < MOST)
        words[count++] = word;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The words of a secret: its bytes in both orders, and limbs of 52 bits, as kernels have them. */
static void note(const unsigned char *little, int length) {
    unsigned char padded[1040] = {0};
    memcpy(padded, little, length);
    for (int at = 0; at + 8 <= length; at++) {
        uint64_t word = 0;
        for (int i = 0; i < 8; i++)
            word |= (uint64_t)padded[at + i] << 8 * i;
        note_word(word);
        note_word(__builtin_bswap64(word));
    }
    for (int bit = 0; bit + 52 <= 8 * length; bit += 52) {
        uint64_t limb = 0;
        for (int i = 0; i < 9; i++) {
            int shift = 8 * i - bit % 8;
            uint64_t byte = padded[bit / 8 + i];
            limb |= shift < 0 ? byte >> -shift : shift < 64 ? byte << shift : 0;
        }
        note_word(limb & ((1ull << 52) - 1));
    }
}

static void note_number(EVP_PKEY *key, const char *name) {
    BIGNUM *number = NULL;
    unsigned char bytes[1024];
    CHECK(EVP_PKEY_get_bn_param(key, name, &number) == 1);
    int length = BN_num_bytes(number);
    CHECK(BN_bn2lebinpad(number, bytes, length) == length);
    note(bytes, length);
    BN_clear_free(number);
}

static void note_octets(EVP_PKEY *key, const char *name) {
    unsigned char bytes[4096], little[1024];
    size_t length;
    CHECK(EVP_PKEY_get_octet_string_param(key, name, bytes, sizeof bytes, &length) == 1);
    /* What begins a key of ML-KEM, or all of another. */
    if (length > sizeof little)
        length = sizeof little;
    memcpy(little, bytes, length);
    note(little, (int)length);
}

static int is_secret(uint64_t word) {
    return bsearch(&word, words, count, sizeof *words, compare) != NULL;
}

/* ---- where they may be ---- */

static uint64_t registers[REGISTERS][WORDS] __attribute__((aligned(64)));

#define STORE(n) "vmovdqu64 %%zmm" #n ", 64*" #n "(%0)\n"
static __attribute__((noinline)) void dump(void) {
    __asm__ volatile(
        STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5) STORE(6) STORE(7) STORE(8) STORE(9)
        STORE(10) STORE(11) STORE(12) STORE(13) STORE(14) STORE(15) STORE(16) STORE(17) STORE(18)
        STORE(19) STORE(20) STORE(21) STORE(22) STORE(23) STORE(24) STORE(25) STORE(26) STORE(27)
        STORE(28) STORE(29) STORE(30) STORE(31)::"r"(registers) : "memory");
}

static __attribute__((noinline)) void wipe(void) {
    char below[DEPTH + 10000];
    memset(below, 0, sizeof below);
    __asm__ volatile("" ::"r"(below) : "memory");
}

static int in_registers(void) {
    int found = 0;
    for (int i = 0; i < REGISTERS; i++)
        for (int j = 0; j < WORDS; j++)
            found += is_secret(registers[i][j]);
    return found;
}

static __attribute__((noinline)) int on_stack(void) {
    unsigned char *end = __builtin_frame_address(0);
    int found = 0;
    for (unsigned char *at = end - DEPTH; at < end - 4096; at++) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        found += word && is_secret(word);
    }
    return found;
}

/* ---- operations ---- */

static EVP_PKEY *key;
static unsigned char sealed[4096], shared[64];
static size_t sealed_length;

static void sign_once(void) {
    unsigned char signature[1024];
    size_t length = sizeof signature;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
    CHECK(EVP_DigestSignInit_ex(ctx, NULL, digest, NULL, NULL, key, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, (const unsigned char *)"x", 1) == 1);
    dump();
    EVP_MD_CTX_free(ctx);
}

static void derive_once(void) {
    size_t length = sizeof shared;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, key) == 1);
    CHECK(EVP_PKEY_derive(ctx, shared, &length) == 1);
    dump();
    EVP_PKEY_CTX_free(ctx);
}

static void open_once(void) {
    size_t length = sizeof shared;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(EVP_PKEY_decapsulate_init(ctx, NULL) == 1);
    CHECK(EVP_PKEY_decapsulate(ctx, shared, &length, sealed, sealed_length) == 1);
    dump();
    EVP_PKEY_CTX_free(ctx);
}

static EVP_CIPHER_CTX *cipher;
static unsigned char cipher_key[32] = {0};

static void encipher_once(void) {
    static unsigned char text[5000];
    unsigned char iv[12] = {0};
    int length;
    EVP_CIPHER *aes = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    CHECK(EVP_EncryptInit_ex2(cipher, aes, cipher_key, iv, NULL) == 1);
    EVP_CIPHER_free(aes);
    CHECK(EVP_EncryptUpdate(cipher, text, &length, text, sizeof text) == 1);
    dump();
}

static void measure(const char *name, void (*operation)(void)) {
    int found[2][2];
    qsort(words, count, sizeof *words, compare);
    for (int turn = 0; turn < 2; turn++) {
        wipe();
        operation();
        found[turn][1] = on_stack();
        found[turn][0] = in_registers();
    }
    printf("%s %d %d %d %d\n", name, found[0][0], found[0][1], found[1][0], found[1][1]);
    count = 0;
}

static EVP_PKEY *made(const char *name, const char *group, int bits) {
    EVP_PKEY *pair = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, name, NULL);
    CHECK(ctx && EVP_PKEY_keygen_init(ctx) == 1);
    CHECK(!group || EVP_PKEY_CTX_set_group_name(ctx, group) == 1);
    CHECK(!bits || EVP_PKEY_CTX_set_rsa_keygen_bits(ctx, bits) == 1);
    CHECK(EVP_PKEY_generate(ctx, &pair) == 1);
    EVP_PKEY_CTX_free(ctx);
    return pair;
}

int main(void) {
    static const char *const parts[] = {"rsa-factor1", "rsa-factor2", "rsa-exponent1", "rsa-exponent2",
                                        "rsa-coefficient1"};
    CHECK(__builtin_cpu_supports("avx512f"));
    for (int bits = 1024; bits <= 4096; bits += 1024) {
        char name[32];
        snprintf(name, sizeof name, "rsa%d", bits);
        key = made("RSA", NULL, bits);
        for (int i = 0; i < 5; i++)
            note_number(key, parts[i]);
        measure(name, sign_once);
        EVP_PKEY_free(key);
    }
    for (int i = 0; i < 2; i++) {
        key = made("EC", i ? "P-384" : "P-256", 0);
        note_number(key, "priv");
        measure(i ? "p384-sign" : "p256-sign", sign_once);
        note_number(key, "priv");
        measure(i ? "p384-ecdh" : "p256-ecdh", derive_once);
        EVP_PKEY_free(key);
    }
    key = made("ED25519", NULL, 0);
    note_octets(key, "priv");
    measure("ed25519-sign", sign_once);
    EVP_PKEY_free(key);
    key = made("X25519", NULL, 0);
    note_octets(key, "priv");
    measure("x25519", derive_once);
    EVP_PKEY_free(key);
    static const char *const kems[] = {"ML-KEM-768", "X25519MLKEM768", "SecP256r1MLKEM768"};
    for (int i = 0; i < 3; i++) {
        size_t length = sizeof shared;
        key = made(kems[i], NULL, 0);
        sealed_length = sizeof sealed;
        EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
        CHECK(EVP_PKEY_encapsulate_init(ctx, NULL) == 1);
        CHECK(EVP_PKEY_encapsulate(ctx, sealed, &sealed_length, shared, &length) == 1);
        EVP_PKEY_CTX_free(ctx);
        note_octets(key, "priv");
        measure(kems[i], open_once);
        EVP_PKEY_free(key);
    }
    CHECK(cipher = EVP_CIPHER_CTX_new());
    for (int i = 0; i < 32; i++)
        cipher_key[i] = 17 * i + 90;
    note(cipher_key, 32);
    measure("aes-256-gcm", encipher_once);
    EVP_CIPHER_CTX_free(cipher);
    return 0;
}
