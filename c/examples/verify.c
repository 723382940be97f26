// Signs messages, checks the signatures, and checks them again after one was changed.
//
//     cc verify.c $(pkg-config --cflags --libs lockstep) -o verify

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"

enum { COUNT = 1000, WIDTH = 24, SIGNATURE = 64 };

static void check(LockstepStatus status, const char *what) {
    if (status != LOCKSTEP_STATUS_OK) {
        fprintf(stderr, "%s: status %d\n", what, (int)status);
        exit(EXIT_FAILURE);
    }
}

int main(void) {
    static uint8_t messages[COUNT][WIDTH], signatures[COUNT][SIGNATURE], reasons[COUNT];
    for (int i = 0; i < COUNT; i++) {
        snprintf((char *)messages[i], WIDTH, "message %d", i);
    }

    // One thread for each CPU.
    LockstepWorkers *workers = lockstep_workers_new(0);

    uint8_t secret[32], public[65];
    LockstepOutput secrets = {.data = secret, .stride = sizeof secret};
    LockstepOutput publics = {.data = public, .stride = sizeof public};
    check(lockstep_generate_many(workers, "P-256", 1, &secrets, &publics), "generate");

    LockstepPrivateKey *private_key;
    check(lockstep_private_key_from_raw("P-256", secret, sizeof secret, &private_key), "read");
    memset(secret, 0, sizeof secret);
    LockstepPublicKey *public_key = lockstep_private_key_public(private_key);

    LockstepColumn texts = {.data = messages[0], .width = WIDTH, .stride = WIDTH};
    LockstepOutput output = {.data = signatures[0], .stride = SIGNATURE, .reasons = reasons};
    const LockstepPrivateKey *private_keys[] = {private_key};
    LockstepPrivateKeys signers = {.objects = private_keys, .count = 1};
    check(lockstep_sign_many(workers, "ES256", 0, COUNT, &signers, &texts, &output), "sign");

    signatures[7][0] ^= 1;
    LockstepColumn column = {.data = signatures[0], .width = SIGNATURE, .stride = SIGNATURE};
    const LockstepPublicKey *public_keys[] = {public_key};
    LockstepKeys keys = {.objects = public_keys, .count = 1};
    check(lockstep_verify_many(workers, "ES256", 0, COUNT, &keys, &texts, &column, reasons),
          "verify");
    int good = 0;
    for (int i = 0; i < COUNT; i++) {
        if (reasons[i] == 0) {
            good++;
        } else {
            printf("item %d: %s\n", i, lockstep_reason_text(reasons[i]));
        }
    }
    printf("%d of %d signatures are good\n", good, COUNT);

    lockstep_public_key_free(public_key);
    lockstep_private_key_free(private_key);
    lockstep_workers_free(workers);
    return 0;
}
