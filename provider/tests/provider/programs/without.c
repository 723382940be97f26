/* Runs a program without a system call.
 * Usage: without NUMBER ERROR PROGRAM ARGUMENTS...
 * The call fails with this error, as on a kernel that is older, or behind a filter that does not
 * know it. Where the kernel allows no filter, it says `skipped`. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    unsigned number = (unsigned)atoi(arguments[1]);
    unsigned error = (unsigned)atoi(arguments[2]);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        puts("skipped: this kernel allows no filter of system calls");
        return 77;
    }
    execv(arguments[3], arguments + 3);
    perror(arguments[3]);
    return 1;
}
