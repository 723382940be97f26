//! The `EC_KEY_METHOD` that moves P-256 and P-384 onto lanes.
//!
//! The stock functions decode, check and encode, and call ours for the arithmetic: a new key pair,
//! the x of a shared point, r and s of a signature, and the check of r and s. What the engine
//! declines, and every other curve, goes to the functions of the stock method, on the same object:
//! they ask only its group for arithmetic, so no twin as for RSA is needed.

use std::ffi::{c_int, c_uchar, c_uint};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use lockstep_engine::operation::{Ecdh, EcdsaSign, EcdsaVerify, Operation};
use lockstep_engine::{
    Bytes, Curve, EcKey, EcdhInput, EcdsaSignInput, EcdsaVerifyInput, Fallback, KeyKind, Keypair,
    Outcome, Secret,
};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::ffi::{
    self, Bignum, EcComputeKey, EcGroup, EcKeyMethod, EcKeygen, EcPoint, EcSign, EcSignSetup,
    EcSignSig, EcVerify, EcVerifySig, EcdsaSig, select,
};
use crate::{async_job, ex_data, memory, process};

/// Public keys too: they verify.
pub const ADOPTED_WITH: c_int = select::KEYPAIR | select::DOMAIN_PARAMETERS;

/// Gives `key` our method if the lanes have its curve; whether they do.
///
/// A key with explicit parameters keeps stock arithmetic, as does one with a method of another's.
///
/// # Safety
/// `key` is a stock EC_KEY that nobody else uses.
pub unsafe fn adopt(key: *mut ffi::EcKey) -> bool {
    let Some(method) = method() else { return false };
    // SAFETY: by contract.
    unsafe {
        if curve_of(key).is_none() {
            return false;
        }
        let current = ffi::EC_KEY_get_method(key);
        // A duplicate has our method already, but no state.
        let known = [method.table, method.stock.table].contains(&current);
        if !known || !renew(key, method.index) {
            return false;
        }
        current == method.table || ffi::EC_KEY_set_method(key, method.table) == 1
    }
}

/// The curve of a key, if the lanes have it.
///
/// # Safety
/// `key` is valid.
unsafe fn curve_of(key: *const ffi::EcKey) -> Option<Curve> {
    // SAFETY: by contract; the group belongs to the key.
    unsafe {
        let group = ffi::EC_KEY_get0_group(key);
        if group.is_null() || ffi::EC_GROUP_get_asn1_flag(group) & ffi::NAMED_CURVE == 0 {
            return None;
        }
        match ffi::EC_GROUP_get_curve_name(group) {
            ffi::NID_P256 => Some(Curve::P256),
            ffi::NID_P384 => Some(Curve::P384),
            _ => None,
        }
    }
}

/// What we keep with an EC_KEY, in its ex_data: the key for the engine, made at its first use.
#[derive(Default)]
struct State {
    key: OnceBox<Option<Arc<EcKey>>>,
}

/// Gives `key` an empty state; false if that fails.
///
/// # Safety
/// `key` is valid and in nobody else's use.
unsafe fn renew(key: *mut ffi::EcKey, index: c_int) -> bool {
    // SAFETY: by contract; the box belongs to the slot from here on, or is freed again.
    unsafe {
        let current = ffi::EC_KEY_get_ex_data(key, index).cast::<State>();
        if current
            .as_ref()
            .is_some_and(|state| state.key.get().is_none())
        {
            return true;
        }
        release(key, index);
        if memory::is_scarce() {
            return false;
        }
        let state = Box::into_raw(Box::new(State::default()));
        let kept = ffi::EC_KEY_set_ex_data(key, index, state.cast()) == 1;
        if !kept {
            drop(Box::from_raw(state));
        }
        kept
    }
}

/// Frees the state of `key`, if it has one.
///
/// # Safety
/// `key` is valid and in nobody else's use.
unsafe fn release(key: *mut ffi::EcKey, index: c_int) {
    // SAFETY: the slot holds NULL or a box made by `renew`; it is cleared before the box is freed.
    unsafe {
        let state = ffi::EC_KEY_get_ex_data(key, index).cast::<State>();
        if !state.is_null() {
            ffi::EC_KEY_set_ex_data(key, index, null_mut());
            drop(Box::from_raw(state));
        }
    }
}

