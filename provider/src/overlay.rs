//! The tables we offer: the default provider's, with a few functions wrapped.
//!
//! For RSA, RSA-PSS and EC, the functions that make keys differ from OpenSSL's own
//! ([`keymgmt`], [`generation`]): each leaves behind an object with our method. The
//! constructor of signature contexts takes clauses that name us out of the caller's property query.
//! Everything else, every RSA and ECDSA signature function included, is OpenSSL's own function,
//! called by libcrypto directly. X25519 exchanges ([`xdh`]), Ed25519 signatures ([`eddsa`]) and TLS
//! 1.3's key derivation ([`tls13_kdf`]) have the module's contexts around OpenSSL's own.

use std::ffi::{CStr, CString, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::ffi::{
    Algorithm, Dispatch, Group, Params, Place, ProvCtx, Receiver, StockCtx, Terminated, Text, name,
    operation, signature,
};
use crate::generation::{self, Generated};
use crate::keymgmt::{self, Adoptable, overlaid};
use crate::stock::families::{
    EcKeys, Ecdh, Ecdsa, Ed25519Keys, Ed25519Signature, Families, Found, Named, RsaCipher, RsaKeys,
    RsaPssKeys, RsaSignature, Tls13Kdf, X25519Exchange, X25519Keys, families,
};
use crate::stock::{has_name, stock};
use crate::{ec_method, eddsa, process, query, rsa_method, tls13_kdf, xdh};

/// Marks what we want preferred; `dist/openssl.cnf` asks for it.
static FAST: &CStr = c"provider=lockstep,lockstep.fast=yes";
/// Marks key management that only takes keys over; `dist/openssl.cnf` steers away from it, so
/// that generating and decoding keys stay with the default provider.
static KEYS: &CStr = c"provider=lockstep,lockstep.keys=yes";

/// `OSSL_FUNC_provider_query_operation`
pub fn query_operation(
    _provctx: ProvCtx,
    operation_id: c_int,
    no_cache: Place<'_, c_int>,
) -> Terminated<'static, Algorithm> {
    no_cache.put(0);
    let Some(tables) = tables() else {
        return Terminated::NONE;
    };
    Terminated::new(match operation_id {
        operation::KDF => &tables.kdf,
        operation::KEYMGMT => &tables.keymgmt,
        operation::KEYEXCH => &tables.keyexch,
        operation::SIGNATURE => &tables.signature,
        operation::ASYM_CIPHER => &tables.asym_cipher,
        operation::ENCODER => &tables.encoder,
        _ => return Terminated::NONE,
    })
}

/// Whether libssl takes a group from any provider (OpenSSL 3.5).
static TAKES_ANY: AtomicBool = AtomicBool::new(false);

/// `OSSL_FUNC_provider_get_capabilities`: the default provider's TLS groups on keys that we
/// generate.
///
/// Before OpenSSL 3.5 libssl takes a group only from the provider whose key management it finds for
/// it, so the module must offer every group on EC and X25519 keys, with or without lanes. Later it
/// takes the application's default provider's groups with our keys, and would list ours as well.
pub fn capabilities(
    provctx: ProvCtx,
    capability: Option<Text<'_>>,
    receiver: Receiver<'_>,
) -> c_int {
    let (Some(stock), Some(tables)) = (stock(), tables()) else {
        return 0;
    };
    if capability.map(Text::to_cstr) != Some(c"TLS-GROUP") {
        return 0;
    }
    let is_applications = provctx.as_ptr() != stock.provctx().as_ptr();
    if is_applications && TAKES_ANY.load(Ordering::Relaxed) {
        return 1;
    }
    let mut filter = |params: Params<'_>| {
        let algorithm = params.get(name::CAPABILITY_TLS_GROUP_ALG);
        // The size counts the zero byte.
        let algorithm = algorithm
            .and_then(|value| value.utf8())
            .and_then(|bytes| CStr::from_bytes_until_nul(bytes).ok());
        match algorithm {
            Some(algorithm) if tables.generated.contains(&algorithm) => receiver.receive(params),
            _ => 1,
        }
    };
    stock.capabilities(c"TLS-GROUP", Receiver::new(&mut filter))
}

