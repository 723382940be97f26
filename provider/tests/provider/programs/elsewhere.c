// Loads the configuration file that its argument names into a library context of its own, and
// expects the module there.

#include "common.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    OSSL_LIB_CTX *context = OSSL_LIB_CTX_new();
    CHECK(context && OSSL_LIB_CTX_load_config(context, argv[1]));
    CHECK(OSSL_PROVIDER_available(context, "lockstep"));
    OSSL_LIB_CTX_free(context);
    return 0;
}
