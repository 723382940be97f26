// Public-key operations on whole arrays, computed in lockstep on the vector units of the CPU.
//
// Each call takes columns and computes all items, on as many threads as its workers have. An item
// that is malformed gets a reason, and the others get their results. Several threads may use an
// object at once. No function keeps a pointer of the caller. Link with -llockstep.
//
// Made by cbindgen from c/src: `LOCKSTEP_HEADER=write cargo test -p lockstep-c` writes it anew.

#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <stddef.h>
#include <stdint.h>

// Option of a call: signatures of ECDSA are in DER.
#define LOCKSTEP_DER 1

// Option of a call: messages are digests.
#define LOCKSTEP_PREHASHED 2

// Whether a call was computed.
typedef enum LockstepStatus {
  // It was: each item has a result or a reason.
  LOCKSTEP_STATUS_OK = 0,
  // An argument is null where it must not be, has an impossible length, or is out of range.
  LOCKSTEP_STATUS_BAD_ARGUMENT = 1,
  // There is no scheme or algorithm of this name, or it does not have this operation.
  LOCKSTEP_STATUS_UNSUPPORTED = 2,
  // The key cannot be read.
  LOCKSTEP_STATUS_BAD_KEY = 3,
  // There is no memory for the results.
  LOCKSTEP_STATUS_NO_MEMORY = 4,
  // A defect of this library.
  LOCKSTEP_STATUS_INTERNAL = 5,
} LockstepStatus;

// A private key, wiped when it is freed.
typedef struct LockstepPrivateKey LockstepPrivateKey;

// A public key.
typedef struct LockstepPublicKey LockstepPublicKey;

// Threads and lanes.
typedef struct LockstepWorkers LockstepWorkers;

// A column of bytes. Row `i` has `width` bytes at `data + i * stride`. With offsets it has the
// bytes `data[offsets[i]..offsets[i + 1]]` instead.
typedef struct LockstepColumn {
  // First byte.
  const uint8_t *data;
  // Number of bytes in each row, without offsets.
  size_t width;
  // Number of bytes from one row to the next, without offsets; 0 repeats one row.
  size_t stride;
  // One offset more than there are rows, none below the one before; or null.
  const uint64_t *offsets;
} LockstepColumn;

// The public keys of the items of a call: objects or bytes.
typedef struct LockstepKeys {
  // Objects, or null for keys as bytes.
  const struct LockstepPublicKey *const *objects;
  // Number of objects.
  size_t count;
  // For each item the place of its key among the objects; or null, if there is one object for
  // all items, or one for each.
  const uint32_t *index;
  // Bytes of the keys, if there are no objects.
  struct LockstepColumn raw;
} LockstepKeys;

// The private keys of the items of a call.
typedef struct LockstepPrivateKeys {
  // Objects.
  const struct LockstepPrivateKey *const *objects;
  // Number of objects.
  size_t count;
  // As in the public keys.
  const uint32_t *index;
} LockstepPrivateKeys;

// Places of results. Result `i` goes to `data + i * stride`. Each takes as many bytes as the
// longest result of its kind; a shorter one is followed by zeros. Bytes between rows are left
// alone. A call whose rows are too short for its results computes nothing.
typedef struct LockstepOutput {
  // First byte.
  uint8_t *data;
  // Number of bytes from one row to the next.
  size_t stride;
  // Length of each result, 0 where there is none; or null.
  uint32_t *lengths;
  // Code of the reason why there is no result, 0 where there is one; or null.
  uint8_t *reasons;
} LockstepOutput;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes workers with this number of threads; with 0, one for each CPU that the process may use.
// Returns null without memory for them, and if the variable `LOCKSTEP_LANES` names lanes that this
// CPU does not have.
struct LockstepWorkers *lockstep_workers_new(size_t threads);

// Frees workers; null is ignored.
//
// # Safety
//
// They come from `lockstep_workers_new`, and nobody uses them any more.
void lockstep_workers_free(struct LockstepWorkers *workers);

// Checks `count` signatures of one scheme ("ES256", "ES384", "Ed25519", "RS256", "PS256",
// "ML-DSA-44" and others). Sets `reasons[i]` to 0 for a good signature, and to the code of a
// reason for another one, and for all if the call fails.
//
// # Safety
//
// `workers` and the keys are alive, columns have `count` rows, and `reasons` has `count` places.
enum LockstepStatus lockstep_verify_many(const struct LockstepWorkers *workers,
                                         const char *scheme,
                                         uint32_t options,
                                         size_t count,
                                         const struct LockstepKeys *keys,
                                         const struct LockstepColumn *messages,
                                         const struct LockstepColumn *signatures,
                                         uint8_t *reasons);

// Signs `count` messages by one scheme. Each signature goes to a row of `output`.
//
// # Safety
//
// As `lockstep_verify_many`; `output` has `count` rows.
enum LockstepStatus lockstep_sign_many(const struct LockstepWorkers *workers,
                                       const char *scheme,
                                       uint32_t options,
                                       size_t count,
                                       const struct LockstepPrivateKeys *keys,
                                       const struct LockstepColumn *messages,
                                       const struct LockstepOutput *output);

