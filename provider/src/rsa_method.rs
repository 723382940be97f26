//! The `RSA_METHOD` that moves the private exponentiation of the default provider's `RSA` objects
//! onto lanes.
//!
//! **Without padding**, for decryption and for signatures alike, an operation goes [from bytes to
//! bytes](raw). OAEP, the premaster secret of TLS, RSASVE and PSS come that way: libcrypto's
//! provider pads and unpads around it. A decrypted message must never become a number of libcrypto:
//! unless a number is marked as secret, its length in words and bytes is found by branches, and
//! that shows an attacker who measures time how many zero bytes the message starts with
//! (CVE-2022-4304).
//!
//! **Decryption with PKCS#1 v1.5 padding** is OpenSSL's own from the blinding to the last byte,
//! because only OpenSSL's own code hides there whether the padding was right. It is counted.
//!
//! **Signatures with padding** are padded by OpenSSL's own function, which then calls our
//! [`mod_exp`]. Only they reach it: their results are public. Blinding is switched off in OpenSSL's
//! own function (`RSA_FLAG_NO_BLINDING`): the lanes blind every request with a pair of its own, and
//! OpenSSL's blinding state, kept per thread, would be torn by async jobs that interleave on one
//! thread.
//!
//! Each key we compute on has a *twin*: a second object with the same key and OpenSSL's own method.
//! A request that the engine declines is recomputed on the twin, with OpenSSL's blinding and
//! checks.
//!
//! A signature with a key that the key daemon has, too, may [come from there](crate::shared_key).
//! OpenSSL's own arithmetic checks it by the public exponent, as any RSA result is checked before
//! it leaves. Decryption never goes there: OpenSSL's public operation, with which the result would
//! be checked, shows how many zero bytes a message starts with.
//!
//! A [reference](crate::reference) has public parts alone: the key daemon computes in place of the
//! lanes, and there is no twin.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lockstep_engine::operation;
use lockstep_engine::{Elsewhere, Fallback, Outcome, RsaComponents, RsaInput, RsaKey, Secret};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::attached::Attached;
use crate::c_library::{Unsignalled, pthread_self};
use crate::daemon::Tried;
use crate::daemon_key::{Key, Operation};
use crate::ffi::{
    self, Bignum, BnCtx, Bytes, KeyData, KeyObjects, Output, OwnedKey, Passed as _, Rsa, RsaFinish,
    RsaMethod, RsaModExp, RsaPrivate, Text, guarded, in_place, method::rsa_private, raise, select,
};
use crate::keymgmt::{self, Adoptable};
use crate::number::{self, length};
use crate::reference::{Referable, Unreferable};
use crate::shared_key::{SharedKey, Turn};
use crate::stock::families::{RsaKeys, RsaPssKeys};
use crate::wait_ctx::WaitCtx;
use crate::{async_job, memory, process, stack};

/// A key type whose key data are RSA objects.
trait RsaObjects: KeyObjects<Object = Rsa> + Sized {
    fn twin(key: OwnedKey<Self>) -> Twin;
}

impl RsaObjects for RsaKeys {
    fn twin(key: OwnedKey<RsaKeys>) -> Twin {
        Twin::new(TwinKey::Plain(key))
    }
}

impl RsaObjects for RsaPssKeys {
    fn twin(key: OwnedKey<RsaPssKeys>) -> Twin {
        Twin::new(TwinKey::Pss(key))
    }
}

impl<K: RsaObjects> Adoptable for K {
    /// Only private keys compute on lanes; but a new public part makes another key of one.
    const ADOPTED_WITH: c_int = select::KEYPAIR;

    /// OpenSSL imports private parts into the ordinary heap, where a program that has a secure heap
    /// wants none.
    fn is_fit(key: &KeyData<K>) -> bool {
        Self::is_copied(key) && !number::has_secure_heap()
    }

    /// A method of another's, which the program has made its default, may keep things with an
    /// object that are in no copy.
    fn is_copied(key: &KeyData<K>) -> bool {
        let is_ours = |method: &Method| method.is_of(key.object());
        is_stock(key.object()) || method().is_some_and(is_ours)
    }

    /// Gives an object our method, with which it does everything as OpenSSL does until it is
    /// adopted. One with a method of another's, which the program has made its default, keeps that.
    fn prepare(key: &OwnedKey<K>) {
        if let Some(method) = method()
            && is_stock(key.object())
        {
            // SAFETY: nothing has computed with the object yet. Later it would do harm:
            // `RSA_set_method` frees what a computation leaves in the object, but the object keeps
            // pointing there.
            unsafe { ffi::RSA_set_method(key.object(), method.table) };
        }
    }

