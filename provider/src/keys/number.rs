//! Numbers of libcrypto. The module's own numbers are wiped when they are freed.

use std::ffi::c_int;

use lockstep_engine::Secret;

use crate::ffi::{self, Bignum, Owned};

/// Returns the length of a number in bytes, without leading zeros.
pub fn length(number: &Bignum) -> usize {
    usize::try_from((ffi::BN_num_bits(number) + 7) / 8).unwrap_or(0)
}

/// Returns a secret number as big-endian bytes of this length, in memory for keys; None if it is
/// negative or longer.
pub fn secret(number: &Bignum, length: usize) -> Option<Secret> {
    Secret::filled(length, |bytes| write(number, bytes))
}

/// Returns a number as big-endian bytes of this length; None if it is negative or longer.
pub fn bytes(number: &Bignum, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; length];
    write(number, &mut bytes).then_some(bytes)
}

/// Fills `bytes` with a number, big-endian; returns false if it is negative or longer.
pub fn write(number: &Bignum, bytes: &mut [u8]) -> bool {
    c_int::try_from(bytes.len()).is_ok_and(|size| {
        // SAFETY: `bytes` has room for `size` bytes.
        ffi::BN_is_negative(number) == 0
            && unsafe { ffi::BN_bn2binpad(number, bytes.as_mut_ptr(), size) } == size
    })
}

/// Sets a number to big-endian bytes; returns false without memory for it.
pub fn read(bytes: &[u8], number: &mut Bignum) -> bool {
    c_int::try_from(bytes.len()).is_ok_and(|size| {
        // SAFETY: as many bytes as said.
        unsafe { !ffi::BN_bin2bn(bytes.as_ptr(), size, Some(number)).is_null() }
    })
}

/// Returns the number of these bytes, whose count of leading zero bytes is secret. If the program
/// has a secure heap, the number lies there, as OpenSSL's own private keys do.
///
/// `BN_bin2bn` counts and skips these zero bytes one by one. So it gets the bytes with a one in
/// front, which is cleared in the number. libcrypto then counts only whole words of zeros, which
/// one number in 2^64 has.
pub fn from_secret(bytes: &[u8]) -> Option<Owned<Bignum>> {
    let longer = Secret::filled(1 + bytes.len(), |longer| {
        longer[0] = 1;
        longer[1..].copy_from_slice(bytes);
        true
    })?;
    let mut number = ffi::BN_secure_new()?;
    let front = c_int::try_from(8 * bytes.len()).ok()?;
    let set = read(longer.as_bytes(), &mut number) && ffi::BN_clear_bit(&mut number, front) == 1;
    set.then_some(number)
}

/// Returns whether the program has a secure heap, so that OpenSSL keeps private keys there.
pub fn has_secure_heap() -> bool {
    ffi::CRYPTO_secure_malloc_initialized() == 1
}
