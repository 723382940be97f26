//! Keys of C.

use std::ffi::c_char;
use std::ptr;

use lockstep::{Algorithm, Kem, Key, KeyError};

use crate::columns::{Column, Rows};
use crate::status::{Status, fits, guarded, places, text};

/// A public key.
pub struct PublicKey(lockstep::PublicKey);

/// A private key, wiped when it is freed.
pub struct PrivateKey(lockstep::PrivateKey);

/// Returns the algorithm of a name: "P-256", "P-384", "Ed25519", "X25519", "ML-DSA-44" and others.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn algorithm(name: *const c_char) -> Result<Algorithm, Status> {
    // SAFETY: the caller's promise.
    Algorithm::from_name(unsafe { text(name) }?).ok_or(Status::Unsupported)
}

/// Returns the mechanism of a name: "ML-KEM-768", "X25519MLKEM768" and others.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn kem(name: *const c_char) -> Result<Kem, Status> {
    // SAFETY: the caller's promise.
    match unsafe { algorithm(name) }? {
        Algorithm::Kem(kem) => Ok(kem),
        _ => Err(Status::Unsupported),
    }
}

fn refused(_: KeyError) -> Status {
    Status::BadKey
}

/// Reads a key from `length` bytes, and writes its address to `place`, or null after an error.
///
/// # Safety
///
/// `data` is null or has `length` bytes, and `place` is null or a place for a pointer.
unsafe fn read<K>(
    data: *const u8,
    length: usize,
    place: *mut *mut K,
    read: impl FnOnce(&[u8]) -> Result<K, Status>,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let place = unsafe { places(place, 1) }?;
        place[0] = ptr::null_mut();
        fits::<u8>(length)?;
        if data.is_null() {
            return Err(Status::BadArgument);
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(data, length) };
        place[0] = Box::into_raw(Box::new(read(bytes)?));
        Ok(())
    })
}

/// Reads a public key in PEM (`PUBLIC KEY`, `RSA PUBLIC KEY`).
///
/// # Safety
///
/// `data` has `length` bytes, and `key` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_public_key_from_pem(
    data: *const u8,
    length: usize,
    key: *mut *mut PublicKey,
) -> Status {
    let from_pem = |bytes: &[u8]| {
        let key = lockstep::PublicKey::from_pem(bytes);
        key.map(PublicKey).map_err(refused)
    };
    // SAFETY: the caller's promises.
    unsafe { read(data, length, key, from_pem) }
}

/// Reads a public key in DER (SubjectPublicKeyInfo).
///
/// # Safety
///
/// As `lockstep_public_key_from_pem`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_public_key_from_der(
    data: *const u8,
    length: usize,
    key: *mut *mut PublicKey,
) -> Status {
    let from_der = |bytes: &[u8]| {
        let key = lockstep::PublicKey::from_der(bytes);
        key.map(PublicKey).map_err(refused)
    };
    // SAFETY: the caller's promises.
    unsafe { read(data, length, key, from_der) }
}

/// Takes the bytes of a public key of an algorithm: a point of SEC 1, compressed or not, or 32
/// bytes, or the encoding of FIPS 203 or FIPS 204, or a hybrid's share as TLS sends it.
///
/// # Safety
///
/// As `lockstep_public_key_from_pem`; `algorithm` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_public_key_from_raw(
    algorithm: *const c_char,
    data: *const u8,
    length: usize,
    key: *mut *mut PublicKey,
) -> Status {
    let from_raw = |bytes: &[u8]| {
        // SAFETY: the caller's promise.
        let algorithm = unsafe { self::algorithm(algorithm) }?;
        let key = lockstep::PublicKey::from_raw(algorithm, bytes);
        key.map(PublicKey).map_err(refused)
    };
    // SAFETY: the caller's promises.
    unsafe { read(data, length, key, from_raw) }
}

/// Frees a public key; null is ignored.
///
/// # Safety
///
/// It comes from a function above, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_public_key_free(key: *mut PublicKey) {
    if !key.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(key) });
    }
}

/// Reads a private key in PEM (`PRIVATE KEY`, `RSA PRIVATE KEY`, `EC PRIVATE KEY`), not encrypted.
///
/// # Safety
///
/// As `lockstep_public_key_from_pem`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_private_key_from_pem(
    data: *const u8,
    length: usize,
    key: *mut *mut PrivateKey,
) -> Status {
    let from_pem = |bytes: &[u8]| {
        let key = lockstep::PrivateKey::from_pem(bytes);
        key.map(PrivateKey).map_err(refused)
    };
    // SAFETY: the caller's promises.
    unsafe { read(data, length, key, from_pem) }
}

/// Reads a private key in DER (PKCS#8).
///
/// # Safety
///
/// As `lockstep_public_key_from_pem`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_private_key_from_der(
    data: *const u8,
    length: usize,
    key: *mut *mut PrivateKey,
) -> Status {
    let from_der = |bytes: &[u8]| {
        let key = lockstep::PrivateKey::from_der(bytes);
        key.map(PrivateKey).map_err(refused)
    };
    // SAFETY: the caller's promises.
    unsafe { read(data, length, key, from_der) }
}