    /// Prepares the key of an object with our method for the lanes, again if its parts have
    /// changed.
    ///
    /// A key that the lanes cannot take keeps OpenSSL's arithmetic; its uses are counted with the
    /// reason. An object without a private key is left alone.
    fn adopt(key: &KeyData<K>) {
        let Some(method) = method() else { return };
        let rsa = key.object();
        if !method.is_of(rsa) {
            return;
        }
        // From here on OpenSSL computes, with its blinding, whatever fails below.
        ffi::RSA_clear_flags(rsa, REMOTE_FLAGS);
        STATES.remove(rsa);
        if memory::is_scarce() {
            return;
        }
        let Some(state) = State::new(key) else { return };
        // Gives back what was made with the last memory.
        if memory::is_scarce() {
            return;
        }
        let on_lanes = matches!(state, State::Lanes(_));
        STATES.put(rsa, state);
        if on_lanes {
            ffi::RSA_set_flags(rsa, ffi::RSA_FLAG_NO_BLINDING);
        }
    }
}

impl<K: RsaObjects> Referable for K {
    fn refer(key: &mut OwnedKey<K>, to: Arc<Key>) -> Result<(), Unreferable> {
        let method = method().ok_or(Unreferable::Unserved)?;
        Self::prepare(key);
        let rsa = key.object();
        if !method.is_of(rsa) {
            return Err(Unreferable::OtherMethod);
        }
        let (mut n, mut e, mut d) = (None, None, None);
        ffi::RSA_get0_key(rsa, &mut n, &mut e, &mut d);
        let modulus_bytes = n.map(length).filter(|_| d.is_none());
        let modulus_bytes = modulus_bytes.ok_or(Unreferable::Unserved)?;
        let remote = Remote {
            key: to,
            modulus_bytes,
        };
        STATES.put(rsa, State::Remote(remote));
        ffi::RSA_set_flags(rsa, REMOTE_FLAGS);
        Ok(())
    }

    fn referent(key: &KeyData<K>) -> Option<Arc<Key>> {
        match STATES.get(key.object())? {
            State::Remote(remote) => Some(Arc::clone(&remote.key)),
            _ => None,
        }
    }
}

/// What we keep with an RSA object.
enum State {
    /// Its private operations run on lanes.
    Lanes(Lanes),
    /// OpenSSL computes, for this reason.
    Stock(Fallback),
    /// It is a reference.
    Remote(Remote),
}

/// Only of objects that have our method: its [`finish`] removes them.
static STATES: Attached<Rsa, State> = Attached::new();

/// A key whose private parts the key daemon holds.
struct Remote {
    key: Arc<Key>,
    modulus_bytes: usize,
}

/// With these OpenSSL calls [`mod_exp`] for a key without private parts, and does not blind.
const REMOTE_FLAGS: c_int = ffi::RSA_FLAG_EXT_PKEY | ffi::RSA_FLAG_NO_BLINDING;

/// A key ready for the lanes.
struct Lanes {
    key: Arc<RsaKey>,
    /// As bytes, from the first that is not zero.
    modulus: Vec<u8>,
    twin: Twin,
    /// If the key daemon may compute with it, too.
    shared: Option<SharedKey>,
}

impl State {
    /// The state for a key; None when it holds no private key.
    fn new<K: RsaObjects>(key: &KeyData<K>) -> Option<State> {
        let rsa = key.object();
        let (mut n, mut e, mut d) = (None, None, None);
        ffi::RSA_get0_key(rsa, &mut n, &mut e, &mut d);
        let (n, _) = (n?, d?);
        let lanes = components(rsa, n, e).and_then(|components| {
            if process::engine().backend().is_none() {
                return Err(Fallback::NoBackend);
            }
            let declined = RsaKey::shape_of(&components.borrow())
                .and_then(|shape| process::engine().declines_all(shape));
            if let Some(reason) = declined {
                return Err(reason);
            }
            let made = || RsaKey::new(&components.borrow()).map(Arc::new);
            let made = stack::without_trace(made).ok_or(Fallback::NoStack)?;
            let on_lanes = made.map_err(Fallback::from)?;
            let twin = keymgmt::copy(key, select::ALL)
                .filter(|twin| is_stock(twin.object()))
                .ok_or(Fallback::Internal)?;
            let shared = SharedKey::new(
                process::keys(),
                on_lanes.size(),
                &components.n,
                &components.e,
            );
            Ok(Lanes {
                key: on_lanes,
                modulus: components.n,
                twin: K::twin(twin),
                shared,
            })
        });
        Some(lanes.map_or_else(State::Stock, State::Lanes))
    }
}

