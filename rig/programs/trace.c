/* One operation of libcrypto between two marks, for lockstep-trace.
 *
 * Usage: trace OPERATION [ARGUMENT]. The standard input is the length of the secret (8 bytes,
 * native), then the secret; the result goes to the standard output. Each operation is made once
 * with other inputs before the mark, so that what is set up only once is outside. `make …`
 * operations print key material for later runs.
 *
 * Between the marks none of the program's own instructions run in place. lockstep-trace translates
 * them block by block into the cache below, where each block first writes down where it is, and
 * each instruction the addresses of its data; dispatch() finds the block that comes next, or asks
 * for it. System calls that would answer differently each time are answered here. Before the mark
 * that is done by lockstep-trace, by ptrace. */
#define _GNU_SOURCE
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/param_build.h>
#include <openssl/prov_ssl.h>
#include <openssl/rsa.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) ((x) ? (void)0 : failed(#x, __LINE__))

static void failed(const char *what, int line) {
    fprintf(stderr, "trace.c:%d: %s\n", line, what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

/* ---- stepping ---- */

/* Fixed places, which rig/src/translate.rs knows as well. The cache is near enough to libraries for
 * relative addresses, and the program is loaded like one. */
#define CACHE ((void *)0x7fffe0000000)
#define CACHE_SIZE 0x4000000ul
#define TABLE ((struct entry *)0x100000000000)
#define TABLE_SIZE 0x1001000ul
#define LOG ((uint64_t *)0x110000000000)
#define LOG_SIZE 0x1000000ul
#define LOG_SLACK 0x10000ul

/* Where a block is, and where its translation is. */
struct entry {
    uint64_t original, translated;
};

/* What translated code uses, at the base of gs; the comments are the offsets. */
struct state {
    uint64_t rax, rcx;     /* 0, 8: saved by translated code */
    uint64_t *log;         /* 16 */
    uint64_t next;         /* 24: the block that comes next */
    uint64_t stack;        /* 32: the program's */
    void *own_stack;       /* 40 */
    uint64_t translated;   /* 48 */
    uint64_t *limit;       /* 56 */
    void *finish;          /* 64: where stepping ends */
    void *dispatch;        /* 72 */
    void *answer_syscall;  /* 80 */
    void *answer_rdtsc;    /* 88 */
};

static struct state state;
static unsigned char own_stack[1 << 16] __attribute__((aligned(64)));
static uint64_t randomness, now = 1900000000000000000;

/* All general registers, as the code below pushes them. */
struct registers {
    uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax, flags;
};

#define NO_VECTORS __attribute__((target("general-regs-only"), used))

/* Without errno, which lies in thread-local storage that the program looks at. */
NO_VECTORS static long call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

NO_VECTORS static void stop(const char *why, long length) {
    call(SYS_write, 2, (long)why, length, 0, 0, 0);
    call(SYS_exit_group, 3, 0, 0, 0, 0, 0);
}
#define STOP(why) stop(why "\n", sizeof why)

/* Sends a message to lockstep-trace, and waits until it is answered. */
NO_VECTORS static void report(uint64_t kind, uint64_t value) {
    uint64_t message[2] = {kind, value};
    unsigned char answer;
    if (call(SYS_write, 1, (long)message, sizeof message, 0, 0, 0) != sizeof message ||
        call(SYS_read, 0, (long)&answer, 1, 0, 0, 0) != 1)
        STOP("nobody reads the trace");
}

NO_VECTORS static void hand_over(uint64_t kind) {
    report(kind, state.log - LOG);
    state.log = LOG;
}

/* Called when the next block is not in the table, or the log is full. */
NO_VECTORS static void resolve(void) {
    if (state.log > state.limit)
        hand_over('S');
    else
        report('T', state.next);
}

NO_VECTORS static uint64_t random_word(void) {
    uint64_t z = randomness += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

NO_VECTORS static void answer_syscall(struct registers *r) {
    long number = r->rax, a = r->rdi, b = r->rsi;
    r->rcx = state.next;
    switch (number) {
    case SYS_getrandom:
        for (long i = 0; i < b; i += 8) {
            uint64_t word = random_word();
            for (long j = i; j < b && j < i + 8; j++)
                ((volatile unsigned char *)a)[j] = (unsigned char)(word >> 8 * (j - i));
        }
        r->rax = b;
        return;
    case SYS_clock_gettime:
        now += 1000;
        ((struct timespec *)b)->tv_sec = now / 1000000000;
        ((struct timespec *)b)->tv_nsec = now % 1000000000;
        r->rax = 0;
        return;
    case SYS_getpid:
    case SYS_gettid:
    case SYS_getppid:
        r->rax = 4242;
        return;
    case SYS_clone:
    case SYS_clone3:
    case SYS_fork:
    case SYS_vfork:
    case SYS_execve:
        STOP("the program starts a thread or a process between the marks");
    }
    r->rax = call(number, a, b, r->rdx, r->r10, r->r8, r->r9);
}

NO_VECTORS static void answer_rdtsc(struct registers *r) {
    now += 1000;
    r->rax = now & 0xffffffff;
    r->rdx = now >> 32;
}

#define PUSH_ALL                                                                                   \
    "pushfq\n push %rax\n push %rcx\n push %rdx\n push %rbx\n push %rbp\n push %rsi\n push %rdi\n"   \
    "push %r8\n push %r9\n push %r10\n push %r11\n push %r12\n push %r13\n push %r14\n push %r15\n"
#define POP_ALL                                                                                    \
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %r11\n pop %r10\n pop %r9\n pop %r8\n"         \
    "pop %rdi\n pop %rsi\n pop %rbp\n pop %rbx\n pop %rdx\n pop %rcx\n pop %rax\n popfq\n"
#define OWN_STACK "mov %rsp, %gs:32\n mov %gs:40, %rsp\n"

void dispatch(void), dispatch_syscall(void), dispatch_rdtsc(void), begin_translated(void);

/* The block that comes next, by a table of 2^20 entries, in the first that is its or free. */
__asm__(".text\n"
        "dispatch:\n" OWN_STACK
        "pushfq\n push %rax\n push %rdx\n"
        "1: mov %gs:24, %rax\n"
        "cmp %gs:64, %rax\n je 3f\n"
        "mov %gs:16, %rdx\n cmp %gs:56, %rdx\n ja 2f\n"
        "mov %eax, %edx\n and $0xfffff, %edx\n shl $4, %rdx\n"
        "movabs $0x100000000000, %rax\n add %rax, %rdx\n mov %gs:24, %rax\n"
        "4: cmp (%rdx), %rax\n je 5f\n cmpq $0, (%rdx)\n je 2f\n add $16, %rdx\n jmp 4b\n"
        "5: mov 8(%rdx), %rax\n"
        "3: mov %rax, %gs:48\n"
        "pop %rdx\n pop %rax\n popfq\n mov %gs:32, %rsp\n"
        "jmp *%gs:48\n"
        "2:" PUSH_ALL "lea -8(%rsp), %rsp\n call resolve\n lea 8(%rsp), %rsp\n" POP_ALL "jmp 1b\n"
        "dispatch_syscall:\n" OWN_STACK PUSH_ALL
        "mov %rsp, %rdi\n call answer_syscall\n" POP_ALL "mov %gs:32, %rsp\n jmp dispatch\n"
        "dispatch_rdtsc:\n" OWN_STACK PUSH_ALL
        "mov %rsp, %rdi\n call answer_rdtsc\n" POP_ALL "mov %gs:32, %rsp\n jmp dispatch\n"
        /* Goes on, translated, where it was called. */
        "begin_translated:\n"
        "pop %gs:24\n jmp dispatch\n");

static void *map(void *place, size_t size, int protection, int flags, int file) {
    void *at = mmap(place, size, protection, flags | MAP_FIXED_NOREPLACE, file, 0);
    if (at != place)
        STOP("cannot map the places of the trace");
    return at;
}

/* Stepping ends at its first instruction. */
static void __attribute__((noinline)) finish(void) {
    __asm__ volatile("");
    hand_over('E');
}

/* Before anything else, so that it is in the same place in each run. */
static void prepare_trace(void) {
    const char *path = getenv("TRACE_LOG");
    if (!path)
        return;
    int file = open(path, O_RDWR);
    if (file < 0)
        STOP("cannot open TRACE_LOG");
    map(LOG, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file);
    map(TABLE, TABLE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    map(CACHE, CACHE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    close(file);
    state.log = LOG;
    state.limit = LOG + (LOG_SIZE - LOG_SLACK) / sizeof *LOG;
    state.own_stack = own_stack + sizeof own_stack;
    state.finish = finish;
    state.dispatch = dispatch;
    state.answer_syscall = dispatch_syscall;
    state.answer_rdtsc = dispatch_rdtsc;
    if (syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, &state) != 0)
        STOP("cannot set gs");
}

static void begin(void) {
    randomness = syscall(SYS_getppid, 0x6c6f636bL, 1L);
    if (state.log)
        begin_translated();
}

static void end(void) {
    if (state.log)
        finish();
}

/* ---- the memory of libcrypto ---- */

/* Each line of libcrypto that allocates has memory of its own for each size, and it is never given
 * back. So the numbers that grow while OpenSSL prepares a public modulus do not move what is
 * allocated after them. */
#define HEAP ((char *)0x120000000000)
#define PLACES 4096ul
#define PLACE_SIZE 0x1000000ul

struct block {
    size_t size, unused;
    unsigned char bytes[];
};

static size_t used[PLACES];

static void *allocate(size_t size, const char *file, int line) {
    (void)file;
    if (size == 0)
        return NULL;
    size_t rounded = (size + sizeof(struct block) + 15) / 16 * 16;
    size_t place = (line * 97ul + rounded / 16) % PLACES;
    if (rounded > PLACE_SIZE - used[place])
        STOP("a place of libcrypto's memory is full");
    struct block *block = (struct block *)(HEAP + place * PLACE_SIZE + used[place]);
    used[place] += rounded;
    block->size = size;
    return block->bytes;
}

static void *reallocate(void *old, size_t size, const char *file, int line) {
    unsigned char *bytes = allocate(size, file, line);
    if (old && bytes) {
        size_t before = ((struct block *)old)[-1].size;
        memcpy(bytes, old, before < size ? before : size);
    }
    return bytes;
}

static void keep(void *bytes, const char *file, int line) { (void)bytes, (void)file, (void)line; }

/* Before libcrypto allocates. */
static void separate_memory(void) {
    map(HEAP, PLACES * PLACE_SIZE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    CHECK(CRYPTO_set_mem_functions(allocate, reallocate, keep) == 1);
}

/* ---- operations ---- */

static unsigned char input[16384], output[16384];
static size_t given, length;

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static void read_exactly(void *to, size_t count) {
    for (size_t n = 0; n < count;) {
        ssize_t got = read(0, (char *)to + n, count - n);
        CHECK(got > 0);
        n += got;
    }
}

static void read_input(void) {
    read_exactly(&given, sizeof given);
    CHECK(given <= sizeof input);
    read_exactly(input, given);
}

static void print(const unsigned char *bytes, size_t count) {
    CHECK(fwrite(bytes, 1, count, stdout) == count);
}

/* ---- keys: fixed-size big-endian numbers ---- */

enum { PARTS = 8 };
static const char *const names[PARTS] = {
    OSSL_PKEY_PARAM_RSA_N, OSSL_PKEY_PARAM_RSA_D, OSSL_PKEY_PARAM_RSA_FACTOR1,
    OSSL_PKEY_PARAM_RSA_FACTOR2, OSSL_PKEY_PARAM_RSA_EXPONENT1, OSSL_PKEY_PARAM_RSA_EXPONENT2,
    OSSL_PKEY_PARAM_RSA_COEFFICIENT1, OSSL_PKEY_PARAM_RSA_E};

static size_t part_size(int part, size_t size) {
    return part < 2 ? size : part < 7 ? size / 2 : 3;
}

static EVP_PKEY *imported(const char *type, int selection, OSSL_PARAM *params) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *key = NULL;
    CHECK(EVP_PKEY_fromdata_init(ctx) == 1);
    CHECK(EVP_PKEY_fromdata(ctx, &key, selection, params) == 1);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

/* The key of what was pushed; frees `build`. */
static EVP_PKEY *built_key(const char *type, OSSL_PARAM_BLD *build) {
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY *key = imported(type, EVP_PKEY_KEYPAIR, params);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(build);
    return key;
}

/* The parts of an RSA key of `size` bytes one after the other: 4.5 times its size and 3 bytes. */
static EVP_PKEY *rsa_key(const unsigned char *from, size_t size) {
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    BIGNUM *numbers[PARTS];
    for (int i = 0; i < PARTS; i++) {
        numbers[i] = BN_secure_new();
        CHECK(BN_bin2bn(from, part_size(i, size), numbers[i]));
        CHECK(OSSL_PARAM_BLD_push_BN(build, names[i], numbers[i]));
        from += part_size(i, size);
    }
    EVP_PKEY *key = built_key("RSA", build);
    for (int i = 0; i < PARTS; i++)
        BN_clear_free(numbers[i]);
    return key;
}

static size_t rsa_key_size(size_t size) { return 4 * size + size / 2 + 3; }

/* Prints a key whose parts all have their full length in bytes: lengths are public. */
static void make_rsa(int bits) {
    for (;;) {
        EVP_PKEY *key = EVP_RSA_gen(bits);
        unsigned char parts[8192], *p = parts;
        int full = 1;
        CHECK(key);
        for (int i = 0; i < PARTS; i++) {
            BIGNUM *number = NULL;
            size_t size = part_size(i, bits / 8);
            CHECK(EVP_PKEY_get_bn_param(key, names[i], &number) == 1);
            full &= (size_t)BN_num_bytes(number) == size;
            if (full)
                CHECK(BN_bn2binpad(number, p, size) == (int)size);
            p += size;
            BN_clear_free(number);
        }
        EVP_PKEY_free(key);
        if (full) {
            print(parts, p - parts);
            return;
        }
    }
}

static size_t ec_size(const char *curve) { return is(curve, "P-256") ? 32 : 48; }

/* Private number, then the public point, uncompressed. */
static EVP_PKEY *ec_key(const char *curve, const unsigned char *from) {
    size_t size = ec_size(curve);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    BIGNUM *number = BN_secure_new();
    /* As libcrypto keeps it: with room for the order, whatever the number. */
    BN_set_flags(number, BN_FLG_CONSTTIME);
    CHECK(BN_bin2bn(from, size, number));
    CHECK(OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, curve, 0));
    CHECK(OSSL_PARAM_BLD_push_BN_pad(build, OSSL_PKEY_PARAM_PRIV_KEY, number, size));
    CHECK(OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, from + size, 2 * size + 1));
    EVP_PKEY *key = built_key("EC", build);
    BN_clear_free(number);
    return key;
}

static EVP_PKEY *ec_peer(const char *curve, const unsigned char *point) {
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)curve, 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, (void *)point, 2 * ec_size(curve) + 1),
        OSSL_PARAM_construct_end()};
    return imported("EC", EVP_PKEY_PUBLIC_KEY, params);
}

