//! The `RSA_METHOD` that moves the private exponentiation of a stock `RSA` object onto lanes.
//!
//! **Without padding**, for decryption and for signatures alike, an operation goes [from bytes to
//! bytes](raw). OAEP, the premaster secret of TLS, RSASVE and PSS come that way: libcrypto's
//! provider pads and unpads around it. A decrypted message must never become a number of
//! libcrypto: unless a number is marked as secret, its length in words and bytes is found by
//! branches, and that tells an attacker who measures time how many zero bytes the message starts
//! with (CVE-2022-4304).
//!
//! **Decryption with PKCS#1 v1.5 padding** is OpenSSL's own from the blinding to the last byte,
//! because only OpenSSL's own code hides there whether the padding was right. It is counted.
//!
//! **Signatures with padding** are padded by the stock function, which then calls our [`mod_exp`].
//! Only they reach it: their results are public. Blinding is switched off in the stock function
//! (`RSA_FLAG_NO_BLINDING`): the lanes blind every request with a pair of its own, and stock
//! blinding state, kept per thread, would be torn by async jobs that interleave on one thread.
//!
//! Each key we compute on has a *twin*: a second, plain stock object with the same key. A request
//! that the engine declines is recomputed on the twin, with stock blinding and stock checks.

use std::ffi::{c_int, c_uchar};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use lockstep_engine::operation;
use lockstep_engine::{Fallback, Outcome, RsaComponents, RsaInput, RsaKey, Secret};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::ffi::{self, Bignum, BnCtx, Rsa, RsaFinish, RsaMethod, RsaModExp, RsaPrivate, select};
use crate::keymgmt::KeyFunctions;
use crate::{async_job, ex_data, memory, process};

/// Only private keys compute on lanes; but a new public part makes another key of one.
pub const ADOPTED_WITH: c_int = select::KEYPAIR;

/// Gives `rsa` our method, with which it stays OpenSSL's own in all it does until it is
/// [adopted](adopt).
///
/// # Safety
/// `rsa` is a stock RSA object that nothing has computed with yet: `RSA_set_method` frees what a
/// computation leaves in the object, but the object keeps pointing there.
pub unsafe fn prepare(rsa: *mut Rsa) {
    if let Some(method) = method() {
        // SAFETY: by contract.
        unsafe { ffi::RSA_set_method(rsa, method.table) };
    }
}

/// Prepares the key of a [prepared](prepare) object for the lanes, again if its parts have changed.
///
/// A key that the lanes cannot take keeps stock arithmetic; its uses are counted with the reason.
/// An object without a private key is left alone.
///
/// # Safety
/// `rsa` is a stock RSA object of the type of `functions` that nobody else uses.
pub unsafe fn adopt(rsa: *mut Rsa, functions: &'static KeyFunctions) {
    let Some(method) = method() else { return };
    // SAFETY: by contract.
    unsafe {
        if ffi::RSA_get_method(rsa) != method.table {
            return;
        }
        // From here on stock computes, with its blinding, whatever fails below.
        ffi::RSA_clear_flags(rsa, ffi::RSA_FLAG_NO_BLINDING);
        release(rsa, method.index);
        if memory::is_scarce() {
            return;
        }
        let Some(state) = State::new(rsa, functions) else {
            return;
        };
        // What has been made of the last memory there was is given back.
        if memory::is_scarce() {
            return;
        }
        let on_lanes = state.lanes.is_ok();
        let state = Box::into_raw(Box::new(state));
        if ffi::RSA_set_ex_data(rsa, method.index, state.cast()) != 1 {
            drop(Box::from_raw(state));
        } else if on_lanes {
            ffi::RSA_set_flags(rsa, ffi::RSA_FLAG_NO_BLINDING);
        }
    }
}

/// What we keep with an RSA object, in its ex_data.
struct State {
    lanes: Result<Lanes, Fallback>,
}

