/* A TLS server in one process whose connections end while their async jobs are paused.
 * Usage: lost WAY KEY.pem CERTIFICATE.pem CONNECTIONS
 *   fd        jobs wake by their descriptors
 *   callback  by a callback
 * Each connection gets a ClientHello, pauses, and is freed. Those whose answer is there before they could pause, as may
 * be where workers serve, do not count. Then one handshake goes to its end, and must be able to pause too. */
#include "common.h"
#include <dirent.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdatomic.h>

static atomic_int called;

static int woken(SSL *ssl, void *arg) {
    (void)ssl;
    atomic_fetch_add((atomic_int *)arg, 1);
    return 1;
}

static int descriptors(void) {
    DIR *open = opendir("/proc/self/fd");
    CHECK(open);
    int count = 0;
    while (readdir(open))
        count++;
    closedir(open);
    return count;
}

static SSL *connection(SSL_CTX *ctx, int server) {
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    CHECK(ssl && in && out);
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    if (server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

/* Hands over what one side has written to the other. */
static void carry(SSL *from, SSL *to) {
    char *data;
    long length = BIO_get_mem_data(SSL_get_wbio(from), &data);
    if (length > 0)
        CHECK(BIO_write(SSL_get_rbio(to), data, (int)length) == length);
    (void)BIO_reset(SSL_get_wbio(from));
}

static void wait_for(SSL *ssl, int callbacks) {
    OSSL_ASYNC_FD fds[8];
    size_t count = 0;
    for (int i = 0; i < 10000; i++) {
        if (callbacks) {
            if (atomic_exchange(&called, 0))
                return;
            usleep(1000);
            continue;
        }
        CHECK(SSL_get_all_async_fds(ssl, NULL, &count) == 1 && count == 1);
        CHECK(SSL_get_all_async_fds(ssl, fds, &count) == 1);
        struct pollfd poll_fd = {.fd = fds[0], .events = POLLIN};
        CHECK(poll(&poll_fd, 1, 10000) == 1);
        return;
    }
    CHECK(!"woken");
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    int callbacks = strcmp(argv[1], "callback") == 0, connections = atoi(argv[4]);
    SSL_CTX *server_ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX *client_ctx = SSL_CTX_new(TLS_client_method());
    CHECK(server_ctx && client_ctx);
    CHECK(SSL_CTX_use_PrivateKey_file(server_ctx, argv[2], SSL_FILETYPE_PEM) == 1);
    CHECK(SSL_CTX_use_certificate_file(server_ctx, argv[3], SSL_FILETYPE_PEM) == 1);
    SSL_CTX_set_mode(server_ctx, SSL_MODE_ASYNC);
    if (callbacks) {
        CHECK(SSL_CTX_set_async_callback(server_ctx, woken) == 1);
        CHECK(SSL_CTX_set_async_callback_arg(server_ctx, &called) == 1);
    }

    SSL *client = connection(client_ctx, 0);
    CHECK(SSL_do_handshake(client) == -1);
    char *hello;
    long length = BIO_get_mem_data(SSL_get_wbio(client), &hello);
    int before = 0, answered = 0;
    for (int i = 0; i < connections;) {
        SSL *server = connection(server_ctx, 1);
        CHECK(BIO_write(SSL_get_rbio(server), hello, (int)length) == length);
        int result = SSL_do_handshake(server);
        int error = SSL_get_error(server, result);
        if (error == SSL_ERROR_WANT_READ && callbacks && ++answered < 100 * connections) {
            SSL_free(server);
            continue;
        }
        if (error != SSL_ERROR_WANT_ASYNC) {
            fprintf(stderr, "connection %d does not pause: %d\n", i, error);
            CHECK(!"a pause");
        }
        if (i == 1)
            before = descriptors();
        if (i > 1)
            CHECK(descriptors() <= before || i % 100);
        SSL_free(server);
        ERR_clear_error();
        i++;
    }

    SSL *server = connection(server_ctx, 1);
    int pauses = 0, ends = 0;
    atomic_store(&called, 0);
    for (int turn = 0; ends != 3; turn++) {
        CHECK(turn < 100);
        carry(client, server);
        int result = SSL_do_handshake(server);
        if (result == 1)
            ends |= 1;
        else if (SSL_get_error(server, result) == SSL_ERROR_WANT_ASYNC) {
            pauses++;
            wait_for(server, callbacks);
            continue;
        } else
            CHECK(SSL_get_error(server, result) == SSL_ERROR_WANT_READ);
        carry(server, client);
        result = SSL_do_handshake(client);
        if (result == 1)
            ends |= 2;
        else
            CHECK(SSL_get_error(client, result) == SSL_ERROR_WANT_READ);
    }
    printf("%d pauses\n", pauses);
    CHECK(pauses >= 2 || callbacks);
    SSL_free(server);
    SSL_free(client);
    SSL_CTX_free(server_ctx);
    SSL_CTX_free(client_ctx);
    return 0;
}
