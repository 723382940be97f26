//! The `EC_KEY_METHOD` that moves P-256 and P-384 onto lanes.
//!
//! OpenSSL's own functions decode, check and encode, and call ours for the arithmetic: a new key
//! pair, the x of a shared point, a signature, and the check of r and s. Operations that the engine
//! declines, and every other curve, are left to the functions of OpenSSL's own method, on the same
//! object. These functions ask only the group of the object for arithmetic, so they may be called
//! at any time.

mod der;
mod point;

use std::ffi::{c_int, c_uchar, c_uint};
use std::sync::Arc;

use lockstep_engine::operation::{Ecdh, EcdsaSign, EcdsaVerify, Operation};
use lockstep_engine::{
    Bytes as Copied, Curve, EcKey, EcdhInput, EcdsaSignInput, EcdsaVerifyInput, Fallback, KeyKind,
    Keypair, Outcome,
};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::daemon::key::{Key, Operation as Remote};
use crate::daemon::reference::{Referable, Unreferable};
use crate::ffi::method::{ec_sign, ec_verify_sig};
use crate::ffi::{
    self, Bignum, Bytes, EcComputeKey, EcGroup, EcKeyMethod, EcKeygen, EcPoint, EcSign,
    EcSignSetup, EcSignSig, EcVerify, EcVerifySig, EcdsaSig, KeyData, Nonce, Output, OwnedKey,
    Passed as _, Place, guarded, select,
};
use crate::host::memory;
use crate::keys::attached::Attached;
use crate::keys::keymgmt::Adoptable;
use crate::keys::number;
use crate::process;
use crate::route::{self, Route};
use crate::stock::families::EcKeys;

use point::{curve_of, decoded, encoded};

impl Adoptable for EcKeys {
    /// Public keys too: they verify.
    const ADOPTED_WITH: c_int = select::KEYPAIR | select::DOMAIN_PARAMETERS;

    fn is_copied(_key: &KeyData<EcKeys>) -> bool {
        false
    }

    fn adopt(key: &KeyData<EcKeys>) {
        if let Some(method) = method() {
            method.adopt(key.object());
        }
    }
}

/// Makes a key pair for a blank object, by the module's method or OpenSSL's own; false if that
/// fails.
pub fn generate(blank: &OwnedKey<EcKeys>) -> bool {
    EcKeys::adopt(blank);
    ffi::EC_KEY_generate_key(blank.object()) == 1
}

/// Returns the group of a key and its curve, if the lanes have the curve.
///
/// A key with explicit parameters keeps OpenSSL's arithmetic.
fn group_of(key: &ffi::EcKey) -> Option<(&EcGroup, Curve)> {
    let group = ffi::EC_KEY_get0_group(key)?;
    let is_named = ffi::EC_GROUP_get_asn1_flag(group) & ffi::NAMED_CURVE != 0;
    Some((group, curve_of(group).filter(|_| is_named)?))
}

impl Referable for EcKeys {
    fn refer(key: &mut OwnedKey<EcKeys>, to: Arc<Key>) -> Result<(), Unreferable> {
        let method = method().ok_or(Unreferable::Unserved)?;
        let key = key.object();
        if ffi::EC_KEY_get0_private_key(key).is_some() {
            return Err(Unreferable::Unserved);
        }
        method.adopt(key);
        if !method.is_of(key) {
            return Err(match method.is_stock(key) {
                true => Unreferable::Unserved,
                false => Unreferable::OtherMethod,
            });
        }
        STATES.put(key, State::Remote(to));
        Ok(())
    }

    fn referent(key: &KeyData<EcKeys>) -> Option<Arc<Key>> {
        match STATES.get(key.object())? {
            State::Remote(to) => Some(Arc::clone(to)),
            State::Local(_) => None,
        }
    }
}

/// State that the module keeps with an EC_KEY.
enum State {
    /// The key for the engine, made at its first use; None inside if the lanes cannot serve it.
    Local(OnceBox<Option<Arc<EcKey>>>),
    /// The object is a reference: the key daemon signs.
    Remote(Arc<Key>),
}

impl State {
    /// Returns the state of a new key.
    fn new() -> State {
        State::Local(OnceBox::new())
    }

    fn is_new(&self) -> bool {
        matches!(self, State::Local(key) if key.get().is_none())
    }
}

/// The states of objects that have our method; its [`finish`] removes them.
static STATES: Attached<ffi::EcKey, State> = Attached::new();

/// The functions of OpenSSL's own method.
struct Stock {
    table: &'static EcKeyMethod,
    keygen: EcKeygen,
    compute_key: EcComputeKey,
    sign: EcSign,
    sign_setup: EcSignSetup,
    sign_sig: EcSignSig,
    verify: EcVerify,
    verify_sig: EcVerifySig,
}

