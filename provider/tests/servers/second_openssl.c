/* Preloaded into a server: has the system's libcrypto read the configuration, beside the libcrypto
 * that the server itself uses. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t LOAD_CONFIG = 0x40;

__attribute__((constructor)) static void start(void) {
    void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    int (*init)(uint64_t, const void *) =
        library ? (int (*)(uint64_t, const void *))dlsym(library, "OPENSSL_init_crypto") : NULL;
    if (!init || !init(LOAD_CONFIG, NULL)) {
        fprintf(stderr, "no second libcrypto: %s\n", dlerror());
        exit(1);
    }
}
