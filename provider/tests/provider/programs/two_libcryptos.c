/* A program that opens a libcrypto by its path, as Python's ssl module does, and has it load the
 * module. Usage: two_libcryptos LIBCRYPTO DIRECTORY (where lockstep.so is) */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *must(void *found, const char *what) {
    if (!found) {
        fprintf(stderr, "no %s: %s\n", what, dlerror());
        exit(1);
    }
    return found;
}

#define TAKE(name) __typeof__(name) *name##_ = must(dlsym(library, #name), #name)

/* As in the headers, which are not included: nothing may be linked. */
void *OSSL_LIB_CTX_new(void);
int OSSL_PROVIDER_set_default_search_path(void *libctx, const char *path);
void *OSSL_PROVIDER_load(void *libctx, const char *name);
void ERR_print_errors_fp(FILE *file);

int main(int argc, char **argv) {
    if (argc != 3)
        return 1;
    void *library = must(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), argv[1]);
    TAKE(OSSL_LIB_CTX_new);
    TAKE(OSSL_PROVIDER_set_default_search_path);
    TAKE(OSSL_PROVIDER_load);
    TAKE(ERR_print_errors_fp);
    void *libctx = must(OSSL_LIB_CTX_new_(), "context");
    if (OSSL_PROVIDER_set_default_search_path_(libctx, argv[2]) != 1)
        return 1;
    printf("%s\n", OSSL_PROVIDER_load_(libctx, "lockstep") ? "loaded" : "refused");
    ERR_print_errors_fp_(stdout);
    return 0;
}
