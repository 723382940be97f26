/* Decrypts ciphertexts with one RSA key, each between two calls that a tracer can find.
 *
 * Usage: decrypt_trace KEY.pem MODE CIPHERTEXT...   with MODE one of none, oaep, pkcs1, tls.
 * Prints a line for each ciphertext: the result in hexadecimal, or `error`.
 *
 * For a tracer: `trace_begin` and `trace_end` are exported, and each makes the system call getppid,
 * which nothing else here does. What is done once in a process, and what a key does at its first
 * use, is done before, on a ciphertext that does not depend on the files. Give files of two runs
 * names of the same length, and switch the randomisation of addresses off: then the addresses of
 * both runs can be compared. The blinding is random in every run, so a difference counts only if
 * several runs of each secret agree on it. */
#include "common.h"
#include <openssl/prov_ssl.h>
#include <sys/syscall.h>

enum { TLS1_2 = 0x0303 };

static EVP_PKEY *key;
static size_t size;
static int padding;

__attribute__((noinline, visibility("default"))) void trace_begin(void) {
    syscall(SYS_getppid);
}

__attribute__((noinline, visibility("default"))) void trace_end(void) {
    syscall(SYS_getppid);
}

/* Returns what EVP_PKEY_decrypt returns. */
static int decrypt(const unsigned char *sealed, unsigned char *out, size_t *length) {
    unsigned version = TLS1_2;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION, &version),
        OSSL_PARAM_construct_end(),
    };
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, padding) == 1);
    if (padding == RSA_PKCS1_WITH_TLS_PADDING)
        CHECK(EVP_PKEY_CTX_set_params(ctx, params) == 1);
    trace_begin();
    int result = EVP_PKEY_decrypt(ctx, out, length, sealed, size);
    trace_end();
    EVP_PKEY_CTX_free(ctx);
    return result;
}

static int padding_of(const char *mode) {
    static const struct {
        const char *mode;
        int padding;
    } modes[] = {
        {"none", RSA_NO_PADDING},
        {"oaep", RSA_PKCS1_OAEP_PADDING},
        {"pkcs1", RSA_PKCS1_PADDING},
        {"tls", RSA_PKCS1_WITH_TLS_PADDING},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(mode, modes[i].mode) == 0)
            return modes[i].padding;
    CHECK(!"a mode");
    return 0;
}

int main(int argc, char **argv) {
    static unsigned char sealed[1024], out[1024];
    size_t length = sizeof out;
    CHECK(argc > 3);
    alarm(50);
    key = read_key(NULL, argv[1]);
    size = EVP_PKEY_get_size(key);
    padding = padding_of(argv[2]);

    /* The first use of the key: 2 is below any modulus. With padding this is an error, or random
     * bytes. */
    sealed[size - 1] = 2;
    int result = decrypt(sealed, out, &length);
    CHECK(padding != RSA_NO_PADDING || result == 1);
    ERR_clear_error();

    for (int i = 3; i < argc; i++) {
        FILE *file = fopen(argv[i], "r");
        CHECK(file && fread(sealed, 1, sizeof sealed, file) == size);
        fclose(file);
        memset(out, 0xa5, sizeof out);
        length = sizeof out;
        if (decrypt(sealed, out, &length) != 1) {
            puts("error");
            continue;
        }
        for (size_t at = 0; at < length; at++)
            printf("%02x", out[at]);
        puts("");
        for (size_t at = size; at < sizeof out; at++)
            CHECK(out[at] == 0xa5);
    }
    EVP_PKEY_free(key);
    return 0;
}
