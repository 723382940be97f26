//! The tables we offer: the default provider's, with a few functions wrapped.
//!
//! For RSA, RSA-PSS and EC, the functions that make keys differ from stock ([`keymgmt`],
//! [`generation`]): each leaves behind a stock object with our method. The constructor of signature
//! contexts takes clauses that name us out of the caller's property query. Everything else, every
//! RSA and ECDSA signature function included, is the stock function itself, called by libcrypto
//! directly. X25519 exchanges ([`xdh`]), Ed25519 signatures ([`eddsa`]) and TLS 1.3's key
//! derivation ([`tls13_kdf`]) have the module's contexts around the stock ones.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use once_cell::race::OnceBox;

use crate::ffi::{Algorithm, Callback, Dispatch, PARAM_UTF8_STRING, Param, operation, signature};
use crate::generation::{self, Generated};
use crate::keymgmt::{self, Adoptable, KeyFunctions, KeyType, overlaid};
use crate::stock::{self, Stock};
use crate::{ec_method, eddsa, process, rsa_method, tls13_kdf, xdh};

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

/// `OSSL_FUNC_provider_get_capabilities`: the default provider's TLS groups on keys that we
/// generate.
///
/// libssl takes a group only from the provider whose key management it finds for it, so every group
/// on EC and X25519 keys must be told by us, with or without lanes.
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
        // SAFETY: `arg` is the `Filter` below, alive during the call; `params` ends with a NULL
        // key.
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
    /// Whether we generate its keys.
    generates: bool,
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
    /// Operations that stay with the default provider, and why.
    unaccelerated: Vec<(&'static str, String)>,
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
    let made = || {
        let stock = stock::stock()?;
        let find = |operation, name: &CStr| stock.algorithm(operation, name);
        Some(Tables::new(stock, &find))
    };
    TABLES.get_or_init(|| Box::new(made())).as_ref()
}

