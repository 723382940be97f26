/* How many operations a second Intel's multi-buffer library (crypto_mb) makes on this CPU: eight at
 * a time, on one thread. See crypto_mb.md for where the library comes from.
 *
 *     cc -O2 -Wall -o crypto_mb crypto_mb.c -L. -l:libcrypto_mb.so -lcrypto -Wl,--allow-shlib-undefined
 *     LD_LIBRARY_PATH=. ./crypto_mb SECONDS
 *
 * Of RSA signatures each is checked with the public key, as Lockstep's are. The prototypes are
 * those of the library's headers. */
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LANES = 8, BYTES = 1024, SLICES = 100000 };
/* The library takes arrays of pointers. */
typedef uint8_t *octets[LANES];
typedef uint64_t *words[LANES];
typedef BIGNUM *numbers[LANES];

uint32_t mbx_rsa_public_ssl_mb8(octets from, octets to, numbers e, numbers n, int bits);
uint32_t mbx_rsa_private_crt_ssl_mb8(octets from, octets to, numbers p, numbers q, numbers dp,
                                     numbers dq, numbers qinv, int bits);
uint32_t mbx_x25519_public_key_mb8(octets public, octets private);
uint32_t mbx_x25519_mb8(octets shared, octets private, octets public);
uint32_t mbx_ed25519_public_key_mb8(octets public, octets private);
uint32_t mbx_ed25519_sign_mb8(octets r, octets s, octets message, uint32_t length[LANES],
                              octets private, octets public);
uint32_t mbx_ed25519_verify_mb8(octets r, octets s, octets message, uint32_t length[LANES],
                                octets public);
#define CURVE(name)                                                                                \
    uint32_t mbx_##name##_ecpublic_key_mb8(words x, words y, words z, words private, uint8_t *buf); \
    uint32_t mbx_##name##_ecdh_mb8(octets shared, words private, words x, words y, words z,         \
                                   uint8_t *buf);                                                   \
    uint32_t mbx_##name##_ecdsa_sign_mb8(octets r, octets s, octets digest, words nonce,            \
                                         words private, uint8_t *buf);                              \
    uint32_t mbx_##name##_ecdsa_verify_mb8(octets r, octets s, octets digest, words x, words y,     \
                                           words z, uint8_t *buf);
CURVE(nistp256)
CURVE(nistp384)

/* Zero unless somebody writes there. */
static uint8_t memory[12][LANES][BYTES];
static octets message, private, public, r, s;
static words scalar, nonce, x, y, z;
static uint32_t length[LANES];
static numbers n, e, p, q, dp, dq, qinv;
static int bits;

static int rsa(void) {
    uint32_t wrong = mbx_rsa_private_crt_ssl_mb8(message, s, p, q, dp, dq, qinv, bits) |
                     mbx_rsa_public_ssl_mb8(s, r, e, n, bits);
    for (int i = 0; i < LANES; i++)
        wrong |= memcmp(message[i], r[i], bits / 8) != 0;
    return !wrong;
}
static int x25519(void) { return !mbx_x25519_mb8(r, private, public); }
static int x25519_keygen(void) { return !mbx_x25519_public_key_mb8(public, private); }
static int ed25519_sign(void) { return !mbx_ed25519_sign_mb8(r, s, message, length, private, public); }
static int ed25519_verify(void) { return !mbx_ed25519_verify_mb8(r, s, message, length, public); }
static int p256_sign(void) { return !mbx_nistp256_ecdsa_sign_mb8(r, s, message, nonce, scalar, NULL); }
static int p256_verify(void) { return !mbx_nistp256_ecdsa_verify_mb8(r, s, message, x, y, z, NULL); }
static int p256_ecdh(void) { return !mbx_nistp256_ecdh_mb8(r, scalar, x, y, z, NULL); }
static int p384_sign(void) { return !mbx_nistp384_ecdsa_sign_mb8(r, s, message, nonce, scalar, NULL); }
static int p384_verify(void) { return !mbx_nistp384_ecdsa_verify_mb8(r, s, message, x, y, z, NULL); }
static int p384_ecdh(void) { return !mbx_nistp384_ecdh_mb8(r, scalar, x, y, z, NULL); }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* Prints the median of slices of four milliseconds. */
static void measure(const char *name, int (*run)(void), double seconds) {
    static double rates[SLICES];
    int slices = 0;
    for (double start = now(); now() - start < seconds && slices < SLICES; slices++) {
        double begin = now(), took;
        long operations = 0;
        do {
            if (!run()) {
                fprintf(stderr, "%s fails\n", name);
                exit(1);
            }
            operations += LANES;
        } while ((took = now() - begin) < 0.004);
        rates[slices] = operations / took;
    }
    qsort(rates, slices, sizeof *rates, by_value);
    printf("%-16s %9.0f\n", name, rates[slices / 2]);
    fflush(stdout);
}

static BIGNUM *part(EVP_PKEY *key, const char *name) {
    BIGNUM *number = NULL;
    if (!EVP_PKEY_get_bn_param(key, name, &number))
        exit(1);
    return number;
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 1;
    for (int i = 0; i < LANES; i++) {
        octets *all[] = {&message, &private, &public, &r, &s};
        words *wide[] = {&scalar, &nonce, &x, &y, &z};
        for (int j = 0; j < 5; j++) {
            (*all[j])[i] = memory[j][i];
            (*wide[j])[i] = (uint64_t *)memory[5 + j][i];
        }
        /* Scalars below the orders of all curves. */
        if (RAND_bytes(private[i], 32) != 1 || RAND_bytes((uint8_t *)scalar[i], 30) != 1 ||
            RAND_bytes((uint8_t *)nonce[i], 30) != 1)
            return 1;
        length[i] = 32;
    }
    for (bits = 1024; bits <= 4096; bits += 1024) {
        for (int i = 0; i < LANES; i++) {
            EVP_PKEY *key = EVP_RSA_gen(bits);
            n[i] = part(key, OSSL_PKEY_PARAM_RSA_N);
            e[i] = part(key, OSSL_PKEY_PARAM_RSA_E);
            p[i] = part(key, OSSL_PKEY_PARAM_RSA_FACTOR1);
            q[i] = part(key, OSSL_PKEY_PARAM_RSA_FACTOR2);
            dp[i] = part(key, OSSL_PKEY_PARAM_RSA_EXPONENT1);
            dq[i] = part(key, OSSL_PKEY_PARAM_RSA_EXPONENT2);
            qinv[i] = part(key, OSSL_PKEY_PARAM_RSA_COEFFICIENT1);
            EVP_PKEY_free(key);
            RAND_bytes(message[i] + 1, bits / 8 - 1);
            message[i][0] = 0;
        }
        char name[32];
        snprintf(name, sizeof name, "rsa%d", bits);
        measure(name, rsa, seconds);
    }
    measure("x25519-keygen", x25519_keygen, seconds);
    measure("x25519", x25519, seconds);
    mbx_ed25519_public_key_mb8(public, private);
    measure("ed25519-sign", ed25519_sign, seconds);
    measure("ed25519-verify", ed25519_verify, seconds);
    mbx_nistp256_ecpublic_key_mb8(x, y, z, scalar, NULL);
    measure("p256-sign", p256_sign, seconds);
    measure("p256-verify", p256_verify, seconds);
    measure("p256-ecdh", p256_ecdh, seconds);
    mbx_nistp384_ecpublic_key_mb8(x, y, z, scalar, NULL);
    measure("p384-sign", p384_sign, seconds);
    measure("p384-verify", p384_verify, seconds);
    measure("p384-ecdh", p384_ecdh, seconds);
    return 0;
}