/// A plain copy of a key with OpenSSL's own method, for what the lanes decline.
struct Twin {
    key: TwinKey,
    /// The first thread that has computed; 0 before.
    first: AtomicU64,
    /// Whether others have.
    others: AtomicBool,
}

enum TwinKey {
    Plain(OwnedKey<RsaKeys>),
    Pss(OwnedKey<RsaPssKeys>),
}

impl Twin {
    fn new(key: TwinKey) -> Twin {
        Twin {
            key,
            first: AtomicU64::new(0),
            others: AtomicBool::new(false),
        }
    }

    #[allow(clippy::mut_from_ref)]
    fn rsa(&self) -> &mut Rsa {
        match &self.key {
            TwinKey::Plain(key) => key.object(),
            TwinKey::Pss(key) => key.object(),
        }
    }

    /// A private operation by OpenSSL's own implementation.
    ///
    /// At the first one of the first thread, and at the first one of any other, libcrypto makes
    /// blinding under a lock of the object. Signals wait meanwhile: a program that left by
    /// `siglongjmp` then could never use the key again. A key without a twin has these moments,
    /// too, but at its first operations, and not at any time later.
    fn compute(
        &self,
        stock: RsaPrivate,
        input: Bytes<'_>,
        output: Output<'_>,
        padding: c_int,
    ) -> c_int {
        let thread = pthread_self();
        if self.others.load(Ordering::Relaxed) || self.first.load(Ordering::Relaxed) == thread {
            return call(stock, input, output, self.rsa(), padding);
        }
        let _unsignalled = Unsignalled::begin();
        let length = call(stock, input, output, self.rsa(), padding);
        let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let first = self.first.compare_exchange(0, thread, done, failed);
        if first.is_err_and(|first| first != thread) {
            self.others.store(true, Ordering::Relaxed);
        }
        length
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

/// The longest modulus of which a copy is made, in bytes.
const LONGEST_MODULUS: usize = 16384 / 8;

/// The parts of `rsa`, two of which are `n` and `e`, or the reason why it is not a two-prime CRT
/// key.
fn components(rsa: &Rsa, n: &Bignum, e: Option<&Bignum>) -> Result<OwnedComponents, Fallback> {
    if ffi::RSA_get_multi_prime_extra_count(rsa) > 0 {
        return Err(Fallback::MultiPrime);
    }
    let (mut p, mut q) = (None, None);
    let (mut dp, mut dq, mut qinv) = (None, None, None);
    ffi::RSA_get0_factors(rsa, &mut p, &mut q);
    ffi::RSA_get0_crt_params(rsa, &mut dp, &mut dq, &mut qinv);
    let e = e.ok_or(Fallback::MissingExponent)?;
    let (Some(p), Some(q), Some(dp), Some(dq), Some(qinv)) = (p, q, dp, dq, qinv) else {
        return Err(Fallback::MissingCrt);
    };
    // The caller chooses how long the parts are: no copy is made of those that no lanes can take.
    if length(n) > LONGEST_MODULUS {
        return Err(Fallback::KeySize);
    }
    if length(e) > LONGEST_MODULUS {
        return Err(Fallback::Exponent);
    }
    let is_too_long = |part: &&Bignum| length(part) > LONGEST_MODULUS;
    if [p, q, dp, dq, qinv].iter().any(is_too_long) {
        return Err(Fallback::Inconsistent);
    }
    let bytes = |part| number::bytes(part, length(part)).ok_or(Fallback::Inconsistent);
    let secret = |part| number::secret(part, length(part)).ok_or(Fallback::Inconsistent);
    Ok(OwnedComponents {
        n: bytes(n)?,
        e: bytes(e)?,
        p: secret(p)?,
        q: secret(q)?,
        dp: secret(dp)?,
        dq: secret(dq)?,
        qinv: secret(qinv)?,
    })
}

/// Our method, and OpenSSL's own functions that it falls back on.
pub struct Method {
    table: &'static RsaMethod,
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
        let stock = ffi::RSA_PKCS1_OpenSSL()?;
        let table = ffi::RSA_meth_dup(stock)?;
        let set = ffi::RSA_meth_set1_name(table, Text::new(c"Lockstep RSA")) == 1
            && ffi::RSA_meth_set_mod_exp(table, mod_exp) == 1
            && ffi::RSA_meth_set_priv_enc(table, rsa_private(private_encrypt)) == 1
            && ffi::RSA_meth_set_priv_dec(table, rsa_private(private_decrypt)) == 1
            && ffi::RSA_meth_set_finish(table, finish) == 1;
        let method = Method {
            table,
            stock_mod_exp: ffi::RSA_meth_get_mod_exp(stock)?,
            stock_private_encrypt: ffi::RSA_meth_get_priv_enc(stock)?,
            stock_private_decrypt: ffi::RSA_meth_get_priv_dec(stock)?,
            stock_finish: ffi::RSA_meth_get_finish(stock)?,
        };
        set.then_some(method)
    }

    /// Whether it is the method of `rsa`.
    fn is_of(&self, rsa: &Rsa) -> bool {
        ffi::RSA_get_method(rsa) == std::ptr::from_ref(self.table)
    }
}

/// Whether an object has OpenSSL's own method.
fn is_stock(rsa: &Rsa) -> bool {
    let stock = ffi::RSA_PKCS1_OpenSSL();
    stock.is_some_and(|stock| ffi::RSA_get_method(rsa) == std::ptr::from_ref(stock))
}

/// `finish` of our method: called when the object is freed.
extern "C" fn finish(rsa: &mut Rsa) -> c_int {
    guarded(|| {
        method().map_or(0, |method| {
            STATES.remove(rsa);
            (method.stock_finish)(rsa)
        })
    })
}

/// Who does a private operation.
enum Route<'a> {
    Lanes(&'a Lanes),
    /// The key daemon.
    Remote(&'a Remote),
    /// OpenSSL, for this reason if the object holds a private key that the lanes cannot take.
    Stock(Option<Fallback>),
    /// Nobody: OpenSSL would compute without blinding.
    Refused,
}

impl Method {
    /// The route for `rsa`.
    fn route<'a>(&self, rsa: &'a Rsa) -> Route<'a> {
        let reason = match STATES.get(rsa) {
            Some(State::Lanes(lanes)) => return Route::Lanes(lanes),
            Some(State::Remote(remote)) => return Route::Remote(remote),
            Some(State::Stock(reason)) => Some(*reason),
            None => None,
        };
        match ffi::RSA_test_flags(rsa, ffi::RSA_FLAG_NO_BLINDING) {
            0 => Route::Stock(reason),
            _ => Route::Refused,
        }
    }
}