/// The private key for the engine; None if `key` has none that lanes can serve.
///
/// # Safety
/// `key` is valid.
unsafe fn private_key(key: *const ffi::EcKey, method: &Method) -> Option<Arc<EcKey>> {
    // SAFETY: by contract; the state lives as long as the key's parts do not change.
    unsafe {
        let state = ffi::EC_KEY_get_ex_data(key, method.index).cast::<State>();
        let made = || {
            let curve = curve_of(key)?;
            let private = ffi::EC_KEY_get0_private_key(key);
            if private.is_null() {
                return None;
            }
            let Some(scalar) = secret(private, curve.bytes()) else {
                process::engine().count(Fallback::BadScalar);
                return None;
            };
            let public = encoded(
                ffi::EC_KEY_get0_group(key),
                ffi::EC_KEY_get0_public_key(key),
            );
            EcKey::new(curve, scalar.as_bytes(), public.as_deref())
                .ok()
                .map(Arc::new)
        };
        let key = &state.as_ref()?.key;
        key.get_or_init(|| Box::new(made())).clone()
    }
}

/// A secret number that is not negative, as big-endian bytes of this length; None if it is longer.
///
/// # Safety
/// `number` is valid.
unsafe fn secret(number: *const Bignum, length: usize) -> Option<Secret> {
    // SAFETY: by contract.
    Secret::filled(length, |bytes| unsafe { write(number, bytes) })
}

/// A number that is not negative, as big-endian bytes of this length; None if it is longer.
///
/// # Safety
/// `number` is valid.
unsafe fn bytes(number: *const Bignum, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; length];
    // SAFETY: by contract.
    unsafe { write(number, &mut bytes) }.then_some(bytes)
}

/// Fills `bytes` with a number, big-endian; false if it is negative or longer.
///
/// # Safety
/// `number` is valid.
unsafe fn write(number: *const Bignum, bytes: &mut [u8]) -> bool {
    c_int::try_from(bytes.len()).is_ok_and(|size| {
        // SAFETY: `bytes` has room for `size` bytes.
        unsafe {
            ffi::BN_is_negative(number) == 0
                && ffi::BN_bn2binpad(number, bytes.as_mut_ptr(), size) == size
        }
    })
}

/// The uncompressed form of a point; None for NULL, infinity, or a point of another curve.
///
/// # Safety
/// The pointers are valid or NULL.
unsafe fn encoded(group: *const EcGroup, point: *const EcPoint) -> Option<Vec<u8>> {
    // SAFETY: by contract.
    unsafe {
        if group.is_null() || point.is_null() {
            return None;
        }
        let length = match ffi::EC_GROUP_get_curve_name(group) {
            ffi::NID_P256 => Curve::P256.bytes(),
            ffi::NID_P384 => Curve::P384.bytes(),
            _ => return None,
        };
        if let Some(form) = decoded_form(group, point, length) {
            return Some(form);
        }
        let mut form = vec![0; 1 + 2 * length];
        let written = ffi::EC_POINT_point2oct(
            group,
            point,
            ffi::POINT_UNCOMPRESSED,
            form.as_mut_ptr(),
            form.len(),
            null_mut(),
        );
        (written == form.len()).then_some(form)
    }
}

/// The uncompressed form of a point with z = 1, as all have that were decoded. To ask in the usual
/// way costs an inversion, and that a tenth of an exchange.
///
/// # Safety
/// The pointers are valid.
unsafe fn decoded_form(
    group: *const EcGroup,
    point: *const EcPoint,
    length: usize,
) -> Option<Vec<u8>> {
    // SAFETY: by contract.
    unsafe {
        let (x, y, z) = (Number::new()?, Number::new()?, Number::new()?);
        let told =
            ffi::EC_POINT_get_Jprojective_coordinates_GFp(group, point, x.0, y.0, z.0, null_mut());
        if told != 1 || ffi::BN_is_one(z.0) != 1 {
            return None;
        }
        Some([&[4][..], &bytes(x.0, length)?, &bytes(y.0, length)?].concat())
    }
}

/// A number that the module makes, wiped at the end.
struct Number(*mut Bignum);