/// A key ready for the lanes.
struct Lanes {
    key: Arc<RsaKey>,
    /// As bytes, from the first that is not zero.
    modulus: Vec<u8>,
    twin: Twin,
}

impl State {
    /// The state for `rsa`; None when it holds no private key.
    ///
    /// # Safety
    /// As [`adopt`].
    unsafe fn new(rsa: *mut Rsa, functions: &'static KeyFunctions) -> Option<State> {
        let (mut n, mut e, mut d) = (null(), null(), null());
        // SAFETY: `rsa` is valid; the parts stay owned by it and are read at once.
        unsafe { ffi::RSA_get0_key(rsa, &mut n, &mut e, &mut d) };
        if d.is_null() || n.is_null() {
            return None;
        }
        // SAFETY: as above.
        let lanes = unsafe { components(rsa, n, e) }.and_then(|components| {
            if process::engine().backend().is_none() {
                return Err(Fallback::NoBackend);
            }
            let declined = RsaKey::shape_of(&components.borrow())
                .and_then(|shape| process::engine().declines_all(shape));
            if let Some(reason) = declined {
                return Err(reason);
            }
            let key = RsaKey::new(&components.borrow()).map_err(Fallback::from)?;
            // SAFETY: `rsa` is valid key data of this type.
            let twin = unsafe { Twin::of(rsa, functions) }.ok_or(Fallback::Internal)?;
            Ok(Lanes {
                key: Arc::new(key),
                modulus: components.n,
                twin,
            })
        });
        Some(State { lanes })
    }
}

/// A plain stock copy of a key, for what the lanes decline.
struct Twin {
    rsa: *mut Rsa,
    functions: &'static KeyFunctions,
}

// SAFETY: RSA objects may be used from any thread (OpenSSL locks inside).
unsafe impl Send for Twin {}
// SAFETY: as above.
unsafe impl Sync for Twin {}

impl Twin {
    /// # Safety
    /// `rsa` is valid key data of the type of `functions`.
    unsafe fn of(rsa: *const Rsa, functions: &'static KeyFunctions) -> Option<Twin> {
        // SAFETY: by contract.
        let twin = unsafe { functions.copy(rsa.cast(), select::ALL) };
        (!twin.is_null()).then_some(Twin {
            rsa: twin.cast(),
            functions,
        })
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        // SAFETY: the twin belongs to us alone.
        unsafe { self.functions.free(self.rsa.cast()) }
    }
}

/// A key's parts as big-endian bytes, the secret ones in memory for keys: OpenSSL may have them in
/// its secure heap, and no copy goes elsewhere.
struct OwnedComponents {
    n: Vec<u8>,
    e: Vec<u8>,
    p: Secret,
    q: Secret,
    dp: Secret,
    dq: Secret,
    qinv: Secret,
}

impl OwnedComponents {
    fn borrow(&self) -> RsaComponents<'_> {
        RsaComponents {
            n: &self.n,
            e: &self.e,
            p: self.p.as_bytes(),
            q: self.q.as_bytes(),
            dp: self.dp.as_bytes(),
            dq: self.dq.as_bytes(),
            qinv: self.qinv.as_bytes(),
        }
    }
}

/// The parts of `rsa`, or the reason why it is no two-prime CRT key.
///
/// # Safety
/// `rsa` is valid, and `n` and `e` are its parts.
unsafe fn components(
    rsa: *const Rsa,
    n: *const Bignum,
    e: *const Bignum,
) -> Result<OwnedComponents, Fallback> {
    let (mut p, mut q) = (null(), null());
    let (mut dp, mut dq, mut qinv) = (null(), null(), null());
    // SAFETY: `rsa` is valid; the parts stay owned by it and are read at once.
    unsafe {
        if ffi::RSA_get_multi_prime_extra_count(rsa) > 0 {
            return Err(Fallback::MultiPrime);
        }
        ffi::RSA_get0_factors(rsa, &mut p, &mut q);
        ffi::RSA_get0_crt_params(rsa, &mut dp, &mut dq, &mut qinv);
        if e.is_null() {
            return Err(Fallback::MissingExponent);
        }
        if [p, q, dp, dq, qinv].iter().any(|part| part.is_null()) {
            return Err(Fallback::MissingCrt);
        }
        let secret = |part| secret(part).ok_or(Fallback::Inconsistent);
        Ok(OwnedComponents {
            n: bytes(n),
            e: bytes(e),
            p: secret(p)?,
            q: secret(q)?,
            dp: secret(dp)?,
            dq: secret(dq)?,
            qinv: secret(qinv)?,
        })
    }
}

