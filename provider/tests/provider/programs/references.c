/* Uses keys of the key daemon by their references.
 *
 *     references COMMAND REFERENCE CERTIFICATE [ARGUMENT]
 *
 * Each line that it prints says what was done, and whether that succeeded. */

#define _GNU_SOURCE
#define OPENSSL_SUPPRESS_DEPRECATED
#include <fcntl.h>
#include <openssl/async.h>
#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/decoder.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include <openssl/store.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned char MESSAGE[] = "a message";

static void say(const char *what, int done)
{
    printf("%s: %s\n", what, done ? "yes" : "no");
    fflush(stdout);
}

/* What the queue of errors holds of ours. */
static void errors(void)
{
    const char *data;
    int flags;
    while (ERR_get_error_all(NULL, NULL, NULL, &data, &flags) != 0)
        if ((flags & ERR_TXT_STRING) && strstr(data, "lockstep"))
            printf("error: %s\n", data);
    fflush(stdout);
}

static EVP_PKEY *load(const char *path, OSSL_LIB_CTX *library)
{
    BIO *bio = BIO_new_file(path, "r");
    EVP_PKEY *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey_ex(bio, NULL, NULL, NULL, library, NULL);
    BIO_free(bio);
    return key;
}

static X509 *certificate(const char *path)
{
    BIO *bio = BIO_new_file(path, "r");
    X509 *found = bio == NULL ? NULL : PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    return found;
}

/* Signs with one key and verifies with another; padding 0 for none. */
static int sign_and_verify(EVP_PKEY *key, EVP_PKEY *public, const char *digest, int padding,
                           OSSL_LIB_CTX *library)
{
    unsigned char signature[1024];
    size_t length = sizeof signature;
    EVP_PKEY_CTX *ctx = NULL;
    EVP_MD_CTX *sign = EVP_MD_CTX_new(), *verify = EVP_MD_CTX_new();
    int done = EVP_DigestSignInit_ex(sign, &ctx, digest, library, NULL, key, NULL) == 1
        && (padding == 0 || EVP_PKEY_CTX_set_rsa_padding(ctx, padding) == 1)
        && (padding != RSA_PKCS1_PSS_PADDING
            || EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, RSA_PSS_SALTLEN_DIGEST) == 1)
        && EVP_DigestSign(sign, signature, &length, MESSAGE, sizeof MESSAGE) == 1
        && EVP_DigestVerifyInit_ex(verify, &ctx, digest, NULL, NULL, public, NULL) == 1
        && (padding == 0 || EVP_PKEY_CTX_set_rsa_padding(ctx, padding) == 1)
        && EVP_DigestVerify(verify, signature, length, MESSAGE, sizeof MESSAGE) == 1;
    EVP_MD_CTX_free(sign);
    EVP_MD_CTX_free(verify);
    return done;
}

static int sign_all(EVP_PKEY *key, EVP_PKEY *public, OSSL_LIB_CTX *library)
{
    if (EVP_PKEY_is_a(key, "ED25519"))
        return sign_and_verify(key, public, NULL, 0, library);
    if (EVP_PKEY_is_a(key, "EC"))
        return sign_and_verify(key, public, "SHA256", 0, library)
            && sign_and_verify(key, public, "SHA512", 0, library);
    return sign_and_verify(key, public, "SHA256", RSA_PKCS1_PADDING, library)
        && sign_and_verify(key, public, "SHA512", RSA_PKCS1_PADDING, library)
        && sign_and_verify(key, public, "SHA256", RSA_PKCS1_PSS_PADDING, library)
        && sign_and_verify(key, public, "SHA384", RSA_PKCS1_PSS_PADDING, library);
}

static int decrypt(EVP_PKEY *key, EVP_PKEY *public, int padding)
{
    unsigned char cipher[1024], plain[1024];
    size_t cipher_length = sizeof cipher, plain_length = sizeof plain;
    EVP_PKEY_CTX *to = EVP_PKEY_CTX_new(public, NULL), *from = EVP_PKEY_CTX_new(key, NULL);
    int done = EVP_PKEY_encrypt_init(to) == 1 && EVP_PKEY_CTX_set_rsa_padding(to, padding) == 1
        && EVP_PKEY_encrypt(to, cipher, &cipher_length, MESSAGE, sizeof MESSAGE) == 1
        && EVP_PKEY_decrypt_init(from) == 1 && EVP_PKEY_CTX_set_rsa_padding(from, padding) == 1
        && EVP_PKEY_decrypt(from, plain, &plain_length, cipher, cipher_length) == 1
        && plain_length == sizeof MESSAGE && memcmp(plain, MESSAGE, sizeof MESSAGE) == 0;
    EVP_PKEY_CTX_free(to);
    EVP_PKEY_CTX_free(from);
    return done;
}

