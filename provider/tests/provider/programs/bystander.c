/* What a program finds that reads a configuration in which the module is named, and has it not:
 * errors that are left in the queue, the groups that are offered, handshakes and signatures. Each
 * line is compared with a run without that configuration: MODE CERTIFICATE KEY. */
#include "common.h"
#include <openssl/err.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>

static OSSL_LIB_CTX *libctx;
static const char *propq;

static void left(const char *by) {
    unsigned long error;
    char text[256];
    while ((error = ERR_get_error())) {
        ERR_error_string_n(error, text, sizeof text);
        printf("left by %s: %s\n", by, text);
    }
}

static SSL_CTX *context(const SSL_METHOD *method) {
    SSL_CTX *ctx = SSL_CTX_new_ex(libctx, propq, method);
    CHECK(ctx);
    return ctx;
}

/* Carries what one end has written to the other. */
static void carry(SSL *from, SSL *to) {
    char bytes[4096];
    int length;
    while ((length = BIO_read(SSL_get_wbio(from), bytes, sizeof bytes)) > 0)
        CHECK(BIO_write(SSL_get_rbio(to), bytes, length) == length);
}

static SSL *end(SSL_CTX *ctx) {
    SSL *ssl = SSL_new(ctx);
    CHECK(ssl);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    return ssl;
}

static void handshake(int version, const char *certificate, const char *key) {
    SSL_CTX *clients = context(TLS_client_method());
    left("a context for clients");
    SSL_CTX *servers = context(TLS_server_method());
    left("a context for servers");
    CHECK(SSL_CTX_set_max_proto_version(clients, version) == 1);
    CHECK(SSL_CTX_use_certificate_file(servers, certificate, SSL_FILETYPE_PEM) == 1);
    CHECK(SSL_CTX_use_PrivateKey_file(servers, key, SSL_FILETYPE_PEM) == 1);
    left("a key");
    SSL *client = end(clients), *server = end(servers);
    SSL_set_connect_state(client);
    SSL_set_accept_state(server);
    for (int turn = 0; turn < 10; turn++) {
        SSL *mine = turn % 2 ? server : client;
        int done = SSL_do_handshake(mine);
        printf("turn %d: %d, error %d\n", turn, done, SSL_get_error(mine, done));
        left("a turn");
        carry(mine, turn % 2 ? client : server);
    }
    int groups[64], count = SSL_get1_groups(server, NULL);
    CHECK(count <= 64 && SSL_get1_groups(server, groups) == count);
    printf("%s, %s, offered:", SSL_get_version(client), SSL_get_cipher(client));
    for (int i = 0; i < count; i++)
        printf(" %d", groups[i]);
    printf(", shared: %ld\n", (long)SSL_get_shared_group(server, 0));
    /* Another context, while a connection waits for data. */
    SSL_CTX *other = context(TLS_method());
    char byte;
    int read = SSL_read(client, &byte, 1);
    printf("read: %d, error %d\n", read, SSL_get_error(client, read));
    left("a read");
    SSL_CTX_free(other);
    SSL_free(client);
    SSL_free(server);
    SSL_CTX_free(clients);
    SSL_CTX_free(servers);
}

/* A signature that is the same each time. */
static void signature(const char *file) {
    unsigned char made[1024];
    size_t length = sizeof made;
    BIO *in = BIO_new_file(file, "r");
    EVP_PKEY *key = PEM_read_bio_PrivateKey_ex(in, NULL, NULL, NULL, libctx, propq);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(in && key && ctx);
    CHECK(EVP_DigestSignInit_ex(ctx, NULL, "SHA256", libctx, propq, key, NULL) == 1);
    CHECK(EVP_DigestSign(ctx, made, &length, (const unsigned char *)"data", 4) == 1);
    printf("signature: ");
    for (size_t i = 0; i < 16; i++)
        printf("%02x", made[i]);
    printf(" of %zu bytes\n", length);
    left("a signature");
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    BIO_free(in);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    CHECK(OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    left("the start");
    if (strncmp(argv[1], "context", 7) == 0) {
        libctx = OSSL_LIB_CTX_new();
        CHECK(libctx);
        const char *file = getenv("OPENSSL_CONF");
        /* As a program may do that has several. */
        if (strcmp(argv[1], "context-with-configuration") == 0 && file) {
            CHECK(OSSL_LIB_CTX_load_config(libctx, file) == 1);
            left("a configuration");
        }
    }
    if (strcmp(argv[1], "property") == 0)
        propq = "provider=default";
    signature(argv[3]);
    for (int i = 0; i < 2; i++) {
        handshake(TLS1_3_VERSION, argv[2], argv[3]);
        handshake(TLS1_2_VERSION, argv[2], argv[3]);
    }
    left("all");
    OSSL_LIB_CTX_free(libctx);
    return 0;
}