static void make_ec(const char *curve) {
    size_t size = ec_size(curve);
    unsigned char bytes[256];
    BIGNUM *number = NULL;
    EVP_PKEY *key = NULL;
    for (;;) {
        key = EVP_EC_gen(curve);
        CHECK(key && EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1);
        if ((size_t)BN_num_bytes(number) == size)
            break;
    }
    CHECK(BN_bn2binpad(number, bytes, size) == (int)size);
    CHECK(EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, bytes + size, 2 * size + 1,
                                          &length) == 1);
    print(bytes, 3 * size + 1);
}

/* RSA keys that are fixed come as the argument's file; it holds two, and the first warms up. */
static unsigned char file[16384];

static size_t read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    CHECK(f);
    size_t n = fread(file, 1, sizeof file, f);
    fclose(f);
    return n;
}

static int padding_of(const char *name) {
    return is(name, "none") ? RSA_NO_PADDING
           : is(name, "oaep") ? RSA_PKCS1_OAEP_PADDING
           : is(name, "tls") ? RSA_PKCS1_WITH_TLS_PADDING
                             : RSA_PKCS1_PADDING;
}

static EVP_PKEY_CTX *decryption(EVP_PKEY *key, int padding) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_decrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, padding) == 1);
    if (padding == RSA_PKCS1_WITH_TLS_PADDING) {
        unsigned version = 0x0303;
        OSSL_PARAM params[] = {
            OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION, &version),
            OSSL_PARAM_construct_end()};
        CHECK(EVP_PKEY_CTX_set_params(ctx, params) == 1);
    }
    return ctx;
}

