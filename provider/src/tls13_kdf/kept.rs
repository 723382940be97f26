//! Secrets that a thread keeps between derivations, in memory for keys.
//!
//! The application has the same secret, and may have wiped it since. So no core dump and no forked
//! child has the kept one, the next secret overwrites it, and it is wiped when the thread ends. The
//! last derivations of a handshake leave nothing.

use std::cell::RefCell;

use lockstep_kernels::hmac::{Keyed, TAG_BYTES, Tag};
use lockstep_vault::{Boxed, OnFork, Zeroable};

/// Number of expansions of a traffic secret that follow each other.
pub const EXPANSIONS: usize = 3;

/// Values that a thread keeps of the secrets that were used last.
pub struct Kept {
    /// A secret as a key.
    pub keyed: Slot<Keyed>,
    /// Expansions of a traffic secret that are still to come.
    pub traffic: Slot<[Tag; EXPANSIONS]>,
}

/// A value computed from one secret, or nothing.
pub struct Slot<T: Zeroable + Copy>(Boxed<Computed<T>>);

/// If all bytes are zero, as a forked child finds them, there is no secret.
#[derive(Clone, Copy)]
struct Computed<T> {
    /// Length of the secret; the other bytes are zero.
    length: usize,
    secret: [u8; TAG_BYTES],
    value: T,
}

// SAFETY: a number, bytes, and a value that may be all zero too.
unsafe impl<T: Zeroable> Zeroable for Computed<T> {}

impl<T: Zeroable + Copy> Slot<T> {
    fn new() -> Option<Slot<T>> {
        Boxed::try_zeroed(OnFork::Wipe).map(Slot)
    }

    /// Returns the value computed from this secret, if it is kept.
    pub fn of(&mut self, secret: &[u8]) -> Option<&mut T> {
        let known = &self.0.secret[..self.0.length];
        (known.len() == secret.len() && is_equal(known, secret)).then_some(&mut self.0.value)
    }

    /// Returns the place for the value of this secret, instead of any other.
    pub fn replace(&mut self, secret: &[u8]) -> &mut T {
        self.clear();
        self.0.length = secret.len();
        self.0.secret[..secret.len()].copy_from_slice(secret);
        &mut self.0.value
    }

    pub fn clear(&mut self) {
        if self.0.length != 0 {
            self.0.wipe();
        }
    }
}

impl Kept {
    /// Calls `derive` with the values of this thread; None without memory for them, and in a thread
    /// that ends.
    pub fn with<R>(derive: impl FnOnce(&mut Kept) -> R) -> Option<R> {
        thread_local! {
            static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
        }
        let derived = KEPT.try_with(|kept| {
            let mut kept = kept.try_borrow_mut().ok()?;
            if kept.is_none() {
                *kept = Some(Kept {
                    keyed: Slot::new()?,
                    traffic: Slot::new()?,
                });
            }
            kept.as_mut().map(derive)
        });
        derived.ok().flatten()
    }
}

/// Returns whether `other`, which is at least as long, begins with a secret, in constant time.
pub fn is_equal(secret: &[u8], other: &[u8]) -> bool {
    let bytes = secret.iter().zip(other);
    bytes.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}
