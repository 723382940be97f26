//! Types, numbers and function types of OpenSSL's headers.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};
use std::marker::{PhantomData, PhantomPinned};

use super::owned::Owned;
use super::pointers::{Terminated, Terminator, Text};

/// Declares C types that are only handled by pointer or reference. Here they have no bytes, so a
/// reference claims that the object exists, and nothing about its content.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            _private: UnsafeCell<[u8; 0]>,
            _marker: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )*};
}

opaque! {
    /// `OSSL_CORE_HANDLE`: libcrypto's side of this provider.
    CoreHandle;
    /// `OSSL_CORE_BIO`: libcrypto's side of a decoder's source.
    CoreBio;
    /// `OPENSSL_CORE_CTX`: the core's name for the library context of the application.
    CoreCtx;
    /// `OSSL_LIB_CTX`
    LibCtx;
    /// `EVP_SIGNATURE`
    EvpSignature;
    /// `EVP_KEYEXCH`
    EvpKeyexch;
    /// `EVP_KDF`
    EvpKdf;
    /// `EVP_MAC`
    EvpMac;
    /// `OSSL_PROVIDER`
    Provider;
    /// `BIGNUM`
    Bignum;
    /// `BN_CTX`
    BnCtx;
    /// `RSA`
    Rsa;
    /// `RSA_METHOD`
    RsaMethod;
    /// `EC_KEY`
    EcKey;
    /// `EC_KEY_METHOD`
    EcKeyMethod;
    /// `EC_GROUP`
    EcGroup;
    /// `EC_POINT`
    EcPoint;
    /// `ECDSA_SIG`
    EcdsaSig;
    /// `ASYNC_JOB`
    AsyncJob;
    /// `ASYNC_WAIT_CTX`
    AsyncWaitCtx;
    /// `EVP_PKEY`
    Pkey;
}

/// A C function pointer of unknown type. `OSSL_DISPATCH` stores every function as this.
pub type Function = unsafe extern "C" fn();

/// `OSSL_DISPATCH`: one function of a table that ends with id 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dispatch {
    pub id: c_int,
    pub function: Option<Function>,
}

impl Dispatch {
    pub const END: Dispatch = Dispatch {
        id: 0,
        function: None,
    };
}

impl Terminator for Dispatch {
    fn is_end(&self) -> bool {
        self.id == 0
    }
}

/// `OSSL_ALGORITHM`: one implementation in a table that ends with NULL names. The tables of the
/// default provider and of the module live as long as the process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Algorithm {
    pub names: Option<Text<'static>>,
    pub properties: Option<Text<'static>>,
    pub implementation: Terminated<'static, Dispatch>,
    pub description: Option<Text<'static>>,
}

impl Algorithm {
    pub const END: Algorithm = Algorithm {
        names: None,
        properties: None,
        implementation: Terminated::NONE,
        description: None,
    };
}

impl Terminator for Algorithm {
    fn is_end(&self) -> bool {
        self.names.is_none()
    }
}

/// `OSSL_PARAM`: one named value of an array that ends with a NULL key. Its pointers are valid.
#[repr(C)]
pub struct Param {
    pub(super) key: *const c_char,
    pub(super) data_type: c_uint,
    pub(super) data: *mut c_void,
    pub(super) data_size: usize,
    /// Size of the answer, set by the callee.
    pub(super) return_size: Cell<usize>,
}

impl Param {
    pub const fn end() -> Param {
        Param {
            key: std::ptr::null(),
            data_type: 0,
            data: std::ptr::null_mut(),
            data_size: 0,
            return_size: Cell::new(0),
        }
    }
}

impl Terminator for Param {
    fn is_end(&self) -> bool {
        self.key.is_null()
    }
}

/// Operation ids (`OSSL_OP_*`).
pub mod operation {
    use std::ffi::c_int;
    pub const CIPHER: c_int = 2;
    pub const KDF: c_int = 4;
    pub const KEYMGMT: c_int = 10;
    pub const KEYEXCH: c_int = 11;
    pub const SIGNATURE: c_int = 12;
    pub const ASYM_CIPHER: c_int = 13;
    pub const KEM: c_int = 14;
    pub const ENCODER: c_int = 20;
    pub const DECODER: c_int = 21;
}

/// Modes of HKDF (`EVP_KDF_HKDF_MODE_*`).
pub mod hkdf_mode {
    use std::ffi::c_int;
    pub const EXTRACT_ONLY: c_int = 1;
    pub const EXPAND_ONLY: c_int = 2;
}

