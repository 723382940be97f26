/* Prints which provider OpenSSL takes for each operation and for each kind of key, and where a key
 * is made and used. */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            ERR_print_errors_fp(stderr);                                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define SHOW(type, name)                                                                           \
    do {                                                                                           \
        EVP_##type *found = EVP_##type##_fetch(NULL, name, NULL);                                  \
        CHECK(found);                                                                              \
        printf("%s %s %s\n", #type, name,                                                          \
               OSSL_PROVIDER_get0_name(EVP_##type##_get0_provider(found)));                        \
        EVP_##type##_free(found);                                                                  \
    } while (0)

int main(void) {
    SHOW(SIGNATURE, "RSA");
    SHOW(SIGNATURE, "ECDSA");
    SHOW(SIGNATURE, "ED25519");
    SHOW(KEYEXCH, "X25519");
    SHOW(KEYEXCH, "ECDH");
    SHOW(ASYM_CIPHER, "RSA");
    SHOW(KEYMGMT, "RSA");
    SHOW(KEYMGMT, "EC");
    SHOW(KEYMGMT, "X25519");
    SHOW(KEYMGMT, "ED25519");

    /* A key that is made signs in the provider that has it. */
    unsigned char signature[512];
    size_t length = sizeof signature;
    EVP_PKEY_CTX *where = NULL;
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(key && ctx);
    printf("made %s\n", OSSL_PROVIDER_get0_name(EVP_PKEY_get0_provider(key)));
    CHECK(EVP_DigestSignInit(ctx, &where, EVP_sha256(), NULL, key) == 1);
    CHECK(EVP_DigestSign(ctx, signature, &length, (const unsigned char *)"x", 1) == 1);
    printf("signed %s\n", OSSL_PROVIDER_get0_name(EVP_PKEY_CTX_get0_provider(where)));
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return 0;
}
