//! The `RSA_METHOD` that moves the private exponentiation of the default provider's `RSA` objects
//! onto lanes.
//!
//! **A key is [prepared](preparation) for the lanes when its second request comes.** OpenSSL's own
//! functions compute the first one with the unchanged object, so a process that signs once prepares
//! no key. An object keeps OpenSSL's own arithmetic and blinding all its life, and so it can serve
//! every request that the engine declines, on any thread and at any time. OpenSSL keeps the
//! blinding per thread. OpenSSL's own functions never pause a job, so jobs that take turns on one
//! thread never find a blinding that another job has half changed.
//!
//! **Lanes take bytes and return bytes, never a number of libcrypto.** OAEP, the premaster secret
//! of TLS, RSASVE and PSS ask for an operation without padding: libcrypto's provider pads before
//! the operation or unpads after it. Signatures of PKCS#1 v1.5 and X9.31 get their padding
//! [here](padding). A decrypted message must never become a number of libcrypto: unless a number is
//! marked as secret, its length in words and bytes is found by branches, and that shows an attacker
//! who measures time how many zero bytes the message starts with (CVE-2022-4304).
//!
//! **Decryption with PKCS#1 v1.5 padding** is OpenSSL's own from the blinding to the last byte,
//! because only OpenSSL's own code hides there whether the padding was right. It is counted.
//!
//! If the key daemon has the same key, a signature may [come from the
//! daemon](crate::keys::shared_key). OpenSSL's own arithmetic checks this signature by the public
//! exponent, as any RSA result is checked before it leaves. Decryption with such a key never goes
//! to the daemon: OpenSSL's public operation, with which the result would be checked, shows how
//! many zero bytes a message starts with.
//!
//! A [reference](crate::daemon::reference) has public parts alone: the key daemon computes in place
//! of the lanes.

mod padding;
mod preparation;

use std::ffi::c_int;
use std::sync::Arc;

use lockstep_engine::operation;
use lockstep_engine::{ExternalEvent, Fallback, Outcome, RsaInput};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::daemon::connection::Tried;
use crate::daemon::key::{Key, Operation};
use crate::daemon::reference::{Referable, Unreferable};
use crate::ffi::{
    self, Bytes, KeyData, KeyObjects, Output, OwnedKey, Passed as _, Rsa, RsaFinish, RsaMethod,
    RsaPrivate, Text, guarded, method::rsa_private, select,
};
use crate::host::memory;
use crate::keys::attached::Attached;
use crate::keys::keymgmt::Adoptable;
use crate::keys::number::{self, length};
use crate::keys::shared_key::SharedKey;
use crate::process;
use crate::route::{self, Requests, Route};
use crate::stock::families::{RsaKeys, RsaPssKeys};

use padding::Padded;
use preparation::{Lanes, Prepared, prepare};

/// A key type whose key data are RSA objects.
trait RsaObjects: KeyObjects<Object = Rsa> {}

impl RsaObjects for RsaKeys {}
impl RsaObjects for RsaPssKeys {}

impl<K: RsaObjects> Adoptable for K {
    /// Only private keys compute on lanes, but a new public part makes a private key another key.
    const ADOPTED_WITH: c_int = select::KEYPAIR;

    /// OpenSSL imports private parts into the ordinary heap. A program with a secure heap wants no
    /// private parts in the ordinary heap.
    fn is_fit(key: &KeyData<K>) -> bool {
        Self::is_copied(key) && !number::has_secure_heap()
    }

    /// Another method, which the program has made its default, may keep data with an object. A copy
    /// of the object would lack these data.
    fn is_copied(key: &KeyData<K>) -> bool {
        let is_ours = |method: &Method| method.is_of(key.object());
        is_stock(key.object()) || method().is_some_and(is_ours)
    }

    /// Gives an object the module's method, which does everything as OpenSSL does until the object
    /// is adopted. An object with another method, which the program has made its default, keeps it.
    fn prepare(key: &OwnedKey<K>) {
        if let Some(method) = method()
            && is_stock(key.object())
        {
            // SAFETY: nothing has computed with the object yet. Later the call would do harm: a
            // computation leaves parts in the object, which `RSA_set_method` frees, but the object
            // keeps pointing there.
            unsafe { ffi::RSA_set_method(key.object(), method.table) };
        }
    }

