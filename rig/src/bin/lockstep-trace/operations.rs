//! The operations that are traced, and in which calls two runs of one may differ.

use lockstep_rig::trace::Allowed;

/// What is done with which secrets.
#[derive(Clone, Copy)]
pub enum What {
    /// The padding, and the bits of the modulus; the plaintext is the secret.
    Decrypt(&'static str, usize),
    /// The bits of the modulus; the key is the secret, and the randomness that blinds it.
    RsaSign(usize),
    /// The curve.
    Ecdsa(&'static str),
    /// The curve.
    Ecdh(&'static str),
    X25519,
    Ed25519,
    /// Algorithm and curve; the randomness is the secret.
    Generate(&'static str, &'static str),
    /// The algorithm; the randomness is the secret, and the secret that it gives.
    Encapsulate(&'static str),
    /// The algorithm; the key is the secret, and what the ciphertext holds, if it holds anything.
    Decapsulate(&'static str),
    /// The algorithm; the key and the plaintext are the secret.
    Encipher(&'static str),
    /// The same.
    Decipher(&'static str),
    /// `extract`, `expand` or `traffic`, with the digest; the key and the salt are the secret.
    Derive(&'static str),
}

/// A backend and RSA's schedule, as the settings name them.
pub type Lanes = (&'static str, &'static str);

/// An operation, as it is traced.
pub struct Operation {
    pub name: &'static str,
    pub what: What,
    /// Whether the first use of the key is traced, in which it is imported and prepared.
    pub first: bool,
    /// Part of the short form?
    pub quick: bool,
    /// A part of the name of a function that must have run, so that the trace shows something.
    pub through: &'static str,
}

const LANES: &str = "lockstep_kernels";

const fn operation(name: &'static str, what: What, first: bool, quick: bool) -> Operation {
    Operation {
        name,
        what,
        first,
        quick,
        through: match what {
            What::Derive(_) => "tls13_kdf",
            What::Encipher(_) | What::Decipher(_) => "aes_gcm",
            What::Decrypt(padding, _) if padding.len() == 5 => "lockstep",
            _ => LANES,
        },
    }
}

/// A name begins with that of the operation in the counters, and the engine's tests look for each
/// operation here.
pub const OPERATIONS: &[Operation] = &[
    operation("rsa1024-none", What::Decrypt("none", 1024), false, true),
    operation("rsa1024-tls", What::Decrypt("tls", 1024), false, true),
    operation("rsa1024-oaep", What::Decrypt("oaep", 1024), false, true),
    operation("rsa1024-pkcs1", What::Decrypt("pkcs1", 1024), false, true),
    operation("rsa2048-none", What::Decrypt("none", 2048), false, true),
    operation("rsa2048-tls", What::Decrypt("tls", 2048), false, true),
    operation("rsa2048-oaep", What::Decrypt("oaep", 2048), false, true),
    operation("rsa2048-pkcs1", What::Decrypt("pkcs1", 2048), false, true),
    operation("rsa1024-sign", What::RsaSign(1024), false, true),
    operation("rsa1024-first", What::RsaSign(1024), true, true),
    operation("rsa2048-first", What::RsaSign(2048), true, true),
    operation("rsa3072-first", What::RsaSign(3072), true, false),
    operation("rsa4096-first", What::RsaSign(4096), true, false),
    operation("p256-sign", What::Ecdsa("P-256"), false, true),
    operation("p256-sign-first", What::Ecdsa("P-256"), true, true),
    operation("p384-sign-first", What::Ecdsa("P-384"), true, true),
    operation("p256-ecdh", What::Ecdh("P-256"), false, true),
    operation("p256-ecdh-first", What::Ecdh("P-256"), true, true),
    operation("p384-ecdh-first", What::Ecdh("P-384"), true, true),
    operation("x25519", What::X25519, false, true),
    operation("x25519-first", What::X25519, true, true),
    operation("ed25519-sign", What::Ed25519, false, true),
    operation("ed25519-sign-first", What::Ed25519, true, true),
    operation("x25519-keygen", What::Generate("X25519", ""), false, true),
    operation("p256-keygen", What::Generate("EC", "P-256"), false, true),
    operation("p384-keygen", What::Generate("EC", "P-384"), false, true),
    operation(
        "mlkem768-encaps",
        What::Encapsulate("ML-KEM-768"),
        false,
        true,
    ),
    operation(
        "mlkem768-decaps",
        What::Decapsulate("ML-KEM-768"),
        false,
        true,
    ),
    operation(
        "mlkem768-decaps-first",
        What::Decapsulate("ML-KEM-768"),
        true,
        true,
    ),
    operation(
        "x25519mlkem768-server",
        What::Encapsulate("X25519MLKEM768"),
        false,
        true,
    ),
    operation(
        "x25519mlkem768-client",
        What::Decapsulate("X25519MLKEM768"),
        false,
        true,
    ),
    operation(
        "x25519mlkem768-client-first",
        What::Decapsulate("X25519MLKEM768"),
        true,
        false,
    ),
    operation(
        "secp256r1mlkem768-server",
        What::Encapsulate("SecP256r1MLKEM768"),
        false,
        false,
    ),
    operation(
        "secp256r1mlkem768-client",
        What::Decapsulate("SecP256r1MLKEM768"),
        false,
        false,
    ),
    operation(
        "secp256r1mlkem768-client-first",
        What::Decapsulate("SecP256r1MLKEM768"),
        true,
        false,
    ),
    operation(
        "aes-128-gcm-encrypt",
        What::Encipher("AES-128-GCM"),
        false,
        true,
    ),
    operation(
        "aes-128-gcm-decrypt",
        What::Decipher("AES-128-GCM"),
        false,
        true,
    ),
    operation(
        "aes-192-gcm-encrypt",
        What::Encipher("AES-192-GCM"),
        false,
        false,
    ),
    operation(
        "aes-256-gcm-encrypt",
        What::Encipher("AES-256-GCM"),
        false,
        true,
    ),
    operation(
        "aes-256-gcm-decrypt",
        What::Decipher("AES-256-GCM"),
        false,
        true,
    ),
    operation("derive-extract", What::Derive("extract"), false, true),
    operation("derive-expand", What::Derive("expand"), false, true),
    operation(
        "derive-extract-384",
        What::Derive("extract-384"),
        false,
        true,
    ),
    operation("derive-expand-384", What::Derive("expand-384"), false, true),
    operation(
        "derive-traffic-384",
        What::Derive("traffic-384"),
        false,
        true,
    ),
];

/// The only calls in which two runs of an operation may differ.
const OF_THE_PUBLIC_MODULUS: &[Allowed] = &[
    Allowed {
        caller: "libcrypto.so",
        callee: "BN_MONT_CTX_set_locked",
        reason: "OpenSSL prepares the modulus n, which is public, at the first use of a key",
    },
    Allowed {
        caller: "libcrypto.so",
        callee: "BN_CTX_free",
        reason: "the numbers that the former call has used lie where its way through n left them",
    },
];
const OF_OPENSSL: &[Allowed] = &[Allowed {
    caller: "libcrypto.so",
    callee: "lockstep::keys::rsa_method::private_decrypt",
    reason: "PKCS#1 v1.5 decryption is OpenSSL's own, blinded by it",
}];

impl Operation {
    /// Whether it is one of AES-GCM, which the module has for some versions of OpenSSL.
    pub fn needs_gcm(&self) -> bool {
        matches!(self.what, What::Encipher(_) | What::Decipher(_))
    }

    /// AVX2 has no kernels of the NIST curves. RSA-4096 takes a thousand million instructions on
    /// the portable lanes, whose records would fill the memory.
    pub fn runs_on(&self, backend: &str) -> bool {
        match self.what {
            What::Ecdsa(_) | What::Ecdh(_) | What::Generate("EC", _) => backend != "avx2",
            What::RsaSign(3072..) => backend != "portable",
            _ => true,
        }
    }

    /// Whether it is RSA in ordinary registers, once for the shape of each call.
    pub fn is_on_words(&self, backend: &str) -> bool {
        let is_short = matches!(self.what, What::Decrypt("none", 1024) | What::RsaSign(1024));
        backend == "avx2" && is_short
    }

    /// The schedules to trace on these lanes. A pass that is alone takes no turns.
    pub fn schedules(&self, backend: &str) -> &'static [&'static str] {
        match self.what {
            What::Decrypt("none", 1024 | 2048) | What::RsaSign(1024 | 2048)
                if backend.starts_with("avx512ifma") =>
            {
                &["beside", "after"]
            }
            _ => &["beside"],
        }
    }

    pub fn allowed(&self) -> &'static [Allowed] {
        match self.what {
            What::RsaSign(_) if self.first => OF_THE_PUBLIC_MODULUS,
            What::Decrypt("pkcs1", _) => OF_OPENSSL,
            _ => &[],
        }
    }
}

/// The lanes that this CPU has, the best first. A request that is alone gets the wide ones of
/// AVX-512 IFMA only by the backend that has no others.
pub fn backends() -> Vec<&'static str> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| cpu.split_whitespace().any(|word| word == flag);
    let mut found = Vec::new();
    if has("avx512ifma") {
        found.extend(["avx512ifma512", "avx512ifma256"]);
    }
    found.extend(has("avx2").then_some("avx2"));
    found.push("portable");
    found
}