impl Number {
    fn new() -> Option<Number> {
        // SAFETY: plain constructor.
        let number = unsafe { ffi::BN_new() };
        (!number.is_null()).then_some(Number(number))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Number> {
        let length = c_int::try_from(bytes.len()).ok()?;
        // SAFETY: as many bytes as said; NULL asks for a new number.
        let number = unsafe { ffi::BN_bin2bn(bytes.as_ptr(), length, null_mut()) };
        (!number.is_null()).then_some(Number(number))
    }

    /// The number of these bytes, whose leading zero bytes are secret.
    ///
    /// `BN_bin2bn` counts and skips them one by one. So it gets a one in front, which is then
    /// cleared: what libcrypto still counts are whole words of zeros, one number in 2^64.
    fn from_secret(bytes: &[u8]) -> Option<Number> {
        let mut longer = Zeroizing::new(Vec::with_capacity(1 + bytes.len()));
        longer.push(1);
        longer.extend_from_slice(bytes);
        let number = Number::from_bytes(&longer)?;
        let front = c_int::try_from(8 * bytes.len()).ok()?;
        // SAFETY: the number is ours.
        (unsafe { ffi::BN_clear_bit(number.0, front) } == 1).then_some(number)
    }

    /// Gives the number away.
    fn into_raw(self) -> *mut Bignum {
        let number = self.0;
        std::mem::forget(self);
        number
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: the number is ours.
        unsafe { ffi::BN_clear_free(self.0) }
    }
}

/// The functions of the stock method.
struct Stock {
    table: *const EcKeyMethod,
    keygen: EcKeygen,
    compute_key: EcComputeKey,
    sign: EcSign,
    sign_setup: EcSignSetup,
    sign_sig: EcSignSig,
    verify: EcVerify,
    verify_sig: EcVerifySig,
}

/// Our method, what it falls back on, and the ex_data slot of [`State`].
pub struct Method {
    table: *const EcKeyMethod,
    index: c_int,
    stock: Stock,
}

// SAFETY: the method tables are written once, before they are shared.
unsafe impl Send for Method {}
// SAFETY: as above.
unsafe impl Sync for Method {}

/// Made when the module is loaded; None if it cannot be.
pub fn method() -> Option<&'static Method> {
    static METHOD: OnceBox<Option<Method>> = OnceBox::new();
    METHOD.get_or_init(|| Box::new(Method::new())).as_ref()
}

impl Stock {
    fn new() -> Option<Stock> {
        let (mut keygen, mut compute_key) = (None, None);
        let (mut sign, mut sign_setup, mut sign_sig) = (None, None, None);
        let (mut verify, mut verify_sig) = (None, None);
        // SAFETY: getters of the stock table, which is static.
        let table = unsafe {
            let table = ffi::EC_KEY_OpenSSL();
            ffi::EC_KEY_METHOD_get_keygen(table, &mut keygen);
            ffi::EC_KEY_METHOD_get_compute_key(table, &mut compute_key);
            ffi::EC_KEY_METHOD_get_sign(table, &mut sign, &mut sign_setup, &mut sign_sig);
            ffi::EC_KEY_METHOD_get_verify(table, &mut verify, &mut verify_sig);
            table
        };
        Some(Stock {
            table,
            keygen: keygen?,
            compute_key: compute_key?,
            sign: sign?,
            sign_setup: sign_setup?,
            sign_sig: sign_sig?,
            verify: verify?,
            verify_sig: verify_sig?,
        })
    }
}

impl Method {
    fn new() -> Option<Method> {
        let stock = Stock::new()?;
        // SAFETY: public EC_KEY_METHOD functions on a table that this module made, which lives as
        // long as the process.
        unsafe {
            let table = ffi::EC_KEY_METHOD_new(stock.table);
            let index = ex_data::slot(ffi::EX_INDEX_EC_KEY)?;
            if table.is_null() {
                return None;
            }
            ffi::EC_KEY_METHOD_set_init(
                table,
                None,
                Some(finish),
                // With a function for it, stock refuses to copy parts of a key.
                None,
                Some(set_group),
                Some(set_private),
                Some(set_public),
            );
            ffi::EC_KEY_METHOD_set_keygen(table, Some(keygen));
            ffi::EC_KEY_METHOD_set_compute_key(table, Some(compute_key));
            ffi::EC_KEY_METHOD_set_sign(table, Some(sign), Some(stock.sign_setup), Some(sign_sig));
            ffi::EC_KEY_METHOD_set_verify(table, Some(stock.verify), Some(verify_sig));
            Some(Method {
                table,
                index,
                stock,
            })
        }
    }
}

