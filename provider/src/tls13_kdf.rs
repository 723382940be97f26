//! Key derivation of TLS 1.3, which a handshake does some twenty times.
//!
//! Stock fetches its digest and sets up contexts for each of them, which takes longer than hashing.
//! Here a derivation that comes with all its parameters at once, as those of libssl do, is computed
//! without. The context notes what it was given, as stock does. Whatever else is asked of it goes
//! to the stock function, with a stock context that is told those parameters first: what differs
//! from usual gets the stock result, or the stock error.

use std::ffi::{CStr, c_int, c_uchar, c_uint, c_void};
use std::ptr::null_mut;

use lockstep_engine::Elsewhere;
use once_cell::race::OnceBox;
use sha2::digest::block_api::BlockSizeUser;
use sha2::digest::{FixedOutputReset, Output};
use sha2::{Digest, Sha256, Sha384};
use zeroize::{Zeroize, Zeroizing};

use crate::ffi::kdf::{
    Derive, Dupctx, Freectx, GetCtxParams, GettableCtxParams, Newctx, Reset, SetCtxParams,
    SettableCtxParams,
};
use crate::ffi::{
    Dispatch, PARAM_INTEGER, PARAM_OCTET_STRING, PARAM_UTF8_STRING, Param, hkdf_mode,
};
use crate::{memory, overlay, process};

/// What we derived from ourselves, and a stock context once that is needed.
struct Context {
    provctx: *mut c_void,
    stock: *mut c_void,
    state: State,
    inputs: Inputs,
}

#[derive(PartialEq)]
enum State {
    /// Nothing was set yet.
    Fresh,
    /// the stock context knows nothing of what was set: it is all in `inputs`.
    Ours,
    /// The stock context knows all.
    Stock,
}

/// All functions that the stock table may have, with the module's contexts.
pub fn wrappers() -> [Dispatch; 9] {
    [
        Newctx::entry(newctx),
        Dupctx::entry(dupctx),
        Freectx::entry(freectx),
        Reset::entry(reset),
        Derive::entry(derive),
        SetCtxParams::entry(set_ctx_params),
        SettableCtxParams::entry(settable_ctx_params),
        GetCtxParams::entry(get_ctx_params),
        GettableCtxParams::entry(gettable_ctx_params),
    ]
}

/// Functions that libcrypto does without: it takes the bytes of an `EVP_SKEY`, and makes one of
/// what is derived, where the table has no `OSSL_FUNC_kdf_set_skey` and `OSSL_FUNC_kdf_derive_skey`
/// (OpenSSL 3.6).
pub const LEFT_OUT: &[c_int] = &[12, 13];

/// Whether hashing here is as fast as stock's, so that there is a gain.
pub fn is_fast() -> bool {
    is_x86_feature_detected!("avx2")
}

/// The stock functions.
fn stock() -> &'static [Dispatch] {
    overlay::stock_kdf()
}

impl Context {
    fn wrap(provctx: *mut c_void, stock: *mut c_void, state: State) -> *mut c_void {
        Box::into_raw(Box::new(Context {
            provctx,
            stock,
            state,
            inputs: Inputs::EMPTY,
        }))
        .cast()
    }

    /// The stock context behind libcrypto's pointer, which from now on knows all; NULL if it
    /// refuses.
    ///
    /// # Safety
    /// `ctx` is NULL or a context of the module that nobody else uses now.
    unsafe fn told(ctx: *mut c_void) -> *mut c_void {
        // SAFETY: by contract; the stock context lives as long as ours.
        unsafe {
            let Some(ours) = ctx.cast::<Context>().as_mut() else {
                return null_mut();
            };
            if ours.stock.is_null() {
                ours.stock = Newctx::of(stock()).map_or(null_mut(), |new| new.call(ours.provctx));
            }
            if ours.stock.is_null() {
                return null_mut();
            }
            if ours.state == State::Ours {
                let told = SetCtxParams::of(stock())
                    .is_some_and(|set| set.call(ours.stock, ours.inputs.params().as_ptr()) == 1);
                if !told {
                    return null_mut();
                }
                ours.inputs.clear();
            }
            ours.state = State::Stock;
            ours.stock
        }
    }
}

