/* Preloaded: counts how often the module turns bytes into a number of libcrypto, and says it at
 * exit.
 *
 * The module refuses a libcrypto whose functions another library replaces, so this is a breakpoint
 * in BN_bin2bn: the handler looks at who has called, lets the first instruction run alone, and sets
 * the breakpoint again. For programs with one thread, on x86-64. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <openssl/bn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { BREAKPOINT = 0xcc, TRAP_FLAG = 0x100 };

static unsigned char *function, original;
static int numbers;

static int is_from_module(void *address) {
    Dl_info info;
    return dladdr(address, &info) && strstr(info.dli_fname, "lockstep.so") != NULL;
}

static void trapped(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)signal;
    (void)info;
    if (registers[REG_RIP] == (greg_t)(uintptr_t)function + 1) {
        numbers += is_from_module(*(void **)registers[REG_RSP]);
        *function = original;
        registers[REG_RIP]--;
        registers[REG_EFL] |= TRAP_FLAG;
    } else {
        *function = BREAKPOINT;
        registers[REG_EFL] &= ~TRAP_FLAG;
    }
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    uintptr_t page = sysconf(_SC_PAGESIZE);
    function = dlsym(RTLD_DEFAULT, "BN_bin2bn");
    if (!function || sigaction(SIGTRAP, &action, NULL) != 0 ||
        mprotect((void *)((uintptr_t)function & -page), page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        abort();
    original = *function;
    *function = BREAKPOINT;
}

__attribute__((destructor)) static void end(void) {
    fprintf(stderr, "numbers made of bytes: %d\n", numbers);
}
