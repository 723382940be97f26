//! The functions of dispatch tables, by operation.

// The macro `dispatched` writes every result, also `()`, and gives all functions a lifetime.
#![allow(clippy::unused_unit, clippy::extra_unused_lifetimes)]

use std::ffi::{c_char, c_int, c_uchar, c_void};

use super::arguments::{Progress, Receiver};
use super::buffers::{Bytes, OutBuf, Place, Room, SizedBuf, Transformed};
use super::convert::{Absent, Answer, Argument, Passed, guarded, the_function};
use super::dispatch::dispatched;
use super::objects::{Ctx, Functions, KeyData, Own, OwnedKey, ProvCtx, StockCtx, Subject};
use super::params::{Params, ParamsMut};
use super::pointers::{Terminated, Text};
use super::types::{
    Algorithm, Callback, CoreCtx, CoreHandle, Dispatch, Function, Param, PropertiesCallback,
    ProviderCallback, VaList,
};

/// Functions of a provider and of the core (`OSSL_FUNC_PROVIDER_*`, `OSSL_FUNC_CORE_*`).
pub mod provider {
    use super::*;
    dispatched! {
        CoreGetParams = 2: fn(handle: *const CoreHandle, params: *mut Param) -> c_int;
        CoreGetLibctx = 4: fn(handle: *const CoreHandle) -> *mut CoreCtx;
        CoreNewError = 5: fn(handle: *const CoreHandle) -> ();
        CoreSetErrorDebug = 6: fn(
            handle: *const CoreHandle,
            file: *const c_char,
            line: c_int,
            function: *const c_char
        ) -> ();
        CoreVsetError = 7: fn(
            handle: *const CoreHandle,
            reason: u32,
            format: *const c_char,
            arguments: VaList
        ) -> ();
        RegisterChildCb = 105: fn(
            handle: *const CoreHandle,
            create: ProviderCallback,
            remove: ProviderCallback,
            properties: PropertiesCallback,
            data: *mut c_void
        ) -> c_int;
        DeregisterChildCb = 106: fn(handle: *const CoreHandle) -> ();
        ProviderGet0ProviderCtx = 108: fn(provider: *const CoreHandle) -> *mut c_void;
        ProviderGet0Dispatch = 109: fn(provider: *const CoreHandle) -> *const Dispatch;
        ProviderUpRef = 110: fn(provider: *const CoreHandle, activate: c_int) -> c_int;
        ProviderFree = 111: fn(provider: *const CoreHandle, deactivate: c_int) -> c_int;
        Teardown[][][] = 1024: fn(ProvCtx = (provctx: *mut c_void)) -> () as ();
        GettableParams[][][] = 1025: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'static>;
        GetParams[][][] = 1026: fn(
            ProvCtx = (provctx: *mut c_void);
            ParamsMut<'a> = (params: *mut Param)
        ) -> c_int as c_int;
        QueryOperation[][][] = 1027: fn(
            ProvCtx = (provctx: *mut c_void);
            c_int = (operation: c_int);
            Place<'a, c_int> = (no_cache: *mut c_int)
        ) -> *const Algorithm as Terminated<'static, Algorithm>;
        GetCapabilities[][][] = 1030: fn(
            ProvCtx = (provctx: *mut c_void);
            Option<Text<'a>> = (capability: *const c_char);
            Receiver<'a> = (callback: Callback, arg: *mut c_void)
        ) -> c_int as c_int;
    }
}

