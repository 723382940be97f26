//! The module's report about itself, and its counters while a program signed.

use lockstep_engine::{Backend, Fallback, Snapshot};

use super::finding::{Finding, advice, failed, good, note, warning};
use super::machine::NO_GAIN;
use crate::probe::Unaccelerated;
use crate::warnings::{About, Warning, kibibytes, warnings};
use crate::words::joined;

/// The operations that the module leaves to OpenSSL's own code, one finding for each.
pub fn operations(unaccelerated: Option<&[Unaccelerated]>) -> Vec<Finding> {
    const CHECK: &str = "operations";
    let Some(unaccelerated) = unaccelerated else {
        let what = "the module does not report which operations it accelerates; it may be of \
                    another version";
        let remedy = "install the module and this command anew, from one version: by the package, \
                      or by cargo xtask dist";
        return vec![advice(CHECK, what, remedy)];
    };
    if unaccelerated.is_empty() {
        let what = "the module accelerates every operation that it supports";
        return vec![good(CHECK, what)];
    }
    let finding = |Unaccelerated { operation, reason }: &Unaccelerated| {
        let what =
            format!("{operation} is not accelerated, so OpenSSL's own code computes it: {reason}");
        // The module writes the reasons (provider/src/overlay/tables.rs).
        let remedy = if reason.contains("backend = none") {
            "nothing is broken, only slower; remove the setting `backend` and the variables \
             LOCKSTEP_BACKEND and OPENSSL_ia32cap to have it accelerated"
        } else if reason.contains("OpenSSL's own code is faster") {
            return note(CHECK, what);
        } else {
            "nothing is broken, only slower; if OpenSSL is newer than lockstep, update lockstep"
        };
        warning(CHECK, what, remedy)
    };
    unaccelerated.iter().map(finding).collect()
}

/// Reports whether lanes or OpenSSL's own code signed.
pub fn use_of_lanes(counters: &Snapshot) -> Finding {
    const CHECK: &str = "used";
    let warning = warnings(counters)
        .into_iter()
        .find(|warning| warning.about == About::Checks);
    if let Some(Warning { what, remedy, .. }) = warning {
        let what = format!("when the openssl command signed, {what}");
        return failed(CHECK, what, remedy);
    }
    let has_lanes = Backend::best_hardware().is_some();
    match counters.operations() {
        1.. => good(
            CHECK,
            format!(
                "the openssl command signed on {} lanes, and the signature is correct",
                counters.backend
            ),
        ),
        0 if counters.fallbacks_for(Fallback::NoBackend) > 0 && has_lanes => failed(
            CHECK,
            "OpenSSL's own code signed, because a setting disables the lanes",
            "unset LOCKSTEP_BACKEND and OPENSSL_ia32cap, and remove `backend` from the module's \
             section",
        ),
        0 if counters.fallbacks_for(Fallback::NoBackend) > 0 => note(
            CHECK,
            "OpenSSL's own code signed, because there are no lanes: see `instructions` above",
        ),
        0 if counters.fallbacks_for(Fallback::SlowLanes) > 0 => note(
            CHECK,
            format!(
                "OpenSSL's own code signed: only {} lanes are enabled, and {NO_GAIN}. See \
                 `instructions` and `settings` above",
                counters.backend
            ),
        ),
        0 => failed(
            CHECK,
            format!("OpenSSL's own code signed: {}", reasons(counters)),
            "please report this with the output of `lockstep doctor --json`",
        ),
    }
}

/// Reports whether a program that this user starts protects its memory for keys.
pub fn memory(counters: &Snapshot) -> Vec<Finding> {
    let all = warnings(counters).into_iter();
    let mut found: Vec<Finding> = all
        .filter(|warning| warning.about == About::Memory)
        .map(|Warning { what, remedy, .. }| {
            warning(
                "memory",
                format!("in a program that you start, {what}"),
                remedy,
            )
        })
        .collect();
    if found.is_empty() {
        let what = format!(
            "a program that you start locks its memory for keys ({} at first)",
            kibibytes(counters.key_memory)
        );
        found.push(good("memory", what));
    }
    found
}

/// Names of the counted reasons why requests went to OpenSSL's own code.
pub fn reasons(counters: &Snapshot) -> String {
    let counted = Fallback::ALL.iter();
    let counted = counted.filter(|reason| counters.fallbacks_for(**reason) > 0);
    match joined(counted.map(|reason| reason.name()), ", ") {
        none if none.is_empty() => "no reason counted".to_owned(),
        reasons => reasons,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn every_operation_that_is_not_accelerated_is_named_with_the_reason() {
        let unaccelerated = |operation: &str, reason: &str| Unaccelerated {
            operation: operation.to_owned(),
            reason: reason.to_owned(),
        };
        let found = operations(Some(&[
            unaccelerated("X25519", "its table has a function 99"),
            unaccelerated("TLS 1.3 key derivation", "slower"),
        ]));
        let [x25519, kdf] = &found[..] else {
            panic!("two findings, not {}", found.len());
        };
        assert!(x25519.verdict == Verdict::Warning && x25519.remedy.is_some());
        let what = &x25519.what;
        assert!(what.starts_with("X25519 is not accelerated"), "{what}");
        assert!(what.ends_with(": its table has a function 99"), "{what}");
        let what = &kdf.what;
        assert!(what.starts_with("TLS 1.3 key derivation is not"), "{what}");
        let verdicts = |found: &[Finding]| found.iter().map(|f| f.verdict).collect::<Vec<_>>();
        assert!(verdicts(&operations(Some(&[]))) == [Verdict::Good]);
        assert!(verdicts(&operations(None)) == [Verdict::Note]);
    }

    /// The remedy must fit the cause.
    #[test]
    fn an_update_is_named_for_a_newer_openssl_alone() {
        let of = |reason: &str| {
            let unaccelerated = Unaccelerated {
                operation: "X25519".to_owned(),
                reason: reason.to_owned(),
            };
            let found = operations(Some(&[unaccelerated])).remove(0);
            (found.verdict, found.remedy.unwrap_or_default())
        };
        let (verdict, remedy) = of("backend = none or OPENSSL_ia32cap leaves it to OpenSSL");
        assert!(
            verdict == Verdict::Warning && !remedy.contains("update"),
            "{remedy}"
        );
        assert!(remedy.contains("remove the setting"), "{remedy}");
        let slower = of("OpenSSL's own code is faster on this CPU, which lacks AVX2");
        assert_eq!(slower, (Verdict::Note, String::new()));
        assert!(
            of("its table has a function 99")
                .1
                .contains("update lockstep")
        );
    }
}
