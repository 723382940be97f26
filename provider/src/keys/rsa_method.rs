//! The `RSA_METHOD` that moves the private exponentiation of the default provider's `RSA` objects
//! onto lanes.
//!
//! **A key is prepared for the lanes when its second request comes.** OpenSSL's own functions
//! compute the first one, with the object as it is: a process that signs once pays for nothing. An
//! object keeps OpenSSL's own arithmetic and blinding all its life, and so it can serve whatever
//! the engine declines, on any thread and at any time. None of these functions pauses a job, so the
//! blinding, which OpenSSL keeps per thread, is never torn by jobs that interleave on one thread.
//!
//! **From bytes to bytes** an operation goes to the lanes ([`Lanes::power`]). OAEP, the premaster
//! secret of TLS, RSASVE and PSS ask for it without padding: libcrypto's provider pads and unpads
//! around it. Signatures of PKCS#1 v1.5 and X9.31 get their padding [here](padding). A decrypted
//! message must never become a number of libcrypto: unless a number is marked as secret, its length
//! in words and bytes is found by branches, and that shows an attacker who measures time how many
//! zero bytes the message starts with (CVE-2022-4304).
//!
//! **Decryption with PKCS#1 v1.5 padding** is OpenSSL's own from the blinding to the last byte,
//! because only OpenSSL's own code hides there whether the padding was right. It is counted.
//!
//! A signature with a key that the key daemon has, too, may [come from
//! there](crate::keys::shared_key). OpenSSL's own arithmetic checks it by the public exponent, as
//! any RSA result is checked before it leaves. Decryption never goes there: OpenSSL's public
//! operation, with which the result would be checked, shows how many zero bytes a message starts
//! with.
//!
//! A [reference](crate::daemon::reference) has public parts alone: the key daemon computes in place
//! of the lanes.

mod padding;

use std::ffi::c_int;
use std::sync::Arc;

use lockstep_engine::operation;
use lockstep_engine::{
    Elsewhere, Fallback, Outcome, RsaComponents, RsaInput, RsaKey, Secret, Shape,
};
use lockstep_kernels::rsa::{Signature, Verified};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::daemon::connection::Tried;
use crate::daemon::key::{Key, Operation};
use crate::daemon::reference::{Referable, Unreferable};
use crate::ffi::{
    self, Bignum, Bytes, KeyData, KeyObjects, Output, OwnedKey, Passed as _, Rsa, RsaFinish,
    RsaMethod, RsaPrivate, Text, guarded, method::rsa_private, select,
};
use crate::first;
use crate::first::Requests;
use crate::host::c_library::Unsignalled;
use crate::host::memory;
use crate::host::stack;
use crate::jobs::async_job;
use crate::jobs::wait_ctx::WaitCtx;
use crate::keys::attached::Attached;
use crate::keys::keymgmt::Adoptable;
use crate::keys::number::{self, length};
use crate::keys::shared_key::SharedKey;
use crate::process;
use crate::stock::families::{RsaKeys, RsaPssKeys};

use padding::Padded;

/// A key type whose key data are RSA objects.
trait RsaObjects: KeyObjects<Object = Rsa> {}

