//! `lockstep.h`: the bulk library for C.
//!
//! Most functions return a [`Status`]. Reasons of single items go to an array of bytes: 0 where
//! there is a result.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(unsafe_code, reason = "pointers of C")]

mod columns;
mod keys;
mod status;

use std::ffi::c_char;
use std::panic::catch_unwind;
use std::ptr;

use lockstep::{Reason, Scheme, ToAgree, ToDecapsulate, ToSign, ToVerify, rows};

use status::{guarded, places, text};

pub use columns::{Column, Output};
pub use keys::{
    Keys, PrivateKey, PrivateKeys, PublicKey, lockstep_private_key_free,
    lockstep_private_key_from_der, lockstep_private_key_from_pem, lockstep_private_key_from_raw,
    lockstep_private_key_public, lockstep_public_key_free, lockstep_public_key_from_der,
    lockstep_public_key_from_pem, lockstep_public_key_from_raw,
};
pub use status::Status;

/// Threads and lanes.
pub struct Workers(lockstep::Workers);

/// Makes workers with this number of threads; with 0, one for each CPU that the process may use.
/// Returns null without memory for them, and if the variable `LOCKSTEP_LANES` names lanes that this
/// CPU does not have.
#[unsafe(no_mangle)]
pub extern "C" fn lockstep_workers_new(threads: usize) -> *mut Workers {
    let made = catch_unwind(|| {
        let workers = lockstep::Workers::try_new().ok()?;
        Some(match threads {
            0 => workers,
            threads => workers.with_threads(threads),
        })
    });
    let made = made
        .ok()
        .flatten()
        .map(|own| Box::into_raw(Box::new(Workers(own))));
    made.unwrap_or(ptr::null_mut())
}

/// Frees workers; null is ignored.
///
/// # Safety
///
/// They come from `lockstep_workers_new`, and nobody uses them any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_workers_free(workers: *mut Workers) {
    if !workers.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(workers) });
    }
}

/// Returns the workers at a pointer.
///
/// # Safety
///
/// The pointer is null or points to workers that live long enough.
unsafe fn workers<'a>(pointer: *const Workers) -> Result<&'a lockstep::Workers, Status> {
    // SAFETY: the caller's promise.
    let workers = unsafe { pointer.as_ref() };
    workers.map(|workers| &workers.0).ok_or(Status::BadArgument)
}

/// Option of a call: signatures of ECDSA are in DER.
pub const LOCKSTEP_DER: u32 = 1;
/// Option of a call: messages are digests.
pub const LOCKSTEP_PREHASHED: u32 = 2;

/// Returns the scheme of a name, with these options.
///
/// # Safety
///
/// As [`text`].
unsafe fn scheme(name: *const c_char, options: u32) -> Result<Scheme, Status> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) }?;
    let mut scheme = Scheme::from_name(name).ok_or(Status::Unsupported)?;
    if options & !(LOCKSTEP_DER | LOCKSTEP_PREHASHED) != 0 {
        return Err(Status::BadArgument);
    }
    if options & LOCKSTEP_DER != 0 {
        scheme = scheme.der();
    }
    if options & LOCKSTEP_PREHASHED != 0 {
        scheme = scheme.prehashed();
    }
    Ok(scheme)
}

/// Checks `count` signatures of one scheme ("ES256", "ES384", "Ed25519", "RS256", "PS256",
/// "ML-DSA-44" and others). Sets `reasons[i]` to 0 for a good signature, and to the code of a
/// reason for another one, and for all if the call fails.
///
/// # Safety
///
/// `workers` and the keys are alive, columns have `count` rows, and `reasons` has `count` places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_verify_many(
    workers: *const Workers,
    scheme: *const c_char,
    options: u32,
    count: usize,
    keys: *const Keys,
    messages: *const Column,
    signatures: *const Column,
    reasons: *mut u8,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let reasons = unsafe { places(reasons, count) }?;
        // No signature is good if the call fails.
        reasons.fill(Reason::Internal as u8);
        // SAFETY: the caller's promises.
        let (workers, scheme, keys, messages, signatures) = unsafe {
            (
                self::workers(workers)?,
                self::scheme(scheme, options)?,
                Keys::at(keys, count)?,
                Column::at(messages, count)?,
                Column::at(signatures, count)?,
            )
        };
        let items = rows(count, |number| ToVerify {
            key: keys.get(number),
            message: messages.get(number),
            signature: signatures.get(number),
        });
        let verdicts = workers.verify_many(scheme, &items)?;
        for (place, verdict) in reasons.iter_mut().zip(verdicts) {
            *place = verdict.err().map_or(0, |reason| reason as u8);
        }
        Ok(())
    })
}

/// Signs `count` messages by one scheme. Each signature goes to a row of `output`.
///
/// # Safety
///
/// As `lockstep_verify_many`; `output` has `count` rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_sign_many(
    workers: *const Workers,
    scheme: *const c_char,
    options: u32,
    count: usize,
    keys: *const PrivateKeys,
    messages: *const Column,
    output: *const Output,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (workers, scheme, keys, messages) = unsafe {
            (
                self::workers(workers)?,
                self::scheme(scheme, options)?,
                PrivateKeys::at(keys, count)?,
                Column::at(messages, count)?,
            )
        };
        let items = rows(count, |number| {
            ToSign::new(keys.get(number), messages.get(number))
        });
        // Output without room for 1 byte is refused before `signature_bytes` reads all RSA keys.
        // SAFETY: the caller's promise.
        unsafe { Output::at(output, count, 1) }?;
        // SAFETY: as above.
        let output = unsafe { Output::at(output, count, scheme.signature_bytes(&items)) }?;
        let signatures = workers.sign_many(scheme, &items)?;
        // SAFETY: the output has `count` rows.
        unsafe { output.take(&signatures) }
    })
}

