//! The IV of a context, and its state.

use std::ffi::CStr;

use lockstep_kernels::wipe;

use crate::ffi::cipher::{Cipher, EncryptInit, GetCtxParams, Newctx};
use crate::ffi::{Bytes, List, ProvCtx, StockCtx, Transformed, name};
use crate::stock::families::Aes128Gcm;

/// The longest IV that OpenSSL takes.
const LONGEST: usize = 128;
/// The length of an IV that nobody has set another one for, and the shortest random one.
const USUAL: usize = 12;
/// The bytes at its end that TLS 1.2 counts in, and sends.
pub const EXPLICIT: usize = 8;
/// The bytes at its start that TLS 1.2 fixes, at the least.
const FIXED: usize = 4;

/// An IV.
pub struct Iv {
    bytes: [u8; LONGEST],
    length: usize,
    pub state: State,
    /// Whether OpenSSL's own rules let the next IV be counted from this one.
    counts: bool,
}

impl Drop for Iv {
    fn drop(&mut self) {
        wipe(&mut self.bytes);
    }
}

/// What has become of it.
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

    /// Has it be the same as `from`, where it lies.
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

    /// Sets it, with its length; false for a length that OpenSSL refuses.
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

    /// Sets the length. An IV of another one is not used.
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

    /// Makes a random one, as OpenSSL does for a message that is encrypted without one.
    pub fn randomize(&mut self, provctx: ProvCtx) -> bool {
        self.randomize_from(provctx, 0)
    }

    /// Sets what TLS 1.2 fixes of it; the rest is random in a context that encrypts, which counts
    /// on from there. As many bytes as the IV has restore one.
    ///
    /// OpenSSL takes more bytes than the IV has, and writes beyond it; here that fails.
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

    /// Whether the next IV may be counted from this one.
    pub fn counts(&self) -> bool {
        // OpenSSL counts in memory before a shorter one.
        self.counts && self.length >= EXPLICIT
    }

    /// Counts one on.
    pub fn count(&mut self) {
        let Some(part) = self.bytes[..self.length].last_chunk_mut::<EXPLICIT>() else {
            return;
        };
        *part = u64::from_be_bytes(*part).wrapping_add(1).to_be_bytes();
    }

    /// Has OpenSSL's own implementation, which knows the application's random generator, make
    /// an IV of this length, and takes what follows the first bytes.
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

/// A random IV of OpenSSL's, which makes one where a message begins without. The function of
/// `EVP_Cipher` adds no error of its own to those of the generator.
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
