//! The programs of OpenSSL's tests: how each is run, and whether lanes must work in it.

use std::fs;
use std::path::Path;

use super::source::Build;
use crate::command::{Outcome, on};

/// How a program comes to its configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Configured {
    /// By the argument `{configuration}`, for a library context of its own.
    Argument,
    /// By `OPENSSL_CONF`.
    Environment,
    /// By a variable that [`source`](super::source) has the program read, for a library context of
    /// its own.
    Context,
}
pub use Configured::{Argument, Context, Environment};

/// A program, its arguments, and how it is configured. `{test}` is OpenSSL's directory of tests,
/// `{scratch}` a file.
const PROGRAMS: &[(&str, Configured)] = &[
    ("evp_extra_test", Environment),
    ("evp_extra_test -context", Context),
    ("evp_extra_test2", Environment),
    ("evp_libctx_test -config {configuration}", Argument),
    (
        "evp_pkey_provided_test {test}/recipes/30-test_evp_pkey_provided",
        Environment,
    ),
    ("provider_pkey_test", Environment),
    (
        "endecode_test -rsa {test}/certs/ee-key.pem -pss {test}/certs/ca-pss-key.pem -context \
         -config {configuration} -provider default",
        Argument,
    ),
    ("rsa_test", Environment),
    ("rsa_mp_test", Environment),
    ("rsa_sp800_56b_test", Environment),
    ("ectest", Environment),
    ("ec_internal_test", Environment),
    ("ecdsatest", Environment),
    ("ecstresstest -num 2000", Environment),
    ("asynctest", Environment),
    (
        "asynciotest {test}/../apps/server.pem {test}/../apps/server.pem",
        Environment,
    ),
    (
        "threadstest -config {configuration} {test}/recipes/90-test_threads_data",
        Argument,
    ),
    (
        "dtlstest {test}/certs/servercert.pem {test}/certs/serverkey.pem",
        Environment,
    ),
    (
        "sslcorrupttest {test}/certs/servercert.pem {test}/certs/serverkey.pem",
        Environment,
    ),
    (
        "tls13ccstest {test}/certs/servercert.pem {test}/certs/serverkey.pem",
        Environment,
    ),
    (
        "sslapitest {test}/certs {test}/recipes/90-test_sslapi_data/passwd.txt {scratch} default \
         {configuration} {test}/recipes/90-test_sslapi_data/dhparams.pem",
        Argument,
    ),
];

/// Why no lane works in the runs whose names start like this.
const WITHOUT_LANES: &[(&str, &str)] = &[
    ("evp_test evpciph_", "no key pairs"),
    ("evp_test evpencod", "no key pairs"),
    ("evp_test evpkdf_hkdf", "no key pairs"),
    ("evp_test evpkdf_krb5", "no key pairs"),
    ("evp_test evpkdf_pbkdf", "no key pairs"),
    ("evp_test evpkdf_s", "no key pairs"),
    ("evp_test evpkdf_tls1_", "no key pairs"),
    ("evp_test evpkdf_tls11", "no key pairs"),
    ("evp_test evpkdf_tls12", "no key pairs"),
    ("evp_test evpkdf_x", "no key pairs"),
    ("evp_test evpmac_", "no key pairs"),
    ("evp_test evpmd_", "no key pairs"),
    ("evp_test evppbe_", "no key pairs"),
    ("evp_test evprand", "no key pairs"),
    ("evp_test evppkey_brainpool", "curves without lanes"),
    ("evp_test evppkey_dh", "no lanes for Diffie-Hellman"),
    ("evp_test evppkey_dsa", "no lanes for DSA"),
    ("evp_test evppkey_ffdhe", "no lanes for Diffie-Hellman"),
    ("evp_test evppkey_ecx_kem", "no lanes for DHKEM"),
    ("evp_test evppkey_kdf_", "no key pairs"),
    ("evp_test evppkey_lms", "no lanes for LMS"),
    ("evp_test evppkey_mismatch", "keys are compared, not used"),
    ("evp_test evppkey_ml_dsa", "no lanes for ML-DSA"),
    ("evp_test evppkey_ml_kem_1024", "lanes of ML-KEM-768 only"),
    ("evp_test evppkey_ml_kem_512", "lanes of ML-KEM-768 only"),
    ("evp_test evppkey_ml_kem_768_keygen", "keys from seeds"),
    ("evp_test evppkey_ml_kem_keygen", "keys from seeds"),
    ("evp_test evppkey_rsa_kem", "for the FIPS provider only"),
    ("evp_test evppkey_slh_dsa", "no lanes for SLH-DSA"),
    ("evp_test evppkey_sm2", "no lanes for SM2"),
    ("evp_extra_test2", "keys are read and written, not used"),
    ("evp_libctx_test", "no lanes for key encapsulation"),
    ("provider_pkey_test", "providers of its own"),
    ("rsa_test", "RSA below the providers"),
    ("rsa_mp_test", "RSA below the providers"),
    ("rsa_sp800_56b_test", "RSA below the providers"),
    ("ec_internal_test", "curves below the providers"),
    ("ecstresstest", "curves below the providers"),
    ("asynctest", "jobs without keys"),
    ("ssl_test 29-", "needs SCTP, which this build lacks"),
];

