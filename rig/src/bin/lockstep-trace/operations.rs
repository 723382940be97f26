//! The operations that are traced, and in which calls two runs of one may differ.

use lockstep_rig::trace::{self, Allowed};

use What::{
    Decapsulate, Decipher, Decrypt, Derive, Ecdh, Ecdsa, Ed25519, Encapsulate, Encipher, Generate,
    Keep, MlDsa, RsaSign, X25519,
};

/// An operation with its secrets.
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
    /// The algorithm; the key is the secret, and the content of the ciphertext, if it has any.
    Decapsulate(&'static str),
    /// The algorithm, whose keys are imported, copied, exported and compared; the same.
    Keep(&'static str),
    /// The algorithm; the key and the plaintext are the secret.
    Encipher(&'static str),
    /// The same.
    Decipher(&'static str),
    /// The algorithm, and the round that gives the signature, from 0 on: all before are rejected.
    /// The key and the randomness are the secret.
    MlDsa(&'static str, usize),
    /// `extract`, `expand` or `traffic`, with the digest; the key and the salt are the secret.
    Derive(&'static str),
}

/// A backend and RSA's schedule, as the settings name them.
pub type Lanes = (&'static str, &'static str);

/// An operation, as it is traced.
pub struct Operation {
    pub name: &'static str,
    pub what: What,
    /// Part of the short form?
    pub quick: bool,
    /// A part of the name of a function that must have run, so that the trace shows something.
    pub through: &'static str,
}

const LANES: &str = "lockstep_kernels";

const fn operation(name: &'static str, what: What) -> Operation {
    Operation {
        name,
        what,
        quick: true,
        through: match what {
            Derive(_) => "tls13_kdf",
            Keep(_) => "kem::keys",
            MlDsa(..) => "mldsa::sign::sign",
            Encipher(_) | Decipher(_) => "aes_gcm",
            Decrypt(padding, _) if padding.len() == 5 => "lockstep",
            _ => LANES,
        },
    }
}

/// One that is too long for the short form.
const fn nightly(name: &'static str, what: What) -> Operation {
    Operation {
        quick: false,
        ..operation(name, what)
    }
}

/// More rounds than a request that is alone has side by side.
const REJECTED: usize = 5;

/// A name begins with that of the operation in the counters, and the engine's tests look for each
/// operation here.
pub const OPERATIONS: &[Operation] = &[
    operation("rsa1024-none", Decrypt("none", 1024)),
    operation("rsa1024-tls", Decrypt("tls", 1024)),
    operation("rsa1024-oaep", Decrypt("oaep", 1024)),
    operation("rsa1024-pkcs1", Decrypt("pkcs1", 1024)),
    operation("rsa2048-none", Decrypt("none", 2048)),
    operation("rsa2048-tls", Decrypt("tls", 2048)),
    operation("rsa2048-oaep", Decrypt("oaep", 2048)),
    operation("rsa2048-pkcs1", Decrypt("pkcs1", 2048)),
    operation("rsa1024-sign", RsaSign(1024)),
    operation("rsa1024-first", RsaSign(1024)),
    operation("rsa2048-first", RsaSign(2048)),
    nightly("rsa3072-first", RsaSign(3072)),
    nightly("rsa4096-first", RsaSign(4096)),
    operation("p256-sign", Ecdsa("P-256")),
    operation("p256-sign-first", Ecdsa("P-256")),
    operation("p384-sign-first", Ecdsa("P-384")),
    operation("p256-ecdh", Ecdh("P-256")),
    operation("p256-ecdh-first", Ecdh("P-256")),
    operation("p384-ecdh-first", Ecdh("P-384")),
    operation("x25519", X25519),
    operation("x25519-first", X25519),
    operation("ed25519-sign", Ed25519),
    operation("ed25519-sign-first", Ed25519),
    operation("x25519-keygen", Generate("X25519", "")),
    operation("p256-keygen", Generate("EC", "P-256")),
    operation("p384-keygen", Generate("EC", "P-384")),
    operation("mlkem768-encaps", Encapsulate("ML-KEM-768")),
    operation("mlkem768-decaps", Decapsulate("ML-KEM-768")),
    operation("mlkem768-decaps-first", Decapsulate("ML-KEM-768")),
    nightly("mlkem512-encaps", Encapsulate("ML-KEM-512")),
    nightly("mlkem512-decaps", Decapsulate("ML-KEM-512")),
    nightly("mlkem512-decaps-first", Decapsulate("ML-KEM-512")),
    operation("mlkem1024-encaps", Encapsulate("ML-KEM-1024")),
    operation("mlkem1024-decaps", Decapsulate("ML-KEM-1024")),
    nightly("mlkem1024-decaps-first", Decapsulate("ML-KEM-1024")),
    operation("mlkem768-keep", Keep("ML-KEM-768")),
    nightly("mlkem512-keep", Keep("ML-KEM-512")),
    operation("mlkem1024-keep", Keep("ML-KEM-1024")),
    operation("x25519mlkem768-keep", Keep("X25519MLKEM768")),
    operation("x25519mlkem768-server", Encapsulate("X25519MLKEM768")),
    operation("x25519mlkem768-client", Decapsulate("X25519MLKEM768")),
    nightly("x25519mlkem768-client-first", Decapsulate("X25519MLKEM768")),
    nightly("secp256r1mlkem768-server", Encapsulate("SecP256r1MLKEM768")),
    nightly("secp256r1mlkem768-keep", Keep("SecP256r1MLKEM768")),
    nightly("secp256r1mlkem768-client", Decapsulate("SecP256r1MLKEM768")),
    nightly(
        "secp256r1mlkem768-client-first",
        Decapsulate("SecP256r1MLKEM768"),
    ),
    nightly(
        "secp384r1mlkem1024-server",
        Encapsulate("SecP384r1MLKEM1024"),
    ),
    nightly(
        "secp384r1mlkem1024-client",
        Decapsulate("SecP384r1MLKEM1024"),
    ),
    nightly(
        "secp384r1mlkem1024-client-first",
        Decapsulate("SecP384r1MLKEM1024"),
    ),
    operation("aes-128-gcm-encrypt", Encipher("AES-128-GCM")),
    operation("aes-128-gcm-decrypt", Decipher("AES-128-GCM")),
    nightly("aes-192-gcm-encrypt", Encipher("AES-192-GCM")),
    operation("aes-256-gcm-encrypt", Encipher("AES-256-GCM")),
    operation("aes-256-gcm-decrypt", Decipher("AES-256-GCM")),
    operation("mldsa44-sign", MlDsa("ML-DSA-44", 0)),
    operation("mldsa44-sign-first", MlDsa("ML-DSA-44", REJECTED)),
    operation("mldsa65-sign", MlDsa("ML-DSA-65", 0)),
    operation("mldsa65-sign-first", MlDsa("ML-DSA-65", REJECTED)),
    operation("mldsa87-sign", MlDsa("ML-DSA-87", 0)),
    operation("mldsa87-sign-first", MlDsa("ML-DSA-87", REJECTED)),
    operation("derive-extract", Derive("extract")),
    operation("derive-expand", Derive("expand")),
    operation("derive-extract-384", Derive("extract-384")),
    operation("derive-expand-384", Derive("expand-384")),
    operation("derive-traffic-384", Derive("traffic-384")),
    operation("derive-again", Derive("extract-again")),
];

/// The only calls in which, or by whose answers, two runs of an operation may differ.
const OF_THE_PUBLIC_MODULUS: &[Allowed] = &[
    Allowed {
        caller: "libcrypto.so",
        callee: "BN_MONT_CTX_set_locked",
        what: trace::What::Others,
        reason: "OpenSSL prepares the modulus n, which is public, at the first use of a key",
    },
    Allowed {
        caller: "libcrypto.so",
        callee: "BN_CTX_free",
        what: trace::What::Others,
        reason: "the numbers that the former call has used lie where its way through n left them",
    },
];
const OF_OPENSSL: &[Allowed] = &[Allowed {
    caller: "libcrypto.so",
    callee: "lockstep::keys::rsa_method::private_decrypt",
    what: trace::What::Others,
    reason: "PKCS#1 v1.5 decryption is OpenSSL's own, blinded by it",
}];

/// Of signatures with ML-DSA whose first round passes.
const OF_A_ROUND: &[Allowed] = &[
    CHALLENGES,
    Allowed {
        caller: SIGN,
        callee: "mldsa::lanes::Lanes>::hints",
        // Memory for the signature.
        what: trace::What::LastAnswer("malloc"),
        reason: "the signature encodes the places of hints",
    },
    VERIFICATION,
];
/// Differences of operations with rejected rounds. A round may show whether it passes, and which
/// check found that it does not (section 5.5 of the specification of Dilithium, round 3).
const OF_ROUNDS: &[Allowed] = &[
    CHALLENGES,
    check_of_a_round(
        "mldsa::lanes::Lanes>::subtract",
        "whether the lower part rejects the round may show",
    ),
    check_of_a_round(
        "mldsa::lanes::Lanes>::respond",
        "whether the response rejects the round may show",
    ),
    check_of_a_round(
        "mldsa::lanes::Lanes>::hints",
        "whether there are too many hints may show, and the signature encodes their places",
    ),
    VERIFICATION,
];

const CHALLENGES: Allowed = Allowed {
    caller: "mldsa::lanes::Lanes>::hash",
    callee: "mldsa::hashing::Challenges as ",
    what: trace::What::All,
    reason: "a challenge is a part of the signature; one that is rejected is the hash of a \
             commitment that nobody can guess",
};
const VERIFICATION: Allowed = Allowed {
    caller: SIGN,
    callee: "mldsa::verify::check_all",
    what: trace::What::All,
    reason: "it verifies the signature, which is public",
};
const SIGN: &str = "lockstep_kernels::mldsa::sign::sign";

const fn check_of_a_round(callee: &'static str, reason: &'static str) -> Allowed {
    Allowed {
        caller: SIGN,
        callee,
        // The next round, the next rounds, or memory for the signature.
        what: trace::What::Answer(&[
            "mldsa::lanes::Lanes>::multiplier",
            "mldsa::lanes::Lanes>::hash",
            "malloc",
        ]),
        reason,
    }
}

impl Operation {
    /// Whether the first use of the key is traced, in which it is imported and prepared.
    pub fn first(&self) -> bool {
        self.name.ends_with("-first")
    }

    /// Whether it is one of AES-GCM, which the module has for some versions of OpenSSL.
    pub fn needs_gcm(&self) -> bool {
        matches!(self.what, Encipher(_) | Decipher(_))
    }

    /// Whether it is one of ML-DSA, which the module has with OpenSSL from 3.5 on.
    pub fn needs_ml_dsa(&self) -> bool {
        matches!(self.what, MlDsa(..))
    }

    /// AVX2 has no kernels of the NIST curves. RSA-4096 takes a thousand million instructions on
    /// the portable lanes, whose records would fill the memory.
    pub fn runs_on(&self, backend: &str) -> bool {
        match self.what {
            Ecdsa(_) | Ecdh(_) | Generate("EC", _) => backend != "avx2",
            RsaSign(3072..) => backend != "portable",
            _ => true,
        }
    }

    /// Whether it is RSA in ordinary registers, once for the shape of each call.
    pub fn is_on_words(&self, backend: &str) -> bool {
        let is_short = matches!(self.what, Decrypt("none", 1024) | RsaSign(1024));
        backend == "avx2" && is_short
    }

    /// The schedules to trace on these lanes. A pass that is alone takes no turns.
    pub fn schedules(&self, backend: &str) -> &'static [&'static str] {
        match self.what {
            Decrypt("none", 1024 | 2048) | RsaSign(1024 | 2048)
                if backend.starts_with("avx512ifma") =>
            {
                &["beside", "after"]
            }
            _ => &["beside"],
        }
    }

    pub fn allowed(&self) -> &'static [Allowed] {
        match self.what {
            RsaSign(_) if self.first() => OF_THE_PUBLIC_MODULUS,
            Decrypt("pkcs1", _) => OF_OPENSSL,
            MlDsa(_, 0) => OF_A_ROUND,
            MlDsa(..) => OF_ROUNDS,
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
