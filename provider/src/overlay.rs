//! The tables we offer: the default provider's, with a few functions wrapped.
//!
//! Of RSA, RSA-PSS and EC the functions that make keys differ from stock ([`keymgmt`],
//! [`generation`]): each leaves behind a stock object with our method. The constructor of signature
//! contexts takes clauses that name us out of the caller's property query. Everything else, every RSA and ECDSA signature
//! function included, is the stock function itself, called by libcrypto directly. X25519 exchanges
//! ([`xdh`]), Ed25519 signatures ([`eddsa`]) and TLS 1.3's key derivation ([`tls13_kdf`]) have contexts
//! of ours around the stock ones.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use once_cell::race::OnceBox;

use crate::ffi::{Algorithm, Callback, Dispatch, PARAM_UTF8_STRING, Param, operation, signature};
use crate::keymgmt::{self, Adoptable, KeyFunctions, KeyType, overlaid};
use crate::stock::{self, Stock};
use crate::{ec_method, eddsa, generation, process, rsa_method, tls13_kdf, xdh};

/// Marks what we want preferred; `dist/openssl.cnf` asks for it.
const FAST: &CStr = c"provider=lockstep,lockstep.fast=yes";
/// Marks key management that only takes keys over; `dist/openssl.cnf` steers away from it, so
/// that generating and decoding keys stay with the default provider.
const KEYS: &CStr = c"provider=lockstep,lockstep.keys=yes";

/// `OSSL_FUNC_provider_query_operation`
pub unsafe extern "C" fn query(
    _provctx: *mut c_void,
    operation_id: c_int,
    no_cache: *mut c_int,
) -> *const Algorithm {
    if !no_cache.is_null() {
        // SAFETY: libcrypto's output pointer.
        unsafe { *no_cache = 0 };
    }
    let Some(tables) = tables() else {
        return null();
    };
    match operation_id {
        operation::KDF => tables.kdf.as_ptr(),
        operation::KEYMGMT => tables.keymgmt.as_ptr(),
        operation::KEYEXCH => tables.keyexch.as_ptr(),
        operation::SIGNATURE => tables.signature.as_ptr(),
        operation::ASYM_CIPHER => tables.asym_cipher.as_ptr(),
        _ => null(),
    }
}

/// `OSSL_FUNC_provider_get_capabilities`: the default provider's TLS groups on keys that we generate.
///
/// libssl takes a group only from the provider whose key management it finds for it, so every group on
/// EC and X25519 keys must be told by us, with or without lanes.
pub unsafe extern "C" fn capabilities(
    _provctx: *mut c_void,
    capability: *const c_char,
    callback: Callback,
    arg: *mut c_void,
) -> c_int {
    /// The receiver of what we let through.
    struct Filter {
        callback: Callback,
        arg: *mut c_void,
        algorithms: Vec<&'static CStr>,
    }
    unsafe extern "C" fn filter(params: *const Param, arg: *mut c_void) -> c_int {
        // SAFETY: `arg` is the `Filter` below, alive during the call; `params` ends with a NULL key.
        unsafe {
            let filter = &*arg.cast::<Filter>();
            match text(params, c"tls-group-alg") {
                Some(algorithm) if filter.algorithms.contains(&algorithm) => {
                    (filter.callback)(params, filter.arg)
                }
                _ => 1,
            }
        }
    }
    // SAFETY: libcrypto's argument, a C string.
    if unsafe { CStr::from_ptr(capability) } != c"TLS-GROUP" {
        return 0;
    }
    let (Some(stock), Some(tables)) = (stock::stock(), tables()) else {
        return 0;
    };
    let mut target = Filter {
        callback,
        arg,
        algorithms: tables.group_keys(),
    };
    // SAFETY: libcrypto's arguments; `filter` uses `target` during the call only.
    unsafe { stock.capabilities(capability, filter, (&raw mut target).cast()) }
}

/// The text of a parameter.
///
/// # Safety
/// `params` ends with a NULL key, and lives as long as the result is used.
unsafe fn text<'a>(mut params: *const Param, name: &CStr) -> Option<&'a CStr> {
    // SAFETY: by contract; we stop at the end. Texts in static tables end with a zero byte.
    unsafe {
        while !(*params).key.is_null() {
            if CStr::from_ptr((*params).key) == name {
                let found = (*params).data_type == PARAM_UTF8_STRING && !(*params).data.is_null();
                return found.then(|| CStr::from_ptr((*params).data.cast()));
            }
            params = params.add(1);
        }
    }
    None
}

/// A key type with its stock functions.
pub struct Family {
    name: &'static CStr,
    keys: KeyFunctions,
    keymgmt: Algorithm,
    /// The stock functions of its signatures, and of its key exchange; empty if it has none.
    pub signature: Vec<Dispatch>,
    pub keyexch: Vec<Dispatch>,
}