/// `finish`: called when the object is freed or given another method.
unsafe extern "C" fn finish(key: *mut ffi::EcKey) {
    if let Some(method) = method() {
        // SAFETY: OpenSSL calls this once, on the object's end.
        unsafe { release(key, method.index) }
    }
}

/// `set_group`: a change of the key ends its state.
unsafe extern "C" fn set_group(key: *mut ffi::EcKey, _group: *const EcGroup) -> c_int {
    // SAFETY: who changes a key may not share it.
    unsafe { changed(key) }
}

/// `set_private`
unsafe extern "C" fn set_private(key: *mut ffi::EcKey, _private: *const Bignum) -> c_int {
    // SAFETY: as above.
    unsafe { changed(key) }
}

/// `set_public`
unsafe extern "C" fn set_public(key: *mut ffi::EcKey, _public: *const EcPoint) -> c_int {
    // SAFETY: as above.
    unsafe { changed(key) }
}

/// Gives `key` an empty state. Without memory for it the key falls back to OpenSSL.
///
/// # Safety
/// `key` is valid and in nobody else's use.
unsafe fn changed(key: *mut ffi::EcKey) -> c_int {
    if let Some(method) = method() {
        // SAFETY: by contract.
        unsafe { renew(key, method.index) };
    }
    1
}

/// `keygen`: a key pair of the pool.
unsafe extern "C" fn keygen(key: *mut ffi::EcKey) -> c_int {
    let Some(method) = method() else { return 0 };
    // SAFETY: libcrypto's argument, which has a group and is in its caller's use alone.
    unsafe {
        let pooled = curve_of(key).and_then(|curve| async_job::keypair(KeyKind::Nist(curve)));
        match pooled {
            Some(pair) if set(key, &pair).is_some() => 1,
            _ => (method.stock.keygen)(key),
        }
    }
}

/// Puts a key pair into `key`.
///
/// # Safety
/// `key` is valid, on the curve of `pair`, and in nobody else's use.
unsafe fn set(key: *mut ffi::EcKey, pair: &Keypair) -> Option<()> {
    let secret = Number::from_secret(pair.secret.as_bytes())?;
    // SAFETY: by contract; the key copies both parts.
    unsafe {
        let group = ffi::EC_KEY_get0_group(key);
        let point = ffi::EC_POINT_new(group);
        if point.is_null() {
            return None;
        }
        let set = ffi::EC_POINT_oct2point(
            group,
            point,
            pair.public.as_ptr(),
            pair.public.len(),
            null_mut(),
        ) == 1
            && ffi::EC_KEY_set_private_key(key, secret.0) == 1
            && ffi::EC_KEY_set_public_key(key, point) == 1;
        ffi::EC_POINT_free(point);
        set.then_some(())
    }
}

/// Has the engine serve an operation with `key`, if the lanes have its curve.
///
/// # Safety
/// `key` is valid or NULL.
unsafe fn served<O: Operation>(
    key: *const ffi::EcKey,
    operation: impl FnOnce(Curve) -> O,
    input: impl FnOnce() -> Option<O::Input>,
) -> Outcome<O::Output> {
    if key.is_null() {
        return Outcome::NotAsked;
    }
    // SAFETY: by contract.
    match unsafe { curve_of(key) } {
        Some(curve) => async_job::serve(operation(curve), input),
        None => Outcome::NotAsked,
    }
}

/// `compute_key`: the x of a shared point.
unsafe extern "C" fn compute_key(
    secret: *mut *mut c_uchar,
    length: *mut usize,
    peer: *const EcPoint,
    key: *const ffi::EcKey,
) -> c_int {
    let Some(method) = method() else { return 0 };
    // SAFETY: libcrypto's arguments.
    unsafe {
        let request = || {
            Some(EcdhInput {
                key: private_key(key, method)?,
                peer: encoded(ffi::EC_KEY_get0_group(key), peer)?.into(),
            })
        };
        match served(key, Ecdh, request) {
            Outcome::Done(shared) => {
                let shared = shared.as_bytes();
                // The caller frees it by OPENSSL_clear_free.
                let copy: *mut c_uchar =
                    ffi::CRYPTO_malloc(shared.len(), c"lockstep".as_ptr(), 0).cast();
                if copy.is_null() {
                    return 0;
                }
                std::ptr::copy_nonoverlapping(shared.as_ptr(), copy, shared.len());
                *secret = copy;
                *length = shared.len();
                1
            }
            _declined => (method.stock.compute_key)(secret, length, peer, key),
        }
    }
}

