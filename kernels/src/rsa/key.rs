//! Prepared keys.

use core::fmt;

use super::modulus::{LANE, Modulus, Number, equal, less_than, multiply_mod, zero};
use super::size::{Size, for_size};
use crate::layout::{bit_length, exponent_words, limbs_from_bytes, trim};
use crate::montgomery::multiply_add;
use crate::secret::{SecretWords, key_words, wipe};
use crate::simd::{opaque_word, words, words_mut};
use crate::taint::disclosed;

/// The parts of an RSA key as big-endian bytes; leading zeros are allowed.
#[derive(Clone, Copy)]
pub struct Components<'a> {
    /// The modulus.
    pub n: &'a [u8],
    /// The public exponent.
    pub e: &'a [u8],
    /// The first prime.
    pub p: &'a [u8],
    /// The second prime.
    pub q: &'a [u8],
    /// d mod p − 1.
    pub dp: &'a [u8],
    /// d mod q − 1.
    pub dq: &'a [u8],
    /// 1/q mod p.
    pub qinv: &'a [u8],
}

impl fmt::Debug for Components<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Components([redacted])")
    }
}

/// The reason why lanes do not support a key. OpenSSL's own implementation may still accept it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unsupported {
    /// The modulus has no [`Size`].
    Size,
    /// The modulus or a prime is even.
    Even,
    /// A prime is not exactly half as long as the modulus.
    UnequalHalves,
    /// The public exponent is even, 1, not below the modulus, or longer than 64 bits with a modulus
    /// of more than 3072 bits.
    Exponent,
    /// A part is missing, or the parts do not belong together.
    Inconsistent,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsupported::Size => Size::OTHERS,
            Unsupported::Even => "modulus or prime is even",
            Unsupported::UnequalHalves => "primes are not half as long as the modulus",
            Unsupported::Exponent => "public exponent is even, 1 or too large",
            Unsupported::Inconsistent => "key parts do not belong together",
        })
    }
}

impl std::error::Error for Unsupported {}

/// A public key, prepared for the check and the blinding.
#[derive(Clone)]
pub struct PublicKey {
    size: Size,
    pub(crate) modulus: Modulus,
    /// The exponent e, lowest word first, without zero words on top.
    pub(crate) exponent: Box<[u64]>,
    exponent_bits: usize,
}

impl PublicKey {
    /// Prepares a modulus and a public exponent, big-endian.
    pub fn new(n: &[u8], e: &[u8]) -> Result<Self, Unsupported> {
        let size = Size::from_bits(bit_length(n)).ok_or(Unsupported::Size)?;
        let (n, e) = (trim(n), trim(e));
        if n[n.len() - 1] & 1 == 0 {
            return Err(Unsupported::Even);
        }
        let exponent_bits = bit_length(e);
        // OpenSSL has the same limits on e, and on its length for large moduli.
        if exponent_bits < 2
            || e[e.len() - 1] & 1 == 0
            || (e.len() == n.len() && e >= n)
            || e.len() > n.len()
            || (size.bits() > 3072 && exponent_bits > 64)
        {
            return Err(Unsupported::Exponent);
        }
        let mut exponent = vec![0; e.len().div_ceil(8)].into_boxed_slice();
        for (place, &byte) in e.iter().rev().enumerate() {
            exponent[place / 8] |= u64::from(byte) << (8 * (place % 8));
        }
        let modulus = for_size!(size, prepare_public(n, size.bits()));
        Ok(Self {
            size,
            modulus,
            exponent,
            exponent_bits,
        })
    }

    /// Returns the size of the modulus.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the number of bits of the public exponent.
    pub fn exponent_bits(&self) -> usize {
        self.exponent_bits
    }

    /// Returns bit `i` of e.
    pub(crate) fn exponent_bit(&self, i: usize) -> bool {
        self.exponent
            .get(i / 64)
            .is_some_and(|word| word >> (i % 64) & 1 == 1)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PublicKey({:?}, e of {} bits)",
            self.size, self.exponent_bits
        )
    }
}

// A function of its own: otherwise a caller of all sizes would have the memory of all sizes on its
// stack, which may be small.
#[inline(never)]
fn prepare_public<const N: usize, const M: usize>(n: &[u8], bits: usize) -> Modulus {
    Modulus::new::<M>(&number(n), bits)
}

/// One prime and its exponent.
#[derive(Clone)]
pub(crate) struct Half {
    pub(crate) modulus: Modulus,
    /// In 60-bit words, lowest first.
    pub(crate) exponent: SecretWords,
}

/// A private key, prepared; its secrets are wiped when it is dropped.
#[derive(Clone)]
pub struct PrivateKey {
    public: PublicKey,
    pub(crate) p: Half,
    pub(crate) q: Half,
    /// R/q mod p: Montgomery form of qinv.
    pub(crate) qinv: SecretWords,
}