/* Decrypts the input. The file holds the key, and after it a ciphertext to warm up with. */
static void rsa_decrypt(const char *padding, const char *path) {
    size_t size = given;
    CHECK(read_file(path) >= rsa_key_size(size) + size);
    EVP_PKEY *key = rsa_key(file, size);
    EVP_PKEY_CTX *ctx = decryption(key, padding_of(padding));
    length = sizeof output;
    EVP_PKEY_decrypt(ctx, output, &length, file + rsa_key_size(size), size);
    ERR_clear_error();
    memset(output, 0, sizeof output);
    length = sizeof output;
    begin();
    int done = EVP_PKEY_decrypt(ctx, output, &length, input, size);
    end();
    printf("%d ", done > 0);
    if (done > 0)
        print(output, length);
}

/* Encrypts the input as a whole block: the ciphertext for a decryption. */
static void rsa_encrypt(const char *path) {
    size_t size = given;
    read_file(path);
    EVP_PKEY *key = rsa_key(file, size);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    length = sizeof output;
    CHECK(ctx && EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_NO_PADDING) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, output, &length, input, size) == 1 && length == size);
    print(output, length);
}

static const unsigned char message[] = "a message of which nothing is secret";

static void sign_as(EVP_PKEY *key, const char *digest, const OSSL_PARAM *params) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    length = sizeof output;
    CHECK(EVP_DigestSignInit_ex(ctx, NULL, digest, NULL, NULL, key, params) == 1);
    CHECK(EVP_DigestSign(ctx, output, &length, message, sizeof message) == 1);
    EVP_MD_CTX_free(ctx);
}

