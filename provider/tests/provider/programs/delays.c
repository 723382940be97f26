/* How long a thread waits for one signature, while others are slow.
 * Usage: delays low idle|batch|nice   threads of low priority sign RSA-2048, beside busy CPUs
 *        delays beside                threads sign RSA-4096, and it signs P-256
 *        delays long                  threads sign long messages, and it signs P-256
 *        delays jump COUNT            a handler leaves so many signatures by siglongjmp
 *        delays first                 a handler leaves a key's second operation by siglongjmp
 *        delays stopped               a handler stops a thread in its signature
 *        delays job                   the same, where the thread has taken another one's job along
 * Prints the median, the mean and the longest wait in milliseconds, and how often it has signed. */
#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>
#include <openssl/async.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

enum { MOST = 100000, LONG = 64 << 20 };

static EVP_PKEY *loud_key, *own_key;
static atomic_int stop;
static double waits[MOST];
static int count;
static unsigned char *long_message;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Whether a key signs. It does not verify: that would wait, too. */
static int signs(EVP_PKEY *key, const void *message, size_t size) {
    unsigned char signature[600];
    size_t length = sizeof signature;
    const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CHECK(ctx && EVP_DigestSignInit_ex(ctx, NULL, digest, NULL, NULL, key, NULL) == 1);
    int done = EVP_DigestSign(ctx, signature, &length, message, size) == 1;
    EVP_MD_CTX_free(ctx);
    return done;
}

static void sign_only(EVP_PKEY *key, const void *message, size_t size) {
    CHECK(signs(key, message, size));
}

static int by_size(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return difference < 0 ? -1 : difference > 0;
}

static void measure(void) {
    double begun = now();
    sign_only(own_key, "short", 5);
    if (count < MOST)
        waits[count++] = 1e3 * (now() - begun);
}

/* Signs for so many seconds. */
static void measure_for(double seconds) {
    for (double end = now() + seconds; now() < end; usleep(300))
        measure();
}

static void print(void) {
    double sum = 0;
    qsort(waits, count, sizeof *waits, by_size);
    for (int i = 0; i < count; i++)
        sum += waits[i];
    printf("%.4f %.4f %.4f %d\n", waits[count / 2], sum / count, waits[count - 1], count);
}

static void *loud(void *message) {
    while (!stop)
        message ? sign_only(loud_key, message, LONG) : sign_only(loud_key, "loud", 4);
    return NULL;
}

static const char *class;

static void *low(void *nothing) {
    struct sched_param none = {0};
    if (strcmp(class, "nice") == 0)
        CHECK(setpriority(PRIO_PROCESS, syscall(SYS_gettid), 19) == 0);
    else
        CHECK(sched_setscheduler(0, class[0] == 'i' ? SCHED_IDLE : SCHED_BATCH, &none) == 0);
    return loud(nothing);
}

static void *spin(void *nothing) {
    while (!stop)
        for (volatile int i = 0; i < 100000; i++)
            ;
    return nothing;
}

static void start(pthread_t *threads, int threads_count, void *(*run)(void *), void *argument) {
    for (int i = 0; i < threads_count; i++)
        CHECK(pthread_create(&threads[i], NULL, run, argument) == 0);
}

