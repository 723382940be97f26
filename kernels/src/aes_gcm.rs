//! AES-GCM (NIST SP 800-38D) with keys of 128, 192 and 256 bits.
//!
//! A [`Key`] is prepared once and serves any number of messages. A [`Message`] begins with a key
//! and an initialisation vector, takes additional data and then data, both in pieces of any length,
//! and ends with its tag. Neither allocates, and both are wiped when they are dropped.
//!
//! The plaintext of [`Message::decrypt`] is not authentic before its caller has compared the tags.
//!
//! # Examples
//!
//! ```
//! use lockstep_kernels::InOut;
//! use lockstep_kernels::aes_gcm::{Key, Lanes, Message, tags_are_equal};
//!
//! let mut key = Key::new(Lanes::PORTABLE);
//! key.set(&[1; 16]).expect("16 bytes");
//! let (iv, mut data) = ([2; 12], *b"plaintext");
//!
//! let mut message = Message::default();
//! message.begin(&key, &iv); // a new vector for each message
//! message.authenticate(&key, b"header").expect("a short header");
//! message.encrypt(&key, InOut::in_place(&mut data)).expect("a short message");
//! let tag = message.tag(&key);
//!
//! message.begin(&key, &iv);
//! message.authenticate(&key, b"header").expect("a short header");
//! message.decrypt(&key, InOut::in_place(&mut data)).expect("a short message");
//! assert!(tags_are_equal(&message.tag(&key), &tag));
//! assert_eq!(&data, b"plaintext");
//! ```
//!
//! # How it works
//!
//! Data are encrypted by counter mode and authenticated by GHASH. The coefficients of a polynomial
//! over GF(2^128) are the blocks, and GHASH is the value of this polynomial at the point
//! H = AES(0). `ghash` multiplies many blocks by powers of H and reduces the sum once. `counter`
//! encrypts and hashes at most four vectors at a time. `long` hashes eight vectors while it
//! encrypts the next eight.

mod aes;
mod counter;
mod ghash;
mod lanes;
mod long;
#[cfg(feature = "proofs")]
#[path = "../../proofs/lists/aes_gcm.rs"]
pub(crate) mod proved;
mod state;

use core::fmt;

pub use self::counter::SHORT_IV_BYTES;
pub use self::lanes::Lanes;
pub use self::state::{Key, Message};
use self::state::{MOST_ROUNDS, PLACES, position};
use crate::in_out::InOut;
use crate::simd::blocks::BLOCK_BYTES;

/// Number of bytes of a complete tag.
pub const TAG_BYTES: usize = BLOCK_BYTES;

/// Maximum number of bytes of data in a message (section 5.2.1.1).
pub const MOST_DATA: u64 = (1 << 36) - 32;

/// Maximum number of bytes of additional data in a message.
pub const MOST_ADDITIONAL: u64 = (1 << 61) - 1;

/// Calls `$function` with the implementation of `Blocks` that `$lanes` holds.
macro_rules! dispatch {
    ($lanes:expr, $function:path, $($argument:expr),*) => {
        match $lanes.0 {
            #[cfg(vectors)]
            $crate::aes_gcm::lanes::Kind::Vaes512(blocks) => $function(blocks, $($argument),*),
            #[cfg(vectors)]
            $crate::aes_gcm::lanes::Kind::Vaes256(blocks) => $function(blocks, $($argument),*),
            $crate::aes_gcm::lanes::Kind::Portable(blocks) => $function(blocks, $($argument),*),
        }
    };
}

/// The reason why a call did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The key does not have 16, 24 or 32 bytes.
    KeyLength,
    /// The message would be longer than GCM allows.
    TooLong,
    /// Additional data came after data.
    Order,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::KeyLength => "a key of AES has 16, 24 or 32 bytes",
            Error::TooLong => "the message is longer than GCM allows",
            Error::Order => "additional data must come before data",
        })
    }
}

impl core::error::Error for Error {}

