/* TLS connections within one process: both ends in memory. */
#include "common.h"
#include <openssl/ssl.h>
#include <poll.h>
#include <stdatomic.h>

/* How often a callback was called that was not waited for yet. */
static atomic_int called;

static int woken(SSL *ssl, void *arg) {
    (void)ssl;
    atomic_fetch_add((atomic_int *)arg, 1);
    return 1;
}

/* Contexts of a server with async jobs, and of a client. */
static inline void contexts(SSL_CTX **server, SSL_CTX **client, const char *key, const char *certificate,
                            int callbacks) {
    *server = SSL_CTX_new(TLS_server_method());
    *client = SSL_CTX_new(TLS_client_method());
    CHECK(*server && *client);
    CHECK(SSL_CTX_use_PrivateKey_file(*server, key, SSL_FILETYPE_PEM) == 1);
    CHECK(SSL_CTX_use_certificate_file(*server, certificate, SSL_FILETYPE_PEM) == 1);
    SSL_CTX_set_mode(*server, SSL_MODE_ASYNC);
    if (callbacks) {
        CHECK(SSL_CTX_set_async_callback(*server, woken) == 1);
        CHECK(SSL_CTX_set_async_callback_arg(*server, &called) == 1);
    }
}

static inline SSL *connection(SSL_CTX *ctx, int server) {
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
static inline void carry(SSL *from, SSL *to) {
    char *data;
    long length = BIO_get_mem_data(SSL_get_wbio(from), &data);
    if (length > 0)
        CHECK(BIO_write(SSL_get_rbio(to), data, (int)length) == length);
    (void)BIO_reset(SSL_get_wbio(from));
}

/* Waits until the job of a connection may be resumed. */
static inline void wait_for(SSL *ssl, int callbacks) {
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

/* A whole handshake, of which the client may have begun. Returns how often the server paused. */
static inline int handshake(SSL *server, SSL *client, int callbacks) {
    int pauses = 0, ends = 0;
    atomic_store(&called, 0);
    for (int turn = 0; ends != 3; turn++) {
        CHECK(turn < 100);
        int result = SSL_do_handshake(client);
        if (result == 1)
            ends |= 2;
        else
            CHECK(SSL_get_error(client, result) == SSL_ERROR_WANT_READ);
        carry(client, server);
        while ((result = SSL_do_handshake(server)) != 1) {
            if (SSL_get_error(server, result) != SSL_ERROR_WANT_ASYNC)
                break;
            pauses++;
            wait_for(server, callbacks);
        }
        if (result == 1)
            ends |= 1;
        else
            CHECK(SSL_get_error(server, result) == SSL_ERROR_WANT_READ);
        carry(server, client);
    }
    return pauses;
}
