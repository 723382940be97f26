//! Curves on a device.

use std::ffi::CStr;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::device::{Device, Source};
use crate::error::Error;
use crate::object::Kept;
use crate::run::{Argument, Run, word};
use crate::words::{from_big_endian, from_little_endian, to_big_endian, to_little_endian, zeros};

/// Number of words of a coordinate or a scalar.
const WORDS: usize = 8;

/// An Ed25519 signature to check, with the hash of its message.
#[derive(Clone, Copy, Debug)]
pub struct Ed25519Claim<'a> {
    /// The public key A.
    pub key: &'a [u8; 32],
    /// R ‖ S.
    pub signature: &'a [u8; 64],
    /// SHA-512 of R, A and the message (RFC 8032, section 5.1.7).
    pub hash: [u8; 64],
}

/// An ECDSA signature on P-256 to check: big-endian numbers.
#[derive(Clone, Copy, Debug)]
pub struct P256Claim<'a> {
    /// x ‖ y of the public key.
    pub key: &'a [u8; 64],
    /// r ‖ s.
    pub signature: &'a [u8; 64],
    /// The digest: its first 32 bytes, or all of them behind zeros if there are fewer.
    pub digest: [u8; 32],
}

/// A digest to sign by ECDSA on P-256: big-endian numbers.
#[derive(Clone, Copy)]
pub struct P256ToSign<'a> {
    /// The secret key.
    pub key: &'a [u8; 32],
    /// The nonce, which is taken modulo the order: secret, and used once.
    pub nonce: &'a [u8; 64],
    /// The digest, as in a [`P256Claim`].
    pub digest: [u8; 32],
}

impl Device {
    /// Agrees on secrets by X25519. An item is a secret key and a peer's public key. Returns the
    /// secrets one behind the other, 32 bytes each. The secret of a point of low order is zero; the
    /// caller refuses it.
    ///
    /// The kernel's steps do not depend on the secrets.
    pub fn x25519(&self, items: &[(&[u8; 32], &[u8; 32])]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut rows = zeros(2 * WORDS * items.len());
        for (row, (secret, peer)) in rows.chunks_mut(2 * WORDS).zip(items) {
            from_little_endian(&mut row[..WORDS], *secret);
            from_little_endian(&mut row[WORDS..], *peer);
        }
        let words = self.compute(Source::Curve25519, c"x25519", rows, items.len(), WORDS)?;
        let mut bytes = Zeroizing::new(vec![0; 32 * items.len()]);
        to_little_endian(&mut bytes, &words);
        Ok(bytes)
    }

    /// Checks Ed25519 signatures, without cofactor; returns whether each is right. A key must be
    /// a point of the curve. Variable time.
    pub fn ed25519_verify(&self, items: &[Ed25519Claim<'_>]) -> Result<Vec<bool>, Error> {
        let mut claims = zeros(5 * WORDS * items.len());
        for (row, item) in claims.chunks_mut(5 * WORDS).zip(items) {
            from_little_endian(&mut row[..WORDS], item.key);
            from_little_endian(&mut row[WORDS..3 * WORDS], item.signature);
            from_little_endian(&mut row[3 * WORDS..], &item.hash);
        }
        let source = Source::Curve25519;
        let verdicts = self.compute(source, c"ed25519_verify", claims, items.len(), 1)?;
        Ok(verdicts.iter().map(|verdict| *verdict == 1).collect())
    }

    /// Checks ECDSA signatures on P-256; returns whether each is right. A key must be a point of
    /// the curve. Variable time.
    pub fn p256_verify(&self, items: &[P256Claim<'_>]) -> Result<Vec<bool>, Error> {
        let mut claims = zeros(5 * WORDS * items.len());
        for (row, item) in claims.chunks_mut(5 * WORDS).zip(items) {
            let halves = item.key.chunks(32).chain(item.signature.chunks(32));
            let numbers = halves.chain([&item.digest[..]]);
            for (words, bytes) in row.chunks_mut(WORDS).zip(numbers) {
                from_big_endian(words, bytes).ok_or(Error::Input)?;
            }
        }
        let verdicts = self.compute(Source::P256, c"p256_verify", claims, items.len(), 1)?;
        Ok(verdicts.iter().map(|verdict| *verdict == 1).collect())
    }

    /// Signs digests by ECDSA on P-256; returns r ‖ s of each, one behind the other. They are zero
    /// for a key, a nonce or a result that is out of range.
    ///
    /// The kernel's steps do not depend on the secrets. The caller checks the signatures.
    pub fn p256_sign(&self, items: &[P256ToSign<'_>]) -> Result<Vec<u8>, Error> {
        let mut rows = zeros(4 * WORDS * items.len());
        for (row, item) in rows.chunks_mut(4 * WORDS).zip(items) {
            let (nonce, rest) = row.split_at_mut(2 * WORDS);
            let (key, digest) = rest.split_at_mut(WORDS);
            from_big_endian(nonce, item.nonce).ok_or(Error::Input)?;
            from_big_endian(key, item.key).ok_or(Error::Input)?;
            from_big_endian(digest, &item.digest).ok_or(Error::Input)?;
        }
        let words = self.compute(Source::P256, c"p256_sign", rows, items.len(), 2 * WORDS)?;
        let numbers = words.chunks(WORDS).map(to_big_endian);
        Ok(numbers.flat_map(|number| number.to_vec()).collect())
    }

    /// Has a kernel compute `words` words for each item from a row of `rows`.
    fn compute(
        &self,
        source: Source,
        kernel: &CStr,
        rows: Zeroizing<Vec<u32>>,
        count: usize,
        words: usize,
    ) -> Result<Zeroizing<Vec<u32>>, Error> {
        if count == 0 {
            return Ok(Zeroizing::default());
        }
        // The table of the base point, and the number of words of an item's own table.
        let (table, of_item) = match kernel.to_bytes() {
            b"ed25519_verify" => (Some((c"ed25519_base", 1, 16 * 4 * WORDS)), 16 * 4 * WORDS),
            b"p256_verify" => (Some((c"p256_base", 1, 16 * 3 * WORDS)), 16 * 3 * WORDS),
            b"p256_sign" => (Some((c"p256_comb", 64, 64 * 2 * WORDS)), 0),
            _ => (None, 0),
        };
        let table = table.map(|table| self.table(source, table)).transpose()?;
        let mut run = Run::new(self)?;
        let mut arguments = vec![Argument::Buffer(run.input(rows)?)];
        if let Some(table) = table {
            arguments.push(Argument::Buffer(run.lent(table)?));
        }
        if of_item > 0 {
            arguments.push(Argument::Buffer(run.room(of_item * count)?));
        }
        let results = run.room(words * count)?;
        arguments.extend([Argument::Buffer(results), word(count)?]);
        run.kernel((source, WORDS), kernel, count, &arguments)?;
        let results = run.finish(results, words * count)?;
        self.count(count);
        Ok(results)
    }

    /// Returns a table of constants, of `words` words. When the table is first needed, this kernel
    /// writes it by `items` items.
    fn table(
        &self,
        source: Source,
        (kernel, items, words): (&'static CStr, usize, usize),
    ) -> Result<Arc<Kept>, Error> {
        self.kept(kernel, || {
            let mut run = Run::new(self)?;
            let table = run.room(words)?;
            run.kernel((source, WORDS), kernel, items, &[Argument::Buffer(table)])?;
            run.keep()
        })
    }
}
