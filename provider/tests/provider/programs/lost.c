/* A TLS server in one process whose connections end while their async jobs are paused.
 * Usage: lost WAY KEY.pem CERTIFICATE.pem CONNECTIONS
 *   fd        jobs wake by their descriptors
 *   callback  by a callback
 * Each connection gets a ClientHello, pauses, and is freed. Those whose answer is there before they
 * could pause, as may be where workers serve, do not count. Then one handshake goes to its end, and
 * must be able to pause too. */
#include "pair.h"
#include <dirent.h>

static int descriptors(void) {
    DIR *open = opendir("/proc/self/fd");
    CHECK(open);
    int count = 0;
    while (readdir(open))
        count++;
    closedir(open);
    return count;
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    int callbacks = strcmp(argv[1], "callback") == 0, connections = atoi(argv[4]);
    SSL_CTX *server_ctx, *client_ctx;
    contexts(&server_ctx, &client_ctx, argv[2], argv[3], callbacks);

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
    int pauses = handshake(server, client, callbacks);
    printf("%d pauses\n", pauses);
    CHECK(pauses >= 1 || callbacks);
    SSL_free(server);
    SSL_free(client);
    SSL_CTX_free(server_ctx);
    SSL_CTX_free(client_ctx);
    return 0;
}