/// Our algorithm arrays.
#[derive(Default)]
struct Tables {
    kdf: Vec<Algorithm>,
    keymgmt: Vec<Algorithm>,
    keyexch: Vec<Algorithm>,
    signature: Vec<Algorithm>,
    asym_cipher: Vec<Algorithm>,
    encoder: Vec<Algorithm>,
    /// The key types that we generate and that TLS has groups on.
    generated: Vec<&'static CStr>,
    /// Operations that stay with the default provider, and why.
    unaccelerated: Vec<(&'static str, String)>,
}

/// Makes what the process keeps of tables and methods, for an OpenSSL of this version. The first
/// loading does this, so that no two threads meet in it later.
pub fn prepare(version: Option<String>) {
    let takes_any = version.is_some_and(|version| is_since(&version, [3, 5]));
    TAKES_ANY.store(takes_any, Ordering::Relaxed);
    let _ = tables();
    let _ = rsa_method::method();
    let _ = ec_method::method();
}

/// Whether a version, as 3.5.1, is this one or later.
fn is_since(version: &str, first: [u32; 2]) -> bool {
    let numbers = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    numbers.take(2).ge(first)
}

fn tables() -> Option<&'static Tables> {
    static TABLES: OnceBox<Option<Tables>> = OnceBox::new();
    TABLES
        .get_or_init(|| Box::new(families().map(Tables::new)))
        .as_ref()
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

/// Why an algorithm that the default provider lacks stays with it.
const ABSENT: &str = "OpenSSL's default provider does not have it";

/// An algorithm of the default provider.
fn found<A: Named>(families: &Families) -> Result<&Found, &'static str> {
    families.get::<A>().ok_or(ABSENT)
}

/// An error where libcrypto lacks functions that an operation needs.
fn needs(group: Group) -> Result<(), String> {
    match group.lacks() {
        Some(name) => Err(format!("this OpenSSL does not export the function {name}")),
        None => Ok(()),
    }
}

impl Tables {
    /// What the default provider lacks, or what we cannot wrap, is left out and noted.
    fn new(families: &Families) -> Tables {
        let mut tables = Tables::default();
        for (operation, added) in [
            ("RSA", tables.add_rsa(families)),
            ("ECDSA and ECDH", tables.add_ec(families)),
            ("X25519", tables.add_x25519(families)),
            ("Ed25519", tables.add_ed25519(families)),
            ("TLS 1.3 key derivation", tables.add_tls13_kdf(families)),
            ("work in async jobs", needs(Group::Async)),
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
            &mut tables.encoder,
        ] {
            algorithms.push(Algorithm::END);
        }
        tables
    }

    fn add_rsa(&mut self, families: &Families) -> Result<(), String> {
        needs(Group::Rsa)?;
        let signature = found::<RsaSignature>(families)?;
        let asym_cipher = found::<RsaCipher>(families)?;
        let rsa = found::<RsaKeys>(families)?;
        let rsa_pss = found::<RsaPssKeys>(families)?;
        let rsa = offered(rsa, &rsa_wrappers::<RsaKeys>(), KEYS);
        let rsa_pss = offered(rsa_pss, &rsa_wrappers::<RsaPssKeys>(), KEYS);
        self.keymgmt.extend([rsa, rsa_pss]);
        self.add_signatures::<RsaSignature>(signature);
        self.asym_cipher.push(preferred(asym_cipher));
        Ok(())
    }