impl Key {
    /// Returns an unset key: all its parts are zero.
    pub fn new(lanes: Lanes) -> Key {
        Key {
            powers: [[0; BLOCK_BYTES]; PLACES],
            strides: Default::default(),
            round_keys: [[0; BLOCK_BYTES]; MOST_ROUNDS + 1],
            rounds: MOST_ROUNDS,
            lanes,
        }
    }

    /// Sets the key, of 16, 24 or 32 bytes, in place.
    ///
    /// # Errors
    /// [`Error::KeyLength`]; the key is then unchanged.
    pub fn set(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.rounds = aes::rounds(bytes.len()).ok_or(Error::KeyLength)?;
        dispatch!(self.lanes, aes::expand, self, bytes);
        dispatch!(self.lanes, ghash::prepare, self);
        Ok(())
    }

    /// Returns the lanes that the key was made for.
    pub fn lanes(&self) -> Lanes {
        self.lanes
    }
}

impl Message {
    /// Begins a message. No other message may be encrypted with this key and initialisation
    /// vector. The vector has at least one byte.
    pub fn begin(&mut self, key: &Key, iv: &[u8]) {
        *self = Self::default();
        dispatch!(key.lanes, counter::begin, key, self, iv);
    }

    /// Returns a message without an initialisation vector: its keystream begins with AES(0), and no
    /// mask is added to its tag. OpenSSL continues in this way if a key is set within a message.
    /// Such a message is not protected, since AES(0) is H.
    pub fn without_iv() -> Message {
        let mut message = Message::default();
        // The keystream begins with the encrypted counter block after this one, which is all zero.
        message.counter[SHORT_IV_BYTES..].fill(0xff);
        message
    }

    /// Authenticates more additional data.
    ///
    /// # Errors
    /// [`Error::TooLong`], and [`Error::Order`] if there were data already; the message is then
    /// unchanged.
    pub fn authenticate(&mut self, key: &Key, bytes: &[u8]) -> Result<(), Error> {
        if self.data != 0 {
            return Err(Error::Order);
        }
        let total = grown(self.additional, bytes.len(), MOST_ADDITIONAL)?;
        let position = position(self.additional);
        dispatch!(
            key.lanes,
            ghash::absorb,
            key,
            &mut self.hash,
            position,
            bytes
        );
        self.additional = total;
        Ok(())
    }

    /// Encrypts more data.
    ///
    /// # Errors
    /// [`Error::TooLong`]; the message is then unchanged, and nothing is written.
    pub fn encrypt(&mut self, key: &Key, data: InOut<'_>) -> Result<(), Error> {
        let total = grown(self.data, data.len(), MOST_DATA)?;
        dispatch!(key.lanes, counter::encrypt, key, self, data);
        self.data = total;
        Ok(())
    }

    /// Decrypts more data, which nobody may use before the tag is verified.
    ///
    /// # Errors
    /// [`Error::TooLong`]; the message is then unchanged, and nothing is written.
    pub fn decrypt(&mut self, key: &Key, data: InOut<'_>) -> Result<(), Error> {
        let total = grown(self.data, data.len(), MOST_DATA)?;
        dispatch!(key.lanes, counter::decrypt, key, self, data);
        self.data = total;
        Ok(())
    }

    /// Ends the message and returns its complete tag. A shorter tag is a prefix of it.
    pub fn tag(&self, key: &Key) -> [u8; TAG_BYTES] {
        dispatch!(key.lanes, counter::tag, key, self)
    }
}

/// Returns whether `a` and `b` are equal, in a time that depends on their lengths only.
pub fn tags_are_equal(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    let equal = crate::simd::opaque_word(u64::from(difference)) == 0;
    crate::taint::disclosed(equal) && a.len() == b.len()
}

/// Returns `length + more`, if this sum is at most `most`.
fn grown(length: u64, more: usize, most: u64) -> Result<u64, Error> {
    length
        .checked_add(more as u64)
        .filter(|&total| total <= most)
        .ok_or(Error::TooLong)
}

#[cfg(test)]
mod tests;
