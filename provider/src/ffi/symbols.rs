//! The functions of libcrypto that the module calls.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use once_cell::race::OnceBox;

use super::owned::{Freed, Owned};
use super::pointers::{Terminated, Text};
use super::types::*;

/// Declares functions of libcrypto in groups, and makes the table by which they are called.
macro_rules! imported {
    ($(
        $(#[$doc:meta])*
        $group:ident {
            $(pub $kind:tt fn $name:ident $(<$lifetime:lifetime>)? ($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*
        }
    )*) => {
        /// Functions that the module needs together.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Group {
            $($(#[$doc])* $group),*
        }

        impl Group {
            const ALL: &[Group] = &[$(Group::$group),*];
        }

        /// Places of the functions in the table.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Slot {
            $($($name),*),*
        }

        /// The groups and names of the functions, in the order of the table.
        const FUNCTIONS: &[(Group, &CStr)] = &[
            $($((
                Group::$group,
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
            )),*),*
        ];

        $($(imported! { @$kind $name [$($lifetime)?] ($($arg: $type),*) [$($result)?] })*)*

        /// C types of the functions, as text.
        #[cfg(test)]
        pub const TYPES: &[(&str, &[&str], &str)] =
            &[$($((stringify!($name), &[$(stringify!($type)),*], concat!("" $(, stringify!($result))?))),*),*];
    };

    (@safe $($function:tt)*) => { imported! { @function [] $($function)* } };
    (@unsafe $($function:tt)*) => { imported! { @function [unsafe] $($function)* } };
    (
        @function [$($unsafe:tt)?]
        $name:ident [$($lifetime:lifetime)?] ($($arg:ident: $type:ty),*) [$($result:ty)?]
    ) => {
        #[allow(non_snake_case, reason = "the name in C")]
        #[inline]
        pub $($unsafe)? extern "C" fn $name $(<$lifetime>)? ($($arg: $type),*) $(-> $result)? {
            let function = TABLE[Slot::$name as usize].load(Ordering::Relaxed);
            // SAFETY: the table has the function of libcrypto with this name in this place, or
            // `absent`. These are the types of OpenSSL's headers, which a test compares. A function
            // is declared safe if its page demands no more of its arguments than their types say:
            // that a reference leads to a valid object, which nobody else changes meanwhile.
            unsafe {
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn($($type),*) $(-> $result)?,
                >(function)($($arg),*)
            }
        }
    };
}

/// Addresses of the functions of libcrypto that the module calls. Every thread that loads the
/// module stores them before it calls any.
static TABLE: [AtomicPtr<c_void>; FUNCTIONS.len()] =
    [const { AtomicPtr::new(absent as *mut c_void) }; _];

/// Stands for a function that cannot be called. For any arguments it returns 0 or NULL, which means
/// for each of these functions that it found or did nothing.
#[unsafe(naked)]
extern "C" fn absent() {
    naked_asm!("xor eax, eax", "ret")
}

/// The first function of each group that libcrypto lacks.
static LACKING: OnceBox<Vec<(Group, &'static str)>> = OnceBox::new();

impl Group {
    /// Returns a function of the group that libcrypto lacks. Then none of the group is called.
    pub fn lacks(self) -> Option<&'static str> {
        let mut lacking = LACKING.get()?.iter();
        lacking.find_map(|(group, name)| (*group == self).then_some(*name))
    }
}

/// The addresses of the functions in a libcrypto.
pub struct Addresses(Vec<Option<NonNull<c_void>>>);

impl Addresses {
    /// Looks for all functions by `find`; returns its first error.
    pub fn find<E>(
        find: impl FnMut(&'static CStr) -> Result<Option<NonNull<c_void>>, E>,
    ) -> Result<Addresses, E> {
        let names = FUNCTIONS.iter().map(|(_, name)| *name);
        Ok(Addresses(names.map(find).collect::<Result<_, E>>()?))
    }

    /// Returns a function of the group that was not found.
    pub fn lacks(&self, group: Group) -> Option<&'static str> {
        let mut functions = self.0.iter().zip(FUNCTIONS);
        functions.find_map(|(address, (of, name))| {
            (*of == group && address.is_none()).then(|| name.to_str().unwrap_or_default())
        })
    }

    /// Binds the module's calls to these functions. If a group lacks one, none of the group is
    /// called.
    ///
    /// # Safety
    /// The addresses are those of the functions with these names in one libcrypto. That libcrypto
    /// stays loaded, and is the same at each call.
    pub unsafe fn bind(self) {
        LACKING.get_or_init(|| {
            let groups = Group::ALL.iter();
            let lacking = groups.filter_map(|&group| Some((group, self.lacks(group)?)));
            Box::new(lacking.collect())
        });
        for ((slot, address), (group, _)) in TABLE.iter().zip(self.0).zip(FUNCTIONS) {
            if let (Some(address), None) = (address, group.lacks()) {
                slot.store(address.as_ptr(), Ordering::Relaxed);
            }
        }
    }
}

/// Returns whether OpenSSL takes and frees memory by its own functions, and the program has
/// replaced none.
pub fn has_own_memory_functions() -> bool {
    let (mut malloc, mut free) = (None, None);
    CRYPTO_get_mem_functions(&mut malloc, &mut None, &mut free);
    let address = |slot: Slot| TABLE[slot as usize].load(Ordering::Relaxed).addr();
    malloc.is_some_and(|function| function as usize == address(Slot::CRYPTO_malloc))
        && free.is_some_and(|function| function as usize == address(Slot::CRYPTO_free))
}

/// Binds unit tests before `main` to the libcrypto to which they are linked: no libcrypto loads
/// them.
#[cfg(test)]
mod bound_at_start {
    use std::ffi::c_uint;

    use super::*;
    use crate::host::c_library::{Scope, dlsym};

    #[link(name = "crypto")]
    unsafe extern "C" {
        safe fn OPENSSL_version_major() -> c_uint;
    }

    // SAFETY: the C library calls the functions in this section before `main`.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static BIND: extern "C" fn() = bind;

    extern "C" fn bind() {
        assert!(OPENSSL_version_major() >= 3);
        let find = |name| Ok::<_, ()>(NonNull::new(dlsym(Scope::DEFAULT, Text::new(name))));
        let addresses = Addresses::find(find).expect("nothing fails");
        // SAFETY: the libcrypto that the program is linked to.
        unsafe { addresses.bind() };
        assert!(LACKING.get().is_some_and(Vec::is_empty));
    }
}

imported! {
    /// Functions that the module always needs.
    Basis {
        pub safe fn OSSL_LIB_CTX_new() -> Option<Owned<LibCtx>>;
        pub unsafe fn OSSL_LIB_CTX_free(ctx: *mut LibCtx);
        pub unsafe fn OSSL_PROVIDER_load(
            ctx: &mut LibCtx,
            name: Text<'_>,
        ) -> Option<Owned<Provider>>;
        pub unsafe fn OSSL_PROVIDER_unload(provider: *mut Provider) -> c_int;
        pub safe fn OSSL_PROVIDER_get0_provider_ctx(provider: &Provider) -> *mut c_void;
        pub safe fn OSSL_PROVIDER_get0_dispatch(provider: &Provider) -> *const Dispatch;
        pub safe fn OSSL_PROVIDER_query_operation(
            provider: &Provider,
            operation: c_int,
            no_cache: &mut c_int,
        ) -> Terminated<'static, Algorithm>;
        pub unsafe fn OSSL_PROVIDER_get_capabilities(
            provider: &Provider,
            capability: Text<'_>,
            callback: Callback,
            arg: *mut c_void,
        ) -> c_int;

        pub safe fn ERR_new();
        pub safe fn ERR_set_debug(file: Text<'_>, line: c_int, function: Text<'_>);
        pub unsafe fn ERR_vset_error(
            library: c_int,
            reason: c_int,
            format: *const c_char,
            arguments: VaList,
        );
        pub safe fn ERR_set_mark() -> c_int;
        pub safe fn ERR_pop_to_mark() -> c_int;
        pub unsafe fn CRYPTO_free(memory: *mut c_void, file: *const c_char, line: c_int);
        pub unsafe fn CRYPTO_malloc(size: usize, file: *const c_char, line: c_int) -> *mut c_void;
        pub safe fn CRYPTO_secure_malloc_initialized() -> c_int;
        pub safe fn BN_new() -> Option<Owned<Bignum>>;
        pub safe fn BN_secure_new() -> Option<Owned<Bignum>>;
        pub unsafe fn BN_clear_free(a: *mut Bignum);
        pub safe fn BN_is_one(a: &Bignum) -> c_int;
        pub safe fn BN_is_zero(a: &Bignum) -> c_int;
        pub safe fn BN_is_negative(a: &Bignum) -> c_int;
        pub safe fn BN_num_bits(a: &Bignum) -> c_int;
        pub unsafe fn BN_bn2binpad(a: &Bignum, to: *mut c_uchar, len: c_int) -> c_int;
        pub unsafe fn BN_bin2bn(from: *const c_uchar, len: c_int, ret: Option<&mut Bignum>) -> *mut Bignum;
        pub safe fn BN_clear_bit(a: &mut Bignum, n: c_int) -> c_int;
    }
    /// The functions by which OpenSSL takes and frees memory.
    Memory {
        pub safe fn CRYPTO_get_mem_functions(
            malloc: &mut Option<CryptoMalloc>,
            realloc: &mut Option<CryptoRealloc>,
            free: &mut Option<CryptoFree>,
        );
    }
    /// Methods of RSA keys.
    Rsa {
        pub safe fn RSA_PKCS1_OpenSSL() -> Option<&'static RsaMethod>;
        pub safe fn RSA_meth_dup(method: &RsaMethod) -> Option<&'static mut RsaMethod>;
        pub safe fn RSA_meth_set1_name(method: &mut RsaMethod, name: Text<'_>) -> c_int;
        pub safe fn RSA_meth_get_priv_enc(method: &RsaMethod) -> Option<RsaPrivate>;
        pub safe fn RSA_meth_set_priv_enc(method: &mut RsaMethod, f: RsaPrivate) -> c_int;
        pub safe fn RSA_meth_get_priv_dec(method: &RsaMethod) -> Option<RsaPrivate>;
        pub safe fn RSA_meth_set_priv_dec(method: &mut RsaMethod, f: RsaPrivate) -> c_int;
        pub safe fn RSA_meth_get_finish(method: &RsaMethod) -> Option<RsaFinish>;
        pub safe fn RSA_meth_set_finish(method: &mut RsaMethod, f: RsaFinish) -> c_int;
        pub unsafe fn RSA_set_method(rsa: &mut Rsa, method: &'static RsaMethod) -> c_int;
        pub safe fn RSA_get_method(rsa: &Rsa) -> *const RsaMethod;
        pub safe fn RSA_get0_key<'a>(
            rsa: &'a Rsa,
            n: &mut Option<&'a Bignum>,
            e: &mut Option<&'a Bignum>,
            d: &mut Option<&'a Bignum>,
        );
        pub safe fn RSA_get0_factors<'a>(
            rsa: &'a Rsa,
            p: &mut Option<&'a Bignum>,
            q: &mut Option<&'a Bignum>,
        );
        pub safe fn RSA_get0_crt_params<'a>(
            rsa: &'a Rsa,
            dmp1: &mut Option<&'a Bignum>,
            dmq1: &mut Option<&'a Bignum>,
            iqmp: &mut Option<&'a Bignum>,
        );
        pub safe fn RSA_get_multi_prime_extra_count(rsa: &Rsa) -> c_int;
        pub unsafe fn RSA_public_decrypt(
            len: c_int,
            from: *const c_uchar,
            to: *mut c_uchar,
            rsa: &SharedRsa,
            padding: c_int,
        ) -> c_int;
    }
    /// Methods of EC keys.
    Ec {
        pub safe fn EC_KEY_OpenSSL() -> Option<&'static EcKeyMethod>;
        pub safe fn EC_KEY_METHOD_new(from: &EcKeyMethod) -> Option<&'static mut EcKeyMethod>;
        pub safe fn EC_KEY_METHOD_set_init(
            method: &mut EcKeyMethod,
            init: Option<EcInit>,
            finish: Option<EcFinish>,
            copy: Option<EcCopy>,
            set_group: Option<EcSetGroup>,
            set_private: Option<EcSetPrivate>,
            set_public: Option<EcSetPublic>,
        );
        pub safe fn EC_KEY_METHOD_get_keygen(method: &EcKeyMethod, keygen: &mut Option<EcKeygen>);
        pub safe fn EC_KEY_METHOD_set_keygen(method: &mut EcKeyMethod, keygen: Option<EcKeygen>);
        pub safe fn EC_KEY_METHOD_get_compute_key(
            method: &EcKeyMethod,
            compute: &mut Option<EcComputeKey>,
        );
        pub safe fn EC_KEY_METHOD_set_compute_key(
            method: &mut EcKeyMethod,
            compute: Option<EcComputeKey>,
        );
        pub safe fn EC_KEY_METHOD_get_sign(
            method: &EcKeyMethod,
            sign: &mut Option<EcSign>,
            setup: &mut Option<EcSignSetup>,
            sign_sig: &mut Option<EcSignSig>,
        );
        pub safe fn EC_KEY_METHOD_set_sign(
            method: &mut EcKeyMethod,
            sign: Option<EcSign>,
            setup: Option<EcSignSetup>,
            sign_sig: Option<EcSignSig>,
        );
        pub safe fn EC_KEY_METHOD_get_verify(
            method: &EcKeyMethod,
            verify: &mut Option<EcVerify>,
            verify_sig: &mut Option<EcVerifySig>,
        );
        pub safe fn EC_KEY_METHOD_set_verify(
            method: &mut EcKeyMethod,
            verify: Option<EcVerify>,
            verify_sig: Option<EcVerifySig>,
        );
        pub safe fn EC_KEY_set_method(key: &mut EcKey, method: &'static EcKeyMethod) -> c_int;
        pub safe fn EC_KEY_get_method(key: &EcKey) -> *const EcKeyMethod;
        pub safe fn EC_KEY_get0_group(key: &EcKey) -> Option<&EcGroup>;
        pub safe fn EC_KEY_get0_private_key(key: &EcKey) -> Option<&Bignum>;
        pub safe fn EC_KEY_get0_public_key(key: &EcKey) -> Option<&EcPoint>;
        pub safe fn EC_KEY_set_private_key(key: &mut EcKey, private: &Bignum) -> c_int;
        pub safe fn EC_KEY_set_public_key(key: &mut EcKey, public: &EcPoint) -> c_int;
        pub safe fn EC_KEY_generate_key(key: &mut EcKey) -> c_int;
        pub safe fn EC_GROUP_get_curve_name(group: &EcGroup) -> c_int;
        pub safe fn EC_GROUP_get_asn1_flag(group: &EcGroup) -> c_int;
        pub safe fn EC_POINT_new(group: &EcGroup) -> Option<Owned<EcPoint>>;
        pub unsafe fn EC_POINT_free(point: *mut EcPoint);
        pub safe fn EC_POINT_set_affine_coordinates(
            group: &EcGroup,
            point: &mut EcPoint,
            x: &Bignum,
            y: &Bignum,
            ctx: Option<&mut BnCtx>,
        ) -> c_int;
        pub safe fn EC_POINT_get_affine_coordinates(
            group: &EcGroup,
            point: &EcPoint,
            x: &mut Bignum,
            y: &mut Bignum,
            ctx: Option<&mut BnCtx>,
        ) -> c_int;
        pub safe fn EC_POINT_get_Jprojective_coordinates_GFp(
            group: &EcGroup,
            point: &EcPoint,
            x: Option<&mut Bignum>,
            y: Option<&mut Bignum>,
            z: Option<&mut Bignum>,
            ctx: Option<&mut BnCtx>,
        ) -> c_int;
        pub unsafe fn ECDSA_SIG_free(signature: *mut EcdsaSig);
        pub safe fn ECDSA_SIG_get0<'a>(
            signature: &'a EcdsaSig,
            r: &mut Option<&'a Bignum>,
            s: &mut Option<&'a Bignum>,
        );
    }
    /// Parameters of ciphers.
    Ciphers {
        pub unsafe fn OSSL_PARAM_get_size_t(param: *const Param, value: *mut usize) -> c_int;
        pub unsafe fn OSSL_PARAM_set_size_t(param: *mut Param, value: usize) -> c_int;
        pub unsafe fn OSSL_PARAM_set_octet_string(
            param: *mut Param,
            value: *const c_void,
            length: usize,
        ) -> c_int;
        pub unsafe fn OSSL_PARAM_set_octet_ptr(
            param: *mut Param,
            value: *const c_void,
            length: usize,
        ) -> c_int;
    }
    /// Parameters of keys for encapsulation.
    Encapsulation {
        pub unsafe fn OSSL_PARAM_get_octet_string_ptr(
            param: *const Param,
            value: *mut *const c_void,
            length: *mut usize,
        ) -> c_int;
        pub unsafe fn OSSL_PARAM_set_int(param: *mut Param, value: c_int) -> c_int;
    }
    /// Public keys, as references to keys hold them.
    References {
        pub unsafe fn d2i_PUBKEY_ex(
            key: *mut *mut Pkey,
            bytes: &mut *const c_uchar,
            length: c_long,
            ctx: &LibCtx,
            propq: *const c_char,
        ) -> Option<Owned<Pkey>>;
        pub safe fn EVP_PKEY_is_a(key: &Pkey, name: Text<'_>) -> c_int;
        pub unsafe fn EVP_PKEY_export(
            key: &Pkey,
            selection: c_int,
            callback: Callback,
            arg: *mut c_void,
        ) -> c_int;
        pub unsafe fn EVP_PKEY_free(key: *mut Pkey);
    }
    /// Functions that find the implementation of an algorithm.
    Fetches {
        pub safe fn EVP_SIGNATURE_fetch(
            ctx: &LibCtx,
            name: Text<'_>,
            properties: Option<Text<'_>>,
        ) -> Option<Owned<EvpSignature>>;
        pub unsafe fn EVP_SIGNATURE_free(found: *mut EvpSignature);
        pub safe fn EVP_KEYEXCH_fetch(
            ctx: &LibCtx,
            name: Text<'_>,
            properties: Option<Text<'_>>,
        ) -> Option<Owned<EvpKeyexch>>;
        pub unsafe fn EVP_KEYEXCH_free(found: *mut EvpKeyexch);
        pub safe fn EVP_KDF_fetch(
            ctx: &LibCtx,
            name: Text<'_>,
            properties: Option<Text<'_>>,
        ) -> Option<Owned<EvpKdf>>;
        pub unsafe fn EVP_KDF_free(found: *mut EvpKdf);
        pub safe fn EVP_MAC_fetch(
            ctx: &LibCtx,
            name: Text<'_>,
            properties: Option<Text<'_>>,
        ) -> Option<Owned<EvpMac>>;
        pub unsafe fn EVP_MAC_free(found: *mut EvpMac);
    }
    /// Async jobs, which can pause.
    Async {
        pub safe fn ASYNC_get_current_job() -> *mut AsyncJob;
        pub safe fn ASYNC_get_wait_ctx(job: &AsyncJob) -> Option<&AsyncWaitCtx>;
        pub unsafe fn ASYNC_pause_job() -> c_int;
        // The bytes behind a key are never read.
        pub safe fn ASYNC_WAIT_CTX_get_fd(
            ctx: &AsyncWaitCtx,
            key: *const c_void,
            fd: &mut c_int,
            data: &mut *mut c_void,
        ) -> c_int;
        pub unsafe fn ASYNC_WAIT_CTX_set_wait_fd(
            ctx: &AsyncWaitCtx,
            key: *const c_void,
            fd: c_int,
            data: *mut c_void,
            cleanup: Option<WaitFdCleanup>,
        ) -> c_int;
        pub safe fn ASYNC_WAIT_CTX_clear_fd(ctx: &AsyncWaitCtx, key: *const c_void) -> c_int;
        pub safe fn ASYNC_WAIT_CTX_get_callback(
            ctx: &AsyncWaitCtx,
            callback: &mut Option<AsyncCallback>,
            arg: &mut *mut c_void,
        ) -> c_int;
        pub safe fn ASYNC_WAIT_CTX_set_status(ctx: &AsyncWaitCtx, status: c_int) -> c_int;
    }
}

/// Declares the function that frees each type.
macro_rules! freed {
    ($($object:ident by $free:ident -> $returned:ty;)*) => {
        $(impl Freed for $object {
            type Returned = $returned;
            const FREE: unsafe extern "C" fn(*mut $object) -> $returned = $free;
        })*
    };
}

freed! {
    Bignum by BN_clear_free -> ();
    EcPoint by EC_POINT_free -> ();
    EvpKdf by EVP_KDF_free -> ();
    EvpKeyexch by EVP_KEYEXCH_free -> ();
    EvpMac by EVP_MAC_free -> ();
    EvpSignature by EVP_SIGNATURE_free -> ();
    EcdsaSig by ECDSA_SIG_free -> ();
    LibCtx by OSSL_LIB_CTX_free -> ();
    Pkey by EVP_PKEY_free -> ();
    Provider by OSSL_PROVIDER_unload -> c_int;
}