/* Whether these are private parts. */
static int are_private(const OSSL_PARAM *params)
{
    return OSSL_PARAM_locate_const(params, OSSL_PKEY_PARAM_RSA_D) != NULL
        || OSSL_PARAM_locate_const(params, OSSL_PKEY_PARAM_RSA_FACTOR1) != NULL
        || OSSL_PARAM_locate_const(params, OSSL_PKEY_PARAM_PRIV_KEY) != NULL;
}

/* Whether any way gives the private parts away, or seems to. */
static int exports_private(EVP_PKEY *key)
{
    OSSL_PARAM *params = NULL;
    BIO *bio = BIO_new(BIO_s_mem());
    unsigned char raw[64], *der = NULL;
    size_t length = sizeof raw;
    BIGNUM *number = NULL;
    int done = (EVP_PKEY_todata(key, EVP_PKEY_KEYPAIR, &params) == 1 && are_private(params))
        || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1
        || PEM_write_bio_PrivateKey_traditional(bio, key, NULL, NULL, 0, NULL, NULL) == 1
        || i2d_PrivateKey(key, &der) > 0
        || EVP_PKEY_get_raw_private_key(key, raw, &length) == 1
        || EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1
        || EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_D, &number) == 1;
    OSSL_PARAM_free(params);
    BIO_free(bio);
    ERR_clear_error();
    return done;
}