/// Our algorithm arrays, and the stock functions the wrappers call.
struct Tables {
    kdf: Vec<Algorithm>,
    keymgmt: Vec<Algorithm>,
    keyexch: Vec<Algorithm>,
    signature: Vec<Algorithm>,
    asym_cipher: Vec<Algorithm>,
    families: Vec<Family>,
    /// The stock functions of key derivation for TLS 1.3.
    tls13_kdf: Vec<Dispatch>,
}

// SAFETY: the tables are immutable, live as long as the process and hold pointers to static data
// and functions only.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

/// Makes what the process keeps of tables and methods. The first loading does this, so that no two
/// threads meet in it later.
pub fn prepare() {
    let _ = tables();
    let _ = rsa_method::method();
    let _ = ec_method::method();
}

fn tables() -> Option<&'static Tables> {
    static TABLES: OnceBox<Option<Tables>> = OnceBox::new();
    let made = || stock::stock().and_then(Tables::new);
    TABLES.get_or_init(|| Box::new(made())).as_ref()
}

/// Declares the key types, each as a type that stands for it at compile time.
macro_rules! key_types {
    ($($(#[$doc:meta])* $name:ident $text:literal;)*) => {
        $(
            $(#[$doc])*
            pub struct $name;

            impl Named for $name {
                const NAME: &'static CStr = $text;
            }

            impl KeyType for $name {
                fn stock() -> Option<&'static KeyFunctions> {
                    Some(&family::<$name>()?.keys)
                }
            }
        )*
    };
}

/// Something with a name in the default provider.
pub trait Named {
    const NAME: &'static CStr;
}

key_types! {
    /// RSA.
    Rsa c"RSA";
    /// RSA-PSS, which is a type of its own.
    RsaPss c"RSA-PSS";
    /// All curves of `EC_KEY`.
    Ec c"EC";
    /// X25519.
    X25519 c"X25519";
    /// Ed25519.
    Ed25519 c"ED25519";
}

impl Adoptable for Rsa {
    const ADOPTED_WITH: c_int = rsa_method::ADOPTED_WITH;
    const IN_PLACE: bool = false;

    unsafe fn prepare(keydata: *mut c_void) {
        // SAFETY: by contract; the default provider's RSA key data is an RSA object.
        unsafe { rsa_method::prepare(keydata.cast()) }
    }

    unsafe fn adopt(keydata: *mut c_void, functions: &'static KeyFunctions) {
        // SAFETY: by contract; the default provider's RSA key data is an RSA object.
        unsafe { rsa_method::adopt(keydata.cast(), functions) }
    }
}

impl Adoptable for RsaPss {
    const ADOPTED_WITH: c_int = rsa_method::ADOPTED_WITH;
    const IN_PLACE: bool = false;

    unsafe fn prepare(keydata: *mut c_void) {
        // SAFETY: as for RSA.
        unsafe { rsa_method::prepare(keydata.cast()) }
    }

    unsafe fn adopt(keydata: *mut c_void, functions: &'static KeyFunctions) {
        // SAFETY: as for RSA.
        unsafe { rsa_method::adopt(keydata.cast(), functions) }
    }
}

impl Adoptable for Ec {
    const ADOPTED_WITH: c_int = ec_method::ADOPTED_WITH;
    const IN_PLACE: bool = true;

    unsafe fn adopt(keydata: *mut c_void, _functions: &'static KeyFunctions) {
        // SAFETY: by contract; the default provider's EC key data is an EC_KEY.
        unsafe { ec_method::adopt(keydata.cast()) };
    }
}

/// The stock functions of a key type.
pub fn family<T: Named>() -> Option<&'static Family> {
    let families = &tables()?.families;
    families.iter().find(|family| family.name == T::NAME)
}

/// The stock functions of key derivation for TLS 1.3.
pub fn stock_kdf() -> &'static [Dispatch] {
    tables().map_or(&[], |tables| &tables.tls13_kdf)
}

impl Tables {
    /// None without RSA. A curve that the default provider lacks is left out.
    fn new(stock: &Stock) -> Option<Tables> {
        let mut tables = Tables {
            kdf: Vec::new(),
            keymgmt: Vec::new(),
            keyexch: Vec::new(),
            signature: Vec::new(),
            asym_cipher: Vec::new(),
            families: Vec::new(),
            tls13_kdf: Vec::new(),
        };
        tables.add_rsa(stock)?;
        tables.add_ec(stock);
        tables.add_x25519(stock);
        tables.add_ed25519(stock);
        tables.add_tls13_kdf(stock);
        for algorithms in [
            &mut tables.kdf,
            &mut tables.keymgmt,
            &mut tables.keyexch,
            &mut tables.signature,
            &mut tables.asym_cipher,
        ] {
            algorithms.push(Algorithm::END);
        }
        Some(tables)
    }