static void sign(EVP_PKEY *key, const char *digest) { sign_as(key, digest, NULL); }

static void agree(EVP_PKEY *key, EVP_PKEY *peer) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    length = sizeof output;
    CHECK(ctx && EVP_PKEY_derive_init(ctx) == 1);
    CHECK(EVP_PKEY_derive_set_peer_ex(ctx, peer, 0) == 1);
    CHECK(EVP_PKEY_derive(ctx, output, &length) == 1);
    EVP_PKEY_CTX_free(ctx);
}

/* Signs with the input's key. `first`: its first use, in which it is exported, imported and
 * prepared, is between the marks; else that use comes before. */
static void sign_with(EVP_PKEY *key, EVP_PKEY *other, const char *digest, int first) {
    sign(other, digest);
    if (!first)
        sign(key, digest);
    begin();
    sign(key, digest);
    end();
    print(output, length);
}

static void agree_with(EVP_PKEY *key, EVP_PKEY *other, EVP_PKEY *peer, int first) {
    agree(other, peer);
    if (!first)
        agree(key, peer);
    begin();
    agree(key, peer);
    end();
    print(output, length);
}

static void generate(const char *algorithm, const char *curve) {
    EVP_PKEY *first = EVP_PKEY_Q_keygen(NULL, NULL, algorithm, curve), *key;
    CHECK(first);
    begin();
    key = EVP_PKEY_Q_keygen(NULL, NULL, algorithm, curve);
    end();
    CHECK(key);
}

/* Prints the private key of a new key pair. */
static void make_kem(const char *algorithm) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, algorithm, NULL);
    EVP_PKEY *key = NULL;
    size_t size;
    CHECK(ctx && EVP_PKEY_keygen_init(ctx) == 1 && EVP_PKEY_generate(ctx, &key) == 1);
    EVP_PKEY_CTX_free(ctx);
    begin();
    end();
    CHECK(EVP_PKEY_get_octet_string_param(key, "priv", output, sizeof output, &size) == 1);
    print(output, size);
}

static unsigned char ciphertext[2048];
static size_t ciphertext_length;

static void seal(EVP_PKEY *key) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    ciphertext_length = sizeof ciphertext;
    length = sizeof output;
    CHECK(ctx && EVP_PKEY_encapsulate_init(ctx, NULL) == 1);
    CHECK(EVP_PKEY_encapsulate(ctx, ciphertext, &ciphertext_length, output, &length) == 1);
    EVP_PKEY_CTX_free(ctx);
}

static void unseal(EVP_PKEY *key) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    length = sizeof output;
    CHECK(ctx && EVP_PKEY_decapsulate_init(ctx, NULL) == 1);
    CHECK(EVP_PKEY_decapsulate(ctx, output, &length, ciphertext, ciphertext_length) == 1);
    EVP_PKEY_CTX_free(ctx);
}

/* Imports a private key and has libcrypto check it: it does not belong to its public key. */
static void refuse(const char *algorithm, OSSL_PARAM *params) {
    EVP_PKEY *key = imported(algorithm, EVP_PKEY_KEYPAIR, params);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_pairwise_check(ctx) != 1);
    EVP_PKEY_CTX_free(ctx);
    ERR_clear_error();
}