/// The module's method, and the functions that it falls back on.
pub struct Method {
    table: &'static EcKeyMethod,
    stock: Stock,
}

// SAFETY: the method tables are written once, before they are shared.
unsafe impl Send for Method {}
// SAFETY: as above.
unsafe impl Sync for Method {}

/// Returns the method, made when the module is loaded; None if it cannot be made.
pub fn method() -> Option<&'static Method> {
    static METHOD: OnceBox<Option<Method>> = OnceBox::new();
    METHOD.get_or_init(|| Box::new(Method::new())).as_ref()
}

impl Stock {
    fn new() -> Option<Stock> {
        let table = ffi::EC_KEY_OpenSSL()?;
        let (mut keygen, mut compute_key) = (None, None);
        let (mut sign, mut sign_setup, mut sign_sig) = (None, None, None);
        let (mut verify, mut verify_sig) = (None, None);
        ffi::EC_KEY_METHOD_get_keygen(table, &mut keygen);
        ffi::EC_KEY_METHOD_get_compute_key(table, &mut compute_key);
        ffi::EC_KEY_METHOD_get_sign(table, &mut sign, &mut sign_setup, &mut sign_sig);
        ffi::EC_KEY_METHOD_get_verify(table, &mut verify, &mut verify_sig);
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
        let table = ffi::EC_KEY_METHOD_new(stock.table)?;
        ffi::EC_KEY_METHOD_set_init(
            table,
            None,
            Some(finish),
            // If `copy` is set, OpenSSL refuses to copy parts of a key.
            None,
            Some(set_group),
            Some(set_private),
            Some(set_public),
        );
        ffi::EC_KEY_METHOD_set_keygen(table, Some(keygen));
        ffi::EC_KEY_METHOD_set_compute_key(table, Some(compute_key));
        // OpenSSL's `sign_sig` serves a `sign` that is left to OpenSSL, and nonces that OpenSSL 3.2
        // has made from the digest.
        let (setup, sign_sig) = (Some(stock.sign_setup), Some(stock.sign_sig));
        ffi::EC_KEY_METHOD_set_sign(table, Some(ec_sign(sign)), setup, sign_sig);
        let verify_sig = ec_verify_sig(verify_sig);
        ffi::EC_KEY_METHOD_set_verify(table, Some(stock.verify), Some(verify_sig));
        Some(Method { table, stock })
    }

    /// Gives `key`, which nobody else uses, our method if the lanes have its curve. A key with
    /// another method keeps it.
    fn adopt(&self, key: &mut ffi::EcKey) {
        if group_of(key).is_none() {
            return;
        }
        if self.is_stock(key) && !memory::is_scarce() {
            ffi::EC_KEY_set_method(key, self.table);
        }
        // A duplicate has our method already, but no state.
        if self.is_of(key) {
            renew(key);
        }
    }

    /// Returns whether `key` has OpenSSL's own method.
    fn is_stock(&self, key: &ffi::EcKey) -> bool {
        ffi::EC_KEY_get_method(key) == std::ptr::from_ref(self.stock.table)
    }

    /// Returns whether `key` has the module's method.
    fn is_of(&self, key: &ffi::EcKey) -> bool {
        ffi::EC_KEY_get_method(key) == std::ptr::from_ref(self.table)
    }
}

/// Returns the private key for the engine; None if `key` has no private key that lanes can serve.
/// The engine's key is kept until a part of `key` changes.
fn private_key(key: &ffi::EcKey) -> Option<Arc<EcKey>> {
    let made = || {
        let (group, curve) = group_of(key)?;
        let private = ffi::EC_KEY_get0_private_key(key)?;
        let Some(scalar) = number::secret(private, curve.bytes()) else {
            process::count(Fallback::BadScalar);
            return None;
        };
        let public = ffi::EC_KEY_get0_public_key(key).and_then(|point| encoded(group, point));
        EcKey::new(curve, scalar.as_bytes(), public.as_deref())
            .ok()
            .map(Arc::new)
    };
    match STATES.get(key)? {
        State::Local(key) => key.get_or_init(|| Box::new(made())).clone(),
        State::Remote(_) => None,
    }
}

/// Returns the route of an operation with the private key of `key`. A route to the daemon keeps the
/// daemon's key alive, even if the program changes `key` before the answer.
fn route_of(key: &ffi::EcKey) -> Route<(&EcGroup, Curve), Arc<Key>> {
    match STATES.get(key) {
        Some(State::Remote(to)) => Route::Daemon(Arc::clone(to)),
        _ => group_of(key).map_or(Route::Stock, Route::Lanes),
    }
}