/// `OSSL_FUNC_kdf_newctx`
unsafe extern "C" fn newctx(provctx: *mut c_void) -> *mut c_void {
    if memory::is_nearly_gone() {
        return null_mut();
    }
    Context::wrap(provctx, null_mut(), State::Fresh)
}

/// `OSSL_FUNC_kdf_dupctx`
unsafe extern "C" fn dupctx(ctx: *mut c_void) -> *mut c_void {
    if memory::is_nearly_gone() {
        return null_mut();
    }
    // SAFETY: libcrypto's argument.
    unsafe {
        let (told, Some(stock)) = (Context::told(ctx), Dupctx::of(stock())) else {
            return null_mut();
        };
        let copy = if told.is_null() {
            null_mut()
        } else {
            stock.call(told)
        };
        match ctx.cast::<Context>().as_ref() {
            Some(ours) if !copy.is_null() => Context::wrap(ours.provctx, copy, State::Stock),
            _ => null_mut(),
        }
    }
}

/// `OSSL_FUNC_kdf_freectx`
unsafe extern "C" fn freectx(ctx: *mut c_void) {
    if ctx.is_null() {
        return;
    }
    // SAFETY: libcrypto's argument, not used afterwards.
    unsafe {
        let ours = Box::from_raw(ctx.cast::<Context>());
        if let (false, Some(stock)) = (ours.stock.is_null(), Freectx::of(stock())) {
            stock.call(ours.stock);
        }
    }
}

/// `OSSL_FUNC_kdf_reset`
unsafe extern "C" fn reset(ctx: *mut c_void) {
    // SAFETY: libcrypto's argument.
    unsafe {
        let Some(ours) = ctx.cast::<Context>().as_mut() else {
            return;
        };
        if let (false, Some(stock)) = (ours.stock.is_null(), Reset::of(stock())) {
            stock.call(ours.stock);
        }
        ours.inputs.clear();
        ours.state = State::Fresh;
    }
}

/// `OSSL_FUNC_kdf_derive`
unsafe extern "C" fn derive(
    ctx: *mut c_void,
    out: *mut c_uchar,
    length: usize,
    params: *const Param,
) -> c_int {
    // SAFETY: libcrypto's arguments; `out` has room for `length` bytes, unless it is NULL.
    unsafe {
        let Some(ours) = ctx.cast::<Context>().as_mut() else {
            return 0;
        };
        if ours.state == State::Fresh && !out.is_null() && length <= LONGEST {
            // The inputs are copied first: the output may lie where they did.
            if ours.inputs.read(params)
                && ours
                    .inputs
                    .derive(std::slice::from_raw_parts_mut(out, length))
            {
                // The next derivation may come with some parameters only; it is left to stock.
                ours.state = State::Ours;
                process::engine().count(Elsewhere::Derivation);
                return 1;
            }
            ours.inputs.clear();
        }
        match (Context::told(ctx), Derive::of(stock())) {
            (told, Some(stock)) if !told.is_null() => stock.call(told, out, length, params),
            _ => 0,
        }
    }
}

/// `OSSL_FUNC_kdf_set_ctx_params`
unsafe extern "C" fn set_ctx_params(ctx: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: libcrypto's arguments.
    unsafe {
        match (Context::told(ctx), SetCtxParams::of(stock())) {
            (told, Some(stock)) if !told.is_null() => stock.call(told, params),
            _ => 0,
        }
    }
}

/// `OSSL_FUNC_kdf_get_ctx_params`
unsafe extern "C" fn get_ctx_params(ctx: *mut c_void, params: *mut Param) -> c_int {
    // SAFETY: libcrypto's arguments.
    unsafe {
        match (Context::told(ctx), GetCtxParams::of(stock())) {
            (told, Some(stock)) if !told.is_null() => stock.call(told, params),
            _ => 0,
        }
    }
}

/// `OSSL_FUNC_kdf_settable_ctx_params`
unsafe extern "C" fn settable_ctx_params(ctx: *mut c_void, provctx: *mut c_void) -> *const Param {
    // SAFETY: libcrypto's arguments; it may ask without a context.
    unsafe {
        let told = Context::told(ctx);
        SettableCtxParams::of(stock()).map_or(std::ptr::null(), |stock| stock.call(told, provctx))
    }
}