/// Counts that OpenSSL does an operation.
fn count(reason: Option<Fallback>) {
    if let Some(reason) = reason {
        process::engine().count(reason);
    }
}

/// `rsa_priv_enc`: signs. There is room for as many bytes as the modulus has.
fn private_encrypt(
    input: Bytes<'_>,
    output: Output<'_>,
    rsa: &mut Rsa,
    padding: c_int,
) -> Option<c_int> {
    let method = method()?;
    match method.route(rsa) {
        Route::Lanes(lanes)
            if padding == ffi::RSA_NO_PADDING && input.len() == lanes.modulus.len() =>
        {
            return Some(sign(lanes, input, output));
        }
        Route::Remote(remote)
            if padding == ffi::RSA_NO_PADDING && input.len() == remote.modulus_bytes =>
        {
            return Some(remote.raw(input, output));
        }
        // OpenSSL's function pads and calls `mod_exp`, or refuses the length.
        Route::Lanes(_) | Route::Remote(_) => {}
        Route::Stock(reason) => count(reason),
        Route::Refused => return refused(),
    }
    Some(call(
        method.stock_private_encrypt,
        input,
        output,
        rsa,
        padding,
    ))
}

/// `rsa_priv_dec`: decrypts. Without padding there is room for as many bytes as the modulus has.
///
/// OpenSSL's own function never sees a key that has lanes, only its twin.
fn private_decrypt(
    input: Bytes<'_>,
    output: Output<'_>,
    rsa: &mut Rsa,
    padding: c_int,
) -> Option<c_int> {
    let method = method()?;
    match method.route(rsa) {
        Route::Lanes(lanes) if padding == ffi::RSA_NO_PADDING => {
            #[cfg(feature = "fault-injection")]
            let to = output.as_ptr();
            let length = raw(lanes, ffi::RSA_private_decrypt, input, output);
            #[cfg(feature = "fault-injection")]
            if length > 0 && crate::fault::planted("padding-byte") {
                // SAFETY: as many bytes as the modulus has were written.
                unsafe { *to.add(1) ^= 1 };
            }
            Some(length)
        }
        Route::Remote(remote) if padding == ffi::RSA_NO_PADDING => Some(remote.raw(input, output)),
        Route::Remote(remote) => {
            remote.key.refuse(
                "PKCS#1 v1.5 decryption is not possible with a key of the key daemon, because \
                 nothing would hide whether the padding was right",
            );
            None
        }
        Route::Lanes(lanes) => {
            count(Some(Fallback::Pkcs1Decryption));
            let stock = ffi::RSA_private_decrypt;
            Some(lanes.twin.compute(stock, input, output, padding))
        }
        Route::Stock(reason) => {
            count(reason);
            Some(call(
                method.stock_private_decrypt,
                input,
                output,
                rsa,
                padding,
            ))
        }
        Route::Refused => refused(),
    }
}