/// `sign`: r and s as DER. Stock's would make numbers of them in between, which costs half as much
/// as to sign.
unsafe extern "C" fn sign(
    kind: c_int,
    digest: *const c_uchar,
    digest_length: c_int,
    output: *mut c_uchar,
    length: *mut c_uint,
    inverse: *const Bignum,
    r: *const Bignum,
    key: *mut ffi::EcKey,
) -> c_int {
    let Some(method) = method() else { return 0 };
    let stock = &method.stock;
    // SAFETY: libcrypto's arguments; `output` is NULL or has room for every signature of the key.
    unsafe {
        let asked = if output.is_null() || length.is_null() {
            Outcome::NotAsked
        } else {
            let request = || signing(digest, digest_length, inverse, r, key, method);
            served(key, EcdsaSign, request)
        };
        let written = match asked {
            Outcome::Done(signature) => {
                let (form, written) = encoded_signature(&signature);
                std::ptr::copy_nonoverlapping(form.as_ptr(), output, written);
                written
            }
            Outcome::NotAsked => {
                return (stock.sign)(kind, digest, digest_length, output, length, inverse, r, key);
            }
            _declined => {
                let signature = (stock.sign_sig)(digest, digest_length, inverse, r, key);
                if signature.is_null() {
                    *length = 0;
                    return 0;
                }
                let mut end = output;
                let written = ffi::i2d_ECDSA_SIG(signature, &mut end);
                ffi::ECDSA_SIG_free(signature);
                usize::try_from(written).unwrap_or(0)
            }
        };
        *length = c_uint::try_from(written).unwrap_or(0);
        c_int::from(written > 0)
    }
}

/// The longest signature on P-384: a sequence of two numbers, each with a head and a zero before
/// it.
const ENCODED_BYTES: usize = 2 + 2 * (2 + 1 + Curve::P384.bytes());