    fn add_ec(&mut self, families: &Families) -> Result<(), String> {
        needs(Group::Ec)?;
        let signature = found::<Ecdsa>(families)?;
        let keyexch = found::<Ecdh>(families)?;
        let keys = found::<EcKeys>(families)?;
        let without = [keymgmt::generator::<EcKeys>()];
        let replaced = keymgmt::wrappers::<EcKeys>().to_vec();
        self.add_keymgmt::<EcKeys>("EC key generation", keys, replaced, &without);
        self.add_signatures::<Ecdsa>(signature);
        self.keyexch.push(preferred(keyexch));
        self.add_encoders(EcKeys::NAME);
        Ok(())
    }

    /// Adds a signature with our constructor, and those that differ from it by a digest that they
    /// name, as RSA-SHA256 (OpenSSL 3.4). OpenSSL's own constructor is one for all of them.
    fn add_signatures<S: Named>(&mut self, signature: &Found) {
        self.signature.push(with_our_constructor::<S>(signature));
        let constructor = |found: &Found| {
            let function = found.function(signature::Newctx::ID);
            function.map(|function| function as usize)
        };
        let others = all_of(operation::SIGNATURE)
            .filter(|algorithm| !has_name(algorithm, S::NAME))
            .map(Found::new);
        let kin = others.filter(|found| constructor(found) == constructor(signature));
        self.signature
            .extend(kin.map(|found| with_our_constructor::<S>(&found)));
    }

    /// Adds OpenSSL's own encoders of keys as ours. To an encoder of another provider libcrypto
    /// exports a key, and OpenSSL imports no EC key on the curve SM2.
    fn add_encoders(&mut self, keys: &CStr) {
        let encoders = all_of(operation::ENCODER).filter(|algorithm| has_name(algorithm, keys));
        self.encoder.extend(encoders.filter_map(as_ours));
    }

    fn add_x25519(&mut self, families: &Families) -> Result<(), String> {
        let keyexch = found::<X25519Exchange>(families)?;
        let keys = found::<X25519Keys>(families)?;
        let implementation = wrapped(&keyexch.functions, &xdh::wrappers(), xdh::LEFT_OUT)?;
        self.add_keymgmt::<X25519Keys>("X25519 key generation", keys, Vec::new(), &[]);
        self.keyexch.push(Algorithm {
            implementation,
            ..preferred(keyexch)
        });
        Ok(())
    }

    /// Adds key management with these functions in place of OpenSSL's own, and with our generation.
    /// Where that cannot be, generation stays with the default provider, and so does the key
    /// management that programs find by default; ours takes keys over.
    fn add_keymgmt<K: Generated + Named>(
        &mut self,
        operation: &'static str,
        keys: &Found,
        mut replaced: Vec<Dispatch>,
        without: &[Dispatch],
    ) {
        let (generation, properties) = match generation::wrappers_for::<K>(&keys.functions) {
            Ok(ours) => {
                self.generated.push(K::NAME);
                (ours.to_vec(), FAST)
            }
            Err(reason) => {
                self.unaccelerated.push((operation, reason));
                (without.to_vec(), KEYS)
            }
        };
        replaced.extend(generation);
        self.keymgmt.push(offered(keys, &replaced, properties));
    }

    fn add_ed25519(&mut self, families: &Families) -> Result<(), String> {
        let signature = found::<Ed25519Signature>(families)?;
        let keys = found::<Ed25519Keys>(families)?;
        let implementation = wrapped(&signature.functions, &eddsa::wrappers(), &[])?;
        self.keymgmt.push(offered(keys, &[], KEYS));
        self.signature.push(Algorithm {
            implementation,
            ..preferred(signature)
        });
        Ok(())
    }

    fn add_tls13_kdf(&mut self, families: &Families) -> Result<(), String> {
        if !process::computes() {
            return Err("the setting backend = none leaves it to OpenSSL".to_owned());
        }
        if !tls13_kdf::is_fast() {
            return Err("OpenSSL's own code is faster on this CPU, which lacks AVX2".to_owned());
        }
        let kdf = found::<Tls13Kdf>(families)?;
        let (ours, left_out) = (tls13_kdf::wrappers(), tls13_kdf::LEFT_OUT);
        self.kdf.push(Algorithm {
            implementation: wrapped(&kdf.functions, &ours, left_out)?,
            ..preferred(kdf)
        });
        Ok(())
    }
}

