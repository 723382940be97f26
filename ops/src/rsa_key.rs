//! An RSA key ready for the lanes, with the blinding pairs that its requests share.

use std::fmt;
use std::sync::{Mutex, TryLockError};

use lockstep_kernels::rsa::{Blinding, Components, PrivateKey, PublicKey, Size, Unsupported};
use zeroize::Zeroizing;

use crate::entropy;
use crate::epoch::Epoch;
use crate::shape::Shape;

/// Blinding pairs that one key keeps: four batches' worth. More requests at a time make pairs of
/// their own and drop them.
const PAIRS: usize = 32;

/// A public exponent longer than this makes a key a shape of its own.
const USUAL_EXPONENT_BITS: usize = 64;

/// A prepared RSA private key.
pub struct RsaKey {
    private: PrivateKey,
    shape: Shape,
    /// Each place is only ever tried, never waited for: a lock that was held when the process
    /// forked costs the child that place. They have memory of their own: keys are made on the small
    /// stacks of OpenSSL's async jobs, and moved there from function to function.
    pairs: Box<[Mutex<Option<Pair>>]>,
}

struct Pair {
    epoch: Epoch,
    blinding: Blinding,
}

impl RsaKey {
    /// Prepares a key. An error says why no lane can serve it; OpenSSL's own implementation keeps
    /// it then.
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

    /// The shape that requests with a key would have, by the lengths of its modulus and of its
    /// public exponent in bytes, without leading zeros; none if no lane can serve them.
    pub fn shape_of(modulus: usize, exponent: usize) -> Option<Shape> {
        Some(Shape::Rsa {
            size: Size::from_bits(8 * modulus)?,
            wide_exponent: 8 * exponent > USUAL_EXPONENT_BITS,
        })
    }

    /// The size of the modulus.
    pub fn size(&self) -> Size {
        self.private.size()
    }

    /// The length of the modulus, and so of every input and result, in bytes.
    pub fn modulus_bytes(&self) -> usize {
        self.size().bytes()
    }

    /// The shape of requests with this key.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The public half: modulus, exponent, and what the check needs.
    pub fn public(&self) -> &PublicKey {
        self.private.public()
    }

    pub(crate) fn private(&self) -> &PrivateKey {
        &self.private
    }

    /// `count` pairs that nobody else uses; `None` if some had to be made and the system gave no
    /// randomness.
    pub(crate) fn blindings(&self, epoch: Epoch, count: usize) -> Option<Vec<Blinding>> {
        let mut blindings = Vec::with_capacity(count);
        for place in &self.pairs {
            if blindings.len() == count {
                return Some(blindings);
            }
            let Ok(mut place) = unheld(place.try_lock()) else {
                continue;
            };
            // To take nothing would copy the bytes of an empty place, as the allocator gave them.
            // They may be of a key: libcrypto exports it to a buffer that it frees without a wipe.
            if place.is_none() {
                continue;
            }
            match place.take() {
                Some(pair) if pair.epoch == epoch => blindings.push(pair.blinding),
                // Another process, or an engine before this one, may use the same pair: wipe it.
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

    /// Gives a pair back for the next request, unless it has been used as often as it may.
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
        // A value without an inverse, which is rare, is replaced.
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

/// A poisoned place is as good as any: nothing can panic while it is half written.
fn unheld<G>(attempt: Result<G, TryLockError<G>>) -> Result<G, ()> {
    match attempt {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(()),
    }
}