/// Takes the bytes of a private key of an algorithm: a scalar or a seed.
///
/// # Safety
///
/// As `lockstep_public_key_from_raw`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_private_key_from_raw(
    algorithm: *const c_char,
    data: *const u8,
    length: usize,
    key: *mut *mut PrivateKey,
) -> Status {
    let from_raw = |bytes: &[u8]| {
        // SAFETY: the caller's promise.
        let algorithm = unsafe { self::algorithm(algorithm) }?;
        let key = lockstep::PrivateKey::from_raw(algorithm, bytes);
        key.map(PrivateKey).map_err(refused)
    };
    // SAFETY: the caller's promises.
    unsafe { read(data, length, key, from_raw) }
}

/// Returns the public half of a key; null for null.
///
/// # Safety
///
/// The key is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_private_key_public(key: *const PrivateKey) -> *mut PublicKey {
    // SAFETY: the caller's promise.
    let public = unsafe { key.as_ref() }.map(|key| PublicKey(key.0.public()));
    public.map_or(ptr::null_mut(), |key| Box::into_raw(Box::new(key)))
}

/// Frees a private key; null is ignored.
///
/// # Safety
///
/// It comes from a function above, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockstep_private_key_free(key: *mut PrivateKey) {
    if !key.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(key) });
    }
}

/// The public keys of the items of a call: objects or bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Objects, or null for keys as bytes.
    pub objects: *const *const PublicKey,
    /// Number of objects.
    pub count: usize,
    /// For each item the place of its key among the objects; or null, if there is one object for
    /// all items, or one for each.
    pub index: *const u32,
    /// Bytes of the keys, if there are no objects.
    pub raw: Column,
}

/// The private keys of the items of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrivateKeys {
    /// Objects.
    pub objects: *const *const PrivateKey,
    /// Number of objects.
    pub count: usize,
    /// As in the public keys.
    pub index: *const u32,
}

/// Keys that were checked.
pub(crate) enum Found<'a, K> {
    Objects(Vec<&'a K>, Option<&'a [u32]>),
    Raw(Rows<'a>),
}

impl Keys {
    /// Returns the keys of `items` items.
    ///
    /// # Safety
    ///
    /// All pointers are null or as the fields say, for as long as the keys are used.
    pub(crate) unsafe fn at<'a>(
        pointer: *const Keys,
        items: usize,
    ) -> Result<Found<'a, PublicKey>, Status> {
        // SAFETY: the caller's promises, here and below.
        let keys = unsafe { pointer.as_ref() }.ok_or(Status::BadArgument)?;
        match keys.objects.is_null() {
            // SAFETY: the caller's promise.
            true => Ok(Found::Raw(unsafe {
                Column::at(&raw const keys.raw, items)
            }?)),
            // SAFETY: the caller's promise.
            false => unsafe { objects(keys.objects, keys.count, keys.index, items) },
        }
    }
}

impl PrivateKeys {
    /// Returns the keys of `items` items.
    ///
    /// # Safety
    ///
    /// As [`Keys::at`].
    pub(crate) unsafe fn at<'a>(
        pointer: *const PrivateKeys,
        items: usize,
    ) -> Result<Found<'a, PrivateKey>, Status> {
        // SAFETY: the caller's promises, here and below.
        let keys = unsafe { pointer.as_ref() }.ok_or(Status::BadArgument)?;
        match keys.objects.is_null() {
            true if items > 0 => Err(Status::BadArgument),
            true => Ok(Found::Objects(Vec::new(), None)),
            // SAFETY: the caller's promise.
            false => unsafe { objects(keys.objects, keys.count, keys.index, items) },
        }
    }
}

/// Returns the keys of `items` items, which are objects, with an index or without.
///
/// # Safety
///
/// As [`Keys::at`].
unsafe fn objects<'a, K>(
    objects: *const *const K,
    count: usize,
    index: *const u32,
    items: usize,
) -> Result<Found<'a, K>, Status> {
    fits::<*const K>(count)?;
    fits::<u32>(items)?;
    // SAFETY: the caller's promises, here and below.
    let objects = unsafe { std::slice::from_raw_parts(objects, count) };
    // SAFETY: the caller's promise.
    let keys = objects.iter().map(|key| unsafe { key.as_ref() });
    let keys: Option<Vec<&K>> = keys.collect();
    let keys = keys.ok_or(Status::BadArgument)?;
    let index = match index.is_null() {
        true if count == 1 || count == items => None,
        true => return Err(Status::BadArgument),
        // SAFETY: the caller's promise.
        false => Some(unsafe { std::slice::from_raw_parts(index, items) }),
    };
    let is_known = |place: &u32| (*place as usize) < count;
    match index.is_none_or(|index| index.iter().all(is_known)) {
        true => Ok(Found::Objects(keys, index)),
        false => Err(Status::BadArgument),
    }
}

impl<K> Found<'_, K> {
    fn object(&self, number: usize) -> Option<&K> {
        match self {
            Found::Objects(keys, Some(index)) => Some(keys[index[number] as usize]),
            Found::Objects(keys, None) if keys.len() == 1 => Some(keys[0]),
            Found::Objects(keys, None) => Some(keys[number]),
            Found::Raw(_) => None,
        }
    }
}

impl Found<'_, PublicKey> {
    pub(crate) fn get(&self, number: usize) -> Key<'_> {
        match self {
            Found::Raw(rows) => Key::Raw(rows.get(number)),
            Found::Objects(..) => match self.object(number) {
                Some(key) => Key::Object(&key.0),
                None => Key::Raw(&[]),
            },
        }
    }
}

impl Found<'_, PrivateKey> {
    pub(crate) fn get(&self, number: usize) -> &lockstep::PrivateKey {
        &self.object(number).expect("private keys are objects").0
    }
}