// Agrees on `count` secrets by "X25519", "P-256" or "P-384". Each secret goes to a row of
// `output`.
//
// # Safety
//
// As `lockstep_sign_many`.
enum LockstepStatus lockstep_agree_many(const struct LockstepWorkers *workers,
                                        const char *algorithm,
                                        size_t count,
                                        const struct LockstepPrivateKeys *keys,
                                        const struct LockstepColumn *peers,
                                        const struct LockstepOutput *output);

// Makes `count` key pairs of an algorithm: of all but RSA. The halves go to rows of two outputs.
//
// # Safety
//
// As `lockstep_sign_many`.
enum LockstepStatus lockstep_generate_many(const struct LockstepWorkers *workers,
                                           const char *algorithm,
                                           size_t count,
                                           const struct LockstepOutput *secrets,
                                           const struct LockstepOutput *publics);

// Makes a secret for each of `count` public keys by "ML-KEM-512", "ML-KEM-768", "ML-KEM-1024",
// "X25519MLKEM768", "SecP256r1MLKEM768" or "SecP384r1MLKEM1024". Each secret goes to a row of
// `secrets`, and the ciphertext that tells it to the owner of the key to a row of `ciphertexts`.
//
// # Safety
//
// As `lockstep_verify_many`; both outputs have `count` rows.
enum LockstepStatus lockstep_encapsulate_many(const struct LockstepWorkers *workers,
                                              const char *algorithm,
                                              size_t count,
                                              const struct LockstepKeys *keys,
                                              const struct LockstepOutput *ciphertexts,
                                              const struct LockstepOutput *secrets);

// Finds the secrets of `count` ciphertexts. Each goes to a row of `output`. A ciphertext of the
// right length that belongs to another key has a secret that nobody else knows.
//
// # Safety
//
// As `lockstep_sign_many`.
enum LockstepStatus lockstep_decapsulate_many(const struct LockstepWorkers *workers,
                                              const char *algorithm,
                                              size_t count,
                                              const struct LockstepPrivateKeys *keys,
                                              const struct LockstepColumn *ciphertexts,
                                              const struct LockstepOutput *output);

// Returns the sentence of a reason's code, without a full stop; an empty one for 0 and for codes
// that do not exist. It is never freed.
const char *lockstep_reason_text(uint8_t code);

// Reads a public key in PEM (`PUBLIC KEY`, `RSA PUBLIC KEY`).
//
// # Safety
//
// `data` has `length` bytes, and `key` is a place for a pointer.
enum LockstepStatus lockstep_public_key_from_pem(const uint8_t *data,
                                                 size_t length,
                                                 struct LockstepPublicKey **key);

// Reads a public key in DER (SubjectPublicKeyInfo).
//
// # Safety
//
// As `lockstep_public_key_from_pem`.
enum LockstepStatus lockstep_public_key_from_der(const uint8_t *data,
                                                 size_t length,
                                                 struct LockstepPublicKey **key);

// Takes the bytes of a public key of an algorithm: a point of SEC 1, compressed or not, or 32
// bytes, or the encoding of FIPS 203 or FIPS 204, or a hybrid's share as TLS sends it.
//
// # Safety
//
// As `lockstep_public_key_from_pem`; `algorithm` ends with a zero.
enum LockstepStatus lockstep_public_key_from_raw(const char *algorithm,
                                                 const uint8_t *data,
                                                 size_t length,
                                                 struct LockstepPublicKey **key);

// Frees a public key; null is ignored.
//
// # Safety
//
// It comes from a function above, and nobody uses it any more.
void lockstep_public_key_free(struct LockstepPublicKey *key);

// Reads a private key in PEM (`PRIVATE KEY`, `RSA PRIVATE KEY`, `EC PRIVATE KEY`), not encrypted.
//
// # Safety
//
// As `lockstep_public_key_from_pem`.
enum LockstepStatus lockstep_private_key_from_pem(const uint8_t *data,
                                                  size_t length,
                                                  struct LockstepPrivateKey **key);

// Reads a private key in DER (PKCS#8).
//
// # Safety
//
// As `lockstep_public_key_from_pem`.
enum LockstepStatus lockstep_private_key_from_der(const uint8_t *data,
                                                  size_t length,
                                                  struct LockstepPrivateKey **key);

// Takes the bytes of a private key of an algorithm: a scalar or a seed.
//
// # Safety
//
// As `lockstep_public_key_from_raw`.
enum LockstepStatus lockstep_private_key_from_raw(const char *algorithm,
                                                  const uint8_t *data,
                                                  size_t length,
                                                  struct LockstepPrivateKey **key);

// Returns the public half of a key; null for null.
//
// # Safety
//
// The key is alive.
struct LockstepPublicKey *lockstep_private_key_public(const struct LockstepPrivateKey *key);

// Frees a private key; null is ignored.
//
// # Safety
//
// It comes from a function above, and nobody uses it any more.
void lockstep_private_key_free(struct LockstepPrivateKey *key);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LOCKSTEP_H */