    fn add_rsa(&mut self, stock: &Stock) -> Option<()> {
        let signature = stock.algorithm(operation::SIGNATURE, Rsa::NAME)?;
        let asym_cipher = stock.algorithm(operation::ASYM_CIPHER, Rsa::NAME)?;
        let mut rsa = Family::new::<Rsa>(stock)?;
        let rsa_pss = Family::new::<RsaPss>(stock)?;
        rsa.signature = stock::entries(&signature);
        self.keymgmt.push(rsa.keymgmt(&rsa_wrappers::<Rsa>(), KEYS));
        self.keymgmt
            .push(rsa_pss.keymgmt(&rsa_wrappers::<RsaPss>(), KEYS));
        self.signature.push(with_our_constructor::<Rsa>(signature));
        self.asym_cipher.push(Algorithm {
            properties: FAST.as_ptr(),
            ..asym_cipher
        });
        self.families.extend([rsa, rsa_pss]);
        Some(())
    }

    fn add_ec(&mut self, stock: &Stock) -> Option<()> {
        let signature = stock.algorithm(operation::SIGNATURE, c"ECDSA")?;
        let keyexch = stock.algorithm(operation::KEYEXCH, c"ECDH")?;
        let mut ec = Family::new::<Ec>(stock)?;
        ec.signature = stock::entries(&signature);
        let wrappers = [
            &keymgmt::wrappers::<Ec>()[..],
            &generation::wrappers::<Ec>(),
        ]
        .concat();
        self.keymgmt.push(ec.keymgmt(&wrappers, FAST));
        self.signature.push(with_our_constructor::<Ec>(signature));
        self.keyexch.push(Algorithm {
            properties: FAST.as_ptr(),
            ..keyexch
        });
        self.families.push(ec);
        Some(())
    }

    fn add_x25519(&mut self, stock: &Stock) -> Option<()> {
        let keyexch = stock.algorithm(operation::KEYEXCH, X25519::NAME)?;
        let mut x25519 = Family::new::<X25519>(stock)?;
        x25519.keyexch = stock::entries(&keyexch);
        let implementation = wrapped(&x25519.keyexch, &xdh::wrappers())?;
        self.keymgmt
            .push(x25519.keymgmt(&generation::wrappers::<X25519>(), FAST));
        self.keyexch.push(Algorithm {
            properties: FAST.as_ptr(),
            implementation,
            ..keyexch
        });
        self.families.push(x25519);
        Some(())
    }

    fn add_ed25519(&mut self, stock: &Stock) -> Option<()> {
        let signature = stock.algorithm(operation::SIGNATURE, Ed25519::NAME)?;
        let mut ed25519 = Family::new::<Ed25519>(stock)?;
        ed25519.signature = stock::entries(&signature);
        let implementation = wrapped(&ed25519.signature, &eddsa::wrappers())?;
        self.keymgmt.push(ed25519.keymgmt(&[], KEYS));
        self.signature.push(Algorithm {
            properties: FAST.as_ptr(),
            implementation,
            ..signature
        });
        self.families.push(ed25519);
        Some(())
    }

    fn add_tls13_kdf(&mut self, stock: &Stock) -> Option<()> {
        if !process::computes() || !tls13_kdf::is_fast() {
            return None;
        }
        let kdf = stock.algorithm(operation::KDF, c"TLS13-KDF")?;
        let functions = stock::entries(&kdf);
        self.kdf.push(Algorithm {
            properties: FAST.as_ptr(),
            implementation: wrapped(&functions, &tls13_kdf::wrappers())?,
            ..kdf
        });
        self.tls13_kdf = functions;
        Some(())
    }

    /// The key types that we generate and that TLS has groups on.
    fn group_keys(&self) -> Vec<&'static CStr> {
        let names = self.families.iter().map(|family| family.name);
        names
            .filter(|name| [Ec::NAME, X25519::NAME].contains(name))
            .collect()
    }
}

impl Family {
    fn new<T: Named>(stock: &Stock) -> Option<Family> {
        let keymgmt = stock.algorithm(operation::KEYMGMT, T::NAME)?;
        Some(Family {
            name: T::NAME,
            keys: KeyFunctions::new(stock, &keymgmt)?,
            keymgmt,
            signature: Vec::new(),
            keyexch: Vec::new(),
        })
    }

    /// Its key management with these functions in place of stock's.
    fn keymgmt(&self, replaced: &[Dispatch], properties: &'static CStr) -> Algorithm {
        Algorithm {
            properties: properties.as_ptr(),
            implementation: overlaid(&self.keys.table, replaced),
            ..self.keymgmt
        }
    }
}

