//! Algorithms of the default provider as the module offers them.

use std::ffi::{CStr, CString, c_int};

use crate::ffi::{Algorithm, Dispatch, ProvCtx, StockCtx, Terminated, Text, signature};
use crate::host::query;
use crate::keys::keymgmt::{self, Adoptable, overlaid};
use crate::stock::families::{Found, Named};
use crate::stock::stock;

/// Properties of algorithms that should be preferred. Each property for which a configuration asks
/// counts for the module. The configuration asks for enough to outweigh its optional clauses about
/// other providers (`?provider=default`): see `preference` in `cli/src/configuration.rs`.
pub static FAST: &CStr = c"provider=lockstep,lockstep.fast=yes,lockstep.lanes=yes,\
                       lockstep.lanes2=yes,lockstep.lanes3=yes,lockstep.lanes4=yes,\
                       lockstep.lanes5=yes,lockstep.lanes6=yes,lockstep.lanes7=yes,\
                       lockstep.lanes8=yes";
/// Properties of key management that makes keys. Only one of them counts for the module. So a
/// provider that an optional clause names, for example the provider of a token, makes its keys
/// itself.
pub static MAKES: &CStr = c"provider=lockstep,lockstep.fast=yes";
/// Properties of key management that only takes keys over. `dist/openssl.cnf` avoids such key
/// management, so that the default provider generates and decodes keys.
pub static KEYS: &CStr = c"provider=lockstep,lockstep.keys=yes";

/// Returns all algorithms of the default provider for an operation.
pub fn all_of(operation: c_int) -> impl Iterator<Item = &'static Algorithm> {
    let stock = stock().into_iter();
    stock.flat_map(move |stock| stock.algorithms(operation))
}

/// Returns an algorithm of the default provider as it is, with the module's name in its properties.
pub fn as_ours(algorithm: &Algorithm) -> Option<Algorithm> {
    let properties = algorithm.properties?.to_text();
    let rest = properties.strip_prefix("provider=default")?;
    let properties = CString::new(format!("provider=lockstep{rest}")).ok()?;
    Some(Algorithm {
        properties: Some(Text::new(Box::leak(properties.into_boxed_c_str()))),
        ..*algorithm
    })
}

/// Returns an algorithm of the default provider as it is, but preferred.
pub fn preferred(found: &Found) -> Algorithm {
    Algorithm {
        properties: Some(Text::new(FAST)),
        ..found.algorithm
    }
}

/// Returns an algorithm with these functions in place of OpenSSL's own.
pub fn offered(found: &Found, replaced: &[Dispatch], properties: &'static CStr) -> Algorithm {
    Algorithm {
        properties: Some(Text::new(properties)),
        implementation: overlaid(&found.functions, replaced),
        ..found.algorithm
    }
}

/// Returns the functions of RSA key management that replace OpenSSL's own.
pub fn rsa_wrappers<K: Adoptable>() -> Vec<Dispatch> {
    let mut wrappers = vec![keymgmt::generator::<K>()];
    wrappers.extend(keymgmt::wrappers::<K>());
    wrappers
}

/// Returns a table whose functions take wrapped contexts. Each function of OpenSSL has a wrapper in
/// its place, unless its number is in `left_out`; libcrypto does without these.
///
/// It is an error if OpenSSL's table has an unknown function, which would be called with the
/// module's context. Then the algorithm stays with the default provider.
pub fn wrapped(
    stock: &[Dispatch],
    ours: &[Dispatch],
    left_out: &[c_int],
) -> Result<Terminated<'static, Dispatch>, String> {
    let known: Vec<Dispatch> = stock
        .iter()
        .copied()
        .filter(|entry| !left_out.contains(&entry.id))
        .collect();
    let is_ours = |id| ours.iter().any(|ours| ours.id == id);
    match known.iter().find(|entry| !is_ours(entry.id)) {
        Some(unknown) => Err(keymgmt::unknown(unknown.id)),
        None => Ok(overlaid(&known, ours)),
    }
}

/// Returns a signature of OpenSSL with the module's constructor.
pub fn with_our_constructor<S: Named>(found: &Found) -> Algorithm {
    let constructor = signature::Newctx::entry(new_signature::<S>);
    offered(found, &[constructor], FAST)
}

/// `OSSL_FUNC_signature_newctx`: OpenSSL's own, with the clauses of the caller's property query
/// that do not name this module. OpenSSL looks for digests with the query, and copies it.
fn new_signature<S: Named>(provctx: ProvCtx, query: Option<Text<'_>>) -> Option<StockCtx<S>> {
    let query = query::for_others(query.map(Text::to_cstr)).ok()?;
    signature::Newctx::pass(provctx, query.as_deref().map(Text::new))
}