impl RsaObjects for RsaKeys {}
impl RsaObjects for RsaPssKeys {}

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

    /// From now on the private operations of an object with our method are counted, and come to the
    /// lanes if these can serve them. What was prepared of other parts is gone.
    ///
    /// An object without a private key is left alone.
    fn adopt(key: &KeyData<K>) {
        let rsa = key.object();
        if !method().is_some_and(|method| method.is_of(rsa)) {
            return;
        }
        STATES.remove(rsa);
        let (mut n, mut e, mut d) = (None, None, None);
        ffi::RSA_get0_key(rsa, &mut n, &mut e, &mut d);
        let has_private = n.is_some() && d.is_some();
        if has_private && !memory::is_scarce() {
            STATES.put(rsa, State::Local(Local::default()));
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
        let modulus = n.and_then(|n| number::bytes(n, length(n)));
        let modulus = modulus.filter(|_| d.is_none());
        let modulus = modulus.ok_or(Unreferable::Unserved)?;
        let remote = Remote { key: to, modulus };
        STATES.put(rsa, State::Remote(remote));
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
    /// It has a private key.
    Local(Local),
    /// It is a reference.
    Remote(Remote),
}

/// Only of objects that have our method: its [`finish`] removes them.
static STATES: Attached<Rsa, State> = Attached::new();

/// A key whose private parts the key daemon holds.
struct Remote {
    key: Arc<Key>,
    /// As bytes, from the first that is not zero.
    modulus: Vec<u8>,
}

/// A key with private parts.
#[derive(Default)]
struct Local {
    /// Those that came before it was prepared.
    requests: Requests,
    prepared: OnceBox<Prepared>,
}

/// A key that is looked at for the lanes.
enum Prepared {
    /// Its private operations run on lanes.
    Lanes(Lanes),
    /// OpenSSL computes, for this reason.
    Stock(Fallback),
}

/// A key ready for the lanes.
struct Lanes {
    key: Arc<RsaKey>,
    /// As bytes, from the first that is not zero.
    modulus: Vec<u8>,
    /// If the key daemon may compute with it, too.
    shared: Option<SharedKey>,
}

impl Local {
    /// The key as it is prepared; the reason why OpenSSL computes, if it is not.
    ///
    /// Other threads may compute with the object meanwhile: its parts are only read. Threads that
    /// come here at the same time may each prepare it, and all but one drop what they made.
    fn prepared(&self, rsa: &Rsa) -> Result<&Prepared, Fallback> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        if !self.is_due(rsa) {
            return Err(Fallback::First);
        }
        if memory::is_scarce() {
            return Err(Fallback::NoMemory);
        }
        let made = Prepared::new(rsa);
        // Gives back what was made with the last memory.
        if memory::is_scarce() {
            return Err(Fallback::NoMemory);
        }
        match made {
            // That says nothing of the key: a later request tries again.
            Prepared::Stock(reason @ (Fallback::NoStack | Fallback::NoMemory)) => Err(reason),
            made => Ok(self.prepared.get_or_init(|| Box::new(made))),
        }
    }

    /// Whether this request has the key prepared. Where the first one does not, the second one
    /// does. The fourth, the eighth and so on find it unprepared if that thread is still at it, was
    /// not forked into this process, or had no memory.
    fn is_due(&self, rsa: &Rsa) -> bool {
        let shape = shape_of(rsa);
        if shape.is_none_or(|shape| process::leaves_first(shape) == 0) {
            return true;
        }
        let number = self.requests.next();
        if number == 1 {
            shape.map(first::note);
        }
        number > 1 && number.is_power_of_two()
    }
}

/// The shape of operations with a key, by the length of its modulus; None if no lanes have it.
fn shape_of(rsa: &Rsa) -> Option<Shape> {
    let (mut n, mut e, mut d) = (None, None, None);
    ffi::RSA_get0_key(rsa, &mut n, &mut e, &mut d);
    RsaKey::shape_of(length(n?), length(e?))
}

impl Prepared {
    fn new(rsa: &Rsa) -> Prepared {
        // A handler that left by `siglongjmp` would leave the stack behind, with parts of the key.
        let _unsignalled = Unsignalled::begin();
        // OpenSSL's functions that copy its parts leave some of them on the stack, too.
        let lanes = stack::without_trace(|| Lanes::new(rsa));
        let lanes = lanes.unwrap_or(Err(Fallback::NoStack));
        lanes.map_or_else(Prepared::Stock, Prepared::Lanes)
    }
}

