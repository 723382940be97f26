/* A program that opens libcryptos by their paths, as Python's ssl module does, and has each load the
 * module. Usage: two_libcryptos DIRECTORY (where lockstep.so is) LIBCRYPTO... */
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

/* Whether the module loads into a library. */
static void load(const char *path, const char *directory) {
    void *library = must(dlopen(path, RTLD_NOW | RTLD_LOCAL), path);
    TAKE(OSSL_LIB_CTX_new);
    TAKE(OSSL_PROVIDER_set_default_search_path);
    TAKE(OSSL_PROVIDER_load);
    TAKE(ERR_print_errors_fp);
    void *libctx = must(OSSL_LIB_CTX_new_(), "context");
    if (OSSL_PROVIDER_set_default_search_path_(libctx, directory) != 1)
        exit(1);
    printf("%s\n", OSSL_PROVIDER_load_(libctx, "lockstep") ? "loaded" : "refused");
    ERR_print_errors_fp_(stdout);
}

int main(int argc, char **argv) {
    for (int i = 2; i < argc; i++)
        load(argv[i], argv[1]);
    return 0;
}
