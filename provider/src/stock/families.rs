//! OpenSSL's own implementations of the module's algorithms, looked up once.
//!
//! Each algorithm is a type. The types of contexts and keys have it as a parameter ([`Functions`]),
//! and so find the table of its functions.

use std::ffi::{CStr, c_int};

use once_cell::race::OnceBox;

use crate::ffi::{
    Algorithm, Dispatch, EcKey, Function, Functions, KeyObjects, ProvCtx, Rsa, cipher, kdf,
    keyexch, keymgmt, operation, signature,
};
use crate::stock::{self, Stock};

/// An algorithm of the default provider.
pub struct Found {
    /// The default provider's entry.
    pub algorithm: Algorithm,
    /// The functions, without the end of the table.
    pub functions: Vec<Dispatch>,
}

impl Found {
    pub fn new(algorithm: &Algorithm) -> Found {
        Found {
            algorithm: *algorithm,
            functions: stock::entries(algorithm),
        }
    }

    /// Returns the function with this number.
    pub fn function(&self, id: c_int) -> Option<Function> {
        let mut functions = self.functions.iter();
        functions.find(|entry| entry.id == id)?.function
    }
}

/// Finds an algorithm by its operation and name.
pub type Find<'a> = dyn Fn(c_int, &CStr) -> Option<Algorithm> + 'a;

/// All algorithms that the module looks for.
pub struct Families {
    provctx: ProvCtx,
    found: [Option<Found>; COUNT],
}

// SAFETY: all pointers are to static data and functions of the default provider, which is never
// unloaded and may be called from any thread.
unsafe impl Send for Families {}
// SAFETY: as above.
unsafe impl Sync for Families {}

/// Returns the algorithms of the module's own default provider; None if it cannot be loaded.
pub fn families() -> Option<&'static Families> {
    static FAMILIES: OnceBox<Option<Families>> = OnceBox::new();
    let made = || {
        let stock = stock::stock()?;
        let find = |operation, name: &CStr| stock.algorithm(operation, name);
        Some(Families::new(stock, &find))
    };
    FAMILIES.get_or_init(|| Box::new(made())).as_ref()
}

impl Families {
    pub fn new(stock: &Stock, find: &Find<'_>) -> Families {
        let found = ALL.map(|(operation, name)| {
            let found = Found::new(&find(operation, name)?);
            let has = |id| found.function(id).is_some();
            let is_complete = operation != operation::KEYMGMT || KEY_FUNCTIONS.into_iter().all(has);
            is_complete.then_some(found)
        });
        Families {
            provctx: stock.provctx(),
            found,
        }
    }

    /// Returns the default provider's own context. Keys made with it belong to the private library
    /// context, and draw from that context's random generator.
    pub fn provctx(&self) -> ProvCtx {
        self.provctx
    }

    /// Returns an algorithm; None if the default provider lacks it.
    pub fn get<A: Named>(&self) -> Option<&Found> {
        self.found[A::INDEX].as_ref()
    }
}

/// An algorithm with a name in the default provider.
pub trait Named: Functions {
    /// One of its names.
    const NAME: &'static CStr;
    /// Its place in [`Families`].
    const INDEX: usize;
}

/// Functions that key management must have: the module makes, fills, reads and frees keys.
const KEY_FUNCTIONS: [c_int; 5] = [
    keymgmt::New::ID,
    keymgmt::Free::ID,
    keymgmt::Import::ID,
    keymgmt::Export::ID,
    keymgmt::GetParams::ID,
];

/// Declares the algorithms, each as a type that stands for it at compile time.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $name:ident $operation:ident $text:literal, $free:expr, $free_key:expr;)*) => {
        #[derive(Clone, Copy)]
        enum Index { $($name),* }

        const ALL: [(c_int, &CStr); COUNT] = [$((operation::$operation, $text)),*];
        const COUNT: usize = [$(Index::$name),*].len();

        $(
            $(#[$doc])*
            pub struct $name;

            impl Named for $name {
                const NAME: &'static CStr = $text;
                const INDEX: usize = Index::$name as usize;
            }

            impl Functions for $name {
                const FREE_CONTEXT: c_int = $free;
                const FREE_KEY: c_int = $free_key;

                fn table() -> &'static [Dispatch] {
                    let found = families().and_then(|families| families.get::<$name>());
                    found.map_or(&[], |found| &found.functions)
                }
            }
        )*
    };
}