/// r ‖ s as DER: SEQUENCE { INTEGER r, INTEGER s }, and its length.
fn encoded_signature(signature: &[u8]) -> ([u8; ENCODED_BYTES], usize) {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 2;
    let mut form = [0; ENCODED_BYTES];
    let mut end = 2;
    let mut push = |bytes: &[u8]| {
        form[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    let (r, s) = signature.split_at(signature.len() / 2);
    for number in [r, s] {
        // As short as it can be, and with a zero where it would look negative.
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        let digits = &number[zeros.min(number.len() - 1)..];
        let sign = &[0][..usize::from(digits[0] >> 7)];
        // Below 128, and so is the sum: a length of one byte.
        push(&[INTEGER, (sign.len() + digits.len()) as u8]);
        push(sign);
        push(digits);
    }
    form[..2].copy_from_slice(&[SEQUENCE, (end - 2) as u8]);
    (form, end)
}

/// The request for a signature; None for what only stock can sign.
///
/// # Safety
/// The pointers are valid or NULL.
unsafe fn signing(
    digest: *const c_uchar,
    digest_length: c_int,
    inverse: *const Bignum,
    r: *const Bignum,
    key: *const ffi::EcKey,
    method: &Method,
) -> Option<EcdsaSignInput> {
    // A nonce of the caller's own is used by stock.
    if !inverse.is_null() || !r.is_null() {
        return None;
    }
    // SAFETY: by contract.
    unsafe {
        Some(EcdsaSignInput {
            key: private_key(key, method)?,
            digest: Bytes::from_slice(slice(digest, digest_length)?),
        })
    }
}

/// `sign_sig`: r and s.
unsafe extern "C" fn sign_sig(
    digest: *const c_uchar,
    digest_length: c_int,
    inverse: *const Bignum,
    r: *const Bignum,
    key: *mut ffi::EcKey,
) -> *mut EcdsaSig {
    let Some(method) = method() else {
        return null_mut();
    };
    // SAFETY: libcrypto's arguments.
    unsafe {
        let stock = || (method.stock.sign_sig)(digest, digest_length, inverse, r, key);
        let request = || signing(digest, digest_length, inverse, r, key, method);
        match served(key, EcdsaSign, request) {
            Outcome::Done(signature) => signature_of(&signature).unwrap_or(null_mut()),
            _declined => stock(),
        }
    }
}

/// r ‖ s as OpenSSL has it.
fn signature_of(bytes: &[u8]) -> Option<*mut EcdsaSig> {
    let (r, s) = bytes.split_at(bytes.len() / 2);
    let (r, s) = (Number::from_bytes(r)?, Number::from_bytes(s)?);
    // SAFETY: `ECDSA_SIG_set0` takes over both numbers, and fails only for NULL.
    unsafe {
        let signature = ffi::ECDSA_SIG_new();
        if signature.is_null() {
            return None;
        }
        ffi::ECDSA_SIG_set0(signature, r.into_raw(), s.into_raw());
        Some(signature)
    }
}

/// `verify_sig`: 1 right, 0 wrong, -1 error.
unsafe extern "C" fn verify_sig(
    digest: *const c_uchar,
    digest_length: c_int,
    signature: *const EcdsaSig,
    key: *mut ffi::EcKey,
) -> c_int {
    let Some(method) = method() else { return -1 };
    // SAFETY: libcrypto's arguments.
    unsafe {
        let stock = || (method.stock.verify_sig)(digest, digest_length, signature, key);
        let request = || verification(digest, digest_length, signature, key);
        match served(key, EcdsaVerify, request) {
            Outcome::Done(right) => c_int::from(right),
            _declined => stock(),
        }
    }
}

/// The request for a verification; None for what stock must say no to, with its errors.
///
/// # Safety
/// The pointers are valid or NULL.
unsafe fn verification(
    digest: *const c_uchar,
    digest_length: c_int,
    signature: *const EcdsaSig,
    key: *const ffi::EcKey,
) -> Option<EcdsaVerifyInput> {
    // SAFETY: by contract; the parts stay owned by their objects and are read at once.
    unsafe {
        if signature.is_null() || key.is_null() {
            return None;
        }
        let curve = curve_of(key)?;
        let public = encoded(
            ffi::EC_KEY_get0_group(key),
            ffi::EC_KEY_get0_public_key(key),
        )?;
        let (mut r, mut s) = (null(), null());
        ffi::ECDSA_SIG_get0(signature, &mut r, &mut s);
        if r.is_null() || s.is_null() {
            return None;
        }
        let (r, s) = (bytes(r, curve.bytes())?, bytes(s, curve.bytes())?);
        Some(EcdsaVerifyInput {
            curve,
            public,
            digest: Bytes::from_slice(slice(digest, digest_length)?),
            signature: [&r[..], &s[..]].concat(),
        })
    }
}

/// C's pointer and length; None for what is no slice.
///
/// # Safety
/// `start` is NULL or points to `length` bytes that outlive the result.
unsafe fn slice<'a>(start: *const c_uchar, length: c_int) -> Option<&'a [u8]> {
    let length = usize::try_from(length).ok()?;
    // SAFETY: by contract.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(r: &[u8], s: &[u8]) -> Vec<u8> {
        let (form, length) = encoded_signature(&[r, s].concat());
        form[..length].to_vec()
    }

    #[test]
    fn numbers_are_short_and_positive() {
        assert_eq!(
            encoded(&[0, 0, 5], &[0, 0x80, 1]),
            [0x30, 8, 2, 1, 5, 2, 3, 0, 0x80, 1]
        );
        assert_eq!(
            encoded(&[0; 3], &[0x7f, 0, 0]),
            [0x30, 8, 2, 1, 0, 2, 3, 0x7f, 0, 0]
        );
    }

    #[test]
    fn the_longest_signature_fits() {
        let form = encoded(&[0xff; 48], &[0xff; 48]);
        assert_eq!(form.len(), ENCODED_BYTES);
        assert_eq!(form[..5], [0x30, 102, 2, 49, 0]);
    }
}
