/* Behaves as servers do that start as root: loads the module and a key, forks, and in the child
 * gives up what it may. The child signs once, says its pid, and exits when its standard input ends.
 * Usage: drop WAY KEY.pem DIRECTORY
 *   user    becomes user 65534
 *   chroot  makes DIRECTORY its root first, where there is neither /proc nor /dev
 *   late    signs before it becomes user 65534
 *   quiet   signs and exits without OpenSSL's own cleanup */
#include "common.h"
#include <grp.h>
#include <sys/wait.h>

static void become_nobody(void) {
    CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *way = argv[1];
    if (strcmp(way, "quiet") == 0)
        CHECK(OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    EVP_PKEY *key = read_key(NULL, argv[2]);
    /* Fetches all that a signature needs. */
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestSignInit_ex(ctx, NULL, "SHA256", NULL, NULL, key, NULL) == 1);
    EVP_MD_CTX_free(ctx);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    if (strcmp(way, "late") == 0)
        sign(NULL, key, 0);
    if (strcmp(way, "chroot") == 0)
        CHECK(chroot(argv[3]) == 0 && chdir("/") == 0);
    if (strcmp(way, "quiet") != 0)
        become_nobody();
    sign(NULL, key, 1);
    printf("process %d\n", (int)getpid());
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    exit(0);
}