static int use(const char *reference, const char *path)
{
    EVP_PKEY *key = load(reference, NULL);
    X509 *x509 = certificate(path);
    EVP_PKEY *public = x509 == NULL ? NULL : X509_get_pubkey(x509);
    if (key == NULL || public == NULL)
        return 0;
    say("matches its certificate", X509_check_private_key(x509, key) == 1);
    say("is preferred", strcmp(OSSL_PROVIDER_get0_name(EVP_PKEY_get0_provider(key)), "lockstep") == 0);
    say("signs", sign_all(key, public, NULL));
    errors();
    say("verifies itself", sign_all(key, key, NULL));
    say("exports private parts", exports_private(key));
    BIO *bio = BIO_new(BIO_s_mem());
    say("exports its public half", PEM_write_bio_PUBKEY(bio, key) == 1);
    BIO_free(bio);
    EVP_PKEY *copy = EVP_PKEY_dup(key);
    say("is duplicated", copy != NULL && sign_all(copy, public, NULL) && !exports_private(copy)
            && X509_check_private_key(x509, copy) == 1);
    errors();
    if (EVP_PKEY_is_a(key, "RSA")) {
        say("decrypts OAEP", decrypt(key, public, RSA_PKCS1_OAEP_PADDING));
        errors();
        say("decrypts PKCS#1 v1.5", decrypt(key, public, RSA_PKCS1_PADDING));
        errors();
    }
    pid_t child = fork();
    if (child == 0)
        _exit(sign_all(key, public, NULL) && sign_all(copy, public, NULL) ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    say("signs in a child", status == 0);
    say("signs after the child", sign_all(key, public, NULL));
    errors();
    EVP_PKEY_free(copy);
    EVP_PKEY_free(key);
    EVP_PKEY_free(public);
    X509_free(x509);
    return 1;
}

/* Takes a key apart, as programs do that know the old objects or want all parameters. */
static int apart(const char *reference, const char *path)
{
    unsigned char output[1024], input[1024] = { 0 };
    unsigned int size = sizeof output;
    size_t length = sizeof output;
    EVP_PKEY *key = load(reference, NULL);
    EVP_PKEY *public = X509_get0_pubkey(certificate(path));
    if (key == NULL || public == NULL)
        return 0;
    if (EVP_PKEY_is_a(key, "RSA")) {
        RSA *rsa = (RSA *)EVP_PKEY_get0_RSA(key);
        say("has an old object", rsa != NULL && RSA_get0_n(rsa) != NULL);
        say("has private parts there", RSA_get0_d(rsa) != NULL || RSA_get0_p(rsa) != NULL);
        say("signs with the old object",
            RSA_sign(NID_sha256, input, 32, output, &size, rsa) == 1);
        int plain = RSA_private_decrypt(RSA_size(rsa), input, output, rsa, RSA_PKCS1_OAEP_PADDING);
        say("decrypts with the old object", plain >= 0);
    } else if (EVP_PKEY_is_a(key, "EC")) {
        EC_KEY *ec = (EC_KEY *)EVP_PKEY_get0_EC_KEY(key);
        const EC_POINT *point = EC_KEY_get0_public_key(ec);
        say("has an old object", ec != NULL && point != NULL);
        say("has private parts there", EC_KEY_get0_private_key(ec) != NULL);
        say("signs with the old object", ECDSA_sign(0, input, 32, output, &size, ec) == 1);
        say("decrypts with the old object", ECDH_compute_key(output, 32, point, ec, NULL) > 0);
    }
    OSSL_PARAM *params = NULL;
    int parts = EVP_PKEY_todata(key, EVP_PKEY_KEYPAIR, &params);
    say("gives its parts", parts == 1 && !are_private(params));
    OSSL_PARAM_free(params);
    say("gives private parts", exports_private(key));
    /* Where somebody asks for OpenSSL's own code, and so for a key that it can compute with. */
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, "provider=default");
    EVP_MD_CTX *sign = EVP_MD_CTX_new();
    const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
    int signs = EVP_DigestSignInit_ex(sign, NULL, digest, NULL, "provider=default", key, NULL) == 1
        && EVP_DigestSign(sign, output, &length, MESSAGE, sizeof MESSAGE) == 1;
    EVP_MD_CTX_free(sign);
    length = sizeof output;
    signs = signs || (digest != NULL && ctx != NULL && EVP_PKEY_sign_init(ctx) == 1
                      && EVP_PKEY_sign(ctx, output, &length, input, 32) == 1);
    say("signs in the default provider", signs);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY *copy = EVP_PKEY_dup(key);
    say("equals its copy", copy != NULL && EVP_PKEY_eq(key, copy) == 1);
    say("equals its public half", EVP_PKEY_eq(key, public) == 1);
    BIO *bio = BIO_new(BIO_s_mem());
    EVP_PKEY_print_private(bio, key, 0, NULL);
    say("is printed", 1);
    BIO_free(bio);
    ERR_clear_error();
    say("signs afterwards", sign_all(key, public, NULL) && sign_all(copy, public, NULL));
    errors();
    EVP_PKEY_free(copy);
    EVP_PKEY_free(key);
    return 1;
}

/* The same key in a library context that has read the configuration, and in one more. */
static int contexts(const char *reference, const char *path)
{
    X509 *x509 = certificate(path);
    for (int number = 0; number < 2; number++) {
        OSSL_LIB_CTX *library = OSSL_LIB_CTX_new();
        OSSL_LIB_CTX_load_config(library, getenv("OPENSSL_CONF"));
        EVP_PKEY *key = load(reference, library);
        if (key == NULL)
            return 0;
        say("signs in a library context", sign_all(key, X509_get0_pubkey(x509), library));
        EVP_PKEY_free(key);
        OSSL_LIB_CTX_free(library);
    }
    X509_free(x509);
    return 1;
}

/* Signs once for each line of the standard input. */
static int repeat(const char *reference, const char *path)
{
    char line[16];
    EVP_PKEY *key = load(reference, NULL);
    X509 *x509 = certificate(path);
    if (key == NULL)
        return 0;
    say("loads", 1);
    while (fgets(line, sizeof line, stdin) != NULL) {
        say("signs", sign_all(key, X509_get0_pubkey(x509), NULL));
        errors();
    }
    EVP_PKEY_free(key);
    X509_free(x509);
    return 1;
}

