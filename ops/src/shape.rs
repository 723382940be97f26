//! The table of all operations. A new size, curve or mechanism needs a line for each of its
//! operations, and the compiler names the lines that are missing. The counters, the key daemon, the
//! benchmarks and the commands read this table.

use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::Size;
use lockstep_kernels::rsa::Size::{Rsa1024, Rsa2048, Rsa3072, Rsa4096};

use crate::kinds::Curve::{P256, P384};
use crate::kinds::Kem::{
    MlKem512, MlKem768, MlKem1024, SecP256r1MlKem768, SecP384r1MlKem1024, X25519MlKem768,
};
use crate::kinds::MlDsa::{self, MlDsa44, MlDsa65, MlDsa87};
use crate::kinds::{Curve, Kem, KeyKind};

/// Kind of requests that may share a batch: requests of one shape run the same instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// RSA private operations on moduli of one size.
    Rsa {
        /// The size of the modulus.
        size: Size,
        /// Whether the public exponent has more than 64 bits: its check takes far longer, so it
        /// never shares a batch with usual keys.
        wide_exponent: bool,
    },
    /// ECDSA signatures.
    EcdsaSign(Curve),
    /// Checks of ECDSA signatures.
    EcdsaVerify(Curve),
    /// ECDH agreements.
    Ecdh(Curve),
    /// New key pairs.
    Keypair(KeyKind),
    /// X25519 agreements.
    X25519,
    /// Ed25519 signatures.
    Ed25519Sign,
    /// Checks of Ed25519 signatures.
    Ed25519Verify,
    /// Encapsulations; for a hybrid, the whole share of a server.
    Encapsulate(Kem),
    /// Decapsulations.
    Decapsulate(Kem),
    /// ML-DSA signatures.
    MlDsaSign(MlDsa),
    /// Checks of ML-DSA signatures.
    MlDsaVerify(MlDsa),
}

/// Properties of an operation besides its input and its output.
struct Row {
    name: &'static str,
    alone: Alone,
}

/// Whether the lanes serve one request alone faster than OpenSSL 3.0's own implementation.
/// Measured, see `docs/lab/rsa.md` for RSA, and `docs/lab/curves.md`.
#[derive(Clone, Copy)]
enum Alone {
    Faster,
    Slower,
    SlowerOnAvx2,
}

macro_rules! operations {
    ($(($($shape:tt)*) $name:literal $alone:ident;)*) => {
        const ROWS: [Row; [$($name),*].len()] = [
            $(Row {
                name: $name,
                alone: Alone::$alone,
            }),*
        ];

        impl Shape {
            /// Every shape, in the order of [`index`](Self::index).
            pub const ALL: [Shape; ROWS.len()] = [$(Shape::$($shape)*),*];

            /// The place of this shape in [`ALL`](Self::ALL).
            pub const fn index(self) -> usize {
                match self {
                    $(Shape::$($shape)* => const { place_of($name) },)*
                }
            }
        }
    };
}