/* The input is a private key, and a byte: if its second bit is set, a bit of ML-KEM's ciphertext is
 * changed. `first`: the key is imported between the marks, and one like it is refused, else it has
 * been used before. */
static void encapsulate(const char *algorithm, int opens, int first) {
    /* Bytes of a scalar and of a point that are ahead of ML-KEM's. */
    int scalar = strstr(algorithm, "P256") ? 32 : strstr(algorithm, "P384") ? 48 : 0;
    int at = scalar ? 2 * scalar + 1 : 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("priv", input, given - 1),
                           OSSL_PARAM_construct_end()};
    EVP_PKEY *key = imported(algorithm, EVP_PKEY_KEYPAIR, params);
    seal(key);
    unseal(key);
    seal(key);
    /* With two coefficients of zero. */
    unsigned char *other = malloc(given);
    CHECK(other);
    memcpy(other, input, given);
    memset(other + scalar, 0, 3);
    OSSL_PARAM of_other[] = {OSSL_PARAM_construct_octet_string("priv", other, given - 1),
                             OSSL_PARAM_construct_end()};
    refuse(algorithm, of_other);
    if (input[given - 1] & 2)
        ciphertext[at + 2 * input[given - 1]] ^= 4;
    begin();
    if (first) {
        key = imported(algorithm, EVP_PKEY_KEYPAIR, params);
        refuse(algorithm, of_other);
    }
    if (opens)
        unseal(key);
    else
        seal(key);
    end();
    print(output, length);
}

/* Makes a key of ML-KEM of a seed: 64 bytes. */
static EVP_PKEY *sown(const char *algorithm, OSSL_PARAM *params) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, algorithm, NULL);
    EVP_PKEY *key = NULL;
    CHECK(ctx && EVP_PKEY_keygen_init(ctx) == 1 && EVP_PKEY_CTX_set_params(ctx, params) == 1);
    CHECK(EVP_PKEY_generate(ctx, &key) == 1);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

/* A key that has no material yet gets the public key of another. */
static void put_share(const char *algorithm, EVP_PKEY *from) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, algorithm, NULL);
    EVP_PKEY *peer = NULL;
    unsigned char *share;
    size_t size = EVP_PKEY_get1_encoded_public_key(from, &share);
    CHECK(size && ctx && EVP_PKEY_paramgen_init(ctx) == 1 && EVP_PKEY_paramgen(ctx, &peer) == 1);
    CHECK(EVP_PKEY_set1_encoded_public_key(peer, share, size) == 1);
    OPENSSL_free(share);
    EVP_PKEY_free(peer);
    EVP_PKEY_CTX_free(ctx);
}

/* Makes a context for an encapsulation with coins: 32 bytes. */
static void put_coins(EVP_PKEY *key, unsigned char *coins) {
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("ikme", coins, 32),
                           OSSL_PARAM_construct_end()};
    CHECK(ctx && EVP_PKEY_encapsulate_init(ctx, NULL) == 1);
    CHECK(EVP_PKEY_CTX_set_params(ctx, params) == 1);
    EVP_PKEY_CTX_free(ctx);
}

/* What programs do with a private key besides its use. */
static void keep_key(const char *algorithm, OSSL_PARAM *params) {
    EVP_PKEY *key = imported(algorithm, EVP_PKEY_KEYPAIR, params), *copy = EVP_PKEY_dup(key);
    OSSL_PARAM *parts;
    CHECK(copy && EVP_PKEY_eq(key, copy) == 1);
    CHECK(EVP_PKEY_todata(copy, EVP_PKEY_KEYPAIR, &parts) == 1);
    CHECK(EVP_PKEY_get_octet_string_param(key, "priv", output, sizeof output, &length) == 1);
    put_share(algorithm, key);
    OSSL_PARAM_free(parts);
    EVP_PKEY_free(copy);
    EVP_PKEY_free(key);
}

/* The input is as for `encapsulate`. Of a seed the second half is secret here: the public key
 * follows from the first, and is sampled in a time that depends on it. */
static void keep_keys(const char *algorithm) {
    static unsigned char seed[64] = {7};
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("priv", input, given - 1),
                           OSSL_PARAM_construct_end()};
    OSSL_PARAM of_seed[] = {OSSL_PARAM_construct_octet_string("seed", seed, sizeof seed),
                            OSSL_PARAM_construct_end()};
    for (int i = 0; i < 2; i++) {
        if (i == 1) {
            memcpy(seed + 32, input + given - 33, 32);
            begin();
        }
        keep_key(algorithm, params);
        if (strncmp(algorithm, "ML-KEM", 6) == 0) {
            EVP_PKEY *key = sown(algorithm, of_seed);
            keep_key(algorithm, of_seed);
            put_coins(key, seed + 32);
            EVP_PKEY_free(key);
        }
    }
    end();
    print(output, length);
}

