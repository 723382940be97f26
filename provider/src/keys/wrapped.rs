//! The module's operation contexts around OpenSSL's own, for keys that have no method table such as
//! `RSA_METHOD`.

use lockstep_engine::{Fallback, Secret};

use crate::ffi::keymgmt::GetParams;
use crate::ffi::{Bytes, Functions, KeyData, List, StockCtx, name};
use crate::keys::keymgmt;
use crate::process;

/// A context of OpenSSL, and the module's notes beside it.
pub struct Context<T: Functions, N> {
    pub stock: StockCtx<T>,
    pub notes: N,
}

impl<T: Functions, N: Default> Context<T, N> {
    /// Makes a context without notes.
    pub fn new(stock: StockCtx<T>) -> Box<Context<T, N>> {
        Context::with(stock, N::default())
    }
}

impl<T: Functions, N> Context<T, N> {
    pub fn with(stock: StockCtx<T>, notes: N) -> Box<Context<T, N>> {
        Box::new(Context { stock, notes })
    }
}

/// Length of a key of X25519 or Ed25519.
pub const KEY_BYTES: usize = 32;

/// Returns the private part of a key, which OpenSSL writes to memory for keys.
pub fn secret<K: Functions>(key: &KeyData<K>) -> Option<Secret> {
    Secret::filled(KEY_BYTES, |bytes| {
        keymgmt::read(key, name::PKEY_PARAM_PRIV_KEY, bytes)
    })
}

/// Returns both parts of a key, the private one as from [`secret`].
pub fn pair<K: Functions>(key: &KeyData<K>) -> Option<(Secret, [u8; KEY_BYTES])> {
    let mut public = [0; KEY_BYTES];
    let secret = Secret::filled(KEY_BYTES, |secret| {
        let mut wanted = List::<3>::new()
            .room(name::PKEY_PARAM_PRIV_KEY, secret)
            .room(name::PKEY_PARAM_PUB_KEY, &mut public);
        GetParams::pass(key, wanted.as_params_mut()) == 1
            && [0, 1].map(|place| wanted.returned(place)) == [KEY_BYTES; 2]
    });
    Some((secret?, public))
}

/// Returns the public part of a key.
pub fn public<K: Functions>(key: &KeyData<K>) -> Option<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    keymgmt::read(key, name::PKEY_PARAM_PUB_KEY, &mut bytes).then_some(bytes)
}

/// Returns whether a message is too long for the engine, and counts it then. The hash of such a
/// message takes most of the time, and lanes gain nothing there.
pub fn is_too_long(message: Bytes<'_>, longest: usize) -> bool {
    let is_too_long = message.len() > longest;
    if is_too_long {
        process::count(Fallback::LongMessage);
    }
    is_too_long
}

/// Declares functions that pass a call on to OpenSSL, with its own context. Functions with
/// `changes` may change the key or the parameters of the operation, so they forget the notes.
/// Functions with `asks` may be called without a context. `frees` declares the functions that free
/// and duplicate contexts.
macro_rules! passed_on {
    (frees $Context:ty; $Dupctx:ident) => {
        fn freectx(ctx: Option<Box<$Context>>) {
            drop(ctx);
        }

        fn dupctx(ctx: $crate::ffi::Ctx<'_, $Context>) -> Option<Box<$Context>> {
            let ours = ctx.filter(|_| !$crate::host::memory::is_nearly_gone())?;
            let stock = $Dupctx::pass(&*ours.stock)?;
            Some(<$Context>::with(stock, ours.notes.clone()))
        }
    };
    ($Context:ty; $($kind:ident $name:ident = $Function:ident($($arg:ident: $type:ty),*);)*) => {
        $(passed_on! { @$kind $Context; $name = $Function($($arg: $type),*) })*
    };
    (@changes $Context:ty; $name:ident = $Function:ident($($arg:ident: $type:ty),*)) => {
        fn $name(ctx: $crate::ffi::Ctx<'_, $Context>, $($arg: $type),*) -> std::ffi::c_int {
            ctx.map_or(0, |ours| {
                ours.notes = Default::default();
                $Function::pass(&*ours.stock, $($arg),*)
            })
        }
    };
    (@keeps $Context:ty; $name:ident = $Function:ident($($arg:ident: $type:ty),*)) => {
        fn $name(ctx: $crate::ffi::Ctx<'_, $Context>, $($arg: $type),*) -> std::ffi::c_int {
            ctx.map_or(0, |ours| $Function::pass(&*ours.stock, $($arg),*))
        }
    };
    (@asks $Context:ty; $name:ident = $Function:ident($($arg:ident: $type:ty),*)) => {
        fn $name<'a>(ctx: $crate::ffi::Ctx<'a, $Context>, $($arg: $type),*) -> Params<'a> {
            $Function::pass(ctx.map(|ours| &*ours.stock), $($arg),*)
        }
    };
}
pub(crate) use passed_on;