/// Runs that use AES-GCM, which the module does itself for an OpenSSL before 3.1.
const AES_GCM: &[&str] = &["evp_test evpciph_aes_common", "evp_test evpmac_common"];

/// Runs that only use NIST's curves, for which AVX2 has no lanes.
const NIST_CURVES: &[&str] = &[
    "evp_test evppkey_ecc",
    "evp_test evppkey_ecdh",
    "evp_test evppkey_ecdsa",
    "evp_test evppkey_kas",
    "evp_pkey_provided_test",
    "endecode_test",
    "ectest",
    "ecdsatest",
];

/// Whether lanes must work in this run.
pub fn needs_lanes(run: &str, backend: &str, has_gcm: bool) -> bool {
    if AES_GCM.iter().any(|start| run.starts_with(start)) {
        return has_gcm;
    }
    !(WITHOUT_LANES
        .iter()
        .any(|(start, _)| run.starts_with(start))
        || backend == "avx2" && NIST_CURVES.iter().any(|start| run.starts_with(start)))
}

/// One way to run a program.
#[derive(Clone)]
pub struct Run {
    /// What it is called in reports.
    pub name: String,
    pub program: String,
    pub arguments: Vec<String>,
    pub configured: Configured,
    /// The configuration in OpenSSL's directory of tests that it begins with.
    pub configuration: &'static str,
}

/// All that is run, in order.
pub fn runs(build: &Build) -> Outcome<Vec<Run>> {
    let test = build.directory.join("test");
    let mut runs = Vec::new();
    for file in listed(&test.join("recipes/30-test_evp_data"), ".txt")? {
        runs.push(Run {
            name: format!("evp_test {file}"),
            program: "evp_test".to_owned(),
            arguments: [
                "-config",
                "{configuration}",
                &format!("{{test}}/recipes/30-test_evp_data/{file}"),
            ]
            .map(str::to_owned)
            .to_vec(),
            configured: Argument,
            configuration: "default-and-legacy.cnf",
        });
    }
    for &(words, configured) in PROGRAMS {
        let mut words = words.split_whitespace().map(str::to_owned);
        let program = words.next().unwrap_or_default();
        let name = match configured {
            Context => format!("{program} -context"),
            _ => program.clone(),
        };
        runs.push(Run {
            name,
            program,
            arguments: words.collect(),
            configured,
            configuration: "default.cnf",
        });
    }
    for file in listed(&test.join("ssl-tests"), ".cnf")? {
        runs.push(Run {
            name: format!("ssl_test {file}"),
            program: "ssl_test".to_owned(),
            arguments: vec![format!("{{test}}/ssl-tests/{file}"), "none".to_owned()],
            configured: Environment,
            configuration: "default.cnf",
        });
    }
    Ok(runs)
}

fn listed(directory: &Path, ending: &str) -> Outcome<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .map_err(on(directory, "read"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    Ok(names)
}