/// The accelerated operations that stay with the default provider, a line for each: its name, a
/// colon and the reason. Empty where all are accelerated.
pub fn unaccelerated() -> String {
    let Some(tables) = tables() else {
        return "all operations: OpenSSL's default provider cannot be loaded".to_owned();
    };
    let lines = tables
        .unaccelerated
        .iter()
        .map(|(operation, reason)| format!("{operation}: {reason}"));
    lines.collect::<Vec<_>>().join("\n")
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

/// Finds the stock implementation of an operation by name.
type Find<'a> = dyn Fn(c_int, &CStr) -> Option<Algorithm> + 'a;

/// Why an algorithm that the default provider lacks stays with it.
const ABSENT: &str = "OpenSSL's default provider does not have it";

impl Tables {
    /// What the default provider lacks, or what we cannot wrap, is left out and noted.
    fn new(stock: &Stock, find: &Find<'_>) -> Tables {
        let mut tables = Tables {
            kdf: Vec::new(),
            keymgmt: Vec::new(),
            keyexch: Vec::new(),
            signature: Vec::new(),
            asym_cipher: Vec::new(),
            families: Vec::new(),
            tls13_kdf: Vec::new(),
            unaccelerated: Vec::new(),
        };
        for (operation, added) in [
            ("RSA", tables.add_rsa(stock, find)),
            ("ECDSA and ECDH", tables.add_ec(stock, find)),
            ("X25519", tables.add_x25519(stock, find)),
            ("Ed25519", tables.add_ed25519(stock, find)),
            ("TLS 1.3 key derivation", tables.add_tls13_kdf(find)),
        ] {
            if let Err(reason) = added {
                tables.unaccelerated.push((operation, reason));
            }
        }
        for algorithms in [
            &mut tables.kdf,
            &mut tables.keymgmt,
            &mut tables.keyexch,
            &mut tables.signature,
            &mut tables.asym_cipher,
        ] {
            algorithms.push(Algorithm::END);
        }
        tables
    }

    fn add_rsa(&mut self, stock: &Stock, find: &Find<'_>) -> Result<(), String> {
        let signature = find(operation::SIGNATURE, Rsa::NAME).ok_or(ABSENT)?;
        let asym_cipher = find(operation::ASYM_CIPHER, Rsa::NAME).ok_or(ABSENT)?;
        let mut rsa = Family::new::<Rsa>(stock, find).ok_or(ABSENT)?;
        let rsa_pss = Family::new::<RsaPss>(stock, find).ok_or(ABSENT)?;
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
        Ok(())
    }

    fn add_ec(&mut self, stock: &Stock, find: &Find<'_>) -> Result<(), String> {
        let signature = find(operation::SIGNATURE, c"ECDSA").ok_or(ABSENT)?;
        let keyexch = find(operation::KEYEXCH, c"ECDH").ok_or(ABSENT)?;
        let mut ec = Family::new::<Ec>(stock, find).ok_or(ABSENT)?;
        ec.signature = stock::entries(&signature);
        self.add_keymgmt::<Ec>(
            "EC key generation",
            &mut ec,
            keymgmt::wrappers::<Ec>().to_vec(),
            &[keymgmt::generator::<Ec>()],
        );
        self.signature.push(with_our_constructor::<Ec>(signature));
        self.keyexch.push(Algorithm {
            properties: FAST.as_ptr(),
            ..keyexch
        });
        self.families.push(ec);
        Ok(())
    }

    fn add_x25519(&mut self, stock: &Stock, find: &Find<'_>) -> Result<(), String> {
        let keyexch = find(operation::KEYEXCH, X25519::NAME).ok_or(ABSENT)?;
        let mut x25519 = Family::new::<X25519>(stock, find).ok_or(ABSENT)?;
        x25519.keyexch = stock::entries(&keyexch);
        let implementation = wrapped(&x25519.keyexch, &xdh::wrappers(), xdh::LEFT_OUT)?;
        self.add_keymgmt::<X25519>("X25519 key generation", &mut x25519, Vec::new(), &[]);
        self.keyexch.push(Algorithm {
            properties: FAST.as_ptr(),
            implementation,
            ..keyexch
        });
        self.families.push(x25519);
        Ok(())
    }

    /// Adds key management with these functions in place of stock's, and with our generation. Where
    /// that cannot be, generation stays with the default provider, and so does the key management
    /// that programs find by default; ours takes keys over.
    fn add_keymgmt<T: Generated>(
        &mut self,
        operation: &'static str,
        family: &mut Family,
        mut replaced: Vec<Dispatch>,
        without: &[Dispatch],
    ) {
        let (generation, properties) = match generation::wrappers_for::<T>(&family.keys.table) {
            Ok(ours) => {
                family.generates = true;
                (ours.to_vec(), FAST)
            }
            Err(reason) => {
                self.unaccelerated.push((operation, reason));
                (without.to_vec(), KEYS)
            }
        };
        replaced.extend(generation);
        self.keymgmt.push(family.keymgmt(&replaced, properties));
    }

    fn add_ed25519(&mut self, stock: &Stock, find: &Find<'_>) -> Result<(), String> {
        let signature = find(operation::SIGNATURE, Ed25519::NAME).ok_or(ABSENT)?;
        let mut ed25519 = Family::new::<Ed25519>(stock, find).ok_or(ABSENT)?;
        ed25519.signature = stock::entries(&signature);
        let implementation = wrapped(&ed25519.signature, &eddsa::wrappers(), &[])?;
        self.keymgmt.push(ed25519.keymgmt(&[], KEYS));
        self.signature.push(Algorithm {
            properties: FAST.as_ptr(),
            implementation,
            ..signature
        });
        self.families.push(ed25519);
        Ok(())
    }

    fn add_tls13_kdf(&mut self, find: &Find<'_>) -> Result<(), String> {
        if !process::computes() {
            return Err("the setting backend = none leaves it to OpenSSL".to_owned());
        }
        if !tls13_kdf::is_fast() {
            return Err("OpenSSL's own code is faster on this CPU, which lacks AVX2".to_owned());
        }
        let kdf = find(operation::KDF, c"TLS13-KDF").ok_or(ABSENT)?;
        let functions = stock::entries(&kdf);
        self.kdf.push(Algorithm {
            properties: FAST.as_ptr(),
            implementation: wrapped(&functions, &tls13_kdf::wrappers(), tls13_kdf::LEFT_OUT)?,
            ..kdf
        });
        self.tls13_kdf = functions;
        Ok(())
    }

    /// The key types that we generate and that TLS has groups on.
    fn group_keys(&self) -> Vec<&'static CStr> {
        let generated = self.families.iter().filter(|family| family.generates);
        generated.map(|family| family.name).collect()
    }
}

