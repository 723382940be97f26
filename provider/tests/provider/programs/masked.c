/* A library that hides instructions from the program it is preloaded into: `cpuid` faults there,
 * and is answered without the bits that HIDDEN names:
 *   ifma   AVX-512 IFMA
 *   avx2   that, all of AVX-512, and AVX2
 *   xsave  that the system lets programs use vector registers beyond those of SSE
 * Where `cpuid` cannot be made to fault, the program ends with status 77. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_CPUID = 0x1012, IFMA = 1 << 21, AVX512F = 1 << 16, AVX2 = 1 << 5, OSXSAVE = 1 << 27 };

static unsigned hidden_of_leaf_1, hidden_of_leaf_7;

static void answer(int signal, siginfo_t *info, void *context) {
    (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0xa2) {
        sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        return;
    }
    unsigned leaf = registers[REG_RAX], subleaf = registers[REG_RCX], a, b, c, d;
    syscall(SYS_arch_prctl, ARCH_CPUID, 1);
    __cpuid_count(leaf, subleaf, a, b, c, d);
    syscall(SYS_arch_prctl, ARCH_CPUID, 0);
    if (leaf == 1)
        c &= ~hidden_of_leaf_1;
    if (leaf == 7 && subleaf == 0)
        b &= ~hidden_of_leaf_7;
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void hide(void) {
    const char *hidden = getenv("HIDDEN");
    if (!hidden)
        return;
    if (strcmp(hidden, "xsave") == 0)
        hidden_of_leaf_1 = OSXSAVE;
    else
        hidden_of_leaf_7 = strcmp(hidden, "ifma") == 0 ? IFMA : IFMA | AVX512F | AVX2;
    sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER}, NULL);
    if (syscall(SYS_arch_prctl, ARCH_CPUID, 0) != 0)
        _exit(77);
}