/// Key management functions (`OSSL_FUNC_KEYMGMT_*`).
pub mod keymgmt {
    use super::*;
    dispatched! {
        New[][K][] = 1: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *mut c_void as Option<OwnedKey<K>>, Option<OwnedKey<T>>;
        NewEx[][K][] = 17: fn(
            ProvCtx = (provctx: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> *mut c_void as Option<OwnedKey<K>>, Option<OwnedKey<T>>;
        GenInit[C][][] = 2: fn(
            ProvCtx = (provctx: *mut c_void);
            c_int = (selection: c_int);
            Params<'a> = (params: *const Param)
        ) -> *mut c_void as Option<Box<C>>, Option<StockCtx<T>>;
        GenSetTemplate[C][K][K] = 3: fn(
            Ctx<'a, C> = (genctx: *mut c_void);
            Option<&'a KeyData<K>> = (template: *mut c_void)
        ) -> c_int as c_int, c_int;
        GenSetParams[C][][] = 4: fn(
            Ctx<'a, C> = (genctx: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        GenSettableParams[C][][] = 5: fn(
            Ctx<'a, C> = (genctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
        Gen[C][K][] = 6: fn(
            Ctx<'a, C> = (genctx: *mut c_void);
            Progress<'a> = (callback: Option<Callback>, arg: *mut c_void)
        ) -> *mut c_void as Option<OwnedKey<K>>, Option<OwnedKey<T>>;
        GenCleanup[C][][] = 7: fn(Option<Box<C>> = (genctx: *mut c_void)) -> () as ();
        Load[][K][] = 8: fn(
            Bytes<'_> = (reference: *const c_void, size: usize)
        ) -> *mut c_void as Option<OwnedKey<K>>, Option<OwnedKey<T>>;
        Free[][K][] = 10: fn(Option<OwnedKey<K>> = (keydata: *mut c_void)) -> () as ();
        GetParams[][K][] = 11: fn(
            Option<&'a KeyData<K>> = (keydata: *mut c_void);
            ParamsMut<'a> = (params: *mut Param)
        ) -> c_int as c_int, c_int;
        Has[][K][] = 21: fn(
            Option<&'a KeyData<K>> = (keydata: *const c_void);
            c_int = (selection: c_int)
        ) -> c_int as c_int, c_int;
        GenGetParams[C][][] = 15: fn(
            Ctx<'a, C> = (genctx: *mut c_void);
            ParamsMut<'a> = (params: *mut Param)
        ) -> c_int as c_int, c_int;
        GenGettableParams[C][][] = 16: fn(
            Ctx<'a, C> = (genctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
        Import[][K][] = 40: fn(
            Option<&'a KeyData<K>> = (keydata: *mut c_void);
            c_int = (selection: c_int);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        Export[][K][] = 42: fn(
            Option<&'a KeyData<K>> = (keydata: *mut c_void);
            c_int = (selection: c_int);
            Receiver<'a> = (callback: Callback, arg: *mut c_void)
        ) -> c_int as c_int, c_int;
        Dup[][K][] = 44: fn(
            Option<&'a KeyData<K>> = (keydata: *const c_void);
            c_int = (selection: c_int)
        ) -> *mut c_void as Option<OwnedKey<K>>, Option<OwnedKey<T>>;
    }
}

/// Key management functions on key data of the module's own. The other functions of key generation
/// are in [`keymgmt`].
pub mod own_keymgmt {
    use super::*;
    dispatched! {
        New[O][][] = 1: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *mut c_void as Option<Box<Own<O>>>;
        Gen[C O][][] = 6: fn(
            Ctx<'a, C> = (genctx: *mut c_void);
            Progress<'a> = (callback: Option<Callback>, arg: *mut c_void)
        ) -> *mut c_void as Option<Box<Own<O>>>;
        Free[O][][] = 10: fn(Option<Box<Own<O>>> = (keydata: *mut c_void)) -> () as ();
        GetParams[O][][] = 11: fn(
            Option<&'a Own<O>> = (keydata: *mut c_void);
            ParamsMut<'a> = (params: *mut Param)
        ) -> c_int as c_int;
        GettableParams[][][] = 12: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'static>;
        SetParams[O][][] = 13: fn(
            Option<&'a Own<O>> = (keydata: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int;
        SettableParams[][][] = 14: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'static>;
        Has[O][][] = 21: fn(
            Option<&'a Own<O>> = (keydata: *const c_void);
            c_int = (selection: c_int)
        ) -> c_int as c_int;
        Validate[O][][] = 22: fn(
            Option<&'a Own<O>> = (keydata: *const c_void);
            c_int = (selection: c_int);
            c_int = (checktype: c_int)
        ) -> c_int as c_int;
        Match[O][][] = 23: fn(
            Option<&'a Own<O>> = (keydata1: *const c_void);
            Option<&'a Own<O>> = (keydata2: *const c_void);
            c_int = (selection: c_int)
        ) -> c_int as c_int;
        Import[O][][] = 40: fn(
            Option<&'a Own<O>> = (keydata: *mut c_void);
            c_int = (selection: c_int);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int;
        ImportTypes[][][] = 41: fn(
            c_int = (selection: c_int)
        ) -> *const Param as Params<'static>;
        Export[O][][] = 42: fn(
            Option<&'a Own<O>> = (keydata: *mut c_void);
            c_int = (selection: c_int);
            Receiver<'a> = (callback: Callback, arg: *mut c_void)
        ) -> c_int as c_int;
        ExportTypes[][][] = 43: fn(
            c_int = (selection: c_int)
        ) -> *const Param as Params<'static>;
        Dup[O][][] = 44: fn(
            Option<&'a Own<O>> = (keydata: *const c_void);
            c_int = (selection: c_int)
        ) -> *mut c_void as Option<Box<Own<O>>>;
    }
}

/// Key encapsulation functions (`OSSL_FUNC_KEM_*`), with keys of the module's own.
pub mod kem {
    use super::*;
    dispatched! {
        Newctx[C][][] = 1: fn(ProvCtx = (provctx: *mut c_void)) -> *mut c_void as Option<Box<C>>;
        EncapsulateInit[C O][][] = 2: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<&'a Own<O>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int;
        Encapsulate[C][][] = 3: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            SizedBuf<'a> = (ciphertext: *mut c_uchar, ciphertext_length: *mut usize);
            SizedBuf<'a> = (secret: *mut c_uchar, secret_length: *mut usize)
        ) -> c_int as c_int;
        DecapsulateInit[C O][][] = 4: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<&'a Own<O>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int;
        Decapsulate[C][][] = 5: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            SizedBuf<'a> = (secret: *mut c_uchar, secret_length: *mut usize);
            Bytes<'a> = (ciphertext: *const c_uchar, ciphertext_length: usize)
        ) -> c_int as c_int;
        Freectx[C][][] = 6: fn(Option<Box<C>> = (ctx: *mut c_void)) -> () as ();
        Dupctx[C][][] = 7: fn(Ctx<'a, C> = (ctx: *mut c_void)) -> *mut c_void as Option<Box<C>>;
        SetCtxParams[C][][] = 10: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int;
        SettableCtxParams[C][][] = 11: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>;
    }
}

/// Functions of ciphers (`OSSL_FUNC_CIPHER_*`). The functions without a context are OpenSSL's own.
pub mod cipher {
    use super::*;
    dispatched! {
        Newctx[C][][] = 1: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *mut c_void as Option<Box<C>>, Option<StockCtx<T>>;
        EncryptInit[C][][] = 2: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Bytes<'a> = (key: *const c_uchar, key_length: usize);
            Bytes<'a> = (iv: *const c_uchar, iv_length: usize);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        DecryptInit[C][][] = 3: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Bytes<'a> = (key: *const c_uchar, key_length: usize);
            Bytes<'a> = (iv: *const c_uchar, iv_length: usize);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        Update[C][][] = 4: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Transformed<'a> = (
                out: *mut c_uchar, length: *mut usize, size: usize,
                from: *const c_uchar, from_length: usize
            )
        ) -> c_int as c_int, c_int;
        Final[C][][] = 5: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            OutBuf<'a> = (out: *mut c_uchar, length: *mut usize, size: usize)
        ) -> c_int as c_int, c_int;
        Cipher[C][][] = 6: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Transformed<'a> = (
                out: *mut c_uchar, length: *mut usize, size: usize,
                from: *const c_uchar, from_length: usize
            )
        ) -> c_int as c_int, c_int;
        Freectx[C][][] = 7: fn(Option<Box<C>> = (ctx: *mut c_void)) -> () as ();
        Dupctx[C][][] = 8: fn(
            Ctx<'a, C> = (ctx: *mut c_void)
        ) -> *mut c_void as Option<Box<C>>, Option<StockCtx<T>>;
        GetParams[][][] = 9: fn(ParamsMut<'a> = (params: *mut Param)) -> c_int as c_int;
        GetCtxParams[C][][] = 10: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ParamsMut<'a> = (params: *mut Param)
        ) -> c_int as c_int, c_int;
        SetCtxParams[C][][] = 11: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        GettableParams[][][] = 12: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'static>;
        GettableCtxParams[C][][] = 13: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
        SettableCtxParams[C][][] = 14: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
    }
}

/// Key derivation functions (`OSSL_FUNC_KDF_*`).
pub mod kdf {
    use super::*;
    dispatched! {
        Newctx[C][][] = 1: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *mut c_void as Option<Box<C>>, Option<StockCtx<T>>;
        Dupctx[C][][] = 2: fn(
            Ctx<'a, C> = (ctx: *mut c_void)
        ) -> *mut c_void as Option<Box<C>>, Option<StockCtx<T>>;
        Freectx[C][][] = 3: fn(Option<Box<C>> = (ctx: *mut c_void)) -> () as ();
        Reset[C][][] = 4: fn(Ctx<'a, C> = (ctx: *mut c_void)) -> () as (), ();
        Derive[C][][] = 5: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Room<'a> = (key: *mut c_uchar, length: usize);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        GettableCtxParams[C][][] = 7: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
        SettableCtxParams[C][][] = 8: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
        GetCtxParams[C][][] = 10: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ParamsMut<'a> = (params: *mut Param)
        ) -> c_int as c_int, c_int;
        SetCtxParams[C][][] = 11: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
    }
}

/// Key exchange functions (`OSSL_FUNC_KEYEXCH_*`).
pub mod keyexch {
    use super::*;
    dispatched! {
        Newctx[C][][] = 1: fn(
            ProvCtx = (provctx: *mut c_void)
        ) -> *mut c_void as Option<Box<C>>, Option<StockCtx<T>>;
        Init[C][K][K] = 2: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<&'a KeyData<K>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        Derive[C][][] = 3: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            OutBuf<'a> = (secret: *mut c_uchar, length: *mut usize, size: usize)
        ) -> c_int as c_int, c_int;
        SetPeer[C][K][K] = 4: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<&'a KeyData<K>> = (key: *mut c_void)
        ) -> c_int as c_int, c_int;
        Freectx[C][][] = 5: fn(Option<Box<C>> = (ctx: *mut c_void)) -> () as ();
        Dupctx[C][][] = 6: fn(
            Ctx<'a, C> = (ctx: *mut c_void)
        ) -> *mut c_void as Option<Box<C>>, Option<StockCtx<T>>;
        SetCtxParams[C][][] = 7: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        SettableCtxParams[C][][] = 8: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
        GetCtxParams[C][][] = 9: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ParamsMut<'a> = (params: *mut Param)
        ) -> c_int as c_int, c_int;
        GettableCtxParams[C][][] = 10: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
    }
}