impl Family {
    fn new<T: Named>(stock: &Stock, find: &Find<'_>) -> Option<Family> {
        let keymgmt = find(operation::KEYMGMT, T::NAME)?;
        Some(Family {
            name: T::NAME,
            keys: KeyFunctions::new(stock, &keymgmt)?,
            keymgmt,
            generates: false,
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

/// A table whose functions take wrapped contexts: each stock function has a wrapper in its place,
/// unless its number is in `left_out`. libcrypto does without those.
///
/// An error if the stock table has a function that we do not know: it would be called with our
/// context. Then the algorithm stays with the default provider.
fn wrapped(
    stock: &[Dispatch],
    ours: &[Dispatch],
    left_out: &[c_int],
) -> Result<*const Dispatch, String> {
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

/// The stock signature `algorithm` with our constructor.
fn with_our_constructor<T: Named>(algorithm: Algorithm) -> Algorithm {
    let constructor = signature::Newctx::entry(new_signature::<T>);
    Algorithm {
        properties: FAST.as_ptr(),
        implementation: overlaid(&stock::entries(&algorithm), &[constructor]),
        ..algorithm
    }
}

/// `OSSL_FUNC_signature_newctx`: the stock one, with what the caller's property query asks of
/// others than us. The stock function looks for digests with it.
unsafe extern "C" fn new_signature<T: Named>(
    provctx: *mut c_void,
    query: *const c_char,
) -> *mut c_void {
    let newctx = family::<T>().and_then(|family| signature::Newctx::of(&family.signature));
    // SAFETY: libcrypto's arguments; the stock constructor copies the query, and takes NULL for
    // none.
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

/// Whether a clause is about this provider's name or one of its properties.
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

    /// The tables, where the stock table of an algorithm has one more function.
    fn with_function(of: (c_int, &CStr), id: c_int) -> Tables {
        let stock = stock::stock().expect("the default provider");
        let find = |operation, name: &CStr| {
            let mut algorithm = stock.algorithm(operation, name)?;
            if (operation, name) == of {
                let mut table = stock::entries(&algorithm);
                table.push(Dispatch { id, ..table[0] });
                table.push(Dispatch::END);
                algorithm.implementation = Vec::leak(table).as_ptr();
            }
            Some(algorithm)
        };
        Tables::new(stock, &find)
    }

    /// The names in an array of algorithms, and whether each is preferred.
    fn offered(algorithms: &[Algorithm]) -> Vec<(String, bool)> {
        let ours = algorithms
            .iter()
            .filter(|algorithm| !algorithm.names.is_null());
        ours.map(|algorithm| {
            // SAFETY: static C strings.
            let (names, properties) = unsafe {
                (
                    CStr::from_ptr(algorithm.names),
                    CStr::from_ptr(algorithm.properties),
                )
            };
            let name = names.to_string_lossy();
            let name = name.split(':').next().unwrap_or_default().to_owned();
            (name, properties == FAST)
        })
        .collect()
    }

    #[test]
    fn all_is_offered_where_all_functions_are_known() {
        // No function has the number of one that is known already.
        let tables = with_function((operation::KEYMGMT, c"no such"), 1);
        assert!(tables.unaccelerated.len() <= usize::from(!tls13_kdf::is_fast()));
        let keymgmt = ["RSA", "RSA-PSS", "EC", "X25519", "ED25519"];
        let preferred = [false, false, true, true, false];
        let expected: Vec<_> = keymgmt
            .map(str::to_owned)
            .into_iter()
            .zip(preferred)
            .collect();
        assert_eq!(offered(&tables.keymgmt), expected);
        assert_eq!(tables.group_keys(), [Ec::NAME, X25519::NAME]);
    }

    #[test]
    fn what_has_an_unknown_function_stays_with_the_default_provider_and_is_named() {
        let has = |algorithms: &[Algorithm], name: &str, preferred| {
            offered(algorithms).contains(&(name.to_owned(), preferred))
        };
        let named = |tables: &Tables, operation: &str| {
            let mut lines = tables.unaccelerated.iter();
            lines.any(|(name, reason)| *name == operation && reason.contains("99"))
        };
        let tables = with_function((operation::KEYEXCH, X25519::NAME), 99);
        assert!(named(&tables, "X25519"));
        assert!(!has(&tables.keyexch, "X25519", true) && has(&tables.keyexch, "ECDH", true));
        assert_eq!(tables.group_keys(), [Ec::NAME]);

        let tables = with_function((operation::SIGNATURE, Ed25519::NAME), 99);
        assert!(named(&tables, "Ed25519"));
        assert!(!has(&tables.signature, "ED25519", true));

        let tables = with_function((operation::KDF, c"TLS13-KDF"), 99);
        assert!(named(&tables, "TLS 1.3 key derivation") || !tls13_kdf::is_fast());
        assert!(!has(&tables.kdf, "TLS13-KDF", true));

        // The functions of generation would get our context: keys are then generated by stock, and
        // ours are still taken over.
        for (name, operation) in [
            (Ec::NAME, "EC key generation"),
            (X25519::NAME, "X25519 key generation"),
        ] {
            let tables = with_function((operation::KEYMGMT, name), 99);
            assert!(named(&tables, operation));
            assert!(has(&tables.keymgmt, name.to_str().unwrap(), false));
            assert!(!tables.group_keys().contains(&name));
        }

        // RSA's functions get stock contexts: new ones are there at once.
        let tables = with_function((operation::KEYMGMT, Rsa::NAME), 99);
        assert!(
            tables
                .unaccelerated
                .iter()
                .all(|(_, reason)| !reason.contains("99"))
        );
        assert!(has(&tables.keymgmt, "RSA", false));
    }

    #[test]
    fn functions_that_libcrypto_can_do_without_are_left_out() {
        for (algorithm, left_out) in [
            ((operation::KEYEXCH, X25519::NAME), xdh::LEFT_OUT),
            ((operation::KDF, c"TLS13-KDF"), tls13_kdf::LEFT_OUT),
        ] {
            for &id in left_out {
                let tables = with_function(algorithm, id);
                let offered = [&tables.keyexch, &tables.kdf].into_iter().flatten();
                assert!(tables.unaccelerated.len() <= usize::from(!tls13_kdf::is_fast()));
                for offered in offered.filter(|offered| !offered.names.is_null()) {
                    let table = stock::entries(offered);
                    // SAFETY: static C strings.
                    let names = unsafe { CStr::from_ptr(offered.names) };
                    let is_it = names.to_bytes().starts_with(algorithm.1.to_bytes());
                    assert!(!is_it || table.iter().all(|entry| entry.id != id));
                }
            }
        }
    }

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