/* For each line of the standard input, uses an ordinary key that the key daemon may have, too. */
static int ordinary(const char *path, const char *cert)
{
    char line[16];
    EVP_PKEY *key = load(path, NULL);
    X509 *x509 = certificate(cert);
    EVP_PKEY *public = x509 == NULL ? NULL : X509_get0_pubkey(x509);
    if (key == NULL || public == NULL)
        return 0;
    say("loads", 1);
    while (fgets(line, sizeof line, stdin) != NULL) {
        say("signs", sign_all(key, public, NULL));
        say("signs by SHA-1", sign_and_verify(key, public, "SHA1", RSA_PKCS1_PSS_PADDING, NULL));
        say("decrypts OAEP", decrypt(key, public, RSA_PKCS1_OAEP_PADDING));
        say("decrypts PKCS#1 v1.5", decrypt(key, public, RSA_PKCS1_PADDING));
        say("leaves errors", ERR_peek_error() != 0);
        say("round", 1);
    }
    EVP_PKEY_free(key);
    X509_free(x509);
    return 1;
}

/* Closes all descriptors but the first three, as daemons do, and opens others. */
static void use_descriptors_again(void)
{
    closefrom(3);
    for (int i = 0; i < 8; i++)
        open("/dev/null", O_RDONLY);
}

/* Whether they are what they were made. */
static int are_descriptors_untouched(void)
{
    char path[32];
    struct stat null, own;
    int same = stat("/dev/null", &null) == 0;
    for (int i = 3; i < 11 && same; i++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        same = stat(path, &own) == 0 && own.st_rdev == null.st_rdev;
    }
    return same;
}

/* How often all is closed: the daemon may learn of it at any moment of a signature. */
enum { CLOSES = 300 };

/* Signs when somebody has used the number of the module's socket for something else, here and in a
 * child. */
static int closes(const char *reference, const char *path)
{
    EVP_PKEY *key = load(reference, NULL), *public = X509_get0_pubkey(certificate(path));
    say("signs", sign_all(key, public, NULL));
    int signed_ = 0;
    for (int i = 0; i < CLOSES; i++) {
        use_descriptors_again();
        signed_ += sign_all(key, public, NULL);
    }
    say("signs when all is closed", signed_ == CLOSES);
    errors();
    say("leaves descriptors alone", are_descriptors_untouched());
    pid_t child = fork();
    if (child == 0) {
        use_descriptors_again();
        say("signs in a child when all is closed", sign_all(key, public, NULL));
        say("leaves a child's descriptors alone", are_descriptors_untouched());
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say("signs after the child", sign_all(key, public, NULL));
    errors();
    return 1;
}

/* Leaves a child behind that never signs, and ends when the standard input does. */
static int leaves(const char *reference, const char *path)
{
    pid_t parent = fork();
    if (parent == 0) {
        EVP_PKEY *key = load(reference, NULL);
        say("signs", sign_all(key, X509_get0_pubkey(certificate(path)), NULL));
        errors();
        if (fork() == 0)
            while (getchar() != EOF)
                ;
        _exit(0);
    }
    waitpid(parent, NULL, 0);
    say("has ended", 1);
    while (getchar() != EOF)
        ;
    return 1;
}

static int sockets(void)
{
    int count = 0;
    struct stat about;
    for (int number = 3; number < 256; number++)
        count += fstat(number, &about) == 0 && S_ISSOCK(about.st_mode);
    return count;
}

static void *sign_beside(void *key)
{
    sign_all(key, key, NULL);
    return NULL;
}

/* Forks for each line of the standard input, while another thread connects. */
static int forks(const char *reference)
{
    char line[16];
    EVP_PKEY *key = load(reference, NULL);
    pthread_t thread;
    int before = sockets();
    if (key == NULL || pthread_create(&thread, NULL, sign_beside, key) != 0)
        return 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        pid_t child = fork();
        if (child == 0)
            _exit(sockets() != before);
        int status = 1;
        waitpid(child, &status, 0);
        say("closes its copy", status == 0);
    }
    return 1;
}

/* Reads every key and certificate of a file, as HAProxy does, and then each block by itself. */
static void count_ours(OSSL_DECODER *decoder, void *count)
{
    const OSSL_PROVIDER *provider = OSSL_DECODER_get0_provider(decoder);
    *(int *)count += strcmp(OSSL_PROVIDER_get0_name(provider), "lockstep") == 0;
}