/// `number` as big-endian bytes without leading zeros.
///
/// # Safety
/// `number` is valid and not negative.
unsafe fn bytes(number: *const Bignum) -> Vec<u8> {
    // SAFETY: by contract.
    unsafe {
        let length = (ffi::BN_num_bits(number) + 7) / 8;
        let mut bytes = vec![0u8; length as usize];
        ffi::BN_bn2binpad(number, bytes.as_mut_ptr(), length);
        bytes
    }
}

/// A secret part of a key, as [`bytes`], in memory for keys; None if it is longer than a number can
/// be here.
///
/// # Safety
/// `number` is valid and not negative.
unsafe fn secret(number: *const Bignum) -> Option<Secret> {
    // SAFETY: by contract; the bytes have room for `length`.
    unsafe {
        let length = (ffi::BN_num_bits(number) + 7) / 8;
        let size = usize::try_from(length).ok()?;
        Secret::filled(size, |bytes| {
            ffi::BN_bn2binpad(number, bytes.as_mut_ptr(), length) == length
        })
    }
}

/// Our method, the stock functions it falls back on, and the ex_data slot of [`State`].
pub struct Method {
    table: *const RsaMethod,
    index: c_int,
    stock_mod_exp: RsaModExp,
    stock_private_encrypt: RsaPrivate,
    stock_private_decrypt: RsaPrivate,
    stock_finish: RsaFinish,
}

// SAFETY: the method table is written once, before it is shared.
unsafe impl Send for Method {}
// SAFETY: as above.
unsafe impl Sync for Method {}

/// Made when the module is loaded; None if it cannot be.
pub fn method() -> Option<&'static Method> {
    static METHOD: OnceBox<Option<Method>> = OnceBox::new();
    METHOD.get_or_init(|| Box::new(Method::new())).as_ref()
}

impl Method {
    fn new() -> Option<Method> {
        // SAFETY: public RSA_METHOD functions on the module's table, which lives as long as the
        // process; the getters read the stock table.
        unsafe {
            let stock = ffi::RSA_PKCS1_OpenSSL();
            let table = ffi::RSA_meth_dup(stock);
            let index = ex_data::slot(ffi::EX_INDEX_RSA)?;
            if table.is_null() {
                return None;
            }
            let method = Method {
                table,
                index,
                stock_mod_exp: ffi::RSA_meth_get_mod_exp(stock)?,
                stock_private_encrypt: ffi::RSA_meth_get_priv_enc(stock)?,
                stock_private_decrypt: ffi::RSA_meth_get_priv_dec(stock)?,
                stock_finish: ffi::RSA_meth_get_finish(stock)?,
            };
            let set = ffi::RSA_meth_set1_name(table, c"Lockstep RSA".as_ptr()) == 1
                && ffi::RSA_meth_set_mod_exp(table, mod_exp) == 1
                && ffi::RSA_meth_set_priv_enc(table, private_encrypt) == 1
                && ffi::RSA_meth_set_priv_dec(table, private_decrypt) == 1
                && ffi::RSA_meth_set_finish(table, finish) == 1;
            set.then_some(method)
        }
    }
}

