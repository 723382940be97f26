/* Loads a configuration that its arguments name, signs once, says its pid and whether the kernel
 * has marked it as privileged, and ends with its standard input.
 * Usage: privileged CONFIGURATION KEY.pem */
#include "common.h"
#include <openssl/crypto.h>
#include <sys/auxv.h>

int main(int argc, char **argv) {
    CHECK(argc == 3 && OSSL_LIB_CTX_load_config(NULL, argv[1]) == 1);
    sign(NULL, read_key(NULL, argv[2]), 1);
    printf("process %d %d\n", (int)getpid(), getauxval(AT_SECURE) != 0);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
