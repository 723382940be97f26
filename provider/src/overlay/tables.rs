//! The module's tables of algorithms.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::aes_gcm;
use crate::aes_gcm::AesGcm;
use crate::daemon::decoder;
use crate::daemon::reference::Referable;
use crate::ffi::{Algorithm, Dispatch, Group, Terminated, Text, operation, signature};
use crate::host::shared_memory;
use crate::kem::{
    self, Mechanism, MlKem512, MlKem768, MlKem1024, SecP256r1MlKem768, SecP384r1MlKem1024,
    X25519MlKem768,
};
use crate::keys::ed25519_keys;
use crate::keys::eddsa;
use crate::keys::generation::{self, Generated};
use crate::keys::keymgmt::{self, overlaid};
use crate::keys::ml_dsa;
use crate::keys::number;
use crate::keys::xdh;
use crate::process;
use crate::stock::families::{
    Aes128Gcm, Aes192Gcm, Aes256Gcm, EcKeys, Ecdh, Ecdsa, Ed25519Keys, Ed25519Signature, Families,
    Found, MlDsa44Keys, MlDsa65Keys, MlDsa87Keys, Named, RsaCipher, RsaKeys, RsaPssKeys,
    RsaSignature, Tls13Kdf, X25519Exchange, X25519Keys, families,
};
use crate::stock::has_name;
use crate::tls13_kdf;

use super::offers::{
    FAST, KEYS, MAKES, all_of, as_ours, offered, preferred, rsa_wrappers, with_our_constructor,
    wrapped,
};

/// The module's arrays of algorithms.
#[derive(Default)]
pub struct Tables {
    pub cipher: Vec<Algorithm>,
    pub kdf: Vec<Algorithm>,
    pub keymgmt: Vec<Algorithm>,
    pub keyexch: Vec<Algorithm>,
    pub signature: Vec<Algorithm>,
    pub asym_cipher: Vec<Algorithm>,
    pub kem: Vec<Algorithm>,
    pub encoder: Vec<Algorithm>,
    pub decoder: Vec<Algorithm>,
    /// Key types that the module generates and that have groups of TLS.
    pub generated: Vec<&'static CStr>,
    /// Operations that stay with the default provider, with the reasons.
    pub unaccelerated: Vec<(&'static str, String)>,
}

/// Whether OpenSSL lacks a fast AES-GCM: before 3.1 its code uses no vectors longer than a block.
pub static LACKS_GCM: AtomicBool = AtomicBool::new(false);

/// Returns the tables; None if OpenSSL's default provider cannot be loaded, or the module offers
/// nothing.
pub fn tables() -> Option<&'static Tables> {
    if shared_memory::reason().is_some() {
        return None;
    }
    static TABLES: OnceBox<Option<Tables>> = OnceBox::new();
    TABLES
        .get_or_init(|| Box::new(families().map(Tables::new)))
        .as_ref()
}

/// Reason for an algorithm that the default provider lacks.
const ABSENT: &str = "OpenSSL's default provider does not have it";

/// Reason for operations that the settings leave to OpenSSL.
const LEFT_TO_OPENSSL: &str = "backend = none or OPENSSL_ia32cap leaves it to OpenSSL";

/// Reason for keys that OpenSSL would copy into the ordinary heap.
const SECURE_HEAP: &str = "the program has a secure heap (CRYPTO_secure_malloc_init), and OpenSSL \
                           would copy private keys out of it";

/// Returns an algorithm of the default provider.
fn found<A: Named>(families: &Families) -> Result<&Found, &'static str> {
    families.get::<A>().ok_or(ABSENT)
}

/// Returns an error if libcrypto lacks functions that an operation needs.
fn needs(group: Group) -> Result<(), String> {
    match group.lacks() {
        Some(name) => Err(format!("this OpenSSL does not export the function {name}")),
        None => Ok(()),
    }
}

