//! What the machine, the environment and the installed OpenSSL allow, before any configuration.

use std::process::Command;

use lockstep_engine::{Backend, Config, Shape, lanes_are_slower};

use super::command::run;
use super::finding::{Answer, Verdict};

/// What lanes are called that lose.
pub const SLOWER: &str = "OpenSSL's own code is faster for RSA, and serves all of it";

/// Whether no RSA request goes to these lanes, as OpenSSL's own code is faster.
pub fn all_rsa_is_slower(backend: Backend) -> bool {
    Shape::ALL
        .into_iter()
        .filter(|shape| shape.is_rsa())
        .all(|shape| lanes_are_slower(backend, shape))
}

pub fn instructions() -> Answer {
    let faster = Some(
        "use a machine with AVX-512 IFMA (Intel Ice Lake or later, AMD Zen 4 or later)".to_owned(),
    );
    match Backend::best_hardware() {
        Some(backend) if all_rsa_is_slower(backend) => (
            Verdict::Failed,
            format!(
                "this CPU, or the system on it, runs {} lanes only; {SLOWER}",
                backend.name()
            ),
            faster,
        ),
        Some(backend) => (
            Verdict::Good,
            format!("this CPU runs {} lanes", backend.name()),
            None,
        ),
        None => (
            Verdict::Failed,
            "this CPU, or the system on it, has no AVX-512 IFMA; OpenSSL's own code does all work"
                .to_owned(),
            faster,
        ),
    }
}

pub fn settings() -> Answer {
    let unset = Some("unset LOCKSTEP_BACKEND, or correct it".to_owned());
    match Config::default().with_env() {
        Err(error) => (
            Verdict::Failed,
            error.to_string(),
            Some("correct the variable, or unset it".to_owned()),
        ),
        Ok(config) => match config.backend.resolve() {
            Some(backend) if Some(backend) == Backend::best_hardware() => (
                Verdict::Good,
                format!("the environment leaves {} on", backend.name()),
                None,
            ),
            Some(backend) if all_rsa_is_slower(backend) => (
                Verdict::Note,
                format!(
                    "the environment chooses the {} lanes; {SLOWER}",
                    backend.name()
                ),
                unset,
            ),
            Some(backend) => (
                Verdict::Note,
                format!("the environment chooses the {} lanes", backend.name()),
                unset,
            ),
            None if Backend::best_hardware().is_none() => (
                Verdict::Note,
                "there are no lanes to choose".to_owned(),
                None,
            ),
            None => (
                Verdict::Failed,
                "LOCKSTEP_BACKEND turns the lanes off".to_owned(),
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
            format!("the environment sets {name}, which is not a setting and changes nothing")
        }
        names => format!(
            "the environment sets {}, which are not settings and change nothing",
            names.join(" and ")
        ),
    };
    let remedy = "correct the name, or unset it; docs/user/settings.md lists the settings";
    Some((Verdict::Warning, what, Some(remedy.to_owned())))
}

pub fn openssl_version() -> Answer {
    let install =
        Some("install OpenSSL 3.0 or later, with its command (Debian: openssl)".to_owned());
    let command = match run(Command::new("openssl")
        .arg("version")
        .env("OPENSSL_CONF", "/dev/null"))
    {
        Ok(version) => version.trim().to_owned(),
        Err(failure) => return (Verdict::Failed, failure.what, install),
    };
    match command
        .strip_prefix("OpenSSL ")
        .and_then(|rest| rest.split('.').next()?.parse().ok())
    {
        Some(3_u32..) => (
            Verdict::Good,
            format!("{command}; this program: {}", openssl::version::version()),
            None,
        ),
        _ => (
            Verdict::Failed,
            format!("{command} has no providers"),
            install,
        ),
    }
}