/* As libssl does it: a context for each derivation. */
static void derive_once(EVP_KDF *kdf, const char *what, unsigned char *secret) {
    int extract = strncmp(what, "extract", 7) == 0, is_long = strstr(what, "384") != NULL;
    int mode = extract ? EVP_KDF_HKDF_MODE_EXTRACT_ONLY : EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    int traffic = strncmp(what, "traffic", 7) == 0, size = is_long ? 48 : 32;
    EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
    OSSL_PARAM params[8], *p = params;
    *p++ = OSSL_PARAM_construct_int("mode", &mode);
    *p++ = OSSL_PARAM_construct_utf8_string("digest", is_long ? "SHA2-384" : "SHA256", 0);
    *p++ = OSSL_PARAM_construct_octet_string("key", secret, size);
    *p++ = OSSL_PARAM_construct_octet_string("prefix", "tls13 ", 6);
    *p++ = OSSL_PARAM_construct_octet_string("label", "key", 3);
    if (extract)
        *p++ = OSSL_PARAM_construct_octet_string("salt", secret + size, size);
    else if (!traffic)
        *p++ = OSSL_PARAM_construct_octet_string("data", file, size);
    *p = OSSL_PARAM_construct_end();
    length = extract ? size : 32;
    CHECK(ctx && EVP_KDF_derive(ctx, output, length, params) == 1);
    /* Again, by libcrypto's own function, which gets all from the module. */
    if (strstr(what, "again")) {
        CHECK(EVP_KDF_CTX_set_params(ctx, params) == 1);
        CHECK(EVP_KDF_derive(ctx, output, length, NULL) == 1);
        EVP_KDF_CTX_reset(ctx);
    }
    EVP_KDF_CTX_free(ctx);
}

static void derive(const char *what) {
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
    CHECK(kdf);
    derive_once(kdf, what, file);
    begin();
    derive_once(kdf, what, input);
    end();
    print(output, length);
}

/* A message with 13 bytes of additional data, in two pieces. A copy of the context goes on. */
static void encipher_once(const EVP_CIPHER *cipher, const unsigned char *key, const unsigned char *from,
                          int size, int encrypts) {
    static unsigned char tag[16];
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int written;
    CHECK(ctx && EVP_CipherInit_ex2(ctx, cipher, key, file, encrypts, NULL) == 1);
    CHECK(encrypts || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) == 1);
    CHECK(EVP_CipherUpdate(ctx, NULL, &written, file, 13) == 1);
    EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
    CHECK(copy && EVP_CIPHER_CTX_copy(copy, ctx) == 1);
    EVP_CIPHER_CTX_free(ctx);
    ctx = copy;
    CHECK(EVP_CipherUpdate(ctx, output, &written, from, 37) == 1);
    CHECK(EVP_Cipher(ctx, output + 37, from + 37, size - 37) >= 0);
    CHECK(EVP_CipherFinal_ex(ctx, output + size, &written) == 1);
    CHECK(!encrypts || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, sizeof tag, tag) == 1);
    EVP_CIPHER_CTX_free(ctx);
}

/* The input is a key of 32 bytes, and the plaintext. */
static void encipher(const char *algorithm, int encrypts) {
    static unsigned char made[sizeof output];
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, algorithm, NULL);
    int size = (int)given - 32;
    CHECK(cipher && size > 37 && size < (int)sizeof output);
    const unsigned char *from = input + 32;
    encipher_once(cipher, input, from, size, 1);
    if (!encrypts) {
        memcpy(made, output, size);
        from = made;
    }
    begin();
    encipher_once(cipher, input, from, size, encrypts);
    end();
    CHECK(encrypts || memcmp(output, input + 32, size) == 0);
    print(output, size);
}

/* ---- ML-DSA (FIPS 204) ---- */

/* Keys whose matrices are the same: a matrix is public, and sampled in a time that depends on it.
 * libcrypto makes no such keys, as matrix and secrets follow from one seed. */
enum { Q = 8380417, N = 256, MOST = 8 };

static struct {
    int k, l, eta, beta;
    /* Bits of a coefficient of a response, and bytes ahead of the responses. */
    int bits, challenge;
} set;

typedef int32_t polynomial[N];

static void choose_set(const char *algorithm) {
    set.k = algorithm[7] == '4' ? 4 : algorithm[7] == '6' ? 6 : 8;
    set.l = set.k == 4 ? 4 : set.k - 1;
    set.eta = set.k == 6 ? 4 : 2;
    set.beta = set.k == 4 ? 78 : set.k == 6 ? 196 : 120;
    set.bits = set.k == 4 ? 18 : 20;
    set.challenge = 8 * set.k;
}

static int small_bits(void) { return set.eta == 2 ? 3 : 4; }

static size_t ml_dsa_size(void) {
    return 128 + N / 8 * (small_bits() * (set.k + set.l) + 13 * set.k);
}

static void shake(const char *name, const void *a, size_t a_size, const void *b, size_t b_size,
                  unsigned char *to, size_t size) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_MD *md = EVP_MD_fetch(NULL, name, NULL);
    CHECK(ctx && md && EVP_DigestInit_ex(ctx, md, NULL) == 1);
    CHECK(EVP_DigestUpdate(ctx, a, a_size) == 1 && EVP_DigestUpdate(ctx, b, b_size) == 1);
    CHECK(EVP_DigestFinalXOF(ctx, to, size) == 1);
    EVP_MD_free(md);
    EVP_MD_CTX_free(ctx);
}

static void put(unsigned char **to, int bits, const polynomial from, int sign, int add) {
    memset(*to, 0, N / 8 * bits);
    for (int i = 0; i < N * bits; i++)
        (*to)[i / 8] |= ((add + sign * from[i / bits]) >> i % bits & 1) << i % 8;
    *to += N / 8 * bits;
}

