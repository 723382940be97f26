/* A process of another user that means harm to whoever looks at it.
 *
 *     hostile UID ENVIRONMENT MAP ROOT [WORD...]
 *
 * It maps the file MAP, changes its root to ROOT in a mount namespace of its own, becomes the user
 * UID, writes the text of the file ENVIRONMENT over its own environment in place, listens, and
 * waits. `-` stands for nothing. The words are for its command line alone. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

int main(int count, char **words, char **environment)
{
    must(count >= 5, "arguments");
    uid_t user = (uid_t)atoi(words[1]);
    static char text[4096];
    if (strcmp(words[2], "-") != 0) {
        int file = open(words[2], O_RDONLY);
        must(file >= 0 && read(file, text, sizeof text - 1) >= 0, words[2]);
        close(file);
    }
    if (strcmp(words[3], "-") != 0) {
        int file = open(words[3], O_RDONLY);
        must(file >= 0, words[3]);
        void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
        must(map != MAP_FAILED, "mmap");
        close(file);
    }
    if (strcmp(words[4], "-") != 0) {
        must(unshare(CLONE_NEWNS) == 0, "unshare");
        must(chroot(words[4]) == 0 && chdir("/") == 0, "chroot");
    }
    must(setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0, "setresgid");
    must(setresuid(user, user, user) == 0, "setresuid");
    /* As a program of that user that was started by itself. */
    must(prctl(PR_SET_DUMPABLE, 1) == 0, "prctl");
    prctl(PR_SET_NAME, "a\033[2Jb");
    if (text[0]) {
        size_t room = 0;
        for (char **entry = environment; *entry; entry++)
            room = (size_t)(*entry + strlen(*entry) + 1 - environment[0]);
        must(strlen(text) < room, "room in the environment");
        char *start = environment[0];
        memset(start, 0, room);
        strcpy(start, text);
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    must(bind(listener, (struct sockaddr *)&any, sizeof any) == 0, "bind");
    must(listen(listener, 5) == 0, "listen");
    puts("ready");
    fflush(stdout);
    /* Clients are taken, so that they wait for an answer. */
    for (;;)
        must(accept(listener, NULL, NULL) >= 0, "accept");
}
