//! Signing: by the key daemon, the lanes, or OpenSSL.

use std::ffi::c_int;
use std::sync::Arc;

use lockstep_engine::{MlDsaKey, MlDsaSignInput, MlDsaSignature, Outcome, operation};
use zeroize::Zeroizing;

use crate::daemon::key::{Key, Operation};
use crate::ffi::signature::{DigestSign, Sign, SignMessageFinal};
use crate::ffi::{Bytes, Ctx, OutBuf};
use crate::keys::wrapped::is_too_long;
use crate::route::{self, Route};

use super::context::{Context, Half, Notes};
use super::form::Form;
use super::keys::Keys;

/// Length of the longest message that the engine is asked to sign. OpenSSL hashes a longer one
/// faster, and lanes gain little there.
const LONGEST_SIGNED: usize = 16 << 10;

/// `OSSL_FUNC_signature_digest_sign`
pub fn digest_sign<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: OutBuf<'_>,
    data: Bytes<'_>,
) -> c_int {
    ctx.map_or(0, |ours| {
        let stock = || DigestSign::pass(&*ours.stock, signature, data);
        signed::<K>(&ours.notes, signature, data, stock)
    })
}

/// `OSSL_FUNC_signature_sign`
pub fn sign<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: OutBuf<'_>,
    data: Bytes<'_>,
) -> c_int {
    ctx.map_or(0, |ours| {
        let stock = || Sign::pass(&*ours.stock, signature, data);
        signed::<K>(&ours.notes, signature, data, stock)
    })
}

/// Signs: by the key daemon, by the engine, or by OpenSSL's own function `stock`.
fn signed<K: Keys>(
    notes: &Notes,
    room: OutBuf<'_>,
    data: Bytes<'_>,
    stock: impl FnOnce() -> c_int,
) -> c_int {
    let length = K::SET.signature_bytes();
    notes.way.take(
        |(referent, key)| {
            if room.is_question() {
                room.put_length(length);
                return 1;
            }
            if !room.holds(length) {
                referent.refuse("there is too little room for the signature");
                return 0;
            }
            let made = asked(referent, key, notes.form.as_ref(), data, length);
            made.map_or(0, |made| c_int::from(room.write(&made)))
        },
        |key| {
            let has_room = room.holds(length);
            let made = computed::<K>(key, notes.form.as_ref().filter(|_| has_room), data);
            made.map(|made| c_int::from(room.write(made.as_bytes())))
        },
        stock,
    )
}

/// Returns the key daemon's signature; None with an error set.
fn asked(
    referent: &Key,
    key: &MlDsaKey,
    form: Option<&Form>,
    data: Bytes<'_>,
    length: usize,
) -> Option<Zeroizing<Vec<u8>>> {
    let Some(form) = form.filter(|form| form.entropy.is_none()) else {
        referent.refuse("the program sets a parameter that the key daemon does not know");
        return None;
    };
    let Some(mu) = form.mu(key, data) else {
        referent.refuse("the hash given in place of the message is not 64 bytes long");
        return None;
    };
    let operation = match form.is_deterministic {
        true => Operation::DeterministicMlDsaSign,
        false => Operation::MlDsaSign,
    };
    referent.ask(operation, &mu, length)
}

/// `OSSL_FUNC_signature_sign_message_final`
pub fn sign_message_final<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: OutBuf<'_>,
) -> c_int {
    ctx.map_or(0, |ours| match &ours.notes.way {
        Route::Daemon((referent, _)) => {
            referent.refuse("the key daemon signs a message only in one piece");
            0
        }
        _ => SignMessageFinal::pass(&*ours.stock, signature),
    })
}

/// Returns the engine's signature, if the form of the message is known.
fn computed<K: Keys>(key: &Half, form: Option<&Form>, data: Bytes<'_>) -> Outcome<MlDsaSignature> {
    let (Half::Sign(key), Some(form)) = (key, form) else {
        return Outcome::NotAsked;
    };
    if !key.is_private() {
        return Outcome::NotAsked;
    }
    if is_too_long(data, LONGEST_SIGNED) {
        return Outcome::NotAsked;
    }
    let request = || {
        Some(MlDsaSignInput {
            key: Arc::clone(key),
            mu: form.mu(key, data)?,
            randomness: form.randomness(),
        })
    };
    route::serve(operation::MlDsaSign(K::SET), request)
}