impl Lanes {
    /// A key ready for the lanes, or the reason why they cannot or should not take it.
    fn new(rsa: &Rsa) -> Result<Lanes, Fallback> {
        let backend = process::backend().ok_or(Fallback::NoBackend)?;
        // No engine is made, and no part copied, for what the lanes never take.
        if shape_of(rsa).is_some_and(|shape| process::declines_all(backend, shape)) {
            return Err(Fallback::SlowLanes);
        }
        let components = components(rsa)?;
        let shape = RsaKey::shape_of(components.n.len(), components.e.len());
        if let Some(reason) = shape.and_then(|shape| process::engine().declines_all(shape)) {
            return Err(reason);
        }
        let key = RsaKey::new(&components.borrow()).map(Arc::new)?;
        let shared = SharedKey::new(process::keys(), &components.n, &components.e);
        Ok(Lanes {
            key,
            modulus: components.n,
            shared,
        })
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

/// The parts of `rsa`, or the reason why it is not a two-prime CRT key.
fn components(rsa: &Rsa) -> Result<OwnedComponents, Fallback> {
    if ffi::RSA_get_multi_prime_extra_count(rsa) > 0 {
        return Err(Fallback::MultiPrime);
    }
    let (mut n, mut e, mut d) = (None, None, None);
    let (mut p, mut q) = (None, None);
    let (mut dp, mut dq, mut qinv) = (None, None, None);
    ffi::RSA_get0_key(rsa, &mut n, &mut e, &mut d);
    ffi::RSA_get0_factors(rsa, &mut p, &mut q);
    ffi::RSA_get0_crt_params(rsa, &mut dp, &mut dq, &mut qinv);
    let n = n.ok_or(Fallback::Inconsistent)?;
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
            && ffi::RSA_meth_set_priv_enc(table, rsa_private(private_encrypt)) == 1
            && ffi::RSA_meth_set_priv_dec(table, rsa_private(private_decrypt)) == 1
            && ffi::RSA_meth_set_finish(table, finish) == 1;
        let method = Method {
            table,
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
    /// OpenSSL. If the object holds a private key, that is counted already.
    Stock,
}

impl Route<'_> {
    /// The route for `rsa`.
    fn of(rsa: &Rsa) -> Route<'_> {
        let reason = match STATES.get(rsa) {
            None => return Route::Stock,
            Some(State::Remote(remote)) => return Route::Remote(remote),
            Some(State::Local(local)) => match local.prepared(rsa) {
                Ok(Prepared::Lanes(lanes)) => return Route::Lanes(lanes),
                Ok(Prepared::Stock(reason)) => *reason,
                Err(reason) => reason,
            },
        };
        process::count(reason);
        Route::Stock
    }
}

/// `rsa_priv_enc`: signs. There is room for as many bytes as the modulus has.
fn private_encrypt(
    input: Bytes<'_>,
    output: Output<'_>,
    rsa: &Rsa,
    padding: c_int,
) -> Option<c_int> {
    let output = &output;
    let stock = method()?.stock_private_encrypt;
    let by_stock = || call(stock, input, output, rsa, padding);
    // OpenSSL's own function says what is wrong with what cannot be padded.
    Some(match Route::of(rsa) {
        Route::Lanes(lanes) => match Padded::new(input, padding, &lanes.modulus) {
            Some(padded) => lanes.sign(&padded, output, rsa, by_stock),
            None => by_stock(),
        },
        Route::Remote(remote) => match Padded::new(input, padding, &remote.modulus) {
            Some(padded) => {
                let power = remote.power(padded.bytes())?;
                write(&padded.signature(power), output)
            }
            None => by_stock(),
        },
        Route::Stock => by_stock(),
    })
}

/// `rsa_priv_dec`: decrypts. Without padding there is room for as many bytes as the modulus has.
fn private_decrypt(
    input: Bytes<'_>,
    output: Output<'_>,
    rsa: &Rsa,
    padding: c_int,
) -> Option<c_int> {
    let output = &output;
    let stock = method()?.stock_private_decrypt;
    let by_stock = || call(stock, input, output, rsa, padding);
    Some(match Route::of(rsa) {
        Route::Lanes(lanes) if padding == ffi::RSA_NO_PADDING => match lanes.power(input) {
            Outcome::Done(message) => {
                let length = write(message.as_bytes(), output);
                #[cfg(feature = "fault-injection")]
                if crate::fault::planted("padding-byte") {
                    // SAFETY: as many bytes as the modulus has were written.
                    unsafe { *output.as_ptr().add(1) ^= 1 };
                }
                length
            }
            // Lives until OpenSSL has computed, as `serve` asks.
            _declined => by_stock(),
        },
        Route::Lanes(_) => {
            process::count(Fallback::Pkcs1Decryption);
            by_stock()
        }
        Route::Remote(remote) if padding == ffi::RSA_NO_PADDING => {
            let number = input.read(|bytes| filled(bytes, remote.modulus.len()));
            write(&remote.power(&number.flatten()?)?, output)
        }
        Route::Remote(remote) => {
            remote.key.refuse(
                "PKCS#1 v1.5 decryption is not possible with a key of the key daemon, because \
                 nothing would hide whether the padding was right",
            );
            return None;
        }
        Route::Stock => by_stock(),
    })
}

/// Writes a result, which is as long as the modulus; returns its length.
///
/// Nothing here branches on the bytes of the result, or computes an address from them.
fn write(result: &[u8], output: &Output<'_>) -> c_int {
    // SAFETY: there is room for as many bytes as the modulus has.
    let room = unsafe { output.with_size(result.len()) };
    match room.write(result) {
        true => result.len() as c_int,
        false => -1,
    }
}

/// Calls a function of OpenSSL's with what we were given.
fn call(
    stock: RsaPrivate,
    input: Bytes<'_>,
    output: &Output<'_>,
    rsa: &Rsa,
    padding: c_int,
) -> c_int {
    let (from, length) = input.into_raw();
    // SAFETY: the input has `length` bytes. The output has the room that this key and this padding
    // demand, since all are the caller's own.
    unsafe { stock(length, from, output.as_ptr(), rsa, padding) }
}

impl Lanes {
    /// Signs: by the key daemon, if that has the key and takes it, by the engine, or `by_stock`.
    /// Returns what that returns.
    fn sign(
        &self,
        padded: &Padded<'_>,
        output: &Output<'_>,
        rsa: &Rsa,
        by_stock: impl Fn() -> c_int,
    ) -> c_int {
        let here = || match self.power(Bytes::new(padded.bytes())) {
            Outcome::Done(power) => {
                let power = Zeroizing::new(power.as_bytes().to_vec());
                write(&padded.signature(power), output)
            }
            // Lives until OpenSSL has computed, as `serve` asks.
            _declined => by_stock(),
        };
        // A job would block its thread, whose other jobs are company enough.
        let is_job = || WaitCtx::with_current(|wait| wait.is_some());
        let Some(shared) = &self.shared else {
            return here();
        };
        if memory::is_scarce() || is_job() {
            return here();
        }
        match self.ask(shared, padded.bytes(), rsa) {
            Some(power) => write(&padded.signature(power), output),
            None => here(),
        }
    }