/// Gives an empty state to `key`, which has our method and which nobody else uses. Without memory
/// for a state the key is left to OpenSSL.
fn renew(key: &mut ffi::EcKey) {
    if STATES.get(key).is_some_and(State::is_new) {
        return;
    }
    STATES.remove(key);
    if !memory::is_scarce() {
        STATES.put(key, State::new());
    }
}

/// `finish`: called when the object is freed or given another method.
extern "C" fn finish(key: &mut ffi::EcKey) {
    guarded(|| STATES.remove(key));
}

/// `set_group`: a change of the key ends its state.
extern "C" fn set_group(key: &mut ffi::EcKey, _group: Option<&EcGroup>) -> c_int {
    guarded(|| changed(key))
}

/// `set_private`
extern "C" fn set_private(key: &mut ffi::EcKey, _private: Option<&Bignum>) -> c_int {
    guarded(|| changed(key))
}

/// `set_public`
extern "C" fn set_public(key: &mut ffi::EcKey, _public: Option<&EcPoint>) -> c_int {
    guarded(|| changed(key))
}

/// Gives `key` an empty state. The thread that changes a key is its only user.
fn changed(key: &mut ffi::EcKey) -> c_int {
    renew(key);
    1
}

/// `keygen`: a key pair of the pool.
extern "C" fn keygen(key: &mut ffi::EcKey) -> c_int {
    guarded(|| {
        let Some(method) = method() else { return 0 };
        let pooled = group_of(key).and_then(|(_, curve)| route::keypair(KeyKind::Nist(curve)));
        match pooled {
            Some(pair) if set(key, &pair).is_some() => 1,
            _ => (method.stock.keygen)(key),
        }
    })
}

/// Puts a key pair into `key`, which is on the same curve and copies both parts.
fn set(key: &mut ffi::EcKey, pair: &Keypair) -> Option<()> {
    let secret = number::from_secret(pair.secret.as_bytes())?;
    let point = decoded(ffi::EC_KEY_get0_group(key)?, &pair.public)?;
    let set = ffi::EC_KEY_set_private_key(key, &secret) == 1
        && ffi::EC_KEY_set_public_key(key, &point) == 1;
    set.then_some(())
}

/// Has the engine serve an operation with `key`, if the lanes have its curve.
fn served<O: Operation>(
    key: &ffi::EcKey,
    operation: impl FnOnce(Curve) -> O,
    input: impl FnOnce(&EcGroup, Curve) -> Option<O::Input>,
) -> Outcome<O::Output> {
    match group_of(key) {
        Some((group, curve)) => route::serve(operation(curve), || input(group, curve)),
        None => Outcome::NotAsked,
    }
}

/// `compute_key`: the x of a shared point.
extern "C" fn compute_key(
    secret: &mut *mut c_uchar,
    length: &mut usize,
    peer: Option<&EcPoint>,
    key: &ffi::EcKey,
) -> c_int {
    guarded(|| {
        let Some(method) = method() else { return 0 };
        let request = |group: &EcGroup, _| {
            Some(EcdhInput {
                key: private_key(key)?,
                peer: encoded(group, peer?)?.into(),
            })
        };
        match served(key, Ecdh, request) {
            Outcome::Done(shared) => match allocated(shared.as_bytes()) {
                Some(copy) => {
                    (*secret, *length) = (copy, shared.as_bytes().len());
                    1
                }
                None => 0,
            },
            _declined => (method.stock.compute_key)(secret, length, peer, key),
        }
    })
}

/// Copies bytes into libcrypto's memory; the caller frees the copy by OPENSSL_clear_free.
fn allocated(bytes: &[u8]) -> Option<*mut c_uchar> {
    // SAFETY: fresh memory of this size.
    unsafe {
        let copy: *mut c_uchar = ffi::CRYPTO_malloc(bytes.len(), c"lockstep".as_ptr(), 0).cast();
        if copy.is_null() {
            return None;
        }
        copy.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        Some(copy)
    }
}

/// `sign`: r and s as DER. OpenSSL's own function would make numbers of them in between, which
/// costs half as much as the signature. The output has room for every signature of the key.
fn sign(
    kind: c_int,
    digest: Bytes<'_>,
    output: Output<'_>,
    length: Place<'_, c_uint>,
    nonce: Nonce<'_>,
    key: &ffi::EcKey,
) -> c_int {
    let call = Signing {
        kind,
        digest,
        output,
        length,
        nonce,
    };
    method().map_or(0, |method| call.serve(key, method))
}

