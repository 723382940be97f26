//! Findings about the CPU, the environment and the installed OpenSSL.

use std::env;

use lockstep_common::Manual;
use lockstep_conf::Installed;
use lockstep_engine::{Backend, Config, Setting, Shape, lanes_bring_nothing};
use lockstep_remote::is_ml_dsa;

use super::finding::{Finding, advice, failed, good, note, warning};
use crate::command::{NOTHING, openssl, run};
use crate::mistakes::are_gone;

/// Message about lanes that serve no RSA request.
pub const NO_GAIN: &str = "OpenSSL's own code is about as fast for RSA, and computes all of it";

/// Whether no RSA request uses these lanes, because OpenSSL's own code is about as fast.
pub fn rsa_gains_nothing(backend: Backend) -> bool {
    Shape::ALL
        .into_iter()
        .filter(|shape| shape.is_rsa())
        .all(|shape| lanes_bring_nothing(backend, shape))
}

/// Reports the lanes of the CPU. Without lanes for RSA nothing has failed: OpenSSL's own code
/// computes, as on any machine without lockstep.
pub fn instructions(hardware: Option<Backend>) -> Finding {
    let (what, remedy) = match hardware {
        Some(backend) if rsa_gains_nothing(backend) => (
            format!(
                "this CPU, or its operating system, supports only {} lanes; {NO_GAIN}. They serve \
                 X25519, Ed25519, ML-KEM and ML-DSA",
                backend.name()
            ),
            "none is needed; for RSA and the NIST curves on lanes: a CPU with AVX-512 IFMA (Intel \
             Ice Lake or later, AMD Zen 4 or later)",
        ),
        Some(backend) => {
            let what = format!("this CPU supports {} lanes", backend.name());
            return good("instructions", what);
        }
        None => (
            "this CPU, or its operating system, has no AVX-512 IFMA and no AVX2, so OpenSSL's own \
             code computes everything"
                .to_owned(),
            "none is needed; for a gain: a CPU with AVX-512 IFMA (Intel Ice Lake or later, AMD Zen \
             4 or later)",
        ),
    };
    advice("instructions", what, remedy)
}

/// Reports the lanes that the environment leaves enabled.
pub fn settings() -> Finding {
    let config = Config::default().with_env();
    if !config.mistakes.is_empty() {
        let what = format!(
            "the environment has settings that have no effect: {}",
            config.mistakes
        );
        return failed("settings", what, "correct the variables, or unset them");
    }
    let (variable, unset) = match config.is_masked {
        true => ("OPENSSL_ia32cap", "unset OPENSSL_ia32cap"),
        false => (
            "LOCKSTEP_BACKEND",
            "unset LOCKSTEP_BACKEND, or set it to auto",
        ),
    };
    let hardware = Backend::best_hardware();
    match config.backend.resolve() {
        Some(backend) if Some(backend) == hardware => good(
            "settings",
            format!(
                "the environment leaves the {} lanes enabled",
                backend.name()
            ),
        ),
        Some(backend) => {
            let loss = match rsa_gains_nothing(backend) {
                true => format!("; {NO_GAIN}"),
                false => String::new(),
            };
            let what = format!("{variable} selects the {} lanes{loss}", backend.name());
            warning("settings", what, unset)
        }
        None if hardware.is_none() => note("settings", "there are no lanes to select"),
        None => failed(
            "settings",
            format!("{variable} disables the lanes: OpenSSL's own code computes everything"),
            unset,
        ),
    }
}

/// Names variables of the environment that look like settings and are none. Leaves out variables
/// with a name close to a setting: [`settings`] reports them as mistakes.
pub fn unknown_variables() -> Option<Finding> {
    let mistakes = Config::default().with_env().mistakes.to_string();
    let mut names = Config::unknown_environment();
    names.retain(|name| !mistakes.split(' ').any(|word| word == name));
    names.retain(|name| Setting::gone_variables().all(|gone| gone != *name));
    let what = match &names[..] {
        [] => return None,
        [name] => {
            format!("the environment sets {name}, which is not a setting and is ignored")
        }
        names => format!(
            "the environment sets {}, which are not settings and are ignored",
            names.join(" and ")
        ),
    };
    let page = Manual::Settings.name();
    let remedy = format!("correct the name, or unset it; the settings are listed in {page}");
    Some(warning("environment", what, remedy))
}