/// Reasons of the default provider's errors (`PROV_R_*`).
pub mod reason {
    use std::ffi::c_int;
    /// `ERR_R_MALLOC_FAILURE`
    pub const MALLOC_FAILURE: c_int = 256 | 3 << 18;
    pub const CIPHER_OPERATION_FAILED: c_int = 102;
    pub const FAILED_TO_GET_PARAMETER: c_int = 103;
    pub const FAILED_TO_SET_PARAMETER: c_int = 104;
    pub const INVALID_KEY_LENGTH: c_int = 105;
    pub const OUTPUT_BUFFER_TOO_SMALL: c_int = 106;
    pub const INVALID_AAD: c_int = 108;
    pub const INVALID_IV_LENGTH: c_int = 109;
    pub const INVALID_TAG: c_int = 110;
    pub const TOO_MANY_RECORDS: c_int = 126;
    pub const MISSING_KEY: c_int = 128;
    pub const INVALID_SEED_LENGTH: c_int = 154;
    pub const INVALID_KEY: c_int = 158;
    pub const OPERATION_NOT_SUPPORTED_FOR_THIS_KEYTYPE: c_int = 178;
    // Since OpenSSL 3.5; earlier versions have no text for these.
    pub const NULL_LENGTH_POINTER: c_int = 247;
    pub const NULL_OUTPUT_BUFFER: c_int = 248;
    pub const WRONG_CIPHERTEXT_SIZE: c_int = 251;
}

/// Bits of `selection` in the key management functions (`OSSL_KEYMGMT_SELECT_*`).
pub mod select {
    use std::ffi::c_int;
    pub const DOMAIN_PARAMETERS: c_int = 0x04;
    pub const PRIVATE_KEY: c_int = 0x01;
    pub const PUBLIC_KEY: c_int = 0x02;
    pub const KEYPAIR: c_int = 0x03;
    /// Public key and all parameters.
    pub const PUBLIC: c_int = 0x86;
    /// Key pair and all parameters.
    pub const ALL: c_int = 0x87;
}

/// `va_list` as an argument.
pub type VaList = *mut c_void;

/// `OSSL_CALLBACK`
pub type Callback = unsafe extern "C" fn(params: *const Param, arg: *mut c_void) -> c_int;

/// `OSSL_PASSPHRASE_CALLBACK`
pub type PassphraseCallback = unsafe extern "C" fn(
    passphrase: *mut c_char,
    size: usize,
    length: *mut usize,
    params: *const Param,
    arg: *mut c_void,
) -> c_int;

/// Called for a provider that becomes active or inactive.
pub type ProviderCallback =
    unsafe extern "C" fn(provider: *const CoreHandle, data: *mut c_void) -> c_int;
/// Called with the default properties of a library context.
pub type PropertiesCallback =
    unsafe extern "C" fn(query: *const c_char, data: *mut c_void) -> c_int;

/// `CRYPTO_malloc_fn`
pub type CryptoMalloc =
    unsafe extern "C" fn(size: usize, file: *const c_char, line: c_int) -> *mut c_void;
/// `CRYPTO_realloc_fn`
pub type CryptoRealloc = unsafe extern "C" fn(
    memory: *mut c_void,
    size: usize,
    file: *const c_char,
    line: c_int,
) -> *mut c_void;
/// `CRYPTO_free_fn`
pub type CryptoFree = unsafe extern "C" fn(memory: *mut c_void, file: *const c_char, line: c_int);

/// An `RSA` that other threads may use at the same time: libcrypto changes it only under its own
/// locks.
pub type SharedRsa = Rsa;
/// `rsa_priv_enc` and `rsa_priv_dec` of an `RSA_METHOD`.
pub type RsaPrivate =
    unsafe extern "C" fn(c_int, *const c_uchar, *mut c_uchar, &SharedRsa, c_int) -> c_int;
/// `finish` of an `RSA_METHOD`.
pub type RsaFinish = extern "C" fn(&mut Rsa) -> c_int;
/// An `EC_KEY` that other threads may use at the same time.
pub type SharedEcKey = EcKey;
/// `keygen` of an `EC_KEY_METHOD`.
pub type EcKeygen = extern "C" fn(&mut EcKey) -> c_int;
/// `compute_key` of an `EC_KEY_METHOD`: allocates the x of a shared point.
pub type EcComputeKey =
    extern "C" fn(&mut *mut c_uchar, &mut usize, Option<&EcPoint>, &EcKey) -> c_int;
