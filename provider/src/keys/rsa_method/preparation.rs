//! Preparation of an RSA key for the lanes.
//!
//! It only reads the RSA object, since other threads may compute with the object at the same time.

use std::sync::Arc;

use lockstep_engine::{Fallback, RsaComponents, RsaKey, Secret, Shape};

use crate::ffi::{self, Bignum, Rsa};
use crate::host::c_library::Unsignalled;
use crate::host::memory;
use crate::host::stack;
use crate::keys::number::{self, length};
use crate::keys::shared_key::SharedKey;
use crate::process;
use crate::route::{self, Requests};

/// Result of a preparation.
pub enum Prepared {
    /// The private operations of the key run on lanes.
    Lanes(Lanes),
    /// OpenSSL computes, for this reason.
    Stock(Fallback),
}

/// A key ready for the lanes.
pub struct Lanes {
    pub key: Arc<RsaKey>,
    /// Big-endian bytes of the modulus, without leading zeros.
    pub modulus: Vec<u8>,
    /// The same key at the key daemon, if the daemon may compute with it, too.
    pub shared: Option<SharedKey>,
}

/// Prepares a key, if it is the turn of this request (`is_due`). An error is the reason why OpenSSL
/// computes for this request; a later request tries again.
pub fn prepare(rsa: &Rsa, requests: &Requests) -> Result<Prepared, Fallback> {
    if !is_due(rsa, requests) {
        return Err(Fallback::First);
    }
    if memory::is_scarce() {
        return Err(Fallback::NoMemory);
    }
    let made = Prepared::new(rsa);
    // If the key took the last memory, it is dropped.
    if memory::is_scarce() {
        return Err(Fallback::NoMemory);
    }
    match made {
        // These reasons say nothing about the key.
        Prepared::Stock(reason @ (Fallback::NoStack | Fallback::NoMemory)) => Err(reason),
        made => Ok(made),
    }
}

/// Counts a request with a key, and returns whether it prepares the key.
///
/// If first requests are left to OpenSSL, the second request with a key prepares it. Requests 4, 8,
/// 16 and so on try again: the thread of the second request may still prepare the key, may not
/// exist in this forked process, or may have had no memory.
fn is_due(rsa: &Rsa, requests: &Requests) -> bool {
    let shape = shape_of(rsa);
    if shape.is_none_or(|shape| process::leaves_first(shape) == 0) {
        return true;
    }
    let number = requests.next();
    if number == 1 {
        shape.map(route::note);
    }
    number > 1 && number.is_power_of_two()
}

/// Returns the shape of operations with a key, by the lengths of its public parts; None if no lanes
/// serve such keys.
fn shape_of(rsa: &Rsa) -> Option<Shape> {
    let (mut n, mut e, mut d) = (None, None, None);
    ffi::RSA_get0_key(rsa, &mut n, &mut e, &mut d);
    RsaKey::shape_of(length(n?), length(e?))
}

impl Prepared {
    fn new(rsa: &Rsa) -> Prepared {
        // A signal handler that calls `siglongjmp` would leave parts of the key on the stack.
        let _unsignalled = Unsignalled::begin();
        // OpenSSL's functions that copy parts of the key leave some on the stack, too.
        let lanes = stack::without_trace(|| Lanes::new(rsa));
        let lanes = lanes.unwrap_or(Err(Fallback::NoStack));
        lanes.map_or_else(Prepared::Stock, Prepared::Lanes)
    }
}

impl Lanes {
    /// Returns a key ready for the lanes, or the reason why they cannot or should not take it.
    fn new(rsa: &Rsa) -> Result<Lanes, Fallback> {
        let backend = process::backend().ok_or(Fallback::NoBackend)?;
        // For keys that the lanes never take, no engine is made and no part copied.
        if shape_of(rsa).is_some_and(|shape| process::declines_all(backend, shape)) {
            return Err(Fallback::SlowLanes);
        }
        let components = components(rsa)?;
        let shape = RsaKey::shape_of(components.n.len(), components.e.len());
        if let Some(reason) = shape.and_then(|shape| process::engine().declines_all(shape)) {
            return Err(reason);
        }
        let key = RsaKey::new(&components.borrow()).map(Arc::new)?;
        let shared = SharedKey::new(process::keys(), &components.n, &components.e);
        Ok(Lanes {
            key,
            modulus: components.n,
            shared,
        })
    }
}

/// Parts of a key as big-endian bytes. The secret parts lie in memory for keys: OpenSSL may have
/// them in its secure heap, so no copy goes to ordinary memory.
struct OwnedComponents {
    n: Vec<u8>,
    e: Vec<u8>,
    p: Secret,
    q: Secret,
    dp: Secret,
    dq: Secret,
    qinv: Secret,
}

impl OwnedComponents {
    fn borrow(&self) -> RsaComponents<'_> {
        RsaComponents {
            n: &self.n,
            e: &self.e,
            p: self.p.as_bytes(),
            q: self.q.as_bytes(),
            dp: self.dp.as_bytes(),
            dq: self.dq.as_bytes(),
            qinv: self.qinv.as_bytes(),
        }
    }
}

/// Length of the longest part that is copied, in bytes.
const LONGEST_MODULUS: usize = 16384 / 8;

/// Copies the parts of `rsa`; an error is the reason why it is not a two-prime CRT key.
fn components(rsa: &Rsa) -> Result<OwnedComponents, Fallback> {
    if ffi::RSA_get_multi_prime_extra_count(rsa) > 0 {
        return Err(Fallback::MultiPrime);
    }
    let (mut n, mut e, mut d) = (None, None, None);
    let (mut p, mut q) = (None, None);
    let (mut dp, mut dq, mut qinv) = (None, None, None);
    ffi::RSA_get0_key(rsa, &mut n, &mut e, &mut d);
    ffi::RSA_get0_factors(rsa, &mut p, &mut q);
    ffi::RSA_get0_crt_params(rsa, &mut dp, &mut dq, &mut qinv);
    let n = n.ok_or(Fallback::Inconsistent)?;
    let e = e.ok_or(Fallback::MissingExponent)?;
    let (Some(p), Some(q), Some(dp), Some(dq), Some(qinv)) = (p, q, dp, dq, qinv) else {
        return Err(Fallback::MissingCrt);
    };
    // The caller chooses the lengths of the parts: parts that no lanes can take are not copied.
    if length(n) > LONGEST_MODULUS {
        return Err(Fallback::KeySize);
    }
    if length(e) > LONGEST_MODULUS {
        return Err(Fallback::Exponent);
    }
    let is_too_long = |part: &&Bignum| length(part) > LONGEST_MODULUS;
    if [p, q, dp, dq, qinv].iter().any(is_too_long) {
        return Err(Fallback::Inconsistent);
    }
    let bytes = |part| number::bytes(part, length(part)).ok_or(Fallback::Inconsistent);
    let secret = |part| number::secret(part, length(part)).ok_or(Fallback::Inconsistent);
    Ok(OwnedComponents {
        n: bytes(n)?,
        e: bytes(e)?,
        p: secret(p)?,
        q: secret(q)?,
        dp: secret(dp)?,
        dq: secret(dq)?,
        qinv: secret(qinv)?,
    })
}