/// Names variables of the environment that were settings in earlier versions.
pub fn gone_variables() -> Option<Finding> {
    let gone = are_gone(Setting::gone_variables().filter(|name| env::var_os(name).is_some()))?;
    let what = format!("the environment sets {gone}");
    Some(warning("environment", what, "unset it"))
}

pub fn openssl_version() -> Finding {
    const INSTALL: &str = "install OpenSSL 3.0 or later, with its command (Debian: openssl)";
    let wrong = |what| failed("openssl", what, INSTALL);
    let command = match run(openssl(NOTHING).arg("version")) {
        Ok(version) => version.trim().to_owned(),
        Err(failure) => return wrong(failure.what),
    };
    let version = command.strip_prefix("OpenSSL ");
    let major = version.and_then(|rest| rest.split('.').next()?.parse().ok());
    match (major, lockstep_conf::installed()) {
        (Some(3_u32..), Ok(openssl)) => {
            let what = format!("{command}; this program: {}", openssl.version);
            good("openssl", what)
        }
        (Some(3_u32..), Err(error)) => wrong(format!(
            "{command}, but this program finds no libcrypto: {error}"
        )),
        _ => wrong(format!(
            "`openssl version` says {command}; lockstep needs OpenSSL 3.0 or later"
        )),
    }
}

/// Reports that this system's OpenSSL has no ML-DSA, if one of these public keys is a key of
/// ML-DSA. The keys are SubjectPublicKeyInfos.
pub fn lacks_ml_dsa(keys: &[Vec<u8>], openssl: &Installed) -> Option<Finding> {
    let mut keys = keys.iter();
    (openssl.number < 0x3050_0000 && keys.any(|key| is_ml_dsa(key))).then(|| {
        let what = format!(
            "its configuration names a certificate with a key of ML-DSA, which OpenSSL has from \
             3.5 on; this system has {}, with which the service cannot use the certificate, not \
             even with the module",
            openssl.version
        );
        let remedy =
            "serve a certificate of another kind, or use a system with OpenSSL 3.5 or later";
        advice("openssl", what, remedy)
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::doctor::finding::Verdict;

    /// A monitor can use the exit status on each machine that README names.
    #[test]
    fn no_cpu_is_a_failure() {
        let mut cases = vec![
            (None, Verdict::Note, "has no AVX-512 IFMA and no AVX2"),
            (Some(Backend::PORTABLE), Verdict::Good, "supports portable"),
        ];
        let avx2 = Backend::from_name("avx2").into_iter();
        let only = "supports only avx2 lanes; OpenSSL's own";
        cases.extend(avx2.map(|avx2| (Some(avx2), Verdict::Note, only)));
        for (hardware, verdict, expected) in cases {
            let Finding {
                verdict: found,
                what,
                ..
            } = instructions(hardware);
            assert!(found == verdict && what.contains(expected), "{what}");
        }
    }

    #[test]
    fn a_key_of_ml_dsa_is_told_where_openssl_has_none() {
        let key = |set: u8| {
            let head = [
                0x30, 0x82, 5, 0x32, 0x30, 0x0b, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3,
            ];
            [&head[..], &[set, 3, 0x82]].concat()
        };
        let told = |set, number| {
            let openssl = Installed {
                version: "OpenSSL x".to_owned(),
                number,
                directory: PathBuf::new(),
            };
            lacks_ml_dsa(&[Vec::new(), key(set)], &openssl).map(|told| told.what)
        };
        let what = told(17, 0x3000_0140).unwrap();
        assert!(what.contains("3.5 on; this system has OpenSSL x"), "{what}");
        assert!(told(19, 0x3040_0010).is_some());
        assert_eq!(told(18, 0x3050_0000), None);
        assert_eq!(told(18, 0x4000_0000), None);
        assert_eq!(told(20, 0x3000_0140), None, "SLH-DSA");
    }
}
