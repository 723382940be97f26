//! An RSA key ready for the lanes, with the blinding pairs that its requests share.

use std::fmt;
use std::sync::{Mutex, TryLockError};

use lockstep_kernels::rsa::{Blinding, Components, PrivateKey, PublicKey, Size, Unsupported};
use zeroize::Zeroizing;

use crate::entropy;
use crate::epoch::Epoch;
use crate::shape::Shape;

/// Number of blinding pairs that one key keeps: enough for four batches. Where more requests run at
/// a time, the others make pairs and drop them.
const PAIRS: usize = 32;

/// Maximum length of a usual public exponent. Keys with longer exponents have a shape of their own.
const USUAL_EXPONENT_BITS: usize = 64;

/// A prepared RSA private key.
pub struct RsaKey {
    private: PrivateKey,
    shape: Shape,
    /// No thread waits for a place: its lock is only tried, so that a lock that was held when the
    /// process forked costs the child one place. The places are not in the key itself, since keys
    /// are made on the small stacks of OpenSSL's async jobs and moved there from function to
    /// function.
    pairs: Box<[Mutex<Option<Pair>>]>,
}

struct Pair {
    epoch: Epoch,
    blinding: Blinding,
}

impl RsaKey {
    /// Prepares a key. An error says why no lane can serve it; then OpenSSL's own implementation
    /// computes with it.
    pub fn new(components: &Components<'_>) -> Result<RsaKey, Unsupported> {
        let private = PrivateKey::new(components)?;
        let wide_exponent = private.public().exponent_bits() > USUAL_EXPONENT_BITS;
        let shape = Shape::Rsa {
            size: private.size(),
            wide_exponent,
        };
        Ok(RsaKey {
            private,
            shape,
            pairs: (0..PAIRS).map(|_| Mutex::new(None)).collect(),
        })
    }

    /// Returns the shape that requests with a key would have, or `None` if no lane can serve them.
    /// The lengths of the modulus and of the public exponent are in bytes, without leading zeros.
    pub fn shape_of(modulus: usize, exponent: usize) -> Option<Shape> {
        Some(Shape::Rsa {
            size: Size::from_bits(8 * modulus)?,
            wide_exponent: 8 * exponent > USUAL_EXPONENT_BITS,
        })
    }

    /// Returns the size of the modulus.
    pub fn size(&self) -> Size {
        self.private.size()
    }

    /// Returns the length of the modulus in bytes, which is that of every input and result.
    pub fn modulus_bytes(&self) -> usize {
        self.size().bytes()
    }

    /// Returns the shape of requests with this key.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the public half: the modulus, the exponent, and the constants for the check.
    pub fn public(&self) -> &PublicKey {
        self.private.public()
    }

    pub(crate) fn private(&self) -> &PrivateKey {
        &self.private
    }

    /// Returns `count` pairs that no other request uses; `None` if some had to be made and the
    /// system gave no randomness.
    pub(crate) fn blindings(&self, epoch: Epoch, count: usize) -> Option<Vec<Blinding>> {
        let mut blindings = Vec::with_capacity(count);
        for place in &self.pairs {
            if blindings.len() == count {
                return Some(blindings);
            }
            let Ok(mut place) = unheld(place.try_lock()) else {
                continue;
            };
            // `take` would copy the bytes of an empty place as the allocator gave them. They may be
            // bytes of a key: libcrypto exports a key to a buffer, which it frees without wiping.
            if place.is_none() {
                continue;
            }
            match place.take() {
                Some(pair) if pair.epoch == epoch => blindings.push(pair.blinding),
                // Another process, or an earlier engine of this one, may use the same pair: wipe
                // it.
                Some(stale) => drop(stale),
                None => {}
            }
        }
        let missing = count - blindings.len();
        if missing > 0 {
            blindings.extend(self.new_blindings(missing)?);
        }
        Some(blindings)
    }

    /// Keeps a pair for the next request, unless it has been used as often as a pair may be.
    pub(crate) fn return_blinding(&self, epoch: Epoch, blinding: Blinding) {
        if blinding.needs_refresh() {
            return;
        }
        for place in &self.pairs {
            let Ok(mut place) = unheld(place.try_lock()) else {
                continue;
            };
            if place.is_none() {
                *place = Some(Pair { epoch, blinding });
                return;
            }
        }
    }

    fn new_blindings(&self, count: usize) -> Option<Vec<Blinding>> {
        let bytes = count * Blinding::random_bytes(self.size());
        let mut random = Zeroizing::new(vec![0; bytes]);
        // A random value without an inverse, which is rare, is replaced.
        for _ in 0..4 {
            entropy::fill(&mut random)?;
            if let Some(blindings) = Blinding::several(self.public(), &random, count) {
                return Some(blindings);
            }
        }
        None
    }
}

impl fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RsaKey")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// Takes a poisoned lock as an ordinary one: nothing can panic while a place is half written.
fn unheld<G>(attempt: Result<G, TryLockError<G>>) -> Result<G, ()> {
    match attempt {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(()),
    }
}