    /// Counts the private operations of an object with our method from now on, and brings them to
    /// the lanes if these can serve them. Anything prepared from earlier parts is removed.
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

/// State that the module keeps with an RSA object.
enum State {
    /// The object has a private key.
    Local(Local),
    /// The object is a reference.
    Remote(Remote),
}

/// The states of objects that have our method; its [`finish`] removes them.
static STATES: Attached<Rsa, State> = Attached::new();

/// A key whose private parts the key daemon holds.
struct Remote {
    key: Arc<Key>,
    /// Big-endian bytes of the modulus, from the first that is not zero.
    modulus: Vec<u8>,
}

/// A key with private parts.
#[derive(Default)]
struct Local {
    /// Number of requests before the key was prepared.
    requests: Requests,
    prepared: OnceBox<Prepared>,
}

impl Local {
    /// Returns the prepared key, or the reason why OpenSSL computes.
    ///
    /// Threads that come here at the same time may each prepare the key; only one result is kept.
    fn prepared(&self, rsa: &Rsa) -> Result<&Prepared, Fallback> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        let made = prepare(rsa, &self.requests)?;
        Ok(self.prepared.get_or_init(|| Box::new(made)))
    }
}

/// The module's method, and the functions of OpenSSL that it falls back on.
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

/// Returns the method, made when the module is loaded; None if it cannot be made.
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

    /// Returns whether `rsa` has the module's method.
    fn is_of(&self, rsa: &Rsa) -> bool {
        ffi::RSA_get_method(rsa) == std::ptr::from_ref(self.table)
    }
}

/// Returns whether an object has OpenSSL's own method.
fn is_stock(rsa: &Rsa) -> bool {
    let stock = ffi::RSA_PKCS1_OpenSSL();
    stock.is_some_and(|stock| ffi::RSA_get_method(rsa) == std::ptr::from_ref(stock))
}

/// `finish`: called when the object is freed.
extern "C" fn finish(rsa: &mut Rsa) -> c_int {
    guarded(|| {
        method().map_or(0, |method| {
            STATES.remove(rsa);
            (method.stock_finish)(rsa)
        })
    })
}

/// Returns the route of an operation with the private key of `rsa`. If OpenSSL computes with an
/// object that has a private key, counts the reason.
fn route_of(rsa: &Rsa) -> Route<&Lanes, &Remote> {
    let reason = match STATES.get(rsa) {
        None => return Route::Stock,
        Some(State::Remote(remote)) => return Route::Daemon(remote),
        Some(State::Local(local)) => match local.prepared(rsa) {
            Ok(Prepared::Lanes(lanes)) => return Route::Lanes(lanes),
            Ok(Prepared::Stock(reason)) => *reason,
            Err(reason) => reason,
        },
    };
    process::count(reason);
    Route::Stock
}

/// `rsa_priv_enc`: signs. There is room for as many bytes as the modulus has.
fn private_encrypt(
    input: Bytes<'_>,
    output: Output<'_>,
    rsa: &Rsa,
    padding: c_int,
) -> Option<c_int> {
    let stock = method()?.stock_private_encrypt;
    let by_stock = || Some(call(stock, input, &output, rsa, padding));
    let route = route_of(rsa);
    let modulus = match route {
        Route::Lanes(lanes) => &lanes.modulus,
        Route::Daemon(remote) => &remote.modulus,
        Route::Stock => return by_stock(),
    };
    // OpenSSL's own function reports an input that cannot be padded.
    let Some(padded) = Padded::new(input, padding, modulus) else {
        return by_stock();
    };
    let finish = |power| Some(write(&padded.signature(power), &output));
    route.take(
        |remote| finish(remote.power(padded.bytes())?),
        |lanes| lanes.sign(padded.bytes(), rsa).map(finish),
        by_stock,
    )
}

