//! Base blinding.

use core::fmt;

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, Uint};

use super::{PublicKey, Size};
use crate::layout::{bytes_from_limbs, limbs_from_bytes};
use crate::secret::SecretWords;

/// A pair (r^e mod n, 1/r mod n) that hides one request's input from the exponentiation.
///
/// The input is multiplied by the first and the result by the second. Each use squares both, on the
/// lanes, so that no two inputs meet the same r; after [`Blinding::MAX_USES`] it is time for fresh
/// randomness.
#[derive(Clone)]
pub struct Blinding {
    size: Size,
    /// r^e·R mod n.
    pub(crate) hide: SecretWords,
    /// R/r mod n.
    pub(crate) reveal: SecretWords,
    pub(crate) uses: u32,
}

impl Blinding {
    /// How often a pair may be squared before it is replaced, as OpenSSL has it.
    pub const MAX_USES: u32 = 32;

    /// How many random bytes [`Blinding::new`] wants: enough that reducing them modulo n leaves a bias
    /// below 2^−128.
    pub const fn random_bytes(size: Size) -> usize {
        size.bytes() + 16
    }

    /// A pair from [`random_bytes`](Self::random_bytes) random bytes.
    ///
    /// `None` for any other length, and where the random number has no inverse (which a working
    /// generator never shows).
    pub fn new(key: &PublicKey, random: &[u8]) -> Option<Self> {
        if random.len() != Self::random_bytes(key.size()) {
            return None;
        }
        match key.size() {
            Size::Rsa1024 => generate::<16>(key, random),
            Size::Rsa2048 => generate::<32>(key, random),
            Size::Rsa3072 => generate::<48>(key, random),
            Size::Rsa4096 => generate::<64>(key, random),
        }
    }

    /// The size of the modulus it was made for.
    pub fn size(&self) -> Size {
        self.size
    }

    /// How many requests it has hidden.
    pub fn uses(&self) -> u32 {
        self.uses
    }

    /// Whether it should be replaced by a fresh one.
    pub fn needs_refresh(&self) -> bool {
        self.uses >= Self::MAX_USES
    }
}

impl fmt::Debug for Blinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Blinding({:?}, {} uses, [redacted])",
            self.size, self.uses
        )
    }
}

/// Constant time in `random`; variable in the public exponent.
fn generate<const WORDS: usize>(key: &PublicKey, random: &[u8]) -> Option<Blinding> {
    let size = key.size();
    let integer = |limbs: &[u64]| {
        let mut bytes = [0; 512];
        let bytes = &mut bytes[..size.bytes()];
        bytes_from_limbs(bytes, limbs, 1);
        Uint::<WORDS>::from_be_slice(bytes)
    };
    let limbs = |value: &Uint<WORDS>| {
        let mut bytes = [0; 512];
        let bytes = &mut bytes[..size.bytes()];
        for (chunk, word) in bytes.rchunks_exact_mut(8).zip(value.as_words()) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        let mut limbs = SecretWords::zeroed(size.limbs());
        limbs_from_bytes(&mut limbs, 1, bytes);
        zeroize::Zeroize::zeroize(bytes);
        limbs
    };

    let n = integer(&key.modulus.limbs);
    let modulus: Odd<Uint<WORDS>> = Option::from(Odd::new(n))?;
    let params = FixedMontyParams::new_vartime(modulus);

    // r = high·2^bits + low mod n. The Montgomery form of `high` is the first term.
    let (high, low) = random.split_at(16);
    let mut wide = [0; 512];
    wide[size.bytes() - 16..size.bytes()].copy_from_slice(high);
    let high = FixedMontyForm::new(&Uint::from_be_slice(&wide[..size.bytes()]), &params);
    let high = FixedMontyForm::new(high.as_montgomery(), &params);
    let low = FixedMontyForm::new(&Uint::from_be_slice(low), &params);
    zeroize::Zeroize::zeroize(&mut wide);
    let r = high + low;

    // R mod n for the lanes' R brings both into the lanes' Montgomery form.
    let form = FixedMontyForm::new(&integer(&key.modulus.one), &params);
    let mut power = r;
    for i in (0..key.exponent_bits() - 1).rev() {
        power = power.square();
        if key.exponent_bit(i) {
            power *= &r;
        }
    }
    let inverse: Option<Uint<WORDS>> = r.retrieve().invert_odd_mod(&modulus).into();
    let inverse = FixedMontyForm::new(&inverse?, &params);
    Some(Blinding {
        size,
        hide: limbs(&(power * form).retrieve()),
        reveal: limbs(&(inverse * form).retrieve()),
        uses: 0,
    })
}