/// Signature functions (`OSSL_FUNC_SIGNATURE_*`). OpenSSL has the numbers above 25 from 3.4 on.
pub mod signature {
    use super::*;
    dispatched! {
        Newctx[C][][] = 1: fn(
            ProvCtx = (provctx: *mut c_void);
            Option<Text<'a>> = (propq: *const c_char)
        ) -> *mut c_void as C, Option<StockCtx<T>>;
        SignInit[C][K][K] = 2: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<&'a KeyData<K>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        Sign[C][][] = 3: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            OutBuf<'a> = (signature: *mut c_uchar, length: *mut usize, size: usize);
            Bytes<'a> = (data: *const c_uchar, data_length: usize)
        ) -> c_int as c_int, c_int;
        VerifyInit[C][K][K] = 4: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<&'a KeyData<K>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        Verify[C][][] = 5: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Bytes<'a> = (signature: *const c_uchar, length: usize);
            Bytes<'a> = (data: *const c_uchar, data_length: usize)
        ) -> c_int as c_int, c_int;
        DigestSignInit[C][K][K] = 8: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<Text<'a>> = (digest: *const c_char);
            Option<&'a KeyData<K>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        DigestSign[C][][] = 11: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            OutBuf<'a> = (signature: *mut c_uchar, length: *mut usize, size: usize);
            Bytes<'a> = (data: *const c_uchar, data_length: usize)
        ) -> c_int as c_int, c_int;
        DigestVerifyInit[C][K][K] = 12: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<Text<'a>> = (digest: *const c_char);
            Option<&'a KeyData<K>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        DigestVerify[C][][] = 15: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Bytes<'a> = (signature: *const c_uchar, length: usize);
            Bytes<'a> = (data: *const c_uchar, data_length: usize)
        ) -> c_int as c_int, c_int;
        Freectx[C][][] = 16: fn(Option<Box<C>> = (ctx: *mut c_void)) -> () as ();
        Dupctx[C][][] = 17: fn(
            Ctx<'a, C> = (ctx: *mut c_void)
        ) -> *mut c_void as Option<Box<C>>, Option<StockCtx<T>>;
        GetCtxParams[C][][] = 18: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ParamsMut<'a> = (params: *mut Param)
        ) -> c_int as c_int, c_int;
        GettableCtxParams[C][][] = 19: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
        SetCtxParams[C][][] = 20: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        SettableCtxParams[C][][] = 21: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            ProvCtx = (provctx: *mut c_void)
        ) -> *const Param as Params<'a>, Params<'a>;
        QueryKeyTypes[][][] = 26:
            fn() -> *mut *const c_char as *mut *const c_char, *mut *const c_char;
        SignMessageInit[C][K][K] = 27: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<&'a KeyData<K>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        SignMessageUpdate[C][][] = 28: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Bytes<'a> = (data: *const c_uchar, data_length: usize)
        ) -> c_int as c_int, c_int;
        SignMessageFinal[C][][] = 29: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            OutBuf<'a> = (signature: *mut c_uchar, length: *mut usize, size: usize)
        ) -> c_int as c_int, c_int;
        VerifyMessageInit[C][K][K] = 30: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Option<&'a KeyData<K>> = (key: *mut c_void);
            Params<'a> = (params: *const Param)
        ) -> c_int as c_int, c_int;
        VerifyMessageUpdate[C][][] = 31: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Bytes<'a> = (data: *const c_uchar, data_length: usize)
        ) -> c_int as c_int, c_int;
        VerifyMessageFinal[C][][] = 32: fn(
            Ctx<'a, C> = (ctx: *mut c_void)
        ) -> c_int as c_int, c_int;
    }
}
