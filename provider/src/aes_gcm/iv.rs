//! The IV of a context, and its state.

use std::ffi::CStr;

use lockstep_kernels::wipe;

use crate::ffi::cipher::{Cipher, EncryptInit, GetCtxParams, Newctx};
use crate::ffi::{Bytes, List, ProvCtx, StockCtx, Transformed, name};
use crate::stock::families::Aes128Gcm;

/// Length of the longest IV that OpenSSL takes.
const LONGEST: usize = 128;
/// Default length of an IV, and the shortest length of a random one.
const USUAL: usize = 12;
/// Length of the explicit part at the end of an IV, which TLS 1.2 increments and sends.
pub const EXPLICIT: usize = 8;
/// Minimum length of the part at the start of an IV that TLS 1.2 fixes.
const FIXED: usize = 4;

pub struct Iv {
    bytes: [u8; LONGEST],
    length: usize,
    pub state: State,
    /// Whether OpenSSL's own rules let the next IV be an increment of this one.
    counts: bool,
}

impl Drop for Iv {
    fn drop(&mut self) {
        wipe(&mut self.bytes);
    }
}

/// State of an IV.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    Unset,
    /// It is set, and no message has begun with it.
    Buffered,
    /// A message has begun with it.
    Copied,
    /// It must not be used again.
    Finished,
}

impl Iv {
    pub const UNSET: Iv = Iv {
        bytes: [0; LONGEST],
        length: USUAL,
        state: State::Unset,
        counts: false,
    };

    /// Copies `from` in place.
    pub fn copy_from(&mut self, from: &Iv) {
        let Iv {
            bytes,
            length,
            state,
            counts,
        } = from;
        self.bytes.copy_from_slice(bytes);
        self.length = *length;
        self.state = *state;
        self.counts = *counts;
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub fn is_unset(&self) -> bool {
        self.state == State::Unset
    }

    /// Sets the IV and its length; returns false for a length that OpenSSL refuses.
    pub fn set(&mut self, iv: Bytes<'_>) -> bool {
        let length = iv.len();
        let bytes = &mut self.bytes;
        let copied =
            is_length(length) && iv.read(|iv| bytes[..length].copy_from_slice(iv)).is_some();
        if copied {
            self.length = length;
            self.state = State::Buffered;
        }
        copied
    }

    /// Sets the length. An IV that was set with another length must not be used any more.
    pub fn set_length(&mut self, length: usize) -> bool {
        if !is_length(length) {
            return false;
        }
        if self.length != length && self.state != State::Unset {
            self.state = State::Finished;
        }
        self.length = length;
        true
    }

    /// Makes a random IV, as OpenSSL does for a message that is encrypted without an IV.
    pub fn randomize(&mut self, provctx: ProvCtx) -> bool {
        self.randomize_from(provctx, 0)
    }

    /// Sets the part that TLS 1.2 fixes. In a context that encrypts, the rest is random, and later
    /// IVs are increments. If `is_whole`, `fixed` is a whole IV and replaces this one.
    ///
    /// OpenSSL takes an input longer than the IV, and writes beyond the IV; this returns false.
    pub fn fix(
        &mut self,
        provctx: ProvCtx,
        fixed: Bytes<'_>,
        is_whole: bool,
        encrypts: bool,
    ) -> bool {
        let length = fixed.len();
        if !is_whole && (length < FIXED || length + EXPLICIT > self.length) {
            return false;
        }
        let bytes = &mut self.bytes;
        if fixed
            .read(|fixed| bytes[..length].copy_from_slice(fixed))
            .is_none()
        {
            return false;
        }
        if !is_whole && encrypts && !self.randomize_from(provctx, length) {
            return false;
        }
        self.counts = true;
        self.state = State::Buffered;
        true
    }

    /// Sets the part that a TLS 1.2 record brings; false where OpenSSL's rules forbid that.
    pub fn set_explicit(&mut self, part: Bytes<'_>) -> bool {
        let Some(start) = self.length.checked_sub(part.len()) else {
            return false;
        };
        let to = &mut self.bytes[start..self.length];
        self.counts && part.read(|part| to.copy_from_slice(part)).is_some()
    }

    /// Returns whether the next IV may be an increment of this one.
    pub fn counts(&self) -> bool {
        // With a shorter IV, OpenSSL increments memory before the IV.
        self.counts && self.length >= EXPLICIT
    }

    /// Increments the IV.
    pub fn count(&mut self) {
        let Some(part) = self.bytes[..self.length].last_chunk_mut::<EXPLICIT>() else {
            return;
        };
        *part = u64::from_be_bytes(*part).wrapping_add(1).to_be_bytes();
    }

    /// Replaces the bytes from `start` on by those of a random IV of the same length. OpenSSL's own
    /// implementation makes that IV, since it knows the application's random generator.
    fn randomize_from(&mut self, provctx: ProvCtx, start: usize) -> bool {
        let mut made = [0; LONGEST];
        let made = &mut made[..self.length];
        if self.length < USUAL || random(provctx, made).is_none() {
            return false;
        }
        self.bytes[start..self.length].copy_from_slice(&made[start..]);
        self.state = State::Buffered;
        true
    }
}

fn is_length(length: usize) -> bool {
    (1..=LONGEST).contains(&length)
}

/// Gets a random IV from OpenSSL, which makes one when a message begins without an IV. [`Cipher`],
/// the function of `EVP_Cipher`, adds no error of its own to the generator's errors.
fn random(provctx: ProvCtx, iv: &mut [u8]) -> Option<()> {
    const LENGTH: &CStr = name::CIPHER_PARAM_IVLEN;
    let done = |result| (result == 1).then_some(());
    let context: StockCtx<Aes128Gcm> = Newctx::pass(provctx)?;
    let length = iv.len();
    let length = List::<2>::new().size(LENGTH, &length);
    let key = Bytes::new(&[0; 16]);
    done(EncryptInit::pass(
        &*context,
        key,
        Bytes::NONE,
        length.as_params(),
    ))?;
    let mut written = 0;
    let message = Transformed::read_only(Bytes::new(&[0]), &mut written);
    done(Cipher::pass(&*context, message))?;
    let mut made = List::<2>::new().room(name::CIPHER_PARAM_IV, iv);
    done(GetCtxParams::pass(&*context, made.as_params_mut()))
}
