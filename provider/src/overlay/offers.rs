//! Algorithms of the default provider as the module offers them.

use std::ffi::{CStr, CString, c_int};

use crate::ffi::{Algorithm, Dispatch, ProvCtx, StockCtx, Terminated, Text, signature};
use crate::host::query;
use crate::keys::keymgmt::{self, Adoptable, overlaid};
use crate::stock::families::{Found, Named};
use crate::stock::stock;

/// Marks what we want preferred; each property that a configuration asks for is a point for us. It
/// asks for as many as outweigh its optional clauses about other providers (`?provider=default`),
/// each a point for them: see `preference` in `cli/src/configuration.rs`.
pub static FAST: &CStr = c"provider=lockstep,lockstep.fast=yes,lockstep.lanes=yes,\
                       lockstep.lanes2=yes,lockstep.lanes3=yes,lockstep.lanes4=yes,\
                       lockstep.lanes5=yes,lockstep.lanes6=yes,lockstep.lanes7=yes,\
                       lockstep.lanes8=yes";
/// Marks key management that makes keys: with one point for us alone, so that a provider which
/// such a clause names, as for a token, makes its keys itself.
pub static MAKES: &CStr = c"provider=lockstep,lockstep.fast=yes";
/// Marks key management that only takes keys over; `dist/openssl.cnf` steers away from it, so
/// that generating and decoding keys stay with the default provider.
pub static KEYS: &CStr = c"provider=lockstep,lockstep.keys=yes";

/// All that the default provider has for an operation.
pub fn all_of(operation: c_int) -> impl Iterator<Item = &'static Algorithm> {
    let stock = stock().into_iter();
    stock.flat_map(move |stock| stock.algorithms(operation))
}

/// An algorithm of the default provider as it is, with our name in its properties.
pub fn as_ours(algorithm: &Algorithm) -> Option<Algorithm> {
    let properties = algorithm.properties?.to_text();
    let rest = properties.strip_prefix("provider=default")?;
    let properties = CString::new(format!("provider=lockstep{rest}")).ok()?;
    Some(Algorithm {
        properties: Some(Text::new(Box::leak(properties.into_boxed_c_str()))),
        ..*algorithm
    })
}

/// An algorithm of the default provider as it is, but preferred.
pub fn preferred(found: &Found) -> Algorithm {
    Algorithm {
        properties: Some(Text::new(FAST)),
        ..found.algorithm
    }
}

/// An algorithm with these functions in place of OpenSSL's own.
pub fn offered(found: &Found, replaced: &[Dispatch], properties: &'static CStr) -> Algorithm {
    Algorithm {
        properties: Some(Text::new(properties)),
        implementation: overlaid(&found.functions, replaced),
        ..found.algorithm
    }
}

/// What differs from OpenSSL's own in the management of RSA keys.
pub fn rsa_wrappers<K: Adoptable>() -> Vec<Dispatch> {
    let mut wrappers = vec![keymgmt::generator::<K>()];
    wrappers.extend(keymgmt::wrappers::<K>());
    wrappers
}

/// A table whose functions take wrapped contexts: each function of OpenSSL's has a wrapper in its
/// place, unless its number is in `left_out`. libcrypto does without those.
///
/// An error if OpenSSL's table has a function that we do not know: it would be called with our
/// context. Then the algorithm stays with the default provider.
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

/// A signature of OpenSSL's with our constructor.
pub fn with_our_constructor<S: Named>(found: &Found) -> Algorithm {
    let constructor = signature::Newctx::entry(new_signature::<S>);
    offered(found, &[constructor], FAST)
}

/// `OSSL_FUNC_signature_newctx`: OpenSSL's own, with what the caller's property query asks of
/// others than us. OpenSSL looks for digests with it, and copies it.
fn new_signature<S: Named>(provctx: ProvCtx, query: Option<Text<'_>>) -> Option<StockCtx<S>> {
    let query = query::for_others(query.map(Text::to_cstr)).ok()?;
    signature::Newctx::pass(provctx, query.as_deref().map(Text::new))
}
