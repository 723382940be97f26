/* What a call leaves on its stack. */
#define _GNU_SOURCE
#include "common.h"
#include <sys/mman.h>
#include <ucontext.h>

/* Whether these bytes are on the stack of a call that has returned. It runs twice: the first call
 * finds functions for the linker, whose work takes stack too. */
static inline int is_left_by(void (*call)(void), const unsigned char *bytes, size_t count) {
    enum { STACK = 1024 * 1024 };
    static ucontext_t back, there;
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    for (int again = 0; again < 2; again++) {
        memset(stack, 0, STACK);
        CHECK(getcontext(&there) == 0);
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = STACK;
        there.uc_link = &back;
        makecontext(&there, call, 0);
        CHECK(swapcontext(&back, &there) == 0);
    }
    int is_left = memmem(stack, STACK, bytes, count) != NULL;
    munmap(stack, STACK);
    return is_left;
}