impl Tables {
    /// Makes the tables. An algorithm that the default provider lacks, or that cannot be wrapped,
    /// is left out and noted.
    fn new(families: &Families) -> Tables {
        let mut tables = Tables::default();
        for (operation, added) in [
            ("RSA", tables.add_rsa(families)),
            ("ECDSA and ECDH", tables.add_ec(families)),
            ("X25519", tables.add_x25519(families)),
            ("Ed25519", tables.add_ed25519(families)),
            ("ML-DSA-44", tables.add_ml_dsa::<MlDsa44Keys>(families)),
            ("ML-DSA-65", tables.add_ml_dsa::<MlDsa65Keys>(families)),
            ("ML-DSA-87", tables.add_ml_dsa::<MlDsa87Keys>(families)),
            ("ML-KEM", tables.add_kem()),
            ("TLS 1.3 key derivation", tables.add_tls13_kdf(families)),
            ("AES-GCM", tables.add_aes_gcm(families)),
            ("work in async jobs", needs(Group::Async)),
        ] {
            if let Err(reason) = added {
                tables.unaccelerated.push((operation, reason));
            }
        }
        for algorithms in [
            &mut tables.cipher,
            &mut tables.kdf,
            &mut tables.keymgmt,
            &mut tables.keyexch,
            &mut tables.signature,
            &mut tables.asym_cipher,
            &mut tables.kem,
            &mut tables.encoder,
            &mut tables.decoder,
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
        self.add_decoder::<RsaKeys>();
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
        self.add_decoder::<EcKeys>();
        Ok(())
    }

    /// Adds a signature with the module's constructor, and its variants with a digest in their
    /// names, such as RSA-SHA256 (OpenSSL 3.4). OpenSSL has one constructor for all of them.
    fn add_signatures<S: Named>(&mut self, signature: &Found) {
        self.signature.push(with_our_constructor::<S>(signature));
        let constructor = |found: &Found| {
            let function = found.function(signature::Newctx::ID);
            function.map(|function| function as usize)
        };
        let others = all_of(operation::SIGNATURE)
            .filter(|algorithm| !has_name(algorithm, S::NAME))
            .map(Found::new);
        let variants = others.filter(|found| constructor(found) == constructor(signature));
        self.signature
            .extend(variants.map(|found| with_our_constructor::<S>(&found)));
    }

    /// Adds OpenSSL's own encoders of keys under the module's name. Otherwise libcrypto would
    /// export each key to OpenSSL's provider, which imports no EC key on the curve SM2.
    fn add_encoders(&mut self, keys: &CStr) {
        let encoders = all_of(operation::ENCODER).filter(|algorithm| has_name(algorithm, keys));
        self.encoder.extend(encoders.filter_map(as_ours));
    }

    /// Adds the decoder of references to keys of a type, after the decoder of PEM. There is no
    /// decoder unless the settings allow references. With one, a program that reads the keys of
    /// strangers would sign with keys of the daemon for the strangers. Besides, libcrypto asks
    /// every decoder about every key.
    fn add_decoder<K: Referable + Named>(&mut self) {
        self.add_decoder_named(K::NAME, || decoder::functions::<K>());
    }

    #[inline(never)]
    fn add_decoder_named(&mut self, keys: &'static CStr, functions: fn() -> [Dispatch; 4]) {
        if process::references().is_none() || Group::References.lacks().is_some() {
            return;
        }
        let decoder = |name, properties, functions: &[Dispatch]| Algorithm {
            names: Some(Text::new(name)),
            properties: Some(Text::new(properties)),
            implementation: overlaid(functions, &[]),
            description: None,
        };
        if self.decoder.is_empty() {
            let functions = decoder::unwrapping();
            self.decoder
                .push(decoder(decoder::DER, decoder::OF_PEM, &functions));
        }
        self.decoder
            .push(decoder(keys, decoder::OF_DER, &functions()));
    }

    fn add_x25519(&mut self, families: &Families) -> Result<(), String> {
        if number::has_secure_heap() {
            return Err(SECURE_HEAP.to_owned());
        }
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

    /// Adds key management with these functions in place of OpenSSL's own, and with the module's
    /// generation. If generation cannot be wrapped, the default provider generates keys, and
    /// programs find the key management of the default provider by default. The module's key
    /// management then only takes keys over.
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
                (ours.to_vec(), MAKES)
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
        self.keymgmt
            .push(offered(keys, &ed25519_keys::wrappers(), KEYS));
        self.add_decoder::<Ed25519Keys>();
        self.signature.push(Algorithm {
            implementation,
            ..preferred(signature)
        });
        Ok(())
    }

    /// Adds signatures of ML-DSA. If OpenSSL has none, as before 3.5, they are not needed: its
    /// libssl could not serve a certificate with such a key.
    fn add_ml_dsa<K: ml_dsa::Keys>(&mut self, families: &Families) -> Result<(), String> {
        if families.get::<K>().is_none() {
            return Ok(());
        }
        // A reference needs no lanes here.
        if !process::computes() && process::references().is_none() {
            return Err(LEFT_TO_OPENSSL.to_owned());
        }
        let signature = found::<K::Signature>(families)?;
        let keys = found::<K>(families)?;
        let implementation = wrapped(&signature.functions, &ml_dsa::wrappers::<K>(), &[])?;
        self.keymgmt
            .push(offered(keys, &ml_dsa::key_wrappers::<K>(), KEYS));
        self.add_decoder::<K>();
        self.signature.push(Algorithm {
            implementation,
            ..preferred(signature)
        });
        Ok(())
    }

    /// Adds key encapsulation, all of whose functions are the module's own.
    fn add_kem(&mut self) -> Result<(), String> {
        let is_there = all_of(operation::KEM).any(|kem| has_name(kem, X25519MlKem768::NAMES));
        if is_there && !process::computes() {
            return Err(LEFT_TO_OPENSSL.to_owned());
        }
        needs(Group::Encapsulation)?;
        let [of_512, of_768, of_1024] = match is_there {
            true => [MlKem512::NAMES, MlKem768::NAMES, MlKem1024::NAMES],
            false => kem::NAMES_OF_OWN,
        };
        self.add_mechanism::<MlKem512>(of_512);
        self.add_mechanism::<MlKem768>(of_768);
        self.add_mechanism::<MlKem1024>(of_1024);
        self.add_mechanism::<X25519MlKem768>(X25519MlKem768::NAMES);
        // Without lanes for the curves, OpenSSL's own hybrids are faster.
        let has_curves = process::backend().is_some_and(|backend| backend.has_nist_curves());
        if has_curves || !is_there {
            self.add_mechanism::<SecP256r1MlKem768>(SecP256r1MlKem768::NAMES);
            self.add_mechanism::<SecP384r1MlKem1024>(SecP384r1MlKem1024::NAMES);
        }
        Ok(())
    }

    fn add_mechanism<M: Mechanism>(&mut self, names: &'static CStr) {
        let algorithm = |functions: &[Dispatch]| Algorithm {
            names: Some(Text::new(names)),
            properties: Some(Text::new(FAST)),
            implementation: Terminated::new(Vec::leak(functions.to_vec())),
            description: None,
        };
        self.keymgmt.push(algorithm(&kem::key_functions::<M>()));
        self.kem.push(algorithm(&kem::functions::<M>()));
        self.generated.push(names);
    }

    /// Adds AES-GCM. If OpenSSL's own is as fast, or a setting prefers it, it is not needed.
    fn add_aes_gcm(&mut self, families: &Families) -> Result<(), String> {
        if !LACKS_GCM.load(Ordering::Relaxed) || !process::enciphers() {
            return Ok(());
        }
        if !process::computes() {
            return Err(LEFT_TO_OPENSSL.to_owned());
        }
        if aes_gcm::lanes().is_none() {
            return Ok(());
        }
        needs(Group::Ciphers)?;
        self.add_cipher::<Aes256Gcm>(families)?;
        self.add_cipher::<Aes192Gcm>(families)?;
        self.add_cipher::<Aes128Gcm>(families)
    }

    fn add_cipher<A: AesGcm>(&mut self, families: &Families) -> Result<(), String> {
        let cipher = found::<A>(families)?;
        let ours = aes_gcm::wrappers::<A>(&cipher.functions);
        self.cipher.push(Algorithm {
            implementation: wrapped(&cipher.functions, &ours, &[])?,
            ..preferred(cipher)
        });
        Ok(())
    }

    fn add_tls13_kdf(&mut self, families: &Families) -> Result<(), String> {
        if !process::computes() {
            return Err(LEFT_TO_OPENSSL.to_owned());
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

#[cfg(test)]
mod tests {
    use std::ffi::c_int;

    use super::*;
    use crate::ffi;
    use crate::stock;

    /// Returns the tables for an OpenSSL whose table of an algorithm has one more function.
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

    /// Returns the names in an array of algorithms, and whether each is preferred.
    fn offered(algorithms: &[Algorithm]) -> Vec<(String, bool)> {
        let ours = algorithms
            .iter()
            .filter(|algorithm| algorithm.names.is_some());
        ours.map(|algorithm| {
            let names = stock::names(algorithm);
            let properties = algorithm.properties.map(Text::to_cstr);
            let is_preferred = properties == Some(FAST) || properties == Some(MAKES);
            let name = names.to_string_lossy();
            let name = name.split(':').next().unwrap_or_default().to_owned();
            (name, is_preferred)
        })
        .collect()
    }

    /// Returns the key types on curves that the module generates.
    fn curves(tables: &Tables) -> Vec<&'static CStr> {
        let is_kem = |name: &CStr| name.to_bytes().windows(3).any(|word| word == b"KEM");
        let generated = tables.generated.iter().copied();
        generated.filter(|name| !is_kem(name)).collect()
    }

    #[test]
    fn all_is_offered_where_all_functions_are_known() {
        // No algorithm has this name, so no function is added.
        let tables = with_function((operation::KEYMGMT, c"no such"), 1);
        assert!(tables.unaccelerated.len() <= usize::from(!tls13_kdf::is_fast()));
        // As in `add_kem`, if the lanes lack the curves.
        let has_hybrids = all_of(operation::KEM).any(|kem| has_name(kem, X25519MlKem768::NAMES));
        let has_curves = process::backend().is_some_and(|backend| backend.has_nist_curves());
        let is_left = |name: &str| has_hybrids && !has_curves && name.starts_with("SecP");
        let expected: Vec<_> = [
            ("RSA", false),
            ("RSA-PSS", false),
            ("EC", true),
            ("X25519", true),
            ("ED25519", false),
            ("ML-KEM-512", true),
            ("ML-KEM-768", true),
            ("ML-KEM-1024", true),
            ("X25519MLKEM768", true),
            ("SecP256r1MLKEM768", true),
            ("SecP384r1MLKEM1024", true),
        ]
        .into_iter()
        .filter(|(name, _)| !is_left(name))
        .map(|(name, preferred)| (name.to_owned(), preferred))
        .collect();
        assert_eq!(offered(&tables.keymgmt), expected);
        assert_eq!(curves(&tables), [EcKeys::NAME, X25519Keys::NAME]);
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
        assert_eq!(curves(&tables), [EcKeys::NAME]);

        let tables = with_function((operation::SIGNATURE, Ed25519Keys::NAME), 99);
        assert!(named(&tables, "Ed25519"));
        assert!(!has(&tables.signature, "ED25519", true));

        let tables = with_function((operation::KDF, c"TLS13-KDF"), 99);
        assert!(named(&tables, "TLS 1.3 key derivation") || !tls13_kdf::is_fast());
        assert!(!has(&tables.kdf, "TLS13-KDF", true));

        // The functions of generation would get the module's context. So OpenSSL generates keys,
        // and the module still takes keys over.
        for (name, operation) in [
            (EcKeys::NAME, "EC key generation"),
            (X25519Keys::NAME, "X25519 key generation"),
        ] {
            let tables = with_function((operation::KEYMGMT, name), 99);
            assert!(named(&tables, operation));
            assert!(has(&tables.keymgmt, name.to_str().unwrap(), false));
            assert!(!tables.generated.contains(&name));
        }

        // RSA's functions get OpenSSL's own contexts, so new functions are offered at once.
        let tables = with_function((operation::KEYMGMT, RsaKeys::NAME), 99);
        assert!(
            tables
                .unaccelerated
                .iter()
                .all(|(_, reason)| !reason.contains("99"))
        );
        assert!(has(&tables.keymgmt, "RSA", false));
    }

    #[test]
    fn aes_gcm_has_the_functions_of_openssl_and_no_others() {
        let families = families().expect("the default provider");
        let mut tables = Tables::default();
        tables.add_cipher::<Aes256Gcm>(families).expect("AES-GCM");
        let stock = families.get::<Aes256Gcm>().expect("AES-GCM");
        let ids = |functions: &[Dispatch]| functions.iter().map(|entry| entry.id).collect();
        let ours: Vec<c_int> = ids(&stock::entries(&tables.cipher[0]));
        let theirs: Vec<c_int> = ids(&stock.functions);
        assert_eq!(ours, theirs);
        assert_eq!(
            offered(&tables.cipher),
            [("AES-256-GCM".to_owned(), true)],
            "with the names of OpenSSL"
        );

        let mut unknown = stock.functions.clone();
        unknown.push(Dispatch {
            id: 99,
            ..unknown[0]
        });
        let ours = aes_gcm::wrappers::<Aes256Gcm>(&unknown);
        let error = wrapped(&unknown, &ours, &[]).map(drop);
        assert!(error.is_err_and(|reason| reason.contains("99")));
    }

    /// OpenSSL 4.0 makes key data by this function.
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
        assert_eq!(curves(&tables), [EcKeys::NAME, X25519Keys::NAME]);
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