/// `OSSL_FUNC_kdf_gettable_ctx_params`
unsafe extern "C" fn gettable_ctx_params(ctx: *mut c_void, provctx: *mut c_void) -> *const Param {
    // SAFETY: as above.
    unsafe {
        let told = Context::told(ctx);
        GettableCtxParams::of(stock()).map_or(std::ptr::null(), |stock| stock.call(told, provctx))
    }
}

/// The digests of TLS 1.3's cipher suites.
#[derive(Clone, Copy, PartialEq)]
enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    /// By the names that the default provider has for them.
    fn named(name: &[u8]) -> Option<Hash> {
        let is = |known: &[&str]| {
            let mut known = known.iter();
            known.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
        };
        if is(&["SHA2-256", "SHA256", "SHA-256"]) {
            Some(Hash::Sha256)
        } else if is(&["SHA2-384", "SHA384", "SHA-384"]) {
            Some(Hash::Sha384)
        } else {
            None
        }
    }

    fn name(self) -> &'static CStr {
        match self {
            Hash::Sha256 => c"SHA2-256",
            Hash::Sha384 => c"SHA2-384",
        }
    }
}

/// A parameter's bytes; none if it was not given. Stock has its own view of empty ones, which are
/// not taken.
struct Bytes {
    bytes: [u8; Bytes::ROOM],
    length: usize,
}

impl Bytes {
    /// For the secret of every key exchange on a curve, alone or in a pair.
    const ROOM: usize = 136;

    const EMPTY: Bytes = Bytes {
        bytes: [0; Bytes::ROOM],
        length: 0,
    };

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Copies a parameter, of which there is none yet; false if it is none for this.
    ///
    /// # Safety
    /// `param` describes readable memory.
    unsafe fn take(&mut self, param: &Param) -> bool {
        if self.length != 0 || !is(param, PARAM_OCTET_STRING) {
            return false;
        }
        // SAFETY: by contract.
        let from = unsafe { bytes(param) };
        if from.is_empty() {
            return false;
        }
        let to = self.bytes.get_mut(..from.len());
        to.is_some_and(|to| {
            to.copy_from_slice(from);
            self.length = from.len();
            true
        })
    }

    fn clear(&mut self) {
        self.bytes[..self.length].zeroize();
        self.length = 0;
    }
}

/// The parameters of one derivation.
struct Inputs {
    mode: Option<c_int>,
    hash: Option<Hash>,
    key: Bytes,
    salt: Bytes,
    prefix: Bytes,
    label: Bytes,
    data: Bytes,
}

impl Drop for Inputs {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The longest digest's bytes.
const LONGEST: usize = 48;

/// How many parameters that is.
const PARAMS: usize = 7;

impl Inputs {
    const EMPTY: Inputs = Inputs {
        mode: None,
        hash: None,
        key: Bytes::EMPTY,
        salt: Bytes::EMPTY,
        prefix: Bytes::EMPTY,
        label: Bytes::EMPTY,
        data: Bytes::EMPTY,
    };

    fn clear(&mut self) {
        (self.mode, self.hash) = (None, None);
        let Inputs {
            key,
            salt,
            prefix,
            label,
            data,
            ..
        } = self;
        for bytes in [key, salt, prefix, label, data] {
            bytes.clear();
        }
    }