algorithms! {
    /// Keys of RSA.
    RsaKeys KEYMGMT c"RSA", keymgmt::GenCleanup::ID, keymgmt::Free::ID;
    /// Keys of RSA-PSS, which is a type of its own.
    RsaPssKeys KEYMGMT c"RSA-PSS", keymgmt::GenCleanup::ID, keymgmt::Free::ID;
    /// Keys on all curves of `EC_KEY`.
    EcKeys KEYMGMT c"EC", keymgmt::GenCleanup::ID, keymgmt::Free::ID;
    /// Keys of X25519.
    X25519Keys KEYMGMT c"X25519", keymgmt::GenCleanup::ID, keymgmt::Free::ID;
    /// Keys of Ed25519.
    Ed25519Keys KEYMGMT c"ED25519", keymgmt::GenCleanup::ID, keymgmt::Free::ID;
    /// Keys of ML-DSA-44 (OpenSSL 3.5).
    MlDsa44Keys KEYMGMT c"ML-DSA-44", keymgmt::GenCleanup::ID, keymgmt::Free::ID;
    /// Keys of ML-DSA-65.
    MlDsa65Keys KEYMGMT c"ML-DSA-65", keymgmt::GenCleanup::ID, keymgmt::Free::ID;
    /// Keys of ML-DSA-87.
    MlDsa87Keys KEYMGMT c"ML-DSA-87", keymgmt::GenCleanup::ID, keymgmt::Free::ID;
    /// Signatures of RSA and RSA-PSS.
    RsaSignature SIGNATURE c"RSA", signature::Freectx::ID, 0;
    /// ECDSA.
    Ecdsa SIGNATURE c"ECDSA", signature::Freectx::ID, 0;
    /// Signatures of Ed25519.
    Ed25519Signature SIGNATURE c"ED25519", signature::Freectx::ID, 0;
    /// Signatures of ML-DSA-44.
    MlDsa44Signature SIGNATURE c"ML-DSA-44", signature::Freectx::ID, 0;
    /// Signatures of ML-DSA-65.
    MlDsa65Signature SIGNATURE c"ML-DSA-65", signature::Freectx::ID, 0;
    /// Signatures of ML-DSA-87.
    MlDsa87Signature SIGNATURE c"ML-DSA-87", signature::Freectx::ID, 0;
    /// ECDH.
    Ecdh KEYEXCH c"ECDH", keyexch::Freectx::ID, 0;
    /// Agreements of X25519.
    X25519Exchange KEYEXCH c"X25519", keyexch::Freectx::ID, 0;
    /// Encryption with RSA. The module handles no context of it.
    RsaCipher ASYM_CIPHER c"RSA", 0, 0;
    /// AES-GCM with a key of 128 bits.
    Aes128Gcm CIPHER c"AES-128-GCM", cipher::Freectx::ID, 0;
    /// AES-GCM with a key of 192 bits.
    Aes192Gcm CIPHER c"AES-192-GCM", cipher::Freectx::ID, 0;
    /// AES-GCM with a key of 256 bits.
    Aes256Gcm CIPHER c"AES-256-GCM", cipher::Freectx::ID, 0;
    /// Key derivation for TLS 1.3.
    Tls13Kdf KDF c"TLS13-KDF", kdf::Freectx::ID, 0;
}

// SAFETY: key data of RSA are RSA objects.
unsafe impl KeyObjects for RsaKeys {
    type Object = Rsa;
}

// SAFETY: key data of RSA-PSS are RSA objects.
unsafe impl KeyObjects for RsaPssKeys {
    type Object = Rsa;
}

// SAFETY: key data of all curves of `EC_KEY` are EC_KEY objects.
unsafe impl KeyObjects for EcKeys {
    type Object = EcKey;
}