/// All that the default provider has for an operation.
fn all_of(operation: c_int) -> impl Iterator<Item = &'static Algorithm> {
    let stock = stock().into_iter();
    stock.flat_map(move |stock| stock.algorithms(operation))
}

/// An algorithm of the default provider as it is, with our name in its properties.
fn as_ours(algorithm: &Algorithm) -> Option<Algorithm> {
    let properties = algorithm.properties?.to_text();
    let rest = properties.strip_prefix("provider=default")?;
    let properties = CString::new(format!("provider=lockstep{rest}")).ok()?;
    Some(Algorithm {
        properties: Some(Text::new(Box::leak(properties.into_boxed_c_str()))),
        ..*algorithm
    })
}

/// An algorithm of the default provider as it is, but preferred.
fn preferred(found: &Found) -> Algorithm {
    Algorithm {
        properties: Some(Text::new(FAST)),
        ..found.algorithm
    }
}

/// An algorithm with these functions in place of OpenSSL's own.
fn offered(found: &Found, replaced: &[Dispatch], properties: &'static CStr) -> Algorithm {
    Algorithm {
        properties: Some(Text::new(properties)),
        implementation: overlaid(&found.functions, replaced),
        ..found.algorithm
    }
}

/// What differs from OpenSSL's own in the management of RSA keys.
fn rsa_wrappers<K: Adoptable>() -> Vec<Dispatch> {
    let mut wrappers = vec![keymgmt::generator::<K>()];
    wrappers.extend(keymgmt::wrappers::<K>());
    wrappers
}