/// Says why there is no result.
#[cold]
fn refused() -> Option<c_int> {
    raise(
        "this RSA key is without what the module keeps beside it, so OpenSSL would compute without \
         blinding, and nothing was computed; read the key again",
    );
    None
}

/// Calls a function of OpenSSL's with what we were given.
fn call(
    stock: RsaPrivate,
    input: Bytes<'_>,
    output: Output<'_>,
    rsa: &mut Rsa,
    padding: c_int,
) -> c_int {
    let (from, length) = input.into_raw();
    // SAFETY: the input has `length` bytes. The output has the room that this key and this padding
    // demand: the key is the caller's own, or its twin.
    unsafe { stock(length, from, output.as_ptr(), rsa, padding) }
}

/// input^d mod n from bytes to bytes, where the result is public: by the key daemon, if that has
/// the key and takes it, or else as [`raw`] does. Returns the same.
fn sign(lanes: &Lanes, input: Bytes<'_>, output: Output<'_>) -> c_int {
    let here = |output| raw(lanes, ffi::RSA_private_encrypt, input, output);
    // A job would block its thread, whose other jobs are company enough.
    let is_job = || WaitCtx::with_current(|wait| wait.is_some());
    let Some(shared) = &lanes.shared else {
        return here(output);
    };
    if memory::is_scarce() || is_job() {
        return here(output);
    }
    let mut turn = shared.turn();
    if !turn.is_for_daemon() {
        let length = here(output);
        turn.end();
        return length;
    }
    let Some(signature) = ask(lanes, shared, &mut turn, input) else {
        return here(output);
    };
    // SAFETY: without padding there is room for as many bytes as the modulus has.
    let room = unsafe { output.with_size(lanes.modulus.len()) };
    let is_written = room.write(&signature);
    turn.end();
    if is_written {
        signature.len() as c_int
    } else {
        -1
    }
}

/// A signature of the key daemon that is right, if there is one.
fn ask(
    lanes: &Lanes,
    shared: &SharedKey,
    turn: &mut Turn<'_>,
    input: Bytes<'_>,
) -> Option<Zeroizing<Vec<u8>>> {
    let number = input
        .read(|bytes| padded(bytes, lanes.modulus.len()))
        .flatten()?;
    let tried = turn.ask(&number);
    #[cfg(feature = "fault-injection")]
    let tried = match tried {
        Tried::Done(mut done) if crate::fault::planted("wrong-answer") => {
            done.output[9] ^= 1;
            Tried::Done(done)
        }
        tried => tried,
    };
    let signature = match tried {
        Tried::NotAsked => return None,
        Tried::Failed => None,
        Tried::Done(done) if is_root(lanes, &done.output, &number) => Some(done.output),
        Tried::Done(_) => {
            shared.distrust();
            None
        }
    };
    let served = signature.is_some();
    process::engine().count(Elsewhere::Daemon { served });
    signature
}

/// Whether signature^e mod n is the input, by OpenSSL's own arithmetic. All of them are as long as
/// the modulus.
fn is_root(lanes: &Lanes, signature: &[u8], input: &[u8]) -> bool {
    let mut power = vec![0; lanes.modulus.len()];
    let length = signature.len() as c_int;
    ffi::ERR_set_mark();
    // SAFETY: as many bytes as said, and room for as many as the modulus has.
    let written = unsafe {
        ffi::RSA_public_decrypt(
            length,
            signature.as_ptr(),
            power.as_mut_ptr(),
            lanes.twin.rsa(),
            ffi::RSA_NO_PADDING,
        )
    };
    ffi::ERR_pop_to_mark();
    usize::try_from(written) == Ok(power.len()) && power == input
}

