/* A library that keeps account of the memory of the program it is preloaded into: of the blocks
 * that code inside `lockstep.so` asked malloc and its kin for, and of the mappings that it asked
 * for. They are ours until they are freed, by whomever. What libc and libcrypto allocate on our
 * behalf counts among all blocks only.
 *
 * Each process has a file in the directory LEDGER, named by its number: the words of
 * `struct account`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's own, by the names that nobody interposes. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

#define CALLER __builtin_return_address(0)

struct sum {
    int64_t count, bytes;
};

struct account {
    struct sum blocks; /* of our code, from malloc */
    struct sum maps;   /* of our code, from mmap */
    int64_t all;       /* blocks of all code, from malloc */
};

/* A page of its own: the file is mapped over it. */
static union {
    struct account now;
    char page[4096];
} ledger __attribute__((aligned(4096)));

/* What is ours: open addressing, by address. */
enum { SLOTS = 1 << 18 };
static struct entry {
    void *start;
    size_t bytes;
} entries[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Where `lockstep.so` lies; it is never unloaded. */
static uintptr_t module_start, module_end;

static size_t home_of(const void *start) {
    return ((uintptr_t)start >> 4) * 0x9E3779B97F4A7C15u >> 46;
}

/* Where an address is, or would go. */
static size_t slot_of(const void *start) {
    size_t slot = home_of(start);
    while (entries[slot].start && entries[slot].start != start)
        slot = (slot + 1) % SLOTS;
    return slot;
}

static void empty(size_t slot) {
    /* What was pushed away by a neighbour moves back. */
    for (size_t next = (slot + 1) % SLOTS; entries[next].start; next = (next + 1) % SLOTS) {
        size_t distance = (next - home_of(entries[next].start)) % SLOTS;
        if (distance >= (next - slot) % SLOTS) {
            entries[slot] = entries[next];
            slot = next;
        }
    }
    entries[slot] = (struct entry){0};
}

/* Whether code at this address is ours. */
static int is_ours(void *caller) {
    uintptr_t end = __atomic_load_n(&module_end, __ATOMIC_ACQUIRE);
    if (end)
        return (uintptr_t)caller - module_start < end - module_start;
    struct dl_find_object found;
    if (_dl_find_object(caller, &found) != 0)
        return 0;
    const char *name = strrchr(found.dlfo_link_map->l_name, '/');
    if (!name || strcmp(name, "/lockstep.so") != 0)
        return 0;
    module_start = (uintptr_t)found.dlfo_map_start;
    __atomic_store_n(&module_end, (uintptr_t)found.dlfo_map_end, __ATOMIC_RELEASE);
    return 1;
}

static void add(struct sum *sum, void *start, size_t bytes) {
    pthread_mutex_lock(&lock);
    size_t slot = slot_of(start);
    /* An address in use twice, or hardly a free slot: no count would mean anything. */
    if (entries[slot].start || sum->count == SLOTS / 4)
        abort();
    entries[slot] = (struct entry){start, bytes};
    sum->count++;
    sum->bytes += bytes;
    pthread_mutex_unlock(&lock);
}

/* Whether it was ours until now; then its bytes are known. */
static int take_off(struct sum *sum, void *start, size_t *bytes) {
    pthread_mutex_lock(&lock);
    size_t slot = slot_of(start);
    int known = entries[slot].start != NULL;
    if (known) {
        *bytes = entries[slot].bytes;
        sum->count--;
        sum->bytes -= *bytes;
        empty(slot);
    }
    pthread_mutex_unlock(&lock);
    return known;
}

static void *allocated(void *block, size_t bytes, int ours) {
    if (block) {
        __atomic_fetch_add(&ledger.now.all, 1, __ATOMIC_RELAXED);
        if (ours)
            add(&ledger.now.blocks, block, bytes);
    }
    return block;
}

/* Before the block is given back: afterwards another thread may have it. */
static int released(void *block, size_t *bytes) {
    if (!block)
        return 0;
    __atomic_fetch_sub(&ledger.now.all, 1, __ATOMIC_RELAXED);
    return take_off(&ledger.now.blocks, block, bytes);
}

void *malloc(size_t bytes) {
    return allocated(__libc_malloc(bytes), bytes, is_ours(CALLER));
}

void *calloc(size_t count, size_t bytes) {
    return allocated(__libc_calloc(count, bytes), count * bytes, is_ours(CALLER));
}

void *realloc(void *block, size_t bytes) {
    int ours = is_ours(CALLER);
    size_t before = 0;
    int was_ours = released(block, &before);
    void *moved = __libc_realloc(block, bytes);
    if (!moved && block && bytes)
        allocated(block, before, was_ours);
    return allocated(moved, bytes, ours || was_ours);
}

void free(void *block) {
    size_t bytes;
    released(block, &bytes);
    __libc_free(block);
}

void *memalign(size_t alignment, size_t bytes) {
    return allocated(__libc_memalign(alignment, bytes), bytes, is_ours(CALLER));
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return allocated(__libc_memalign(alignment, bytes), bytes, is_ours(CALLER));
}

int posix_memalign(void **block, size_t alignment, size_t bytes) {
    if (alignment % sizeof(void *) || !alignment || alignment & (alignment - 1))
        return EINVAL;
    void *made = allocated(__libc_memalign(alignment, bytes), bytes, is_ours(CALLER));
    if (!made)
        return ENOMEM;
    *block = made;
    return 0;
}

void *mmap(void *start, size_t bytes, int access, int kind, int file, off_t offset) {
    void *made = (void *)syscall(SYS_mmap, start, bytes, access, kind, file, offset);
    if (made != MAP_FAILED && is_ours(CALLER))
        add(&ledger.now.maps, made, bytes);
    return made;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int munmap(void *start, size_t bytes) {
    size_t mapped;
    take_off(&ledger.now.maps, start, &mapped);
    return syscall(SYS_munmap, start, bytes);
}

static char directory[256];

/* What the account was when the process forked. */
static struct account forked;

/* Maps this process's file over the account, and goes on from there. */
static void publish(struct account now) {
    char name[sizeof directory + 16];
    snprintf(name, sizeof name, "%s/%d", directory, getpid());
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || ftruncate(file, sizeof ledger) != 0)
        abort();
    if (syscall(SYS_mmap, &ledger, sizeof ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == -1)
        abort();
    close(file);
    ledger.now = now;
}

static void before_fork(void) {
    pthread_mutex_lock(&lock);
    forked = ledger.now;
}

static void after_fork(void) {
    pthread_mutex_unlock(&lock);
}

static void in_child(void) {
    publish(forked);
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("LEDGER");
    if (!given || strlen(given) >= sizeof directory)
        abort();
    strcpy(directory, given);
    publish(ledger.now);
    pthread_atfork(before_fork, after_fork, in_child);
}