static void end(pthread_t *threads, int threads_count) {
    stop = 1;
    for (int i = 0; i < threads_count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void beside_low(void) {
    /* Busy CPUs: a thread of low priority that leads gets none for long. */
    pthread_t threads[8];
    start(threads, 4, spin, NULL);
    start(threads + 4, 4, low, NULL);
    usleep(100000);
    measure_for(3);
    end(threads, 8);
}

static void beside(int threads_count, void *message) {
    pthread_t threads[16];
    start(threads, threads_count, loud, message);
    usleep(100000);
    measure_for(3);
    end(threads, threads_count);
}

static sigjmp_buf out;

/* Where the C library lies: a jump out of it may leave one of its locks. */
static struct {
    unsigned long start, end;
} own_code[16];
static int own_parts;

static void find_c_library(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (own_parts < 16 && fgets(line, sizeof line, maps))
        if (strstr(line, "/libc.so") || strstr(line, "/ld-linux") || strstr(line, "[vdso]"))
            own_parts += sscanf(line, "%lx-%lx", &own_code[own_parts].start,
                                &own_code[own_parts].end) == 2;
    fclose(maps);
    CHECK(own_parts > 0);
}

static volatile int signals, under_lock;

/* How many locks this thread has: OpenSSL calls these. (What a jump leaves locked hangs with
 * OpenSSL alone, too.) */
static __thread volatile int locks;

#define LOCK(name, more)                                                                           \
    int name(pthread_rwlock_t *lock) {                                                             \
        static int (*real)(pthread_rwlock_t *);                                                    \
        if (!real)                                                                                 \
            real = (int (*)(pthread_rwlock_t *))dlsym(RTLD_NEXT, #name);                           \
        if (more > 0)                                                                              \
            locks++;                                                                               \
        int result = real(lock);                                                                   \
        if (more < 0 || result != 0)                                                               \
            locks--;                                                                               \
        return result;                                                                             \
    }

LOCK(pthread_rwlock_rdlock, 1)
LOCK(pthread_rwlock_wrlock, 1)
LOCK(pthread_rwlock_unlock, -1)

static void jump_from_others(int signal, siginfo_t *info, void *context) {
    unsigned long place = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)signal, (void)info;
    signals++;
    under_lock += locks > 0;
    for (int i = 0; i < own_parts; i++)
        if (place >= own_code[i].start && place < own_code[i].end)
            return;
    if (locks == 0)
        siglongjmp(out, 1);
}

/* OpenSSL renews a key's blinding in place, and a jump in between spoils the key: another one is
 * measured. */
static void leave(int times) {
    struct sigaction action = {.sa_sigaction = jump_from_others, .sa_flags = SA_SIGINFO};
    find_c_library();
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    volatile int jumps = 0;
    for (volatile int i = 0; i < times; i++) {
        /* In the middle of a batch, mostly. */
        struct itimerval timer = {{0, 0}, {0, 500 + 20 * (i % 60)}};
        if (sigsetjmp(out, 1) == 0) {
            setitimer(ITIMER_REAL, &timer, NULL);
            signs(loud_key, "left", 4);
            memset(&timer, 0, sizeof timer);
            setitimer(ITIMER_REAL, &timer, NULL);
        } else {
            jumps++;
        }
    }
    signal(SIGALRM, SIG_DFL);
    CHECK(6 * jumps > times);
    for (int i = 0; i < 100; i++, usleep(3000))
        measure();
}

/* Whether the plaintext is right. With a blinding that was left half renewed it is not: the padding
 * is wrong, or OpenSSL makes up a text of its own. Any other error is one too many. */
static int decrypts(EVP_PKEY *key, const unsigned char *cipher, size_t length) {
    unsigned char plain[600];
    size_t plain_length = sizeof plain;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    CHECK(ctx && EVP_PKEY_decrypt_init(ctx) == 1);
    ERR_clear_error();
    int done = EVP_PKEY_decrypt(ctx, plain, &plain_length, cipher, length) == 1;
    EVP_PKEY_CTX_free(ctx);
    CHECK(done || ERR_GET_REASON(ERR_peek_last_error()) == RSA_R_PADDING_CHECK_FAILED);
    ERR_clear_error();
    return done && plain_length == 5 && memcmp(plain, "short", 5) == 0;
}

/* OpenSSL makes a key's blinding at the first private operation, under a lock. Each key has signed
 * before, as a server's may have when it starts. The blinding is renewed by squaring it in place
 * at each operation: with OpenSSL alone, too, a jump in between spoils a key now and then. */
static void leave_second(void) {
    struct sigaction action = {.sa_sigaction = jump_from_others, .sa_flags = SA_SIGINFO};
    unsigned char cipher[600], *der = NULL;
    size_t length = sizeof cipher;
    volatile int spoilt = 0;
    int der_length = i2d_PrivateKey(own_key, &der);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(own_key, NULL);
    CHECK(der_length > 0 && ctx && EVP_PKEY_encrypt_init(ctx) == 1);
    CHECK(EVP_PKEY_encrypt(ctx, cipher, &length, (const unsigned char *)"short", 5) == 1);
    EVP_PKEY_CTX_free(ctx);
    find_c_library();
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (volatile int i = 0; i < 100; i++) {
        const unsigned char *bytes = der;
        EVP_PKEY *volatile key = d2i_AutoPrivateKey(NULL, &bytes, der_length);
        CHECK(key);
        sign_only(key, "first", 5);
        struct itimerval timer = {{0, 50}, {0, 10 + 10 * i}};
        if (sigsetjmp(out, 1) == 0) {
            setitimer(ITIMER_REAL, &timer, NULL);
            decrypts(key, cipher, length);
        }
        memset(&timer, 0, sizeof timer);
        setitimer(ITIMER_REAL, &timer, NULL);
        double begun = now();
        spoilt += !decrypts(key, cipher, length);
        waits[count++] = 1e3 * (now() - begun);
    }
    /* In a first operation most of them find a lock held. */
    CHECK(signals > 10 && spoilt <= 20 && 2 * under_lock < signals);
    CHECK(locks == 0);
}

static sem_t stopped, released;

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0)
        ;
}

static void halt(int signal) {
    (void)signal;
    sem_post(&stopped);
    wait_for(&released);
}

/* As many threads as there are slots, each of which is stopped while it leads. (In OpenSSL's own
 * code it could have a lock of the key.) */