/// input^d mod n from bytes to bytes, on lanes; or by `stock` on the twin if the engine declines.
/// Returns what `stock` returns: the length of the modulus, always, or -1 with OpenSSL's error set.
///
/// Nothing here branches on the bytes of the result, or computes an address from them.
fn raw(lanes: &Lanes, stock: RsaPrivate, input: Bytes<'_>, output: Output<'_>) -> c_int {
    let request = || request(lanes, input);
    match async_job::serve(operation::RsaPrivate(&lanes.key), request) {
        Outcome::Done(result) => {
            let result = result.as_bytes();
            // SAFETY: without padding there is room for as many bytes as the modulus has.
            let room = unsafe { output.with_size(lanes.modulus.len()) };
            // The check found the result to have as many.
            if room.write(result) {
                result.len() as c_int
            } else {
                -1
            }
        }
        // Lives until OpenSSL has computed, as `serve` asks.
        _declined => lanes
            .twin
            .compute(stock, input, output, ffi::RSA_NO_PADDING),
    }
}

impl Remote {
    /// input^d mod n from bytes to bytes, by the key daemon. Returns the length of the modulus, or
    /// -1 with an error set.
    fn raw(&self, input: Bytes<'_>, output: Output<'_>) -> c_int {
        let number = input
            .read(|bytes| padded(bytes, self.modulus_bytes))
            .flatten();
        let result = number.and_then(|number| {
            self.key
                .ask(Operation::RsaPrivate, &number, self.modulus_bytes)
        });
        let Some(result) = result else { return -1 };
        // SAFETY: without padding there is room for as many bytes as the modulus has.
        let room = unsafe { output.with_size(self.modulus_bytes) };
        match room.write(&result) {
            true => result.len() as c_int,
            false => -1,
        }
    }
}

/// A number, with zeros in front of it up to this length; None if it is longer.
fn padded(number: &[u8], length: usize) -> Option<Zeroizing<Vec<u8>>> {
    let start = length.checked_sub(number.len())?;
    let mut bytes = Zeroizing::new(vec![0; length]);
    bytes[start..].copy_from_slice(number);
    Some(bytes)
}

/// The input for a number; None if the modulus is not greater, or if there are no bytes.
fn request(lanes: &Lanes, number: Bytes<'_>) -> Option<RsaInput> {
    let start = lanes.modulus.len().checked_sub(number.len())?;
    if number.len() == 0 {
        return None;
    }
    let mut input = vec![0; lanes.modulus.len()];
    number.read(|bytes| input[start..].copy_from_slice(bytes))?;
    // Both are public.
    if input >= lanes.modulus {
        return None;
    }
    Some(RsaInput {
        key: Arc::clone(&lanes.key),
        input: input.into(),
    })
}

/// `rsa_mod_exp`: r0 = input^d mod n, on lanes. With a key that has lanes, only signatures come
/// here: see [`private_decrypt`].
///
/// `input` is below n (the caller has checked). Returns 1, or 0 with OpenSSL's error set.
extern "C" fn mod_exp(
    r0: &mut Bignum,
    input: &Bignum,
    rsa: &mut Rsa,
    ctx: Option<&mut BnCtx>,
) -> c_int {
    guarded(|| {
        let Some(method) = method() else { return 0 };
        let route = method.route(rsa);
        let modulus_bytes = match &route {
            Route::Lanes(lanes) => lanes.modulus.len(),
            Route::Remote(remote) => remote.modulus_bytes,
            // The caller has blinded the input.
            Route::Stock(_) => return (method.stock_mod_exp)(r0, input, rsa, ctx),
            Route::Refused => return refused().unwrap_or(0),
        };
        let mut bytes = Zeroizing::new(vec![0u8; modulus_bytes]);
        if !number::write(input, &mut bytes) {
            return 0;
        }
        let (from, to) = in_place(&mut bytes);
        let length = match route {
            Route::Lanes(lanes) => sign(lanes, from, to),
            Route::Remote(remote) => remote.raw(from, to),
            Route::Stock(_) | Route::Refused => return 0,
        };
        c_int::from(usize::try_from(length) == Ok(bytes.len()) && number::read(&bytes, r0))
    })
}