// Shape, name in the metrics, and whether one alone is faster. The order is that of the counters'
// file.
operations! {
    (Rsa { size: Rsa1024, wide_exponent: false }) "rsa1024" Faster;
    (Rsa { size: Rsa2048, wide_exponent: false }) "rsa2048" Slower;
    (Rsa { size: Rsa3072, wide_exponent: false }) "rsa3072" Faster;
    (Rsa { size: Rsa4096, wide_exponent: false }) "rsa4096" Faster;
    (Rsa { size: Rsa1024, wide_exponent: true }) "rsa1024_wide_exponent" Faster;
    (Rsa { size: Rsa2048, wide_exponent: true }) "rsa2048_wide_exponent" Slower;
    (Rsa { size: Rsa3072, wide_exponent: true }) "rsa3072_wide_exponent" Faster;
    (Rsa { size: Rsa4096, wide_exponent: true }) "rsa4096_wide_exponent" Faster;
    (X25519) "x25519" SlowerOnAvx2;
    (Keypair(KeyKind::X25519)) "x25519-keygen" Faster;
    (Ed25519Sign) "ed25519-sign" SlowerOnAvx2;
    (Ed25519Verify) "ed25519-verify" SlowerOnAvx2;
    (EcdsaSign(P256)) "p256-sign" Faster;
    (EcdsaVerify(P256)) "p256-verify" Faster;
    (Ecdh(P256)) "p256-ecdh" Faster;
    (Keypair(KeyKind::Nist(P256))) "p256-keygen" Faster;
    (EcdsaSign(P384)) "p384-sign" Faster;
    (EcdsaVerify(P384)) "p384-verify" Faster;
    (Ecdh(P384)) "p384-ecdh" Faster;
    (Keypair(KeyKind::Nist(P384))) "p384-keygen" Faster;
    (Encapsulate(MlKem512)) "mlkem512-encaps" Faster;
    (Encapsulate(MlKem768)) "mlkem768-encaps" Faster;
    (Encapsulate(MlKem1024)) "mlkem1024-encaps" Faster;
    (Encapsulate(X25519MlKem768)) "x25519mlkem768-server" Faster;
    (Encapsulate(SecP256r1MlKem768)) "secp256r1mlkem768-server" Faster;
    (Encapsulate(SecP384r1MlKem1024)) "secp384r1mlkem1024-server" Faster;
    (Decapsulate(MlKem512)) "mlkem512-decaps" Faster;
    (Decapsulate(MlKem768)) "mlkem768-decaps" Faster;
    (Decapsulate(MlKem1024)) "mlkem1024-decaps" Faster;
    (Decapsulate(X25519MlKem768)) "x25519mlkem768-client" Faster;
    (Decapsulate(SecP256r1MlKem768)) "secp256r1mlkem768-client" Faster;
    (Decapsulate(SecP384r1MlKem1024)) "secp384r1mlkem1024-client" Faster;
    (Keypair(KeyKind::Kem(MlKem512))) "mlkem512-keygen" Faster;
    (Keypair(KeyKind::Kem(MlKem768))) "mlkem768-keygen" Faster;
    (Keypair(KeyKind::Kem(MlKem1024))) "mlkem1024-keygen" Faster;
    (Keypair(KeyKind::Kem(X25519MlKem768))) "x25519mlkem768-keygen" Faster;
    (Keypair(KeyKind::Kem(SecP256r1MlKem768))) "secp256r1mlkem768-keygen" Faster;
    (Keypair(KeyKind::Kem(SecP384r1MlKem1024))) "secp384r1mlkem1024-keygen" Faster;
    (MlDsaSign(MlDsa44)) "mldsa44-sign" Faster;
    (MlDsaSign(MlDsa65)) "mldsa65-sign" Faster;
    (MlDsaSign(MlDsa87)) "mldsa87-sign" Faster;
    (MlDsaVerify(MlDsa44)) "mldsa44-verify" Faster;
    (MlDsaVerify(MlDsa65)) "mldsa65-verify" Faster;
    (MlDsaVerify(MlDsa87)) "mldsa87-verify" Faster;
}

/// Returns the place of the row with this name.
const fn place_of(name: &str) -> usize {
    let mut place = 0;
    while !is_same(ROWS[place].name.as_bytes(), name.as_bytes()) {
        place += 1;
    }
    place
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([], []) => true,
        ([a, rest_of_a @ ..], [b, rest_of_b @ ..]) => *a == *b && is_same(rest_of_a, rest_of_b),
        _ => false,
    }
}