impl PrivateKey {
    /// Checks that the parts belong together and prepares them.
    ///
    /// The time depends on the lengths of the parts and on the answer, not on secret values.
    pub fn new(components: &Components<'_>) -> Result<Self, Unsupported> {
        let public = PublicKey::new(components.n, components.e)?;
        let size = public.size();
        for_size!(size, prepare_private(public, components))
    }

    /// Returns the size of the modulus.
    pub fn size(&self) -> Size {
        self.public.size
    }

    /// Returns the half modulo p (0) or q (1).
    pub(crate) fn half(&self, which: usize) -> &Half {
        if which == 0 { &self.p } else { &self.q }
    }

    /// Returns the public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({:?}, [redacted])", self.public)
    }
}

/// Reads a number from big-endian bytes that fit.
fn number<const N: usize>(bytes: &[u8]) -> Number<N> {
    let mut number = zero::<N>();
    limbs_from_bytes(words_mut(&mut number), 1, bytes);
    number
}

/// Returns whether a number fits into `length` bytes. The time depends on the lengths.
fn fits(bytes: &[u8], length: usize) -> bool {
    let excess = bytes.len().saturating_sub(length);
    let bits = bytes[..excess].iter().fold(0, |bits, byte| bits | byte);
    disclosed(opaque_word(u64::from(bits)) == 0)
}

/// Returns whether a number has exactly `8·length` bits. The time depends on the lengths and on the
/// answer.
fn fills(bytes: &[u8], length: usize) -> bool {
    fits(bytes, length)
        && bytes
            .len()
            .checked_sub(length)
            .is_some_and(|top| disclosed(bytes[top] >> 7) == 1)
}

#[inline(never)]
fn prepare_private<const N: usize, const M: usize>(
    public: PublicKey,
    parts: &Components<'_>,
) -> Result<PrivateKey, Unsupported> {
    let half_bits = public.size.bits() / 2;
    for prime in [parts.p, parts.q] {
        match prime.last() {
            None => return Err(Unsupported::Inconsistent),
            Some(last) if disclosed(last & 1) == 0 => return Err(Unsupported::Even),
            Some(_) if !fills(prime, half_bits / 8) => return Err(Unsupported::UnequalHalves),
            Some(_) => (),
        }
    }
    for part in [parts.dp, parts.dq, parts.qinv] {
        if part.is_empty() || !fits(part, half_bits / 8) {
            return Err(Unsupported::Inconsistent);
        }
    }

    let mut p = number::<N>(parts.p);
    let mut q = number::<N>(parts.q);
    let mut dp = number::<N>(parts.dp);
    let mut dq = number::<N>(parts.dq);
    let mut qinv = number::<N>(parts.qinv);

    let mut product = zero::<M>();
    multiply_add(LANE, &mut product, &p, &q, &zero::<N>());
    let p_modulus = Modulus::new(&p, half_bits);
    let q_modulus = Modulus::new(&q, half_bits);
    let mut r2 = zero::<N>();
    words_mut(&mut r2).copy_from_slice(&p_modulus.r2);
    let mut qinv_form = multiply_mod(&qinv, &r2, &p, p_modulus.k0);
    // q·qinv mod p: q < 2p as both have the same length.
    let mut unit = multiply_mod(&q, &qinv_form, &p, p_modulus.k0);
    let mut one = zero::<N>();
    words_mut(&mut one)[0] = 1;

    // It is not disclosed which condition fails.
    let consistent = equal(words(&product), &public.modulus.limbs)
        & (1 ^ equal(words(&p), words(&q)))
        & equal(words(&unit), words(&one))
        & less_than(words(&dp), words(&p))
        & less_than(words(&dq), words(&q))
        & less_than(words(&qinv), words(&p));

    let half = |modulus, exponent: &[u8]| {
        let mut half = Half {
            modulus,
            exponent: key_words(public.size.exponent_words()),
        };
        exponent_words(&mut half.exponent, exponent);
        half
    };
    let mut key = PrivateKey {
        p: half(p_modulus, parts.dp),
        q: half(q_modulus, parts.dq),
        qinv: key_words(N),
        public,
    };
    key.qinv.copy_from_slice(words(&qinv_form));
    for secret in [
        &mut p,
        &mut q,
        &mut dp,
        &mut dq,
        &mut qinv,
        &mut r2,
        &mut qinv_form,
        &mut unit,
    ] {
        wipe(words_mut(secret));
    }
    if disclosed(consistent) == 1 {
        Ok(key)
    } else {
        Err(Unsupported::Inconsistent)
    }
}