static int32_t get(const unsigned char *from, int bits, int number) {
    int32_t value = 0;
    for (int i = number * bits; i < (number + 1) * bits; i++)
        value |= (from[i / 8] >> i % 8 & 1) << (i - number * bits);
    return value;
}

static int32_t times(int64_t a, int64_t b) { return (int32_t)(a * b % Q); }

static int32_t zeta(int number) {
    int32_t power = 1;
    for (int bit = 0, base = 1753; bit < 8; bit++, base = times(base, base))
        if (number >> (7 - bit) & 1)
            power = times(power, base);
    return power;
}

static void transform(polynomial w) {
    for (int half = N / 2, m = 0; half; half /= 2)
        for (int start = 0; start < N; start += 2 * half) {
            int32_t z = zeta(++m);
            for (int j = start; j < start + half; j++) {
                int32_t t = times(z, w[j + half]);
                w[j + half] = (w[j] + Q - t) % Q;
                w[j] = (w[j] + t) % Q;
            }
        }
}

static void transform_back(polynomial w) {
    for (int half = 1, m = N; half < N; half *= 2)
        for (int start = 0; start < N; start += 2 * half) {
            int32_t z = zeta(--m);
            for (int j = start; j < start + half; j++) {
                int32_t t = w[j];
                w[j] = (t + w[j + half]) % Q;
                w[j + half] = times(Q - z, (t + Q - w[j + half]) % Q);
            }
        }
    for (int j = 0; j < N; j++)
        w[j] = times(w[j], 8347681);
}

/* Adds the product with an element of the matrix. */
static void add_product(polynomial to, const polynomial with, int row, int column) {
    static unsigned char stream[4 * N];
    unsigned char seed[34] = {[32] = column, [33] = row};
    shake("SHAKE128", seed, sizeof seed, "", 0, stream, sizeof stream);
    for (int i = 0, at = 0; i < N; at += 3) {
        int32_t value = stream[at] | stream[at + 1] << 8 | (stream[at + 2] & 0x7f) << 16;
        CHECK(at + 3 <= (int)sizeof stream);
        if (value < Q) {
            to[i] = (to[i] + times(value, with[i])) % Q;
            i++;
        }
    }
}

/* Writes the private key whose secrets follow from a seed of 32 bytes, and its matrix from zeros. */
static void make_private(const unsigned char *seed, unsigned char *to) {
    static unsigned char stream[6000], public[32 + MOST * N / 8 * 10];
    static polynomial small[2 * MOST], s1[MOST], t, high, low;
    unsigned char *p = to, *rest, *in_public = public + 32;
    shake("SHAKE256", seed, 32, "key", 3, stream, sizeof stream);
    int values = 2 * set.eta + 1, at = 32;
    for (int i = 0; i < N * (set.k + set.l); at++) {
        CHECK(at < (int)sizeof stream);
        if (stream[at] < 256 / values * values)
            small[i / N][i % N] = stream[at] % values - set.eta, i++;
    }
    memset(p, 0, 32);
    memcpy(p + 32, stream, 32);
    p += 128;
    for (int i = 0; i < set.k + set.l; i++)
        put(&p, small_bits(), small[i], -1, set.eta);
    rest = p;
    for (int i = 0; i < set.l; i++) {
        for (int j = 0; j < N; j++)
            s1[i][j] = (small[i][j] + Q) % Q;
        transform(s1[i]);
    }
    for (int i = 0; i < set.k; i++) {
        memset(t, 0, sizeof t);
        for (int j = 0; j < set.l; j++)
            add_product(t, s1[j], i, j);
        transform_back(t);
        for (int j = 0; j < N; j++) {
            t[j] = (t[j] + small[set.l + i][j] + Q) % Q;
            high[j] = (t[j] + 4095) >> 13;
            low[j] = t[j] - high[j] * 8192;
        }
        put(&in_public, 10, high, 1, 0);
        put(&rest, 13, low, -1, 4096);
    }
    shake("SHAKE256", public, in_public - public, "", 0, to + 64, 64);
}

/* The round that gave the signature: the first in whose mask the response lies. */
static int round_of(const unsigned char *private, const unsigned char *entropy) {
    static unsigned char mask[N / 8 * 20];
    unsigned char mu[64], seed[64], of_mu[66] = {0}, of_seed[64];
    memcpy(of_mu, private + 64, 64);
    shake("SHAKE256", of_mu, sizeof of_mu, message, sizeof message, mu, sizeof mu);
    memcpy(of_seed, private + 32, 32);
    memcpy(of_seed + 32, entropy, 32);
    shake("SHAKE256", of_seed, sizeof of_seed, mu, sizeof mu, seed, sizeof seed);
    for (int round = 0;; round++) {
        unsigned char counter[2] = {round * set.l & 255, round * set.l >> 8};
        shake("SHAKE256", seed, sizeof seed, counter, 2, mask, N / 8 * set.bits);
        int i = 0;
        while (i < N && abs(get(mask, set.bits, i) - get(output + set.challenge, set.bits, i)) <=
                            set.beta)
            i++;
        if (i == N)
            return round;
        CHECK(round < 1000);
    }
}

static EVP_PKEY *ml_dsa_key(const char *algorithm, unsigned char *private) {
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("priv", private, ml_dsa_size()),
                           OSSL_PARAM_construct_end()};
    return imported(algorithm, EVP_PKEY_KEYPAIR, params);
}

static void ml_dsa_sign(EVP_PKEY *key, unsigned char *entropy) {
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("test-entropy", entropy, 32),
                           OSSL_PARAM_construct_end()};
    sign_as(key, NULL, params);
}

