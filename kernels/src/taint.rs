//! Hooks for the taint check (`rig/taint`), which follows secrets through a build with
//! `--cfg ct_msan`. In every other build they do nothing.
//!
//! The check is LLVM's MemorySanitizer: secrets are marked as uninitialised, and it reports every
//! jump and every address that depends on one. It loses track of a secret if all marked bits are
//! shifted or masked away while others still depend on them, as in a carry. [`whole`] prevents
//! that.

/// Returns the same value. If any bit of one of its words is marked, all bits of that word are
/// marked.
///
/// The value consists of words of 64 bits, and is initialised.
#[inline(always)]
pub(crate) fn whole<T: Copy>(value: T) -> T {
    #[cfg(ct_msan)]
    {
        const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>().is_multiple_of(8)) };
        let mut value = value;
        let words = (&raw mut value).cast::<u64>();
        for i in 0..size_of::<T>() / 8 {
            // SAFETY: word i lies within `value`, which is initialised and borrowed by nobody else.
            unsafe {
                let (x, again) = (words.add(i).read_volatile(), words.add(i).read_volatile());
                // Both are equal, but MemorySanitizer does not know that for marked words.
                let mask = if x == again { 0 } else { u64::MAX };
                words.add(i).write_volatile(x ^ mask);
            }
        }
        // SAFETY: the words were just written.
        return unsafe { (&raw const value).read_volatile() };
    }
    #[cfg(not(ct_msan))]
    value
}

/// Returns the same value, a fact about secrets that may become public: whether a key is valid,
/// whether a result passed its check, a public key. The code that follows may depend on it.
///
/// Only this function makes the check stop following a value, so every use needs a reason.
#[inline(always)]
pub(crate) fn disclosed<T: Copy>(fact: T) -> T {
    #[cfg(ct_msan)]
    {
        unsafe extern "C" {
            fn __msan_unpoison(address: *const core::ffi::c_void, size: usize);
        }
        // SAFETY: the function unmarks the bytes of `fact`, and the value is read as it was.
        return unsafe {
            __msan_unpoison((&raw const fact).cast(), size_of::<T>());
            (&raw const fact).read_volatile()
        };
    }
    #[cfg(not(ct_msan))]
    fact
}

/// Returns `value`, marked wherever `source` is marked. It is for table look-ups by vector
/// permutations: their index may be secret, but the check treats it as an address.
#[cfg(vectors)]
#[inline(always)]
pub(crate) fn derived<T: Copy>(value: T, source: T) -> T {
    #[cfg(ct_msan)]
    {
        const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>().is_multiple_of(8)) };
        let (mut value, source) = (value, whole(source));
        for i in 0..size_of::<T>() / 8 {
            // SAFETY: word i lies within both, which are initialised and borrowed by nobody else.
            unsafe {
                let from = (&raw const source).cast::<u64>().add(i);
                let difference = from.read_volatile() ^ from.read_volatile();
                let word = (&raw mut value).cast::<u64>().add(i);
                word.write_volatile(word.read_volatile() ^ difference);
            }
        }
        // SAFETY: the words were just written.
        return unsafe { (&raw const value).read_volatile() };
    }
    #[cfg(not(ct_msan))]
    {
        let _ = source;
        value
    }
}
