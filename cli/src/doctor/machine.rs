//! The machine, the environment and the installed OpenSSL: their limits, before any configuration.

use lockstep_common::Manual;
use lockstep_conf::Installed;
use lockstep_engine::{Backend, Config, Shape, lanes_bring_nothing};
use lockstep_remote::is_ml_dsa;

use super::finding::{Answer, Verdict};
use crate::command::{NOTHING, openssl, run};

/// What doctor prints about lanes that serve no RSA request.
pub const NO_GAIN: &str = "OpenSSL's own code is about as fast for RSA, and computes all of it";

/// Whether no RSA request goes to these lanes, as OpenSSL's own code is about as fast.
pub fn rsa_gains_nothing(backend: Backend) -> bool {
    Shape::ALL
        .into_iter()
        .filter(|shape| shape.is_rsa())
        .all(|shape| lanes_bring_nothing(backend, shape))
}

pub fn instructions() -> Answer {
    let faster = Some(
        "use a machine with AVX-512 IFMA (Intel Ice Lake or later, AMD Zen 4 or later)".to_owned(),
    );
    match Backend::best_hardware() {
        Some(backend) if rsa_gains_nothing(backend) => (
            Verdict::Failed,
            format!(
                "this CPU, or its operating system, supports only {} lanes; {NO_GAIN}",
                backend.name()
            ),
            faster,
        ),
        Some(backend) => (
            Verdict::Good,
            format!("this CPU supports {} lanes", backend.name()),
            None,
        ),
        None => (
            Verdict::Failed,
            "this CPU, or its operating system, has no AVX-512 IFMA, so OpenSSL's own code computes \
             everything"
                .to_owned(),
            faster,
        ),
    }
}

pub fn settings() -> Answer {
    let unset = Some("unset LOCKSTEP_BACKEND, or set it to auto".to_owned());
    let config = Config::default().with_env();
    match config.mistakes.is_empty() {
        false => (
            Verdict::Failed,
            format!(
                "the environment has settings that have no effect: {}",
                config.mistakes
            ),
            Some("correct the variables, or unset them".to_owned()),
        ),
        true => match config.backend.resolve() {
            Some(backend) if Some(backend) == Backend::best_hardware() => (
                Verdict::Good,
                format!(
                    "the environment leaves the {} lanes enabled",
                    backend.name()
                ),
                None,
            ),
            Some(backend) if rsa_gains_nothing(backend) => (
                Verdict::Note,
                format!(
                    "LOCKSTEP_BACKEND selects the {} lanes; {NO_GAIN}",
                    backend.name()
                ),
                unset,
            ),
            Some(backend) => (
                Verdict::Note,
                format!("LOCKSTEP_BACKEND selects the {} lanes", backend.name()),
                unset,
            ),
            None if Backend::best_hardware().is_none() => (
                Verdict::Note,
                "there are no lanes to select".to_owned(),
                None,
            ),
            None => (
                Verdict::Failed,
                "LOCKSTEP_BACKEND disables the lanes: OpenSSL's own code computes everything"
                    .to_owned(),
                unset,
            ),
        },
    }
}

/// What is misspelt in the environment, if anything is.
pub fn unknown_variables() -> Option<Answer> {
    let names = Config::unknown_environment();
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
    Some((Verdict::Warning, what, Some(remedy)))
}

pub fn openssl_version() -> Answer {
    let install =
        Some("install OpenSSL 3.0 or later, with its command (Debian: openssl)".to_owned());
    let command = match run(openssl(NOTHING).arg("version")) {
        Ok(version) => version.trim().to_owned(),
        Err(failure) => return (Verdict::Failed, failure.what, install),
    };
    match command
        .strip_prefix("OpenSSL ")
        .and_then(|rest| rest.split('.').next()?.parse().ok())
    {
        Some(3_u32..) => match lockstep_conf::installed() {
            Ok(openssl) => (
                Verdict::Good,
                format!("{command}; this program: {}", openssl.version),
                None,
            ),
            Err(error) => (
                Verdict::Failed,
                format!("{command}, but this program finds no libcrypto: {error}"),
                install,
            ),
        },
        _ => (
            Verdict::Failed,
            format!("`openssl version` says {command}; lockstep needs OpenSSL 3.0 or later"),
            install,
        ),
    }
}

/// That this system's OpenSSL knows no key of ML-DSA, if one of these public keys is one. They are
/// SubjectPublicKeyInfos.
pub fn lacks_ml_dsa(keys: &[Vec<u8>], openssl: &Installed) -> Option<Answer> {
    let mut keys = keys.iter();
    (openssl.number < 0x3050_0000 && keys.any(|key| is_ml_dsa(key))).then(|| {
        let what = format!(
            "its configuration names a certificate with a key of ML-DSA, which OpenSSL has from \
             3.5 on; this system has {}, with which the service cannot use it, nor with the module",
            openssl.version
        );
        let remedy =
            "serve a certificate of another kind, or use a system with OpenSSL 3.5 or later";
        (Verdict::Note, what, Some(remedy.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

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
            lacks_ml_dsa(&[Vec::new(), key(set)], &openssl).map(|told| told.1)
        };
        let what = told(17, 0x3000_0140).unwrap();
        assert!(what.contains("3.5 on; this system has OpenSSL x"), "{what}");
        assert!(told(19, 0x3040_0010).is_some());
        assert_eq!(told(18, 0x3050_0000), None);
        assert_eq!(told(18, 0x4000_0000), None);
        assert_eq!(told(20, 0x3000_0140), None, "SLH-DSA");
    }
}
