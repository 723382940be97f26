/* Records of TLS of many lengths, both ways. One end has the module, the other OpenSSL's own
 * AES-GCM.
 *
 * Usage: records KEY CERTIFICATE STEP. Lengths above 300 are apart by STEP. The last line is the
 * number of contexts of the module that have had a key. */
#include "pair.h"

enum { LONGEST = 16384, SHORT = 300 };

static unsigned char text[LONGEST], received[LONGEST];

/* One record; the receiver must see these bytes, or an error if one of the record's is changed. */
static void send_record(SSL *from, SSL *to, int length, int changed) {
    CHECK(SSL_write(from, text, length) == length);
    if (changed) {
        char *data;
        long size = BIO_get_mem_data(SSL_get_wbio(from), &data);
        data[size - 1 - length % 24] ^= 0x10;
    }
    carry(from, to);
    memset(received, 0, length);
    int count = SSL_read(to, received, sizeof received);
    if (!changed) {
        CHECK(count == length && memcmp(received, text, length) == 0);
        return;
    }
    CHECK(count <= 0 && SSL_get_error(to, count) == SSL_ERROR_SSL);
    CHECK(ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC);
    ERR_clear_error();
}

static SSL_CTX *context(int is_server, int is_ours, char **files) {
    const SSL_METHOD *method = is_server ? TLS_server_method() : TLS_client_method();
    SSL_CTX *ctx = SSL_CTX_new_ex(NULL, is_ours ? NULL : "provider=default", method);
    CHECK(ctx);
    if (is_server) {
        CHECK(SSL_CTX_use_PrivateKey_file(ctx, files[0], SSL_FILETYPE_PEM) == 1);
        CHECK(SSL_CTX_use_certificate_file(ctx, files[1], SSL_FILETYPE_PEM) == 1);
    }
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(ctx, 0);
    return ctx;
}

static void session(SSL_CTX *server_ctx, SSL_CTX *client_ctx, int version, const char *suite, int step,
                    int changed) {
    SSL *ends[2] = {connection(server_ctx, 1), connection(client_ctx, 0)};
    CHECK(SSL_set_min_proto_version(ends[1], version) == 1);
    CHECK(SSL_set_max_proto_version(ends[1], version) == 1);
    if (version == TLS1_3_VERSION)
        CHECK(SSL_set_ciphersuites(ends[1], suite) == 1);
    else
        CHECK(SSL_set_cipher_list(ends[1], suite) == 1);
    CHECK(handshake(ends[0], ends[1], 0) == 0);
    CHECK(strstr(suite, SSL_get_cipher_name(ends[0])));
    if (changed) {
        send_record(ends[changed % 2], ends[!(changed % 2)], 1000 + changed, 1);
    } else {
        for (int length = 1; length <= LONGEST; length += length < SHORT ? 1 : step) {
            send_record(ends[0], ends[1], length, 0);
            send_record(ends[1], ends[0], length, 0);
        }
        send_record(ends[0], ends[1], LONGEST, 0);
        send_record(ends[1], ends[0], LONGEST, 0);
        /* With new keys. */
        if (version == TLS1_3_VERSION) {
            CHECK(SSL_key_update(ends[0], SSL_KEY_UPDATE_REQUESTED) == 1);
            for (int way = 0; way < 4; way++)
                send_record(ends[way % 2], ends[!(way % 2)], 100 + way, 0);
        }
    }
    SSL_free(ends[0]);
    SSL_free(ends[1]);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    int step = atoi(argv[3]), counted = 0;
    static const char *suites[2][2] = {{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"},
                                       {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"}};
    for (int i = 0; i < LONGEST; i++)
        text[i] = (unsigned char)(i * 7 + i / 256);
    for (int ours = 0; ours < 2; ours++) {
        SSL_CTX *server = context(1, ours == 0, argv + 1), *client = context(0, ours == 1, argv + 1);
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++)
            for (int suite = 0; suite < 2; suite++)
                for (int changed = 0; changed <= 2; changed++) {
                    const char *name = suites[version == TLS1_2_VERSION][suite];
                    session(server, client, version, name, step, changed);
                    /* libssl makes a context for each key, also for those of the handshake and for
                     * new ones. */
                    counted += version == TLS1_2_VERSION ? 2 : changed ? 4 : 6;
                }
        SSL_CTX_free(server);
        SSL_CTX_free(client);
    }
    printf("%d contexts\n", counted);
    return 0;
}