static int blocks(const char *path)
{
    int ours = 0;
    OSSL_DECODER_do_all_provided(NULL, count_ours, &ours);
    printf("our decoders: %d\n", ours);
    EVP_PKEY *key = load(path, NULL);
    say("finds a private key", key != NULL);
    errors();
    if (key != NULL)
        say("of our provider", strcmp(OSSL_PROVIDER_get0_name(EVP_PKEY_get0_provider(key)), "lockstep") == 0);
    EVP_PKEY_free(key);
    X509 *x509 = certificate(path);
    say("finds a certificate", x509 != NULL);
    X509_free(x509);
    BIO *bio = BIO_new_file(path, "r");
    EVP_PKEY *public = PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL);
    say("finds a public key", public != NULL);
    EVP_PKEY_free(public);
    BIO_free(bio);
    return 1;
}

/* What a store finds in a file, in order: everything, and what it is told to expect. */
static int stores(const char *path)
{
    static const int expected[] = {0, OSSL_STORE_INFO_PKEY, OSSL_STORE_INFO_CERT, OSSL_STORE_INFO_PUBKEY};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        OSSL_STORE_CTX *store = OSSL_STORE_open(path, NULL, NULL, NULL, NULL);
        if (store == NULL || (expected[i] != 0 && OSSL_STORE_expect(store, expected[i]) != 1))
            return 0;
        printf("store, %d:", expected[i]);
        while (!OSSL_STORE_eof(store)) {
            OSSL_STORE_INFO *info = OSSL_STORE_load(store);
            if (info == NULL)
                continue;
            int type = OSSL_STORE_INFO_get_type(info);
            printf(" %s", OSSL_STORE_INFO_type_string(type));
            EVP_PKEY *key = type == OSSL_STORE_INFO_PKEY ? OSSL_STORE_INFO_get0_PKEY(info) : NULL;
            if (key != NULL)
                printf(" of %s", OSSL_PROVIDER_get0_name(EVP_PKEY_get0_provider(key)));
            OSSL_STORE_INFO_free(info);
        }
        printf("\n");
        OSSL_STORE_close(store);
        errors();
    }
    return 1;
}

/* A key, its public half and a job that signs with it. */
struct job {
    EVP_PKEY *key, *public;
    ASYNC_JOB *job;
    ASYNC_WAIT_CTX *wait;
    atomic_int woken;
};

enum { JOBS = 32 };

static int wake(void *woken)
{
    atomic_store((atomic_int *)woken, 1);
    return 1;
}

static int sign_in_job(void *arg)
{
    struct job *job = *(struct job **)arg;
    const char *digest = EVP_PKEY_is_a(job->key, "ED25519") ? NULL : "SHA256";
    return sign_and_verify(job->key, job->public, digest, 0, NULL);
}

/* Whether the job was woken. */
static int is_ready(struct job *job, int callbacks)
{
    struct pollfd polled = {.events = POLLIN};
    size_t count = 0;
    if (callbacks)
        return atomic_exchange(&job->woken, 0);
    return ASYNC_WAIT_CTX_get_all_fds(job->wait, NULL, &count) == 1 && count == 1
        && ASYNC_WAIT_CTX_get_all_fds(job->wait, &polled.fd, &count) == 1
        && poll(&polled, 1, 0) == 1;
}

/* Starts or resumes a job: whether it has signed, or -1 while it is paused. */
static int go_on(struct job *job)
{
    int result = 0;
    switch (ASYNC_start_job(&job->job, job->wait, &result, sign_in_job, &job, sizeof job)) {
    case ASYNC_PAUSE:
        return -1;
    case ASYNC_FINISH:
        job->job = NULL;
        return result;
    default:
        return 0;
    }
}

/* Resumes paused jobs as they are woken, until all have ended; how many have signed. */
static int finish(struct job *jobs, int callbacks)
{
    int signed_ = 0, left;
    do {
        left = 0;
        for (int i = 0; i < JOBS; i++) {
            int result = jobs[i].job == NULL ? 0 : -1;
            if (result == -1 && is_ready(&jobs[i], callbacks))
                result = go_on(&jobs[i]);
            signed_ += result == 1;
            left += result == -1;
        }
        usleep(200);
    } while (left > 0);
    return signed_;
}