    /// Takes parameters as libssl gives them; false for any other.
    ///
    /// # Safety
    /// `params` is NULL or ends with a NULL key, and each parameter describes readable memory.
    unsafe fn read(&mut self, mut params: *const Param) -> bool {
        if params.is_null() {
            return false;
        }
        // SAFETY: by contract; we stop at the end.
        unsafe {
            while let param = &*params
                && !param.key.is_null()
            {
                let taken = match CStr::from_ptr(param.key).to_bytes() {
                    b"mode" => {
                        let usual =
                            is(param, PARAM_INTEGER) && param.data_size == size_of::<c_int>();
                        usual
                            && self
                                .mode
                                .replace(param.data.cast::<c_int>().read_unaligned())
                                .is_none()
                    }
                    b"digest" => {
                        let hash = is(param, PARAM_UTF8_STRING)
                            .then(|| bytes(param))
                            .and_then(Hash::named);
                        hash.is_some_and(|hash| self.hash.replace(hash).is_none())
                    }
                    b"key" => self.key.take(param),
                    b"salt" => self.salt.take(param),
                    b"prefix" => self.prefix.take(param),
                    b"label" => self.label.take(param),
                    b"data" => self.data.take(param),
                    _ => false,
                };
                if !taken {
                    return false;
                }
                params = params.add(1);
            }
        }
        true
    }

    /// The same as parameters, for stock. They point into the inputs.
    fn params(&self) -> [Param; PARAMS + 1] {
        let mut params = [Param::END; PARAMS + 1];
        let mut at = params.iter_mut();
        let mut push = |key: &'static CStr, data_type, data: *const c_void, size| {
            // As many as there are fields.
            if size != 0
                && let Some(to) = at.next()
            {
                *to = Param {
                    key: key.as_ptr(),
                    data_type,
                    data: data.cast_mut(),
                    data_size: size,
                    return_size: 0,
                };
            }
        };
        if let (Some(mode), Some(hash)) = (&self.mode, self.hash) {
            let name = hash.name();
            push(
                c"mode",
                PARAM_INTEGER,
                (&raw const *mode).cast(),
                size_of::<c_int>(),
            );
            push(
                c"digest",
                PARAM_UTF8_STRING,
                name.as_ptr().cast(),
                name.count_bytes(),
            );
        }
        let texts = [
            (c"key", &self.key),
            (c"salt", &self.salt),
            (c"prefix", &self.prefix),
            (c"label", &self.label),
            (c"data", &self.data),
        ];
        for (key, text) in texts {
            push(
                key,
                PARAM_OCTET_STRING,
                text.bytes.as_ptr().cast(),
                text.length,
            );
        }
        params
    }

    /// Fills `out`. False, and `out` untouched, for what libssl would not ask for.
    fn derive(&self, out: &mut [u8]) -> bool {
        match self.hash {
            Some(Hash::Sha256) if is_x86_feature_detected!("sha") => {
                static KNOWN: OnceBox<Known<32>> = OnceBox::new();
                let known = KNOWN.get_or_init(|| Box::new(Known::new::<Sha256>()));
                self.derive_with::<Sha256, _>(known, out)
            }
            Some(Hash::Sha384) => {
                static KNOWN: OnceBox<Known<48>> = OnceBox::new();
                let known = KNOWN.get_or_init(|| Box::new(Known::new::<Sha384>()));
                self.derive_with::<Sha384, _>(known, out)
            }
            _ => false,
        }
    }

    /// `N` is the digest's length.
    fn derive_with<H: Hasher, const N: usize>(&self, known: &Known<N>, out: &mut [u8]) -> bool {
        let [prefix, label] = [self.prefix.as_slice(), self.label.as_slice()];
        let data = self.data.as_slice();
        // More than libssl asks for, and less than stock has room for.
        if prefix.is_empty()
            || label.is_empty()
            || prefix.len() + label.len() > 249
            || data.len() > 64
        {
            return false;
        }
        match self.mode {
            Some(hkdf_mode::EXPAND_ONLY)
                if self.key.length == N && (1..=N).contains(&out.len()) =>
            {
                expand::<H>(self.key.as_slice(), [prefix, label, data], out);
                true
            }
            Some(hkdf_mode::EXTRACT_ONLY)
                if out.len() == N && [0, N].contains(&self.salt.length) =>
            {
                let mut salt = Zeroizing::new([0; N]);
                match (self.salt.as_slice(), self.key.as_slice()) {
                    ([], []) => {
                        out.copy_from_slice(&known.early);
                        return true;
                    }
                    ([], _) => {}
                    (early, _) if known.derives(early, prefix, label) => *salt = known.derived,
                    // RFC 8446, 7.1: derived from what the last stage left, with no messages.
                    (last, _) => expand::<H>(last, [prefix, label, &known.no_messages], &mut *salt),
                }
                let secret = match self.key.as_slice() {
                    [] => &[0; N],
                    secret => secret,
                };
                authenticate::<H>(&*salt, &[secret], out);
                true
            }
            _ => false,
        }
    }
}

