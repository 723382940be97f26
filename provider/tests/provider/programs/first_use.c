/* Forks while other threads use keys, and what the module makes once, for the first time. A child
 * must never wait for what a thread was making that it does not have.
 *
 * Usage: first_use GENERATIONS CHILDREN RSA.pem KEY.pem...  Needs the module by its configuration.
 *
 * A generation is a process that has loaded the module and its keys and used none. Four threads use
 * all of them, and the generation forks its children meanwhile; each does every operation once and
 * leaves. Prints how many children there were, and how many did not answer in time.
 *
 * Stock OpenSSL's own locks must not be held at a fork either, so the threads look nothing up and
 * make no object: all contexts are ready before the first fork. */
#include "common.h"
#include <openssl/kdf.h>
#include <pthread.h>
#include <sys/wait.h>

/* A child may wait for a CPU for long, but not for this long. */
enum { THREADS = 4, SECONDS = 60, MOST = 16, DIGESTS = 2 };

/* The contexts of one user of the keys. */
struct user {
    EVP_PKEY_CTX *sign[MOST], *derive[MOST];
    EVP_MD_CTX *message[MOST];
    EVP_KDF_CTX *kdf[DIGESTS];
    OSSL_PARAM params[DIGESTS][6];
    pthread_barrier_t *start;
    int first;
};

/* Of the threads, and of a child. */
static struct user users[THREADS + 1];
static const char *digests[DIGESTS] = {"SHA256", "SHA384"};
static EVP_PKEY *keys[MOST];
static int count;
static OSSL_PROVIDER *lockstep;

static int kind(EVP_PKEY *key, const char *name) {
    return EVP_PKEY_is_a(key, name);
}

static void prepare(struct user *user) {
    for (int i = 0; i < count; i++) {
        if (kind(keys[i], "RSA") || kind(keys[i], "EC")) {
            CHECK(user->sign[i] = EVP_PKEY_CTX_new(keys[i], NULL));
            CHECK(EVP_PKEY_sign_init(user->sign[i]) == 1);
        }
        /* With padding stock OpenSSL takes a lock of the key. */
        if (kind(keys[i], "RSA"))
            CHECK(EVP_PKEY_CTX_set_rsa_padding(user->sign[i], RSA_NO_PADDING) == 1);
        if (kind(keys[i], "ED25519")) {
            CHECK(user->message[i] = EVP_MD_CTX_new());
            CHECK(EVP_DigestSignInit(user->message[i], NULL, NULL, NULL, keys[i]) == 1);
        }
        if (kind(keys[i], "EC") || kind(keys[i], "X25519")) {
            CHECK(user->derive[i] = EVP_PKEY_CTX_new(keys[i], NULL));
            CHECK(EVP_PKEY_derive_init(user->derive[i]) == 1);
            /* With itself: the key is read as a public one only. */
            CHECK(EVP_PKEY_derive_set_peer_ex(user->derive[i], keys[i], 0) == 1);
        }
    }
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", NULL);
    for (int i = 0; i < DIGESTS; i++) {
        static int extract = EVP_KDF_HKDF_MODE_EXTRACT_ONLY;
        CHECK(user->kdf[i] = EVP_KDF_CTX_new(kdf));
        OSSL_PARAM *p = user->params[i];
        *p++ = OSSL_PARAM_construct_int("mode", &extract);
        *p++ = OSSL_PARAM_construct_utf8_string("digest", (char *)digests[i], 0);
        *p++ = OSSL_PARAM_construct_octet_string("prefix", "tls13 ", 6);
        *p++ = OSSL_PARAM_construct_octet_string("label", "derived", 7);
        *p = OSSL_PARAM_construct_end();
    }
    EVP_KDF_free(kdf);
}

/* Every operation once, from one of them on. */
static void use(struct user *user) {
    unsigned char out[1024], block[512] = {0, 1};
    for (int n = 0; n < count + DIGESTS; n++) {
        int i = (user->first + n) % (count + DIGESTS);
        if (i >= count) {
            /* Early secret, as of a handshake without a key from before. */
            int digest = i - count;
            size_t length = digest ? 48 : 32;
            CHECK(EVP_KDF_derive(user->kdf[digest], out, length, user->params[digest]) == 1);
            continue;
        }
        size_t length = sizeof out;
        size_t size = kind(keys[i], "RSA") ? (size_t)EVP_PKEY_get_size(keys[i]) : 32;
        if (user->sign[i])
            CHECK(EVP_PKEY_sign(user->sign[i], out, &length, block, size) == 1);
        length = sizeof out;
        if (user->message[i])
            CHECK(EVP_DigestSign(user->message[i], out, &length, block, 32) == 1);
        length = sizeof out;
        if (user->derive[i])
            CHECK(EVP_PKEY_derive(user->derive[i], out, &length) == 1);
    }
}

static void *thread(void *argument) {
    struct user *user = argument;
    /* What stock OpenSSL makes for every thread. */
    ERR_clear_error();
    pthread_barrier_wait(user->start);
    use(user);
    return NULL;
}

static uint64_t operations(void) {
    uint64_t number = 0;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_uint64("lockstep-operations", &number),
        OSSL_PARAM_construct_end(),
    };
    CHECK(OSSL_PROVIDER_get_params(lockstep, params) == 1);
    return number;
}

static void child(struct user *user, int number) {
    alarm(SECONDS);
    user->first = number;
    /* A context for Ed25519 has the prepared key, which a thread may be preparing. */
    for (int i = 0; i < count; i++)
        user->message[i] = users[number % THREADS].message[i];
    use(user);
    /* Every key once on lanes, and EC keys twice. */
    CHECK(operations() >= (uint64_t)count);
    _exit(0);
}

/* Returns how many children hung. */
static int generation(int children, int number) {
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    int hung = 0;
    CHECK(pthread_barrier_init(&start, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++) {
        users[i].start = &start;
        users[i].first = number + i / 2;
        CHECK(pthread_create(&threads[i], NULL, thread, &users[i]) == 0);
    }
    pthread_barrier_wait(&start);
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(&users[THREADS], number + i);
        for (volatile int wait = 0; wait < 20000; wait++) {
        }
    }
    for (int i = 0; i < children; i++) {
        int status = 0;
        CHECK(wait(&status) > 0);
        hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGALRM : WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return hung;
}

int main(int argc, char **argv) {
    int forks = 0, hung = 0;
    CHECK(argc > 3 && argc - 3 <= MOST);
    int generations = atoi(argv[1]), children = atoi(argv[2]);
    for (count = 0; count < argc - 3; count++)
        keys[count] = read_key(NULL, argv[3 + count]);
    CHECK(lockstep = OSSL_PROVIDER_load(NULL, "lockstep"));
    for (int i = 0; i <= THREADS; i++)
        prepare(&users[i]);
    for (int number = 0; number < generations && hung == 0; number++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            _exit(generation(children, number));
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        forks += children;
        hung += WEXITSTATUS(status);
    }
    printf("%d children, %d hung\n", forks, hung);
    return hung > 0;
}