/// What differs from stock in the management of RSA keys.
fn rsa_wrappers<T: Adoptable>() -> Vec<Dispatch> {
    let mut wrappers = vec![keymgmt::generator::<T>()];
    wrappers.extend(keymgmt::wrappers::<T>());
    wrappers
}

/// A table whose functions take contexts of ours: each stock function has one of ours in its place.
///
/// None if the stock table has a function that we do not know: it would be called with our context.
/// Then the algorithm stays with the default provider.
fn wrapped(stock: &[Dispatch], ours: &[Dispatch]) -> Option<*const Dispatch> {
    let known = |entry: &Dispatch| ours.iter().any(|ours| ours.id == entry.id);
    stock.iter().all(known).then(|| overlaid(stock, ours))
}

/// The stock signature `algorithm` with our constructor.
fn with_our_constructor<T: Named>(algorithm: Algorithm) -> Algorithm {
    let constructor = signature::Newctx::entry(new_signature::<T>);
    Algorithm {
        properties: FAST.as_ptr(),
        implementation: overlaid(&stock::entries(&algorithm), &[constructor]),
        ..algorithm
    }
}

/// `OSSL_FUNC_signature_newctx`: the stock one, with what the caller's property query asks of others than
/// us. The stock function looks for digests with it.
unsafe extern "C" fn new_signature<T: Named>(
    provctx: *mut c_void,
    query: *const c_char,
) -> *mut c_void {
    let newctx = family::<T>().and_then(|family| signature::Newctx::of(&family.signature));
    // SAFETY: libcrypto's arguments; the stock constructor copies the query, and takes NULL for none.
    unsafe {
        let query = query_for_others(query);
        newctx.map_or(null_mut(), |newctx| {
            newctx.call(
                provctx,
                query.as_ref().map_or(null(), |query| query.as_ptr()),
            )
        })
    }
}

/// A property query without the clauses that name us: no digest could meet them. None for no query.
///
/// # Safety
/// `query` is NULL or a C string.
pub unsafe fn query_for_others(query: *const c_char) -> Option<CString> {
    if query.is_null() {
        return None;
    }
    // SAFETY: by contract.
    let query = unsafe { CStr::from_ptr(query) };
    let clauses: Vec<&[u8]> = clauses(query.to_bytes())
        .filter(|clause| !names_us(clause))
        .collect();
    CString::new(clauses.join(&b","[..])).ok()
}

/// The clauses of a property query (property(7)). A comma in quotes separates nothing.
fn clauses(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quote = None;
    query.split(move |&byte| {
        match quote {
            Some(open) if byte == open => quote = None,
            None if byte == b'"' || byte == b'\'' => quote = Some(byte),
            _ => {}
        }
        quote.is_none() && byte == b','
    })
}

/// Whether a clause is about our name or a property of ours.
fn names_us(clause: &[u8]) -> bool {
    let clause = clause.to_ascii_lowercase();
    let end = clause.iter().position(|byte| b"!=".contains(byte));
    let (name, value) = clause.split_at(end.unwrap_or(clause.len()));
    let name = name.trim_ascii();
    let name = name
        .strip_prefix(b"?")
        .or(name.strip_prefix(b"-"))
        .unwrap_or(name)
        .trim_ascii();
    let plain = |byte: &u8| !b"!='\"".contains(byte) && !byte.is_ascii_whitespace();
    let value: Vec<u8> = value.iter().copied().filter(plain).collect();
    name.starts_with(b"lockstep.") || (name == b"provider" && value == b"lockstep")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_that_name_us_are_left_out_of_a_query() {
        for (query, left) in [
            (c"", c""),
            (c"provider=lockstep", c""),
            (c"?provider = 'lockstep'", c""),
            (c"provider != lockstep", c""),
            (c"Lockstep.Fast=yes,?lockstep.keys!=yes", c""),
            (c"-lockstep.fast", c""),
            (c"provider=default", c"provider=default"),
            (c"provider!=default", c"provider!=default"),
            (c"fips=yes,provider=lockstep,?a=b", c"fips=yes,?a=b"),
            (c"a='x,lockstep.y',lockstep.fast", c"a='x,lockstep.y'"),
            (
                c"lockstep2.a=1,provider=lockstep2",
                c"lockstep2.a=1,provider=lockstep2",
            ),
        ] {
            // SAFETY: a C string.
            let found = unsafe { query_for_others(query.as_ptr()) };
            assert_eq!(found.as_deref(), Some(left), "{query:?}");
        }
        // SAFETY: NULL for no query.
        assert_eq!(unsafe { query_for_others(null()) }, None);
    }
}