/// A table whose functions take wrapped contexts: each function of OpenSSL's has a wrapper in its
/// place, unless its number is in `left_out`. libcrypto does without those.
///
/// An error if OpenSSL's table has a function that we do not know: it would be called with our
/// context. Then the algorithm stays with the default provider.
fn wrapped(
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
fn with_our_constructor<S: Named>(found: &Found) -> Algorithm {
    let constructor = signature::Newctx::entry(new_signature::<S>);
    offered(found, &[constructor], FAST)
}

/// `OSSL_FUNC_signature_newctx`: OpenSSL's own, with what the caller's property query asks of
/// others than us. OpenSSL looks for digests with it, and copies it.
fn new_signature<S: Named>(provctx: ProvCtx, query: Option<Text<'_>>) -> Option<StockCtx<S>> {
    let query = query::for_others(query.map(Text::to_cstr));
    signature::Newctx::pass(provctx, query.as_deref().map(Text::new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ffi, stock};

    /// The tables, where OpenSSL's table of an algorithm has one more function.
    fn with_function(of: (c_int, &CStr), id: c_int) -> Tables {
        let stock = stock::stock().expect("the default provider");
        let find = |operation, name: &CStr| {
            let mut algorithm = stock.algorithm(operation, name)?;
            if (operation, name) == of {
                let mut table = stock::entries(&algorithm);
                table.push(Dispatch { id, ..table[0] });
                table.push(Dispatch::END);
                algorithm.implementation = Terminated::new(Vec::leak(table));
            }
            Some(algorithm)
        };
        Tables::new(&Families::new(stock, &find))
    }

    /// The names in an array of algorithms, and whether each is preferred.
    fn offered(algorithms: &[Algorithm]) -> Vec<(String, bool)> {
        let ours = algorithms
            .iter()
            .filter(|algorithm| algorithm.names.is_some());
        ours.map(|algorithm| {
            let names = stock::names(algorithm);
            let is_preferred = algorithm.properties.map(Text::to_cstr) == Some(FAST);
            let name = names.to_string_lossy();
            let name = name.split(':').next().unwrap_or_default().to_owned();
            (name, is_preferred)
        })
        .collect()
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for since in ["3.5.0", "3.5.7-dev", "3.10.0", "4.0.3", "10.1.0"] {
            assert!(is_since(since, [3, 5]), "{since}");
        }
        for before in ["3.0.19", "3.4.4", "1.1.1w", "", "unknown"] {
            assert!(!is_since(before, [3, 5]), "{before}");
        }
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
        assert_eq!(tables.generated, [EcKeys::NAME, X25519Keys::NAME]);
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
        let tables = with_function((operation::KEYEXCH, X25519Keys::NAME), 99);
        assert!(named(&tables, "X25519"));
        assert!(!has(&tables.keyexch, "X25519", true) && has(&tables.keyexch, "ECDH", true));
        assert_eq!(tables.generated, [EcKeys::NAME]);

        let tables = with_function((operation::SIGNATURE, Ed25519Keys::NAME), 99);
        assert!(named(&tables, "Ed25519"));
        assert!(!has(&tables.signature, "ED25519", true));

        let tables = with_function((operation::KDF, c"TLS13-KDF"), 99);
        assert!(named(&tables, "TLS 1.3 key derivation") || !tls13_kdf::is_fast());
        assert!(!has(&tables.kdf, "TLS13-KDF", true));

        // The functions of generation would get our context: OpenSSL then generates keys, and ours
        // are still taken over.
        for (name, operation) in [
            (EcKeys::NAME, "EC key generation"),
            (X25519Keys::NAME, "X25519 key generation"),
        ] {
            let tables = with_function((operation::KEYMGMT, name), 99);
            assert!(named(&tables, operation));
            assert!(has(&tables.keymgmt, name.to_str().unwrap(), false));
            assert!(!tables.generated.contains(&name));
        }

        // RSA's functions get OpenSSL's own contexts: new ones are there at once.
        let tables = with_function((operation::KEYMGMT, RsaKeys::NAME), 99);
        assert!(
            tables
                .unaccelerated
                .iter()
                .all(|(_, reason)| !reason.contains("99"))
        );
        assert!(has(&tables.keymgmt, "RSA", false));
    }

    /// By which OpenSSL 4.0 makes key data.
    #[test]
    fn the_second_constructor_of_keys_is_ours() {
        let id = ffi::keymgmt::NewEx::ID;
        let tables = with_function((operation::KEYMGMT, RsaKeys::NAME), id);
        let is_ours = |algorithm: &Algorithm| {
            let offered = Found::new(algorithm).function(id);
            let stock = families().and_then(|families| families.get::<RsaKeys>());
            let stock = stock.and_then(|stock| stock.function(ffi::keymgmt::New::ID));
            offered.map(|ours| ours as usize) != stock.map(|stock| stock as usize)
        };
        assert!(tables.keymgmt.first().is_some_and(is_ours));
        let tables = with_function((operation::KEYMGMT, EcKeys::NAME), id);
        assert_eq!(tables.generated, [EcKeys::NAME, X25519Keys::NAME]);
    }

    #[test]
    fn functions_that_libcrypto_can_do_without_are_left_out() {
        for (algorithm, left_out) in [
            ((operation::KEYEXCH, X25519Keys::NAME), xdh::LEFT_OUT),
            ((operation::KDF, c"TLS13-KDF"), tls13_kdf::LEFT_OUT),
        ] {
            for &id in left_out {
                let tables = with_function(algorithm, id);
                let offered = [&tables.keyexch, &tables.kdf].into_iter().flatten();
                assert!(tables.unaccelerated.len() <= usize::from(!tls13_kdf::is_fast()));
                for offered in offered.filter(|offered| offered.names.is_some()) {
                    let table = stock::entries(offered);
                    let names = stock::names(offered);
                    let is_it = names.to_bytes().starts_with(algorithm.1.to_bytes());
                    assert!(!is_it || table.iter().all(|entry| entry.id != id));
                }
            }
        }
    }
}
