//! Checking: by the lanes, or by OpenSSL.

use std::ffi::c_int;
use std::sync::Arc;

use lockstep_engine::{Bytes as Octets, MlDsaVerifyInput, Outcome, operation};

use crate::ffi::signature::{DigestVerify, Verify};
use crate::ffi::{Bytes, Ctx};
use crate::keys::wrapped::is_too_long;
use crate::route::{self, Route};

use super::context::{Context, Half, Notes};
use super::keys::Keys;

/// Length of the longest message whose signature the engine is asked to check. It is shorter than
/// for signing, because a check takes less time.
const LONGEST_CHECKED: usize = 8 << 10;

/// `OSSL_FUNC_signature_digest_verify`
pub fn digest_verify<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: Bytes<'_>,
    data: Bytes<'_>,
) -> c_int {
    ctx.map_or(0, |ours| {
        let is_right = verified::<K>(&ours.notes, signature, data).map(c_int::from);
        is_right.or_else(|| DigestVerify::pass(&*ours.stock, signature, data))
    })
}

/// `OSSL_FUNC_signature_verify`
pub fn verify<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: Bytes<'_>,
    data: Bytes<'_>,
) -> c_int {
    ctx.map_or(0, |ours| {
        let is_right = verified::<K>(&ours.notes, signature, data).map(c_int::from);
        is_right.or_else(|| Verify::pass(&*ours.stock, signature, data))
    })
}

/// Returns whether the engine finds a signature valid.
fn verified<K: Keys>(notes: &Notes, signature: Bytes<'_>, data: Bytes<'_>) -> Outcome<bool> {
    let (Route::Lanes(Half::Verify(key)), Some(form)) = (&notes.way, &notes.form) else {
        return Outcome::NotAsked;
    };
    if signature.len() != K::SET.signature_bytes() || is_too_long(data, LONGEST_CHECKED) {
        return Outcome::NotAsked;
    }
    let request = || {
        Some(MlDsaVerifyInput {
            key: Arc::clone(key),
            mu: form.mu(key, data)?,
            signature: signature.read(Octets::try_from_slice)??,
        })
    };
    route::serve(operation::MlDsaVerify(K::SET), request)
}

#[cfg(test)]
mod tests {
    use lockstep_engine::{MlDsa, MlDsaKey};

    use super::*;
    use crate::stock::families::MlDsa44Keys;

    #[test]
    fn a_long_message_is_left_to_openssl() {
        let set = MlDsa::MlDsa44;
        let public = vec![7; set.public_key_bytes()];
        let key = Arc::new(MlDsaKey::new(set, &public, None).expect("a key"));
        let notes = Notes {
            way: Route::Lanes(Half::Verify(key)),
            ..Notes::default()
        };
        let signature = vec![7; set.signature_bytes()];
        let is_asked = |length: usize| {
            let (signature, message) = (Bytes::new(&signature), vec![7; length]);
            let verdict = verified::<MlDsa44Keys>(&notes, signature, Bytes::new(&message));
            !matches!(verdict, Outcome::NotAsked)
        };
        assert!(is_asked(LONGEST_CHECKED));
        assert!(!is_asked(LONGEST_CHECKED + 1));
    }
}
