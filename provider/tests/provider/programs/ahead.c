/* Prints how many blocks of memory OpenSSL takes to find what a handshake needs, after a context of
 * TLS was made: many if it makes the methods then, few if they are there. Usage: ahead */
#include "common.h"
#include <openssl/kdf.h>
#include <openssl/ssl.h>

static int blocks;

static void *take(size_t size, const char *file, int line) {
    (void)file, (void)line;
    blocks++;
    return malloc(size);
}

static void *take_again(void *memory, size_t size, const char *file, int line) {
    (void)file, (void)line;
    blocks++;
    return realloc(memory, size);
}

static void give(void *memory, const char *file, int line) {
    (void)file, (void)line;
    free(memory);
}

int main(void) {
    CHECK(CRYPTO_set_mem_functions(take, take_again, give) == 1);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    CHECK(ctx && ERR_peek_error() == 0);
    int before = blocks;
    EVP_SIGNATURE *signature = EVP_SIGNATURE_fetch(NULL, "ECDSA", NULL);
    EVP_KEYEXCH *exchange = EVP_KEYEXCH_fetch(NULL, "ECDH", NULL);
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    CHECK(signature && exchange && kdf && mac);
    printf("%d\n", blocks - before);
    EVP_MAC_free(mac);
    EVP_KDF_free(kdf);
    EVP_KEYEXCH_free(exchange);
    EVP_SIGNATURE_free(signature);
    SSL_CTX_free(ctx);
    return 0;
}