/// The state of `rsa`, if it is one of the module's.
///
/// # Safety
/// `rsa` is valid, and outlives the use of the result.
unsafe fn state<'a>(rsa: *const Rsa, index: c_int) -> Option<&'a State> {
    // SAFETY: the slot holds NULL or a `State` boxed by `adopt`, freed only with `rsa`.
    unsafe { ffi::RSA_get_ex_data(rsa, index).cast::<State>().as_ref() }
}

/// Frees the state of `rsa`, if it has one.
///
/// # Safety
/// `rsa` is valid and in nobody else's use.
unsafe fn release(rsa: *mut Rsa, index: c_int) {
    // SAFETY: as for `state`; the slot is cleared before the box is freed.
    unsafe {
        let state = ffi::RSA_get_ex_data(rsa, index).cast::<State>();
        if !state.is_null() {
            ffi::RSA_set_ex_data(rsa, index, null_mut());
            drop(Box::from_raw(state));
        }
    }
}

/// `finish` of our method: called when the object is freed.
unsafe extern "C" fn finish(rsa: *mut Rsa) -> c_int {
    let Some(method) = method() else { return 0 };
    // SAFETY: OpenSSL calls this once, on the object's end.
    unsafe {
        release(rsa, method.index);
        (method.stock_finish)(rsa)
    }
}

/// Who does a private operation.
enum Way<'a> {
    Lanes(&'a Lanes),
    /// Stock, for this reason if the object holds a private key that the lanes cannot take.
    Stock(Option<Fallback>),
    /// Nobody: stock would compute without blinding.
    Refused,
}

/// The way for `rsa`.
///
/// # Safety
/// `rsa` is valid, and outlives the use of the result.
unsafe fn way<'a>(rsa: *const Rsa, method: &Method) -> Way<'a> {
    // SAFETY: by contract.
    unsafe {
        let reason = match state(rsa, method.index) {
            Some(State { lanes: Ok(lanes) }) => return Way::Lanes(lanes),
            Some(State { lanes: Err(reason) }) => Some(*reason),
            None => None,
        };
        match ffi::RSA_test_flags(rsa, ffi::RSA_FLAG_NO_BLINDING) {
            0 => Way::Stock(reason),
            _ => Way::Refused,
        }
    }
}

/// Counts that stock does an operation.
fn count(reason: Option<Fallback>) {
    if let Some(reason) = reason {
        process::engine().count(reason);
    }
}

/// `rsa_priv_enc`: signs.
unsafe extern "C" fn private_encrypt(
    length: c_int,
    from: *const c_uchar,
    to: *mut c_uchar,
    rsa: *mut Rsa,
    padding: c_int,
) -> c_int {
    let Some(method) = method() else { return -1 };
    // SAFETY: libcrypto's arguments, passed on.
    unsafe {
        match way(rsa, method) {
            Way::Lanes(lanes)
                if padding == ffi::RSA_NO_PADDING
                    && usize::try_from(length) == Ok(lanes.modulus.len()) =>
            {
                return raw(lanes, ffi::RSA_private_encrypt, length, from, to);
            }
            // The stock function pads and calls `mod_exp`, or refuses the length.
            Way::Lanes(_) => {}
            Way::Stock(reason) => count(reason),
            Way::Refused => return -1,
        }
        (method.stock_private_encrypt)(length, from, to, rsa, padding)
    }
}

/// `rsa_priv_dec`: decrypts. The stock function never sees a key that has lanes, only its twin.
unsafe extern "C" fn private_decrypt(
    length: c_int,
    from: *const c_uchar,
    to: *mut c_uchar,
    rsa: *mut Rsa,
    padding: c_int,
) -> c_int {
    let Some(method) = method() else { return -1 };
    // SAFETY: libcrypto's arguments, passed on.
    unsafe {
        match way(rsa, method) {
            Way::Lanes(lanes) if padding == ffi::RSA_NO_PADDING => {
                let length = raw(lanes, ffi::RSA_private_decrypt, length, from, to);
                #[cfg(feature = "fault-injection")]
                if length > 0 && crate::fault::planted("padding-byte") {
                    *to.add(1) ^= 1;
                }
                length
            }
            Way::Lanes(lanes) => {
                count(Some(Fallback::Pkcs1Decryption));
                ffi::RSA_private_decrypt(length, from, to, lanes.twin.rsa, padding)
            }
            Way::Stock(reason) => {
                count(reason);
                (method.stock_private_decrypt)(length, from, to, rsa, padding)
            }
            Way::Refused => -1,
        }
    }
}