/// `rsa_priv_dec`: decrypts. Without padding there is room for as many bytes as the modulus has.
fn private_decrypt(
    input: Bytes<'_>,
    output: Output<'_>,
    rsa: &Rsa,
    padding: c_int,
) -> Option<c_int> {
    let stock = method()?.stock_private_decrypt;
    let by_stock = || Some(call(stock, input, &output, rsa, padding));
    let is_padded = padding != ffi::RSA_NO_PADDING;
    route_of(rsa).take(
        |remote| {
            if is_padded {
                remote.key.refuse(
                    "PKCS#1 v1.5 decryption is not possible with a key of the key daemon, because \
                     nothing would hide whether the padding was right",
                );
                return None;
            }
            let number = input.read(|bytes| filled(bytes, remote.modulus.len()));
            Some(write(&remote.power(&number.flatten()?)?, &output))
        },
        |lanes| {
            if is_padded {
                process::count(Fallback::Pkcs1Decryption);
                return Outcome::NotAsked;
            }
            let message = route::serve(operation::RsaPrivate(&lanes.key), || lanes.request(input));
            message.map(|message| {
                let length = write(message.as_bytes(), &output);
                #[cfg(feature = "fault-injection")]
                if crate::fault::planted("padding-byte") {
                    // SAFETY: as many bytes as the modulus has were written.
                    unsafe { *output.as_ptr().add(1) ^= 1 };
                }
                Some(length)
            })
        },
        by_stock,
    )
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

/// Calls a function of OpenSSL with the arguments of the method.
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
    /// Returns input^d mod n, by the key daemon if that has the key and gives a right answer, else
    /// by the engine. Input and result are as long as the modulus.
    fn sign(&self, input: &[u8], rsa: &Rsa) -> Outcome<Zeroizing<Vec<u8>>> {
        if let Some(shared) = &self.shared {
            if let Err(declined) = route::admit() {
                return Outcome::Declined(declined);
            }
            if let Some(power) = ask(shared, input, rsa) {
                return Outcome::Done(power);
            }
        }
        let request = || self.request(Bytes::new(input));
        let power = route::serve(operation::RsaPrivate(&self.key), request);
        power.map(|power| Zeroizing::new(power.as_bytes().to_vec()))
    }

    /// Returns the request for a number; None if the number is not below the modulus, or has no
    /// bytes.
    fn request(&self, number: Bytes<'_>) -> Option<RsaInput> {
        if number.len() == 0 || number.len() > self.modulus.len() {
            return None;
        }
        let mut input = number.read(|bytes| filled(bytes, self.modulus.len()))??;
        // The input and the modulus are public, so the comparison may branch.
        (*input < self.modulus).then(|| RsaInput {
            key: Arc::clone(&self.key),
            input: std::mem::take(&mut *input).into(),
        })
    }
}

/// Asks the key daemon for the power of a number; None if it has no right answer.
///
/// An async job does not ask the daemon: the other jobs of its thread fill the engine's batch.
fn ask(shared: &SharedKey, number: &[u8], rsa: &Rsa) -> Option<Zeroizing<Vec<u8>>> {
    if route::with_job(|job| job.is_some()) {
        return None;
    }
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
    process::engine().count(ExternalEvent::Daemon { served });
    power
}

/// Returns whether root^e mod n is the input, by OpenSSL's own arithmetic. Both are as long as the
/// modulus.
fn is_root(root: &[u8], input: &[u8], rsa: &Rsa) -> bool {
    let mut power = vec![0; input.len()];
    let length = root.len() as c_int;
    ffi::ERR_set_mark();
    // SAFETY: `from` has `length` bytes, and `to` has room for as many bytes as the modulus has.
    let written = unsafe {
        let (from, to) = (root.as_ptr(), power.as_mut_ptr());
        ffi::RSA_public_decrypt(length, from, to, rsa, ffi::RSA_NO_PADDING)
    };
    ffi::ERR_pop_to_mark();
    usize::try_from(written) == Ok(power.len()) && power == input
}

impl Remote {
    /// Returns input^d mod n by the key daemon, as long as the modulus; None with an error set.
    fn power(&self, input: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.key
            .ask(Operation::RsaPrivate, input, self.modulus.len())
    }
}

/// Returns a number with zeros in front, up to this length; None if it is longer.
fn filled(number: &[u8], length: usize) -> Option<Zeroizing<Vec<u8>>> {
    let start = length.checked_sub(number.len())?;
    let mut bytes = Zeroizing::new(vec![0; length]);
    bytes[start..].copy_from_slice(number);
    Some(bytes)
}
