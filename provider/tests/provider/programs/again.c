/* Loads the configuration, and starts itself in its place so many times, as servers do that reload
 * by `exec`. Usage: again TIMES [VALUE]; LOCKSTEP_SLOTS has this value from then on. */
#include "common.h"
#include <unistd.h>

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    CHECK(OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) == 1);
    int times = atoi(argv[1]);
    if (times == 0)
        return 0;
    /* The module tells programs under one number apart by the clock of the kernel. */
    usleep(50000);
    char left[16];
    snprintf(left, sizeof left, "%d", times - 1);
    if (argc > 2)
        CHECK(setenv("LOCKSTEP_SLOTS", argv[2], 1) == 0);
    execl("/proc/self/exe", argv[0], left, (char *)NULL);
    CHECK(!"it goes on in another program");
}