/// input^d mod n from bytes to bytes, on lanes; or by `stock` on the twin if the engine declines.
/// Returns what `stock` returns: the length of the modulus, always, or -1 with OpenSSL's error set.
///
/// Nothing here branches on the bytes of the result, or computes an address from them.
///
/// # Safety
/// `from` has `length` bytes, and `to` has room for as many as the modulus has. They may overlap.
unsafe fn raw(
    lanes: &Lanes,
    stock: RsaPrivate,
    length: c_int,
    from: *const c_uchar,
    to: *mut c_uchar,
) -> c_int {
    // SAFETY: by contract.
    let request = || unsafe { request(lanes, length, from) };
    match async_job::serve(operation::RsaPrivate(&lanes.key), request) {
        Outcome::Done(result) => {
            let result = result.as_bytes();
            // SAFETY: by contract; the check found the result to be as long as the modulus.
            unsafe { to.copy_from_nonoverlapping(result.as_ptr(), result.len()) };
            result.len() as c_int
        }
        // Lives until stock has computed, as `serve` asks.
        // SAFETY: by contract; the twin lives as long as the key.
        _declined => unsafe { stock(length, from, to, lanes.twin.rsa, ffi::RSA_NO_PADDING) },
    }
}

/// The input for a number of `length` bytes; None if the modulus is not greater, or if there are
/// no bytes.
///
/// # Safety
/// `from` has `length` bytes.
unsafe fn request(lanes: &Lanes, length: c_int, from: *const c_uchar) -> Option<RsaInput> {
    let given = usize::try_from(length).ok().filter(|&given| given > 0)?;
    let mut input = vec![0; lanes.modulus.len()];
    let start = input.len().checked_sub(given)?;
    // SAFETY: by contract.
    input[start..].copy_from_slice(unsafe { std::slice::from_raw_parts(from, given) });
    // Both are public.
    if input >= lanes.modulus {
        return None;
    }
    Some(RsaInput {
        key: Arc::clone(&lanes.key),
        input: input.into(),
    })
}

/// `rsa_mod_exp`: r0 = input^d mod n, on lanes. Of a key that has lanes, only signatures come here:
/// see [`private_decrypt`].
///
/// `input` is below n (the caller has checked). Returns 1, or 0 with OpenSSL's error set.
unsafe extern "C" fn mod_exp(
    r0: *mut Bignum,
    input: *const Bignum,
    rsa: *mut Rsa,
    ctx: *mut BnCtx,
) -> c_int {
    let Some(method) = method() else { return 0 };
    // SAFETY: the object is in use by our caller, who holds a reference.
    let lanes = match unsafe { way(rsa, method) } {
        Way::Lanes(lanes) => lanes,
        // SAFETY: libcrypto's arguments; the caller has blinded the input.
        Way::Stock(_) => return unsafe { (method.stock_mod_exp)(r0, input, rsa, ctx) },
        Way::Refused => return 0,
    };
    let mut bytes = Zeroizing::new(vec![0u8; lanes.modulus.len()]);
    let length = bytes.len() as c_int;
    let at = bytes.as_mut_ptr();
    // SAFETY: `bytes` has room for `length` bytes, as the modulus has, and `input` is below the
    // modulus; `r0` is the caller's output number.
    unsafe {
        let computed = ffi::BN_bn2binpad(input, at, length) == length
            && raw(lanes, ffi::RSA_private_encrypt, length, at, at) == length
            && !ffi::BN_bin2bn(at, length, r0).is_null();
        c_int::from(computed)
    }
}