/// `sign` of an `EC_KEY_METHOD`: a signature as DER.
pub type EcSign = unsafe extern "C" fn(
    c_int,
    *const c_uchar,
    c_int,
    *mut c_uchar,
    *mut c_uint,
    Option<&Bignum>,
    Option<&Bignum>,
    &SharedEcKey,
) -> c_int;
/// `sign_setup` of an `EC_KEY_METHOD`: makes a nonce in advance.
pub type EcSignSetup =
    unsafe extern "C" fn(*mut EcKey, *mut BnCtx, *mut *mut Bignum, *mut *mut Bignum) -> c_int;
/// `sign_sig` of an `EC_KEY_METHOD`.
pub type EcSignSig = unsafe extern "C" fn(
    *const c_uchar,
    c_int,
    Option<&Bignum>,
    Option<&Bignum>,
    &SharedEcKey,
) -> Option<Owned<EcdsaSig>>;
/// `verify` of an `EC_KEY_METHOD`: decodes for `verify_sig`.
pub type EcVerify =
    unsafe extern "C" fn(c_int, *const c_uchar, c_int, *const c_uchar, c_int, *mut EcKey) -> c_int;
/// `verify_sig` of an `EC_KEY_METHOD`: 1 valid, 0 invalid, -1 error.
pub type EcVerifySig =
    unsafe extern "C" fn(*const c_uchar, c_int, Option<&EcdsaSig>, &SharedEcKey) -> c_int;
/// `init` of an `EC_KEY_METHOD`.
pub type EcInit = extern "C" fn(&mut EcKey) -> c_int;
/// `finish` of an `EC_KEY_METHOD`.
pub type EcFinish = extern "C" fn(&mut EcKey);
/// `copy` of an `EC_KEY_METHOD`.
pub type EcCopy = extern "C" fn(&mut EcKey, &EcKey) -> c_int;
/// `set_group` of an `EC_KEY_METHOD`.
pub type EcSetGroup = extern "C" fn(&mut EcKey, Option<&EcGroup>) -> c_int;
/// `set_private` of an `EC_KEY_METHOD`.
pub type EcSetPrivate = extern "C" fn(&mut EcKey, Option<&Bignum>) -> c_int;
/// `set_public` of an `EC_KEY_METHOD`.
pub type EcSetPublic = extern "C" fn(&mut EcKey, Option<&EcPoint>) -> c_int;
/// `ASYNC_callback_fn`
pub type AsyncCallback = unsafe extern "C" fn(arg: *mut c_void) -> c_int;
/// Cleanup of a wait file descriptor, called when its wait context is freed.
pub type WaitFdCleanup =
    unsafe extern "C" fn(*mut AsyncWaitCtx, key: *const c_void, fd: c_int, data: *mut c_void);

/// Numbers of the functions that belong to the core itself. Higher numbers are functions of the
/// rest of the library, which a program may have replaced.
pub const CORE_FUNCTIONS: std::ops::RangeInclusive<c_int> = 1..=12;
/// `ERR_PACK(ERR_LIB_PROV, 0, ERR_R_INIT_FAIL)`
pub const INIT_FAIL: u32 = 57 << 23 | 3 << 18 | 261;
/// `ERR_LIB_PROV`
pub const LIB_PROV: c_int = 57;
/// `ERR_R_OPERATION_FAIL`
pub const OPERATION_FAIL: c_int = 263 | 3 << 18;
/// `OSSL_OBJECT_PKEY`
pub const OBJECT_PKEY: c_int = 2;

/// `RSA_PKCS1_PADDING`
pub const RSA_PKCS1_PADDING: c_int = 1;
/// `RSA_X931_PADDING`
pub const RSA_X931_PADDING: c_int = 5;
/// `RSA_NO_PADDING`
pub const RSA_NO_PADDING: c_int = 3;
/// `NID_X9_62_prime256v1`
pub const NID_P256: c_int = 415;
/// `NID_secp384r1`
pub const NID_P384: c_int = 715;
/// `OPENSSL_EC_NAMED_CURVE`
pub const NAMED_CURVE: c_int = 1;
/// `ASYNC_STATUS_OK`
pub const ASYNC_STATUS_OK: c_int = 2;