    /// A power of the key daemon that is right, if there is one.
    fn ask(&self, shared: &SharedKey, number: &[u8], rsa: &Rsa) -> Option<Zeroizing<Vec<u8>>> {
        let tried = shared.ask(number);
        #[cfg(feature = "fault-injection")]
        let tried = match tried {
            Tried::Done(mut done) if crate::fault::planted("wrong-answer") => {
                done[9] ^= 1;
                Tried::Done(done)
            }
            tried => tried,
        };
        let power = match tried {
            Tried::NotAsked => return None,
            Tried::Failed => None,
            Tried::Done(done) if is_root(&done, number, rsa) => Some(done),
            Tried::Done(_) => {
                shared.distrust();
                None
            }
        };
        let served = power.is_some();
        process::engine().count(Elsewhere::Daemon { served });
        power
    }

    /// input^d mod n, on lanes. It is as long as the modulus.
    fn power(&self, input: Bytes<'_>) -> Outcome<Verified<Signature>> {
        let request = || self.request(input);
        async_job::serve(operation::RsaPrivate(&self.key), request)
    }

    /// The request for a number; None if the modulus is not greater, or if there are no bytes.
    fn request(&self, number: Bytes<'_>) -> Option<RsaInput> {
        if number.len() == 0 || number.len() > self.modulus.len() {
            return None;
        }
        let mut input = number.read(|bytes| filled(bytes, self.modulus.len()))??;
        // Both are public.
        (*input < self.modulus).then(|| RsaInput {
            key: Arc::clone(&self.key),
            input: std::mem::take(&mut *input).into(),
        })
    }
}

/// Whether root^e mod n is the input, by OpenSSL's own arithmetic. All of them are as long as the
/// modulus.
fn is_root(root: &[u8], input: &[u8], rsa: &Rsa) -> bool {
    let mut power = vec![0; input.len()];
    let length = root.len() as c_int;
    ffi::ERR_set_mark();
    // SAFETY: as many bytes as said, and room for as many as the modulus has.
    let written = unsafe {
        let (from, to) = (root.as_ptr(), power.as_mut_ptr());
        ffi::RSA_public_decrypt(length, from, to, rsa, ffi::RSA_NO_PADDING)
    };
    ffi::ERR_pop_to_mark();
    usize::try_from(written) == Ok(power.len()) && power == input
}

impl Remote {
    /// input^d mod n by the key daemon, as long as the modulus; None with an error set.
    fn power(&self, input: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.key
            .ask(Operation::RsaPrivate, input, self.modulus.len())
    }
}

/// A number, with zeros in front of it up to this length; None if it is longer.
fn filled(number: &[u8], length: usize) -> Option<Zeroizing<Vec<u8>>> {
    let start = length.checked_sub(number.len())?;
    let mut bytes = Zeroizing::new(vec![0; length]);
    bytes[start..].copy_from_slice(number);
    Some(bytes)
}
