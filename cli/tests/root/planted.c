/* A module of another user: who loads it runs its code. It writes down who that was. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void planted(void)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%d %d\n", (int)getuid(), (int)geteuid());
    int file = open(RECORD, O_WRONLY | O_APPEND);
    if (file >= 0 && write(file, line, (size_t)length) > 0)
        close(file);
}