/* For each line of the standard input, starts all jobs before it resumes one. With a line `fork` a
 * child resumes them too; with `miss REFERENCE` another key is tried before. WAY is fd, callback,
 * or alone: as another user who cannot start threads. */
static int in_jobs(const char *reference, const char *path, const char *way)
{
    static struct job jobs[JOBS];
    char line[16];
    int callbacks = strcmp(way, "callback") == 0;
    EVP_PKEY *key = load(reference, NULL);
    X509 *x509 = certificate(path);
    if (key == NULL || x509 == NULL || ASYNC_init_thread(JOBS, JOBS) != 1)
        return 0;
    if (strcmp(way, "alone") == 0) {
        struct rlimit none = {0, 0};
        if (setrlimit(RLIMIT_NPROC, &none) != 0 || setgid(4711) != 0 || setuid(4711) != 0)
            return 0;
    }
    say("signs", sign_all(key, X509_get0_pubkey(x509), NULL));
    errors();
    while (fgets(line, sizeof line, stdin) != NULL) {
        int paused = 0;
        for (int i = 0; i < JOBS; i++) {
            jobs[i].key = key;
            jobs[i].public = X509_get0_pubkey(x509);
            jobs[i].wait = ASYNC_WAIT_CTX_new();
            if (callbacks)
                ASYNC_WAIT_CTX_set_callback(jobs[i].wait, wake, &jobs[i].woken);
            paused += go_on(&jobs[i]) == -1;
        }
        printf("paused: %d\n", paused);
        fflush(stdout);
        if (strncmp(line, "miss ", 5) == 0) {
            line[strcspn(line, "\n")] = '\0';
            EVP_PKEY *missing = load(line + 5, NULL);
            say("misses", missing != NULL && !sign_all(missing, missing, NULL));
            EVP_PKEY_free(missing);
            ERR_clear_error();
        }
        if (strncmp(line, "fork", 4) == 0) {
            pid_t child = fork();
            if (child == 0) {
                int done = 0;
                /* What woke them in the parent is not here. */
                for (int i = 0; i < JOBS; i++)
                    done += go_on(&jobs[i]) == 1;
                done += finish(jobs, callbacks);
                printf("signed in a child: %d\n", done);
                fflush(stdout);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
        printf("signed: %d\n", finish(jobs, callbacks));
        errors();
        printf("done\n");
        fflush(stdout);
        for (int i = 0; i < JOBS; i++)
            ASYNC_WAIT_CTX_free(jobs[i].wait);
    }
    EVP_PKEY_free(key);
    X509_free(x509);
    return 1;
}

/* Loads a key after the program has made methods of its own the default ones. */
static int prefers(const char *reference)
{
    RSA_METHOD *rsa = RSA_meth_dup(RSA_PKCS1_OpenSSL());
    EC_KEY_METHOD *ec = EC_KEY_METHOD_new(EC_KEY_OpenSSL());
    if (rsa == NULL || ec == NULL)
        return 0;
    RSA_set_default_method(rsa);
    EC_KEY_set_default_method(ec);
    EVP_PKEY *key = load(reference, NULL);
    say("loads", key != NULL);
    errors();
    EVP_PKEY_free(key);
    return 1;
}

int main(int count, char **words)
{
    int done = 0;
    if (count == 4 && strcmp(words[1], "use") == 0)
        done = use(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "apart") == 0)
        done = apart(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "contexts") == 0)
        done = contexts(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "repeat") == 0)
        done = repeat(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "ordinary") == 0)
        done = ordinary(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "closes") == 0)
        done = closes(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "leaves") == 0)
        done = leaves(words[2], words[3]);
    if (count == 3 && strcmp(words[1], "forks") == 0)
        done = forks(words[2]);
    if (count == 3 && strcmp(words[1], "blocks") == 0)
        done = blocks(words[2]);
    if (count == 3 && strcmp(words[1], "prefers") == 0)
        done = prefers(words[2]);
    if (count == 3 && strcmp(words[1], "stores") == 0)
        done = stores(words[2]);
    if (count == 5 && strcmp(words[1], "jobs") == 0)
        done = in_jobs(words[2], words[3], words[4]);
    if (!done)
        ERR_print_errors_fp(stdout);
    say("ends", done);
    return !done;
}