/// What HMAC needs of a digest; the two here wipe their state when they are dropped.
trait Hasher: Digest + BlockSizeUser + FixedOutputReset {}

impl<H: Digest + BlockSizeUser + FixedOutputReset> Hasher for H {}

/// What is the same in all handshakes without a key from before (RFC 8448, 3, has it for SHA-256).
struct Known<const N: usize> {
    /// The digest of no messages.
    no_messages: [u8; N],
    /// The early secret.
    early: [u8; N],
    /// What the handshake secret is extracted with.
    derived: [u8; N],
}

impl<const N: usize> Known<N> {
    const PREFIX: &[u8] = b"tls13 ";
    const LABEL: &[u8] = b"derived";

    fn new<H: Hasher>() -> Known<N> {
        let mut known = Known {
            no_messages: [0; N],
            early: [0; N],
            derived: [0; N],
        };
        known.no_messages.copy_from_slice(&H::digest(b""));
        authenticate::<H>(&[0; N], &[&[0; N]], &mut known.early);
        let parts = [Self::PREFIX, Self::LABEL, &known.no_messages];
        expand::<H>(&known.early, parts, &mut known.derived);
        known
    }

    /// Whether [`derived`](Self::derived) is what comes of this secret, which may be another one:
    /// so in constant time.
    fn derives(&self, early: &[u8], prefix: &[u8], label: &[u8]) -> bool {
        let difference = early
            .iter()
            .zip(&self.early)
            .fold(0, |all, (a, b)| all | (a ^ b));
        difference == 0 && prefix == Self::PREFIX && label == Self::LABEL
    }
}

/// HKDF-Expand-Label of RFC 8446, 7.1, for no more bytes than the digest has, and texts whose
/// lengths fit a byte.
fn expand<H: Hasher>(secret: &[u8], [prefix, label, data]: [&[u8]; 3], out: &mut [u8]) {
    let parts: [&[u8]; 7] = [
        &(out.len() as u16).to_be_bytes(),
        &[(prefix.len() + label.len()) as u8],
        prefix,
        label,
        &[data.len() as u8],
        data,
        // HKDF-Expand numbers its blocks from one.
        &[1],
    ];
    authenticate::<H>(secret, &parts, out);
}

/// The first bytes of HMAC(key, the parts in a row), RFC 2104, for a key no longer than a block.
/// All that depends on the key is wiped.
fn authenticate<H: Hasher>(key: &[u8], parts: &[&[u8]], out: &mut [u8]) {
    const INNER: u8 = 0x36;
    const OUTER: u8 = 0x5c;
    let mut block = Zeroizing::new([0; 128]);
    let block = &mut block[..H::block_size()];
    block[..key.len()].copy_from_slice(key);
    block.iter_mut().for_each(|byte| *byte ^= INNER);
    let mut hash = H::new();
    Digest::update(&mut hash, &block);
    parts
        .iter()
        .for_each(|part| Digest::update(&mut hash, part));
    // In place: what is moved stays where it was.
    let mut digest = Output::<H>::default();
    Digest::finalize_into_reset(&mut hash, &mut digest);
    block.iter_mut().for_each(|byte| *byte ^= INNER ^ OUTER);
    Digest::update(&mut hash, &block);
    Digest::update(&mut hash, &digest);
    Digest::finalize_into_reset(&mut hash, &mut digest);
    out.copy_from_slice(&digest[..out.len()]);
    digest.as_mut_slice().zeroize();
}

/// Whether a parameter has this type, and a value.
fn is(param: &Param, data_type: c_uint) -> bool {
    param.data_type == data_type && !param.data.is_null()
}

/// A parameter's bytes.
///
/// # Safety
/// It describes readable memory, which lives as long as the result is used.
unsafe fn bytes(param: &Param) -> &[u8] {
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts(param.data.cast(), param.data_size) }
}
