//! Results of a call, one behind the other.

use std::fmt;

use zeroize::Zeroize;

use crate::error::{Error, Reason};
use crate::workers::Place;

/// Results of a call, in the order of its items: bytes of one width in one piece of memory, which
/// is wiped when it is dropped. A result may be shorter than the width.
pub struct Column {
    bytes: Vec<u8>,
    width: usize,
    /// Length of each result, or the reason why there is none.
    lengths: Vec<Result<u32, Reason>>,
}

impl Column {
    /// Makes a column of `count` results of at most `width` bytes, none of which is there yet.
    pub(crate) fn new(count: usize, width: usize) -> Result<Column, Error> {
        Column::with_width(count, || width)
    }

    /// Makes a column whose width is computed from all items. If there is no memory for `count`
    /// results, the width is not computed.
    pub(crate) fn with_width(count: usize, width: impl FnOnce() -> usize) -> Result<Column, Error> {
        let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
        lengths
            .try_reserve_exact(count)
            .map_err(|_| Error::NoMemory)?;
        let width = width();
        let size = count.checked_mul(width).ok_or(Error::NoMemory)?;
        bytes.try_reserve_exact(size).map_err(|_| Error::NoMemory)?;
        bytes.resize(size, 0);
        lengths.resize(count, Err(Reason::Internal));
        Ok(Column {
            bytes,
            width,
            lengths,
        })
    }

    /// Returns the place of all results, to write to.
    pub(crate) fn place(&mut self) -> Piece<'_> {
        Piece {
            bytes: &mut self.bytes,
            width: self.width,
            lengths: &mut self.lengths,
        }
    }

    /// Returns the number of results.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Returns whether there are no results.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns the result of an item, or the reason why there is none.
    ///
    /// # Panics
    ///
    /// If there is no such item.
    pub fn get(&self, number: usize) -> Result<&[u8], Reason> {
        let length = self.lengths[number]?;
        Ok(&self.bytes[self.width * number..][..length as usize])
    }

    /// Returns an iterator over the results.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<&[u8], Reason>> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Returns all bytes: result `i` begins at `i` times the width. Bytes of a result that is not
    /// there, and bytes behind a shorter one, are zero.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of bytes from one result to the next.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the verdict on each item: whether it has a result.
    pub fn verdicts(&self) -> impl ExactSizeIterator<Item = Result<(), Reason>> {
        self.lengths.iter().map(|length| length.map(drop))
    }
}

impl Drop for Column {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, width) = (self.len(), self.width);
        write!(f, "Column([{count} results of {width} bytes])")
    }
}

/// A part of a column, which one thread writes.
pub(crate) struct Piece<'a> {
    bytes: &'a mut [u8],
    width: usize,
    lengths: &'a mut [Result<u32, Reason>],
}

impl Place for Piece<'_> {
    fn split(self, count: usize) -> (Self, Self) {
        let width = self.width;
        let (bytes, bytes_behind) = self.bytes.split_at_mut(width * count);
        let (lengths, lengths_behind) = self.lengths.split_at_mut(count);
        let piece = |bytes, lengths| Piece {
            bytes,
            width,
            lengths,
        };
        (piece(bytes, lengths), piece(bytes_behind, lengths_behind))
    }
}

impl Piece<'_> {
    /// Sets a result.
    pub(crate) fn set(&mut self, number: usize, result: Result<&[u8], Reason>) {
        self.lengths[number] = result.and_then(|result| {
            let place = &mut self.bytes[self.width * number..][..self.width];
            let place = place.get_mut(..result.len()).ok_or(Reason::Internal)?;
            place.copy_from_slice(result);
            Ok(result.len() as u32)
        });
    }
}

/// New key pairs. Both halves are as [`PrivateKey::from_raw`](crate::PrivateKey::from_raw) and
/// [`PublicKey::from_raw`](crate::PublicKey::from_raw) take them.
#[derive(Debug)]
pub struct Pairs {
    pub(crate) secrets: Column,
    pub(crate) publics: Column,
}

impl Pairs {
    /// Returns the private keys.
    pub fn secrets(&self) -> &Column {
        &self.secrets
    }

    /// Returns the public keys.
    pub fn publics(&self) -> &Column {
        &self.publics
    }

    /// Returns both columns, the private keys first.
    pub fn into_columns(self) -> (Column, Column) {
        (self.secrets, self.publics)
    }

    /// Returns the private key of a pair. It is empty if the pair could not be made, for example
    /// without randomness; [`secrets`](Self::secrets) has the reason.
    ///
    /// # Panics
    ///
    /// If there is no such pair.
    pub fn secret(&self, number: usize) -> &[u8] {
        self.secrets.get(number).unwrap_or_default()
    }

    /// Returns the public key of a pair. It is empty if the private key is.
    ///
    /// # Panics
    ///
    /// If there is no such pair.
    pub fn public(&self, number: usize) -> &[u8] {
        self.publics.get(number).unwrap_or_default()
    }
}
