/* Signs in a process that is confined, before or after it loads the module.
 * Usage: confined WAY KEY.pem ARGUMENT
 *   chroot  makes the directory ARGUMENT its root and becomes user 65534, then looks for a way out
 *           through each of its descriptors
 *   kill    from the first signature on, a system call that files and directories take ends the
 *           process
 *   worker  a forked child does that, and exits
 *   deny    the system call ARGUMENT fails with EPERM while the module is loaded and used; 0 denies
 *           none
 *   exec    starts itself anew in its place, ARGUMENT times
 *   leave   starts itself anew in its place while a forked child has not got to run yet
 * Where the kernel allows no filter, it says `skipped`. */
#define _GNU_SOURCE
#include "common.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MOST 64
/* Starts are distinguished by the kernel's clock, which ticks every 10 ms. */
#define KERNEL_TICKS 25000
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)

static struct sock_filter code[4 * MOST];
static unsigned short length;

static void add(struct sock_filter instruction) {
    CHECK(length < sizeof code / sizeof code[0]);
    code[length++] = instruction;
}

/* Adds: if the number is `call`, and the low half of its argument `argument` has one of the bits of
 * `mask` (where that is not 0), then `action`. */
static void on(int call, int argument, unsigned mask, unsigned action) {
    add((struct sock_filter)LOAD(nr));
    if (mask == 0) {
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    } else {
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3));
        add((struct sock_filter)LOAD(args[argument]));
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, mask, 0, 1));
    }
    add((struct sock_filter)RETURN(action));
}

static void install(void) {
    add((struct sock_filter)RETURN(SECCOMP_RET_ALLOW));
    struct sock_fprog program = {.len = length, .filter = code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        printf("skipped: no filter of system calls: %s\n", strerror(errno));
        exit(0);
    }
}

static void kill_on_files(void) {
    static const int calls[] = {SYS_mkdirat,   SYS_mkdir,    SYS_unlinkat,          SYS_unlink,
                                SYS_ftruncate, SYS_truncate, SYS_fallocate,         SYS_pwrite64,
                                SYS_getdents64, SYS_fcntl,   SYS_statx,             SYS_geteuid,
                                SYS_memfd_create, SYS_renameat2, SYS_sched_getaffinity, SYS_fstatfs};
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; i++)
        on(calls[i], 0, 0, SECCOMP_RET_KILL_PROCESS);
    on(SYS_openat, 2, O_DIRECTORY | O_PATH | O_CREAT, SECCOMP_RET_KILL_PROCESS);
    install();
}

/* Whether one of our descriptors leads out of the directory that is now our root. */
static int leads_out(void) {
    int found = 0;
    for (int fd = 0; fd < 1024; fd++) {
        int way = openat(fd, "../../../../../../../../../../../../etc/passwd", O_RDONLY);
        if (way >= 0) {
            printf("descriptor %d leads out\n", fd);
            close(way);
            found = 1;
        }
    }
    return found;
}

static void wait_for_child(void) {
    int status = 0;
    CHECK(wait(&status) > 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The end of a pipe at which a forked child waits before it does anything. */
static int gate;

static void wait_at_gate(void) {
    char byte;
    CHECK(read(gate, &byte, 1) == 1);
}

/* How many files of counters a process made. */
static int files_of(pid_t pid) {
    char start[16];
    int length = snprintf(start, sizeof start, "%d-", (int)pid), found = 0;
    DIR *directory = opendir(getenv("LOCKSTEP_STATS_DIR"));
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        found += strncmp(entry->d_name, start, length) == 0;
    closedir(directory);
    return found;
}

/* The program that is started anew lets the child go on when it has loaded the module. */
static int leave(char **argv) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    gate = ends[0];
    /* Before the module's own, which it installs when it is loaded. */
    CHECK(pthread_atfork(NULL, NULL, wait_at_gate) == 0);
    EVP_PKEY *key = read_key(NULL, argv[2]);
    sign(NULL, key, 0);
    usleep(KERNEL_TICKS);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        char end[16];
        snprintf(end, sizeof end, "%d", ends[1]);
        execl("/proc/self/exe", argv[0], "left", argv[2], end, NULL);
        CHECK(0);
    }
    sign(NULL, key, 1);
    CHECK(files_of(getppid()) == 2);
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *way = argv[1];
    if (strcmp(way, "deny") == 0 && atoi(argv[3]) != 0) {
        int call = atoi(argv[3]);
        /* Programs cannot start without these; only what the counters ask of them is denied. */
        unsigned mask = call == SYS_openat ? O_CREAT | O_PATH : call == SYS_mmap ? MAP_SHARED : 0;
        on(call, call == SYS_openat ? 2 : 3, mask, SECCOMP_RET_ERRNO | EPERM);
        install();
    }
    if (strcmp(way, "leave") == 0)
        return leave(argv);
    EVP_PKEY *key = read_key(NULL, argv[2]);
    sign(NULL, key, 0);
    CHECK(OSSL_PROVIDER_available(NULL, "lockstep") == 1);
    if (strcmp(way, "chroot") == 0) {
        CHECK(chroot(argv[3]) == 0 && chdir("/") == 0);
        CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        CHECK(open("/etc/passwd", O_RDONLY) < 0);
        sign(NULL, key, 1);
        return leads_out();
    }
    if (strcmp(way, "exec") == 0 && atoi(argv[3]) > 0) {
        char left[16];
        snprintf(left, sizeof left, "%d", atoi(argv[3]) - 1);
        usleep(KERNEL_TICKS);
        execl("/proc/self/exe", argv[0], way, argv[2], left, NULL);
        CHECK(0);
    }
    if (strcmp(way, "left") == 0) {
        CHECK(write(atoi(argv[3]), "", 1) == 1);
        wait_for_child();
    }
    if (strcmp(way, "worker") == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child > 0) {
            wait_for_child();
            return 0;
        }
    }
    if (strcmp(way, "kill") == 0 || strcmp(way, "worker") == 0)
        kill_on_files();
    for (int number = 1; number < 4; number++)
        sign(NULL, key, number);
    printf("process %d signed\n", (int)getpid());
    exit(0);
}
