//! Base blinding.

use core::fmt;

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, Uint};

use zeroize::{Zeroize, Zeroizing};

use super::key::PublicKey;
use super::size::{Size, for_words};
use crate::layout::{bytes_from_limbs, limbs_from_bytes};
use crate::secret::{SecretWords, own_words};
use crate::taint::disclosed;

/// A pair (r^e mod n, 1/r mod n) that blinds one request's input.
///
/// The input is multiplied by the first number and the result by the second. Each use squares both,
/// on the lanes, so that no two inputs have the same r. After [`Blinding::MAX_USES`] uses the pair
/// needs fresh randomness.
#[derive(Clone)]
pub struct Blinding {
    size: Size,
    /// r^e·R mod n.
    pub(crate) blind: SecretWords,
    /// R/r mod n.
    pub(crate) unblind: SecretWords,
    pub(crate) uses: u32,
}

impl Blinding {
    /// Number of times that a pair may be squared before it is replaced. OpenSSL has 32; others
    /// (mbed TLS) square one pair for ever. Fresh pairs took about 2 % of the time of RSA-2048 at
    /// 32 uses.
    pub const MAX_USES: u32 = 128;

    /// Returns the number of random bytes for a pair: enough that reducing them modulo n leaves a
    /// bias below 2^−128.
    pub const fn random_bytes(size: Size) -> usize {
        size.bytes() + 16
    }

    /// Computes a pair from [`random_bytes`](Self::random_bytes) random bytes.
    ///
    /// Returns `None` for any other length, and if the random number has no inverse, which never
    /// happens with a working generator.
    pub fn new(key: &PublicKey, random: &[u8]) -> Option<Self> {
        Self::several(key, random, 1)?.pop()
    }

    /// Computes `count` pairs from `count` times [`random_bytes`](Self::random_bytes) random bytes,
    /// with a single inversion, which takes most of the time of a pair.
    ///
    /// Returns `None` as [`new`](Self::new) does, if any of the pairs fails.
    pub fn several(key: &PublicKey, random: &[u8], count: usize) -> Option<Vec<Self>> {
        if random.len() != count * Self::random_bytes(key.size()) {
            return None;
        }
        for_words!(key.size(), generate(key, random, count))
    }

    /// Returns the size of the modulus.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the number of requests that the pair has blinded.
    pub fn uses(&self) -> u32 {
        self.uses
    }

    /// Returns whether a fresh pair should replace this one.
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

/// Computes one pair from each of the `count` pieces of `random`. The inverses use Montgomery's
/// trick: one inversion of the product of all, and three multiplications each.
///
/// Constant time in `random`; variable in the public exponent.
#[inline(never)]
fn generate<const WORDS: usize>(
    key: &PublicKey,
    random: &[u8],
    count: usize,
) -> Option<Vec<Blinding>> {
    let size = key.size();
    let n = integer::<WORDS>(size, &key.modulus.limbs);
    let modulus: Odd<Uint<WORDS>> = Option::from(Odd::new(n))?;
    let params = FixedMontyParams::new_vartime(modulus);
    // A value times R mod n, for the lanes' R, is in the lanes' Montgomery form.
    let form = FixedMontyForm::new(&integer(size, &key.modulus.one), &params);
    let to_lanes = |value: FixedMontyForm<WORDS>| limbs(size, &(value * form).retrieve());

    let mut bases = Zeroizing::new(Vec::with_capacity(count));
    // before[i] = r_0 ⋯ r_(i−1)
    let mut before = Zeroizing::new(Vec::with_capacity(count));
    let mut product = Zeroizing::new(FixedMontyForm::one(&params));
    let mut rest = random;
    for _ in 0..count {
        let (piece, after) = rest.split_at(Blinding::random_bytes(size));
        rest = after;
        let base = reduce(size, piece, &params);
        before.push(*product);
        *product *= base;
        bases.push(base);
    }
    let inverse = product.retrieve().invert_odd_mod(&modulus);
    // With a working generator there is always an inverse, so this is public.
    if !disclosed(inverse.is_some().to_bool()) {
        return None;
    }
    let inverse = inverse.as_inner_unchecked();
    // rest = 1/(r_0 ⋯ r_i)
    let mut rest = Zeroizing::new(FixedMontyForm::new(inverse, &params));
    let mut pairs = Vec::with_capacity(count);
    for (base, before) in bases.iter().zip(before.iter()).rev() {
        pairs.push(Blinding {
            size,
            blind: to_lanes(power(base, key)),
            unblind: to_lanes(*rest * before),
            uses: 0,
        });
        *rest *= base;
    }
    Some(pairs)
}

/// Returns high·2^bits + low mod n, for the two parts of `random`, in Montgomery form.
fn reduce<const WORDS: usize>(
    size: Size,
    random: &[u8],
    params: &FixedMontyParams<WORDS>,
) -> FixedMontyForm<WORDS> {
    let (high, low) = random.split_at(16);
    let mut wide = [0; 512];
    wide[size.bytes() - 16..size.bytes()].copy_from_slice(high);
    // The Montgomery form of `high` is high·2^bits mod n, read as a number.
    let high = FixedMontyForm::new(&Uint::from_be_slice(&wide[..size.bytes()]), params);
    let high = FixedMontyForm::new(high.as_montgomery(), params);
    wide.zeroize();
    high + FixedMontyForm::new(&Uint::from_be_slice(low), params)
}

/// Returns base^e for the key's public exponent.
fn power<const WORDS: usize>(
    base: &FixedMontyForm<WORDS>,
    key: &PublicKey,
) -> FixedMontyForm<WORDS> {
    let mut power = *base;
    for i in (0..key.exponent_bits() - 1).rev() {
        power = power.square();
        if key.exponent_bit(i) {
            power *= base;
        }
    }
    power
}

fn integer<const WORDS: usize>(size: Size, limbs: &[u64]) -> Uint<WORDS> {
    let mut bytes = [0; 512];
    let bytes = &mut bytes[..size.bytes()];
    bytes_from_limbs(bytes, limbs, 1);
    Uint::from_be_slice(bytes)
}

fn limbs<const WORDS: usize>(size: Size, value: &Uint<WORDS>) -> SecretWords {
    let mut bytes = [0; 512];
    let bytes = &mut bytes[..size.bytes()];
    for (chunk, word) in bytes.rchunks_exact_mut(8).zip(value.as_words()) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    let mut limbs = own_words(size.limbs());
    limbs_from_bytes(&mut limbs, 1, bytes);
    bytes.zeroize();
    limbs
}