impl Shape {
    /// Returns the name of this shape in the metrics. `lockstep-bench speed` has the same names for
    /// the curves.
    pub const fn name(self) -> &'static str {
        ROWS[self.index()].name
    }

    /// Returns whether OpenSSL's own implementation serves one request alone faster than `backend`
    /// does.
    pub fn is_slower_alone(self, backend: Backend) -> bool {
        match ROWS[self.index()].alone {
            Alone::Faster => false,
            Alone::Slower => true,
            Alone::SlowerOnAvx2 => backend.is_avx2(),
        }
    }

    /// Returns whether this makes signatures. RSA's operations also serve decryption.
    pub const fn signs(self) -> bool {
        use Shape::{EcdsaSign, Ed25519Sign, MlDsaSign, Rsa};
        matches!(self, Rsa { .. } | EcdsaSign(_) | Ed25519Sign | MlDsaSign(_))
    }

    /// Returns whether this is an operation with an RSA key.
    pub const fn is_rsa(self) -> bool {
        matches!(self, Shape::Rsa { .. })
    }

    /// Returns whether this is an operation on P-256 or P-384.
    pub const fn is_nist(self) -> bool {
        use Shape::{Ecdh, EcdsaSign, EcdsaVerify, Keypair};
        matches!(
            self,
            EcdsaSign(_) | EcdsaVerify(_) | Ecdh(_) | Keypair(KeyKind::Nist(_))
        )
    }

    /// Returns whether this is an operation with a key of ML-DSA, which OpenSSL has from 3.5 on.
    pub const fn is_ml_dsa(self) -> bool {
        matches!(self, Shape::MlDsaSign(_) | Shape::MlDsaVerify(_))
    }

    /// Returns whether this is an operation of key encapsulation, which OpenSSL's own
    /// implementation may lack.
    pub const fn is_kem(self) -> bool {
        use Shape::{Decapsulate, Encapsulate, Keypair};
        matches!(
            self,
            Encapsulate(_) | Decapsulate(_) | Keypair(KeyKind::Kem(_))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scrapers know these names, and the file of counters has this order.
    const NAMES: [&str; 44] = [
        "rsa1024",
        "rsa2048",
        "rsa3072",
        "rsa4096",
        "rsa1024_wide_exponent",
        "rsa2048_wide_exponent",
        "rsa3072_wide_exponent",
        "rsa4096_wide_exponent",
        "x25519",
        "x25519-keygen",
        "ed25519-sign",
        "ed25519-verify",
        "p256-sign",
        "p256-verify",
        "p256-ecdh",
        "p256-keygen",
        "p384-sign",
        "p384-verify",
        "p384-ecdh",
        "p384-keygen",
        "mlkem512-encaps",
        "mlkem768-encaps",
        "mlkem1024-encaps",
        "x25519mlkem768-server",
        "secp256r1mlkem768-server",
        "secp384r1mlkem1024-server",
        "mlkem512-decaps",
        "mlkem768-decaps",
        "mlkem1024-decaps",
        "x25519mlkem768-client",
        "secp256r1mlkem768-client",
        "secp384r1mlkem1024-client",
        "mlkem512-keygen",
        "mlkem768-keygen",
        "mlkem1024-keygen",
        "x25519mlkem768-keygen",
        "secp256r1mlkem768-keygen",
        "secp384r1mlkem1024-keygen",
        "mldsa44-sign",
        "mldsa65-sign",
        "mldsa87-sign",
        "mldsa44-verify",
        "mldsa65-verify",
        "mldsa87-verify",
    ];

    #[test]
    fn every_shape_is_at_its_index_and_has_the_name_that_it_had() {
        assert_eq!(Shape::ALL.map(Shape::name), NAMES);
        for (index, shape) in Shape::ALL.into_iter().enumerate() {
            assert_eq!(shape.index(), index, "{shape:?}");
        }
    }

    /// Pools, tests and figures are made from these lists, and would lack an entry that a list
    /// lacks.
    #[test]
    fn every_list_has_what_the_table_has() {
        for shape in Shape::ALL {
            match shape {
                Shape::Rsa { size, .. } => assert_eq!(Size::ALL[size as usize], size),
                Shape::Keypair(kind) => assert_eq!(KeyKind::ALL[kind.index()], kind),
                Shape::EcdsaSign(curve) | Shape::EcdsaVerify(curve) | Shape::Ecdh(curve) => {
                    assert_eq!(Curve::ALL[curve as usize], curve);
                }
                Shape::Encapsulate(kem) | Shape::Decapsulate(kem) => {
                    assert_eq!(Kem::ALL[kem as usize], kem);
                }
                Shape::MlDsaSign(set) | Shape::MlDsaVerify(set) => {
                    assert_eq!(MlDsa::ALL[set as usize], set);
                }
                Shape::X25519 | Shape::Ed25519Sign | Shape::Ed25519Verify => {}
            }
        }
    }

    /// Some operations are not traced. Signatures are public when they are checked. A wide exponent
    /// runs the same private code as others. The time of ML-KEM's key generation depends on the
    /// public matrix that follows from its seed, so the taint check follows its secrets.
    #[test]
    fn whatever_has_secrets_is_traced() {
        let traced = include_str!("../../rig/src/bin/lockstep-trace/operations.rs");
        for shape in Shape::ALL {
            let is_left_out = match shape {
                Shape::EcdsaVerify(_) | Shape::Ed25519Verify | Shape::MlDsaVerify(_) => true,
                Shape::Rsa { wide_exponent, .. } => wide_exponent,
                Shape::Keypair(kind) => matches!(kind, KeyKind::Kem(_)),
                _ => false,
            };
            let name = format!("\"{}", shape.name());
            let is_traced = [format!("{name}\""), format!("{name}-")];
            let is_traced = is_traced.iter().any(|name| traced.contains(name));
            assert!(is_traced || is_left_out, "{shape:?}");
        }
    }
}
