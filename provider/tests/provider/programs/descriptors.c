/* A server whose connections stay open after their handshakes.
 * Usage: descriptors WAY KEY.pem CERTIFICATE.pem LIMIT
 *   fd        jobs wake by their descriptors
 *   callback  by a callback
 * The process may have LIMIT descriptors. Each connection takes one, as a socket would, until there
 * is none; then the number of connections must be near to what it would be if they took no others.
 */
#include "pair.h"
#include <sys/resource.h>

int main(int argc, char **argv) {
    CHECK(argc == 5);
    int callbacks = strcmp(argv[1], "callback") == 0, limit = atoi(argv[4]);
    SSL_CTX *server_ctx, *client_ctx;
    contexts(&server_ctx, &client_ctx, argv[2], argv[3], callbacks);
    /* All that is opened on first use. */
    SSL *server = connection(server_ctx, 1), *client = connection(client_ctx, 0);
    handshake(server, client, callbacks);
    SSL_free(server);
    SSL_free(client);
    struct rlimit most = {.rlim_cur = limit, .rlim_max = limit};
    CHECK(setrlimit(RLIMIT_NOFILE, &most) == 0);
    int first = dup(0), connections = 0, pauses = 0;
    CHECK(first >= 0 && first < limit / 4);
    close(first);
    while (dup(0) >= 0) {
        server = connection(server_ctx, 1);
        client = connection(client_ctx, 0);
        pauses += handshake(server, client, callbacks);
        SSL_free(client);
        connections++;
    }
    int alone = limit - first;
    printf("%d pauses, %d of %d connections\n", pauses, connections, alone);
    /* The module leaves the upper half of the descriptors to the server. */
    CHECK(connections * 10 >= alone * 7);
    CHECK(!callbacks || connections + 4 >= alone);
    return 0;
}
