/* Signs and verifies whole messages.
 * Usage: messages tls KEY.pem        as libssl 4.0 does, with the version of TLS as a parameter
 *        messages ALGORITHM KEY.pem  by EVP_PKEY_sign_message_init (OpenSSL 3.4), as RSA-SHA256 */
#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>

static unsigned char signature[1024];
static size_t length = sizeof signature;
static unsigned char message[] = "a message that is signed as a whole";

static void with_tls_version(EVP_PKEY *key) {
    int version = 0x0304;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_int("tls-version", &version), OSSL_PARAM_END};
    for (int verify = 0; verify < 2; verify++) {
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        CHECK(ctx);
        if (verify) {
            CHECK(EVP_DigestVerifyInit_ex(ctx, NULL, NULL, NULL, NULL, key, params) == 1);
            CHECK(EVP_DigestVerify(ctx, signature, length, message, sizeof message) == 1);
        } else {
            CHECK(EVP_DigestSignInit_ex(ctx, NULL, NULL, NULL, NULL, key, params) == 1);
            CHECK(EVP_DigestSign(ctx, signature, &length, message, sizeof message) == 1);
        }
        EVP_MD_CTX_free(ctx);
    }
}

/* Both functions of OpenSSL 3.4, which the headers of 3.0 do not have. */
typedef int init_function(EVP_PKEY_CTX *ctx, EVP_SIGNATURE *algorithm, const OSSL_PARAM *params);

static void with_message_init(EVP_PKEY *key, const char *name) {
    init_function *sign_init = dlsym(RTLD_DEFAULT, "EVP_PKEY_sign_message_init");
    init_function *verify_init = dlsym(RTLD_DEFAULT, "EVP_PKEY_verify_message_init");
    if (!sign_init || !verify_init) {
        printf("skipped: this OpenSSL has no EVP_PKEY_sign_message_init (3.4)\n");
        return;
    }
    EVP_SIGNATURE *algorithm = EVP_SIGNATURE_fetch(NULL, name, NULL);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    CHECK(algorithm && ctx);
    CHECK(sign_init(ctx, algorithm, NULL) == 1);
    CHECK(EVP_PKEY_sign(ctx, signature, &length, message, sizeof message) == 1);
    CHECK(verify_init(ctx, algorithm, NULL) == 1);
    CHECK(EVP_PKEY_verify(ctx, signature, length, message, sizeof message) == 1);
    message[0] ^= 1;
    CHECK(verify_init(ctx, algorithm, NULL) == 1);
    CHECK(EVP_PKEY_verify(ctx, signature, length, message, sizeof message) != 1);
    EVP_PKEY_CTX_free(ctx);
    EVP_SIGNATURE_free(algorithm);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    EVP_PKEY *key = read_key(NULL, argv[2]);
    if (strcmp(argv[1], "tls") == 0)
        with_tls_version(key);
    else
        with_message_init(key, argv[1]);
    EVP_PKEY_free(key);
    return 0;
}