static void stop_threads(void) {
    enum { STOPPED = 2 };
    pthread_t threads[STOPPED];
    signal(SIGUSR1, halt);
    for (int i = 0; i < STOPPED; i++) {
        start(&threads[i], 1, loud, NULL);
        usleep(20000);
        CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
        wait_for(&stopped);
    }
    for (int i = 0; i < 100; i++, usleep(3000))
        measure();
    stop = 1;
    for (int i = 0; i < STOPPED; i++)
        sem_post(&released);
    end(threads, STOPPED);
}

/* A job that pauses when it has posted its request. */
struct paused {
    ASYNC_JOB *job;
    ASYNC_WAIT_CTX *wait;
};

static int go_on(struct paused *paused) {
    struct task task = {loud_key, 1};
    int result = 0;
    int status =
        ASYNC_start_job(&paused->job, paused->wait, &result, sign_task, &task, sizeof task);
    CHECK(status == ASYNC_PAUSE || (status == ASYNC_FINISH && result == 1));
    return status == ASYNC_PAUSE;
}

static struct paused begin_job(void) {
    struct paused paused = {NULL, ASYNC_WAIT_CTX_new()};
    CHECK(ASYNC_init_thread(2, 2) == 1);
    CHECK(go_on(&paused));
    return paused;
}

static int is_ready(struct paused *paused, int milliseconds) {
    OSSL_ASYNC_FD fds[2];
    size_t fd_count = 2;
    CHECK(ASYNC_WAIT_CTX_get_all_fds(paused->wait, fds, &fd_count) == 1 && fd_count == 1);
    struct pollfd poll_fd = {.fd = fds[0], .events = POLLIN};
    return poll(&poll_fd, 1, milliseconds) == 1;
}

static void finish(struct paused *paused) {
    for (int going = 1; going; going = going && go_on(paused))
        CHECK(is_ready(paused, 30000));
    ASYNC_WAIT_CTX_free(paused->wait);
}

static double cpu_time(clockid_t of) {
    struct timespec time;
    CHECK(clock_gettime(of, &time) == 0);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static sem_t begun;
static double before;

static void *lead(void *nothing) {
    struct paused own = begin_job();
    before = cpu_time(CLOCK_THREAD_CPUTIME_ID);
    sem_post(&begun);
    finish(&own);
    /* It may be stopped here, too: it must not have ended by then. */
    wait_for(&released);
    return nothing;
}

/* How often the other thread has had the job's request when it was stopped. */
static int stop_leaders(void) {
    int taken = 0;
    signal(SIGUSR1, halt);
    for (int i = 0; i < 40 && taken < 3; i++) {
        pthread_t leader;
        struct paused own = begin_job();
        start(&leader, 1, lead, NULL);
        wait_for(&begun);
        /* When it is in its batch, where it holds no lock of the C library. */
        clockid_t clock;
        CHECK(pthread_getcpuclockid(leader, &clock) == 0);
        while (cpu_time(clock) - before < 1e-3)
            usleep(50);
        CHECK(pthread_kill(leader, SIGUSR1) == 0);
        wait_for(&stopped);
        double started = now();
        CHECK(is_ready(&own, 30000));
        if (go_on(&own)) {
            taken += !is_ready(&own, 0);
            finish(&own);
            waits[count++] = 1e3 * (now() - started);
        } else {
            ASYNC_WAIT_CTX_free(own.wait);
        }
        sem_post(&released);
        sem_post(&released);
        CHECK(pthread_join(leader, NULL) == 0);
    }
    return taken;
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    const char *way = argv[1];
    CHECK(sem_init(&stopped, 0, 0) == 0 && sem_init(&released, 0, 0) == 0);
    CHECK(sem_init(&begun, 0, 0) == 0);
    if (strcmp(way, "low") == 0 || strcmp(way, "first") == 0) {
        loud_key = own_key = EVP_RSA_gen(2048);
        class = argv[2];
    } else if (strcmp(way, "long") == 0) {
        loud_key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
        own_key = EVP_EC_gen("P-256");
        CHECK(long_message = calloc(LONG, 1));
    } else {
        loud_key = EVP_RSA_gen(4096);
        own_key = strcmp(way, "beside") == 0 ? EVP_EC_gen("P-256")
                  : strcmp(way, "jump") == 0 ? EVP_RSA_gen(4096)
                                             : loud_key;
    }
    sign_only(loud_key, "first", 5);
    sign_only(own_key, "first", 5);
    if (strcmp(way, "low") == 0)
        beside_low();
    else if (strcmp(way, "beside") == 0)
        beside(16, NULL);
    else if (strcmp(way, "long") == 0)
        beside(2, long_message);
    else if (strcmp(way, "jump") == 0)
        leave(atoi(argv[2]));
    else if (strcmp(way, "first") == 0)
        leave_second();
    else if (strcmp(way, "stopped") == 0)
        stop_threads();
    else if (strcmp(way, "job") == 0 && getenv("OPENSSL_CONF"))
        CHECK(stop_leaders() > 0);
    if (count > 0)
        print();
    fflush(stdout);
    _exit(0);
}
