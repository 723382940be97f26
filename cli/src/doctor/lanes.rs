//! The module's report about itself, and its counters while a program signed.

use std::collections::BTreeMap;

use lockstep_engine::{Backend, Fallback, Snapshot};

use super::finding::{Answer, Verdict};
use super::machine::NO_GAIN;
use crate::probe::Unaccelerated;
use crate::stat;
use crate::warnings::{About, Warning, kibibytes, warnings};

/// The operations that the module leaves to OpenSSL's own code, one finding for each.
pub fn operations(unaccelerated: Option<&[Unaccelerated]>) -> Vec<Answer> {
    let Some(unaccelerated) = unaccelerated else {
        let what = "the module does not report which operations it accelerates; it may be of another version";
        let remedy = "install the module and this command anew, from one version: by the package, \
                      or by cargo xtask dist";
        return vec![(Verdict::Note, what.to_owned(), Some(remedy.to_owned()))];
    };
    if unaccelerated.is_empty() {
        let what = "the module accelerates every operation that it supports";
        return vec![(Verdict::Good, what.to_owned(), None)];
    }
    let finding = |Unaccelerated { operation, reason }: &Unaccelerated| {
        (
            Verdict::Warning,
            format!("{operation} is not accelerated, so OpenSSL's own code computes it: {reason}"),
            Some(
                "nothing is broken, only slower; if the reason is a newer OpenSSL, update lockstep"
                    .to_owned(),
            ),
        )
    };
    unaccelerated.iter().map(finding).collect()
}

/// Providers that are active beside the module and OpenSSL's own, and who serves what.
pub fn company(active: &[String], own: &str, served: &[(String, String)]) -> Option<Answer> {
    const OPENSSLS: [&str; 3] = ["default", "base", "legacy"];
    let names = active.iter().map(String::as_str);
    let others = names.filter(|name| *name != own && !OPENSSLS.contains(name));
    let others: Vec<&str> = others.collect();
    let mut by_provider: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (what, who) in served {
        by_provider.entry(who).or_default().push(what);
    }
    let shares = by_provider.iter();
    let shares = shares.map(|(who, what)| format!("{who} serves {}", what.join(", ")));
    let what = format!(
        "other providers are active beside lockstep: {}. Where a program asks for none of them, {}",
        others.join(", "),
        shares.collect::<Vec<_>>().join("; ")
    );
    (!others.is_empty()).then_some((Verdict::Note, what, None))
}

pub fn use_of_lanes(counters: &Snapshot) -> Answer {
    let failed = warnings(counters)
        .into_iter()
        .find(|warning| warning.about == About::Checks);
    if let Some(Warning { what, remedy, .. }) = failed {
        let what = format!("when the openssl command signed, {what}");
        return (Verdict::Failed, what, Some(remedy));
    }
    match counters.operations() {
        1.. => (
            Verdict::Good,
            format!(
                "the openssl command signed on {} lanes, and the signature is correct",
                counters.backend
            ),
            None,
        ),
        0 if counters.fallbacks_for(Fallback::NoBackend) > 0 => (
            Verdict::Failed,
            "OpenSSL's own code signed, because there are no lanes or a setting disables them"
                .to_owned(),
            Some(match Backend::best_hardware() {
                Some(_) => "unset LOCKSTEP_BACKEND, and remove `backend` from the module's section"
                    .to_owned(),
                None => "see `instructions` above".to_owned(),
            }),
        ),
        0 if counters.fallbacks_for(Fallback::SlowLanes) > 0 => (
            Verdict::Failed,
            format!(
                "OpenSSL's own code signed: only {} lanes are enabled, and {NO_GAIN}",
                counters.backend
            ),
            Some(
                "none is needed; for more speed see `instructions` and `settings` above".to_owned(),
            ),
        ),
        0 => (
            Verdict::Failed,
            format!("OpenSSL's own code signed: {}", reasons(counters)),
            Some("please report this with the output of `lockstep doctor --json`".to_owned()),
        ),
    }
}

/// Which schedule RSA has here.
pub fn schedules(counters: &Snapshot) -> Option<Answer> {
    let schedules = stat::schedules(counters);
    let what = format!("the schedule of RSA on this CPU is {schedules} (see rsa_schedule)");
    (!schedules.is_empty()).then_some((Verdict::Note, what, None))
}

/// Whether the memory for keys of a process that is started here is protected.
pub fn memory(counters: &Snapshot) -> Vec<Answer> {
    let all = warnings(counters).into_iter();
    let mut found: Vec<Answer> = all
        .filter(|warning| warning.about == About::Memory)
        .map(|Warning { what, remedy, .. }| {
            let what = format!("in a program that you start, {what}");
            (Verdict::Warning, what, Some(remedy))
        })
        .collect();
    if found.is_empty() {
        let what = format!(
            "a program that you start locks its memory for keys ({} at first)",
            kibibytes(counters.key_memory)
        );
        found.push((Verdict::Good, what, None));
    }
    found
}

/// Why requests went to OpenSSL's own implementation.
pub fn reasons(counters: &Snapshot) -> String {
    let reasons: Vec<&str> = Fallback::ALL
        .iter()
        .filter(|reason| counters.fallbacks_for(**reason) > 0)
        .map(|reason| reason.name())
        .collect();
    if reasons.is_empty() {
        "no reason counted".to_owned()
    } else {
        reasons.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(x25519.0 == Verdict::Warning && x25519.2.is_some());
        assert!(
            x25519.1.starts_with("X25519 is not accelerated"),
            "{}",
            x25519.1
        );
        assert!(
            x25519.1.ends_with(": its table has a function 99"),
            "{}",
            x25519.1
        );
        assert!(
            kdf.1.starts_with("TLS 1.3 key derivation is not"),
            "{}",
            kdf.1
        );
        let verdicts = |found: &[Answer]| found.iter().map(|f| f.0).collect::<Vec<_>>();
        assert!(verdicts(&operations(Some(&[]))) == [Verdict::Good]);
        assert!(verdicts(&operations(None)) == [Verdict::Note]);
    }
}
