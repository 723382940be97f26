//! RSA on a device.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::device::{Device, Source};
use crate::error::Error;
use crate::object::Kept;
use crate::run::{Argument, Run, word};
use crate::words::{from_big_endian, to_big_endian, zeros};

/// A public key: big-endian numbers.
#[derive(Clone, Copy, Debug)]
pub struct PublicParts<'a> {
    /// An odd modulus. All moduli of a call have one length.
    pub modulus: &'a [u8],
    /// An odd exponent, from 3.
    pub exponent: u32,
}

/// The private half of a key: big-endian numbers.
#[derive(Clone, Copy)]
pub struct PrivateParts<'a> {
    /// The first prime, half as long as the modulus.
    pub p: &'a [u8],
    /// The second prime, as long as the first.
    pub q: &'a [u8],
    /// d mod p − 1.
    pub dp: &'a [u8],
    /// d mod q − 1.
    pub dq: &'a [u8],
    /// 1/q mod p.
    pub qinv: &'a [u8],
}

/// A private key in the memory of a device, with the constants that the kernels need. It is
/// overwritten with zeros when the last copy of this handle is dropped.
#[derive(Clone)]
pub struct RsaKey(Arc<Kept>);

impl Device {
    /// Computes s^e mod n for each item: a key, by its place in `keys`, and s, big-endian, as long
    /// as the modulus and below it. Returns the results one behind the other, as long as the
    /// modulus each. All moduli have `bits` bits. Variable time.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for a key or an input of another length. An input that is not below its
    /// modulus has a meaningless result.
    pub fn rsa_public(
        &self,
        bits: usize,
        keys: &[PublicParts<'_>],
        items: &[(usize, &[u8])],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let limbs = limbs(bits)?;
        let stride = 2 * limbs + 2;
        let mut rows = zeros(stride * keys.len());
        for (row, key) in rows.chunks_mut(stride).zip(keys) {
            if key.exponent < 3 || key.exponent % 2 == 0 {
                return Err(Error::Input);
            }
            modulus(&mut row[..limbs], key.modulus)?;
            row[2 * limbs + 1] = key.exponent;
        }
        if items.is_empty() {
            return Ok(Zeroizing::default());
        }
        let [which, inputs] = read(limbs, keys.len(), items)?;
        let mut run = Run::new(self)?;
        let row_arguments = [Argument::Buffer(run.input(rows)?), word(stride)?];
        let inputs = [run.input(which)?, run.input(inputs)?];
        let outputs = run.room(limbs * items.len())?;
        let prepare = [&row_arguments[..], &[word(keys.len())?]].concat();
        run.kernel((Source::Rsa, limbs), c"prepare", keys.len(), &prepare)?;
        let last = [Argument::Buffer(outputs), word(items.len())?];
        let power = [&row_arguments[..], &inputs.map(Argument::Buffer), &last].concat();
        run.kernel((Source::Rsa, limbs), c"power", items.len(), &power)?;
        let results = run.finish(outputs, limbs * items.len())?;
        self.count(items.len());
        Ok(bytes(&results, limbs))
    }

    /// Brings a key with a modulus of `bits` bits to the device.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for numbers of another length.
    pub fn rsa_key(&self, bits: usize, key: PrivateParts<'_>) -> Result<RsaKey, Error> {
        let limbs = limbs(bits)? / 2;
        let stride = 4 * limbs + 1;
        let mut rows = zeros(2 * stride);
        let (of_p, of_q) = rows.split_at_mut(stride);
        for (row, prime, exponent) in [(&mut *of_p, key.p, key.dp), (of_q, key.q, key.dq)] {
            modulus(&mut row[..limbs], prime)?;
            let place = &mut row[2 * limbs + 1..][..limbs];
            from_big_endian(place, exponent).ok_or(Error::Input)?;
        }
        from_big_endian(&mut of_p[3 * limbs + 1..], key.qinv).ok_or(Error::Input)?;
        let mut run = Run::new(self)?;
        let rows = run.input(rows)?;
        let prepare = [Argument::Buffer(rows), word(stride)?, word(2)?];
        run.kernel((Source::Rsa, limbs), c"prepare", 2, &prepare)?;
        run.keep().map(RsaKey)
    }

    /// Computes c^d mod n for each item: a key of this device, by its place in `keys`, and c,
    /// big-endian, as long as the modulus and below it. Returns the results one behind the other,
    /// as long as the modulus each. All moduli have `bits` bits, and both primes have half as many.
    ///
    /// The kernels' steps do not depend on the numbers. The caller blinds c, and checks the result.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for a key or an input of another length.
    pub fn rsa_private(
        &self,
        bits: usize,
        keys: &[RsaKey],
        items: &[(usize, &[u8])],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let limbs = limbs(bits)? / 2;
        let (stride, count) = (4 * limbs + 1, items.len());
        if keys
            .iter()
            .any(|key| key.0.buffer().bytes() != 4 * 2 * stride)
        {
            return Err(Error::Input);
        }
        if items.is_empty() {
            return Ok(Zeroizing::default());
        }
        let [which, inputs] = read(2 * limbs, keys.len(), items)?;
        let mut run = Run::new(self)?;
        let rows = run.room(2 * stride * keys.len())?;
        for (place, key) in keys.iter().enumerate() {
            let key = run.lent(Arc::clone(&key.0))?;
            run.copy(key, rows, place)?;
        }
        let (which, inputs) = (run.input(which)?, run.input(inputs)?);
        let tables = run.room(2 * 16 * limbs * count)?;
        let powers = run.room(2 * limbs * count)?;
        let outputs = run.room(2 * limbs * count)?;
        let row_arguments = [Argument::Buffer(rows), word(stride)?];
        let buffers = [which, inputs, tables, powers].map(Argument::Buffer);
        let halves = [&row_arguments[..], &buffers, &[word(2 * count)?]].concat();
        run.kernel((Source::Rsa, limbs), c"halves", 2 * count, &halves)?;
        let buffers = [which, powers, outputs].map(Argument::Buffer);
        let recombine = [&row_arguments[..], &buffers, &[word(count)?]].concat();
        run.kernel((Source::Rsa, limbs), c"recombine", count, &recombine)?;
        let results = run.finish(outputs, 2 * limbs * count)?;
        self.count(count);
        Ok(bytes(&results, 2 * limbs))
    }
}

/// Returns the number of words of a modulus, or an error for a size that devices do not have.
fn limbs(bits: usize) -> Result<usize, Error> {
    match bits {
        1024 | 2048 | 3072 | 4096 => Ok(bits / 32),
        _ => Err(Error::Input),
    }
}

/// Writes a number, which must be odd and have the highest bit of `words`.
fn modulus(words: &mut [u32], bytes: &[u8]) -> Result<(), Error> {
    from_big_endian(words, bytes).ok_or(Error::Input)?;
    let (lowest, highest) = (words[0], words[words.len() - 1]);
    match lowest & highest >> 31 & 1 {
        1 => Ok(()),
        _ => Err(Error::Input),
    }
}

/// Returns the place of the key of each item, and the inputs, as words.
fn read(
    limbs: usize,
    keys: usize,
    items: &[(usize, &[u8])],
) -> Result<[Zeroizing<Vec<u32>>; 2], Error> {
    let (mut which, mut inputs) = (zeros(items.len()), zeros(limbs * items.len()));
    let places = which.iter_mut().zip(inputs.chunks_mut(limbs));
    for ((which, input), (key, bytes)) in places.zip(items) {
        if *key >= keys || bytes.len() != 4 * limbs {
            return Err(Error::Input);
        }
        *which = *key as u32;
        from_big_endian(input, bytes).ok_or(Error::Input)?;
    }
    Ok([which, inputs])
}

/// Returns the results as big-endian bytes.
fn bytes(words: &[u32], limbs: usize) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4 * words.len()));
    for number in words.chunks(limbs) {
        bytes.extend_from_slice(&to_big_endian(number));
    }
    bytes
}