/// The arguments of `sign`.
struct Signing<'a> {
    kind: c_int,
    digest: Bytes<'a>,
    output: Output<'a>,
    length: Place<'a, c_uint>,
    nonce: Nonce<'a>,
}

impl Signing<'_> {
    fn serve(&self, key: &ffi::EcKey, method: &Method) -> c_int {
        let has_room = !self.output.is_null() && !self.length.is_null();
        route_of(key).take(
            |referent| {
                let signature = has_room.then(|| self.ask(key, referent)).flatten();
                signature.map_or(0, |signature| self.write(&signature))
            },
            |(_, curve)| match has_room {
                true => route::serve(EcdsaSign(*curve), || self.request(key, *curve))
                    .map(|signature| self.write(&signature)),
                false => Outcome::NotAsked,
            },
            || self.pass(key, &method.stock),
        )
    }

    /// Writes r and s as DER.
    fn write(&self, signature: &[u8]) -> c_int {
        let (form, written) = der::encoded(signature);
        // SAFETY: the output has room for every signature of the key.
        let room = unsafe { self.output.with_size(written) };
        self.length.put(written as c_uint);
        c_int::from(room.write(&form[..written]))
    }

    /// Returns the key daemon's signature, for a reference; None with an error set.
    fn ask(&self, key: &ffi::EcKey, referent: &Key) -> Option<Zeroizing<Vec<u8>>> {
        let (_, curve) = group_of(key)?;
        if self.nonce.inverse.is_some() || self.nonce.r.is_some() {
            referent.refuse("the program gave a nonce, but the key daemon makes its own nonces");
            return None;
        }
        let digest = counted(self.digest, curve)?;
        referent.ask(Remote::EcdsaSign, &digest, 2 * curve.bytes())
    }

    /// Returns the request for a signature; None if the caller gives a nonce, because only OpenSSL
    /// can use it, and for keys that the lanes cannot serve.
    fn request(&self, key: &ffi::EcKey, curve: Curve) -> Option<EcdsaSignInput> {
        if self.nonce.inverse.is_some() || self.nonce.r.is_some() || self.digest.is_null() {
            return None;
        }
        Some(EcdsaSignInput {
            key: private_key(key)?,
            digest: counted(self.digest, curve)?,
        })
    }

    /// Signs by OpenSSL's own function.
    fn pass(&self, key: &ffi::EcKey, stock: &Stock) -> c_int {
        let (digest, size) = self.digest.into_raw();
        let (output, length) = (self.output.as_ptr(), self.length.as_ptr());
        let Nonce { inverse, r } = self.nonce;
        // SAFETY: libcrypto's arguments, passed on.
        unsafe { (stock.sign)(self.kind, digest, size, output, length, inverse, r, key) }
    }
}

/// Copies the part of a digest that counts: its leftmost bits, as many as the order of the curve
/// has (FIPS 186-5, 6.4.1). Both orders have a multiple of eight bits, so these are whole bytes.
/// The caller may give any length.
fn counted(digest: Bytes<'_>, curve: Curve) -> Option<Copied> {
    let most = |digest: &[u8]| Copied::from_slice(&digest[..digest.len().min(curve.bytes())]);
    digest.read(most)
}

/// `verify_sig`: 1 right, 0 wrong, -1 error.
fn verify_sig(digest: Bytes<'_>, signature: Option<&EcdsaSig>, key: &ffi::EcKey) -> Option<c_int> {
    let method = method()?;
    let request = |group: &EcGroup, curve| verification(digest, signature?, key, group, curve);
    let is_right = served(key, EcdsaVerify, request).map(c_int::from);
    Some(is_right.or_else(|| {
        let (digest, length) = digest.into_raw();
        // SAFETY: libcrypto's arguments, passed on.
        unsafe { (method.stock.verify_sig)(digest, length, signature, key) }
    }))
}

/// Returns the request for a verification; None if OpenSSL must refuse the input, with its errors.
fn verification(
    digest: Bytes<'_>,
    signature: &EcdsaSig,
    key: &ffi::EcKey,
    group: &EcGroup,
    curve: Curve,
) -> Option<EcdsaVerifyInput> {
    let public = encoded(group, ffi::EC_KEY_get0_public_key(key)?)?;
    let (mut r, mut s) = (None, None);
    ffi::ECDSA_SIG_get0(signature, &mut r, &mut s);
    let r = number::bytes(r?, curve.bytes())?;
    let s = number::bytes(s?, curve.bytes())?;
    if digest.is_null() {
        return None;
    }
    Some(EcdsaVerifyInput {
        curve,
        public,
        digest: counted(digest, curve)?.to_vec().into(),
        signature: [&r[..], &s[..]].concat(),
    })
}