/* Prints a private key of the input, and randomness for which its signature takes this round. */
static void make_ml_dsa(const char *algorithm, int round) {
    unsigned char private[8192], entropy[32];
    CHECK(given == 32);
    choose_set(algorithm);
    make_private(input, private);
    EVP_PKEY *key = ml_dsa_key(algorithm, private);
    uint32_t tries = 0;
    do {
        tries++;
        shake("SHAKE256", input, given, &tries, sizeof tries, entropy, sizeof entropy);
        ml_dsa_sign(key, entropy);
    } while (round_of(private, entropy) != round);
    print(private, ml_dsa_size());
    print(entropy, sizeof entropy);
}

/* The input holds two keys, each with randomness; the first warms up. `first`: the key is imported
 * and prepared between the marks. */
static void ml_dsa(const char *algorithm, int first) {
    choose_set(algorithm);
    size_t size = ml_dsa_size();
    unsigned char *private = input + size + 32;
    CHECK(given == 2 * (size + 32));
    ml_dsa_sign(ml_dsa_key(algorithm, input), input + size);
    EVP_PKEY *key = NULL;
    if (!first) {
        key = ml_dsa_key(algorithm, private);
        ml_dsa_sign(key, private + size);
    }
    begin();
    if (first)
        key = ml_dsa_key(algorithm, private);
    ml_dsa_sign(key, private + size);
    end();
    print(output, length);
}

/* ---- planted defects: lockstep-trace must find these ---- */

static unsigned char table[256 * 64];

static volatile unsigned char counted;

#define APART __attribute__((noinline, noclone))

/* Whether a round passes may show, but not how it was found. */
APART static int measure(int bit, int leaks) {
    if (leaks && bit)
        counted++;
    return bit;
}

APART static void other_call(void) { counted++; }

APART static void next_round(void) { counted++; }

APART static void rounds(int bit, const char *what) {
    if (measure(bit, is(what, "measure")))
        other_call();
    next_round();
    if (is(what, "late")) {
        /* Else the compiler may ask for the bit first. */
        __asm__ volatile("");
        if (bit)
            counted++;
    }
    next_round();
}

static void planted(const char *what) {
    volatile unsigned char sink = 0;
    int bit = input[0] & 1;
    begin();
    if (is(what, "branch")) {
        if (bit)
            sink++;
    } else if (is(what, "index")) {
        sink += ((volatile unsigned char *)table)[64 * input[0]];
    } else if (is(what, "round") || is(what, "measure") || is(what, "late")) {
        rounds(bit, what);
    } else {
        sink += (unsigned char)(bit * 3);
    }
    end();
    output[0] = sink;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *with = argc > 2 ? argv[2] : "";
    const char *path = argc > 3 ? argv[3] : "";
    int first = is(path, "first");
    prepare_trace();
    if (!is(what, "make-rsa") && !is(what, "make-ec") && !is(what, "make-mldsa"))
        separate_memory();
    read_input();
    if (is(what, "make-rsa"))
        make_rsa(atoi(with));
    else if (is(what, "make-ec"))
        make_ec(with);
    else if (is(what, "rsa-encrypt"))
        rsa_encrypt(with);
    else if (is(what, "rsa-decrypt"))
        rsa_decrypt(with, path);
    else if (is(what, "rsa-sign")) {
        /* The input holds two keys; the first warms up. */
        size_t size = atoi(with) / 8;
        CHECK(given == 2 * rsa_key_size(size));
        sign_with(rsa_key(input + rsa_key_size(size), size), rsa_key(input, size), "SHA256", first);
    } else if (is(what, "ecdsa")) {
        size_t one = 3 * ec_size(with) + 1;
        CHECK(given == 2 * one);
        sign_with(ec_key(with, input + one), ec_key(with, input), "SHA256", first);
    } else if (is(what, "ecdh")) {
        size_t one = 3 * ec_size(with) + 1;
        CHECK(given == 2 * one);
        agree_with(ec_key(with, input + one), ec_key(with, input), ec_peer(with, input + ec_size(with)),
                   first);
    } else if (is(what, "x25519") || is(what, "ed25519")) {
        int type = is(what, "x25519") ? EVP_PKEY_X25519 : EVP_PKEY_ED25519;
        CHECK(given == 64);
        EVP_PKEY *other = EVP_PKEY_new_raw_private_key(type, NULL, input, 32);
        EVP_PKEY *key = EVP_PKEY_new_raw_private_key(type, NULL, input + 32, 32);
        first = is(with, "first");
        if (type == EVP_PKEY_X25519)
            agree_with(key, other, other, first);
        else
            sign_with(key, other, NULL, first);
    } else if (is(what, "generate"))
        generate(with, path);
    else if (is(what, "make-kem"))
        make_kem(with);
    else if (is(what, "make-mldsa"))
        make_ml_dsa(with, atoi(path));
    else if (is(what, "mldsa"))
        ml_dsa(with, first);
    else if (is(what, "seal") || is(what, "unseal"))
        encapsulate(with, is(what, "unseal"), first);
    else if (is(what, "keep"))
        keep_keys(with);
    else if (is(what, "derive"))
        derive(with);
    else if (is(what, "encrypt") || is(what, "decrypt"))
        encipher(with, is(what, "encrypt"));
    else if (is(what, "planted"))
        planted(with);
    else
        CHECK(!"a known operation");
    return 0;
}