/// Agrees on `count` secrets by "X25519", "P-256" or "P-384". Each secret goes to a row of
/// `output`.
///
/// # Safety
///
/// As `lockstep_sign_many`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_agree_many(
    workers: *const Workers,
    algorithm: *const c_char,
    count: usize,
    keys: *const PrivateKeys,
    peers: *const Column,
    output: *const Output,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (workers, algorithm, keys, peers) = unsafe {
            (
                self::workers(workers)?,
                keys::algorithm(algorithm)?,
                PrivateKeys::at(keys, count)?,
                Column::at(peers, count)?,
            )
        };
        let width = algorithm.agreed_bytes().ok_or(Status::Unsupported)?;
        // SAFETY: the caller's promise.
        let output = unsafe { Output::at(output, count, width) }?;
        let items = rows(count, |number| {
            ToAgree::new(keys.get(number), lockstep::Key::Raw(peers.get(number)))
        });
        let secrets = workers.agree_many(algorithm, &items)?;
        // SAFETY: the output has `count` rows.
        unsafe { output.take(&secrets) }
    })
}

/// Makes `count` key pairs of an algorithm: of all but RSA. The halves go to rows of two outputs.
///
/// # Safety
///
/// As `lockstep_sign_many`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_generate_many(
    workers: *const Workers,
    algorithm: *const c_char,
    count: usize,
    secrets: *const Output,
    publics: *const Output,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (workers, algorithm) =
            unsafe { (self::workers(workers)?, keys::algorithm(algorithm)?) };
        let (secret, public) = algorithm.key_bytes().ok_or(Status::Unsupported)?;
        // SAFETY: the caller's promises.
        let (secrets, publics) = unsafe {
            (
                Output::at(secrets, count, secret)?,
                Output::at(publics, count, public)?,
            )
        };
        let pairs = workers.generate_many(algorithm, count)?;
        // SAFETY: the outputs have `count` rows.
        unsafe {
            secrets.take(pairs.secrets())?;
            publics.take(pairs.publics())
        }
    })
}

/// Makes a secret for each of `count` public keys by "ML-KEM-512", "ML-KEM-768", "ML-KEM-1024",
/// "X25519MLKEM768", "SecP256r1MLKEM768" or "SecP384r1MLKEM1024". Each secret goes to a row of
/// `secrets`, and the ciphertext that tells it to the owner of the key to a row of `ciphertexts`.
///
/// # Safety
///
/// As `lockstep_verify_many`; both outputs have `count` rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_encapsulate_many(
    workers: *const Workers,
    algorithm: *const c_char,
    count: usize,
    keys: *const Keys,
    ciphertexts: *const Output,
    secrets: *const Output,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (workers, kem, keys) = unsafe {
            (
                self::workers(workers)?,
                keys::kem(algorithm)?,
                Keys::at(keys, count)?,
            )
        };
        // SAFETY: the caller's promises.
        let (ciphertexts, secrets) = unsafe {
            (
                Output::at(ciphertexts, count, kem.ciphertext_bytes())?,
                Output::at(secrets, count, kem.shared_bytes())?,
            )
        };
        let items = rows(count, |number| keys.get(number));
        let sent = workers.encapsulate_many(kem, &items)?;
        // SAFETY: the outputs have `count` rows.
        unsafe {
            ciphertexts.take(&sent.ciphertexts)?;
            secrets.take(&sent.secrets)
        }
    })
}

/// Finds the secrets of `count` ciphertexts. Each goes to a row of `output`. A ciphertext of the
/// right length that belongs to another key has a secret that nobody else knows.
///
/// # Safety
///
/// As `lockstep_sign_many`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_decapsulate_many(
    workers: *const Workers,
    algorithm: *const c_char,
    count: usize,
    keys: *const PrivateKeys,
    ciphertexts: *const Column,
    output: *const Output,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (workers, kem, keys, ciphertexts) = unsafe {
            (
                self::workers(workers)?,
                keys::kem(algorithm)?,
                PrivateKeys::at(keys, count)?,
                Column::at(ciphertexts, count)?,
            )
        };
        // SAFETY: the caller's promise.
        let output = unsafe { Output::at(output, count, kem.shared_bytes()) }?;
        let items = rows(count, |number| ToDecapsulate {
            key: keys.get(number),
            ciphertext: ciphertexts.get(number),
        });
        let secrets = workers.decapsulate_many(kem, &items)?;
        // SAFETY: the output has `count` rows.
        unsafe { output.take(&secrets) }
    })
}

/// Returns the sentence of a reason's code, without a full stop; an empty one for 0 and for codes
/// that do not exist. It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn lockstep_reason_text(code: u8) -> *const c_char {
    macro_rules! texts {
        ($($reason:ident)*) => {
            match code {
                $(code if code == Reason::$reason as u8 => {
                    const TEXT: &str = Reason::$reason.text();
                    const BYTES: [u8; TEXT.len() + 1] = {
                        let mut bytes = [0; TEXT.len() + 1];
                        let mut at = 0;
                        while at < TEXT.len() {
                            bytes[at] = TEXT.as_bytes()[at];
                            at += 1;
                        }
                        bytes
                    };
                    const ZEROED: &[u8] = &BYTES;
                    ZEROED.as_ptr().cast()
                })*
                _ => c"".as_ptr(),
            }
        };
    }
    texts! {
        WrongSignature MalformedSignature MalformedKey OtherAlgorithm MalformedInput
        InconsistentKey CheckFailed NoResources Internal
    }
}
