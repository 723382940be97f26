//! Conclusions from a service's counters about handshakes that doctor made with it.

use lockstep_common::Manual;
use lockstep_engine::{Backend, Curve, Fallback, Kem, KeyKind, Page, Shape, Snapshot};

use super::handshake::HYBRID;
use super::tally::Unread;
use crate::doctor::finding::{Finding, failed, good, note, warning};
use crate::doctor::lanes::reasons;
use crate::doctor::machine::{NO_GAIN, instructions, rsa_gains_nothing};

/// Whether `part` is at least nine tenths of `all`.
fn is_most(part: u64, all: u64) -> bool {
    all > 0 && part * 10 >= all * 9
}

/// Signatures on lanes.
pub fn signatures(counters: &Snapshot) -> u64 {
    let shapes = Shape::ALL.into_iter().filter(|shape| shape.signs());
    shapes.map(|shape| counters.operations_of(shape)).sum()
}

/// Operations on lanes for the key exchange in a group.
pub fn exchanges(counters: &Snapshot, group: &str) -> u64 {
    let on_curve = |curve| [Shape::Ecdh(curve), Shape::Keypair(KeyKind::Nist(curve))];
    let shapes = match group {
        "P-256" => &on_curve(Curve::P256)[..],
        "P-384" => &on_curve(Curve::P384),
        HYBRID => &[Shape::Encapsulate(Kem::X25519MlKem768)],
        "SecP256r1MLKEM768" => &[Shape::Encapsulate(Kem::SecP256r1MlKem768)],
        "SecP384r1MLKEM1024" => &[Shape::Encapsulate(Kem::SecP384r1MlKem1024)],
        _ => &[Shape::X25519, Shape::Keypair(KeyKind::X25519)],
    };
    let counts = shapes.iter().map(|shape| counters.operations_of(*shape));
    counts.sum()
}

/// Reports the lanes that the settings leave to the service. `setting` is the value of `backend`
/// and the place that sets it.
pub fn backend(setting: Option<(String, String)>, hardware: Option<Backend>) -> Finding {
    let remove = "remove that setting, and restart the service";
    match (setting, hardware) {
        (Some((value, named_by)), _) if value == "none" => {
            let what =
                format!("{named_by} disables the lanes: OpenSSL's own code computes everything");
            failed("settings", what, remove)
        }
        (Some((value, named_by)), Some(best)) if value != "auto" && value != best.name() => {
            match Backend::from_name(&value) {
                Some(backend) if rsa_gains_nothing(backend) => {
                    warning("settings", format!("{named_by}: {NO_GAIN}"), remove)
                }
                _ => {
                    let what = format!("{named_by}, and this CPU supports {}", best.name());
                    note("settings", what)
                }
            }
        }
        _ => instructions(hardware),
    }
}

/// Finds the reason why a service with the module publishes no counters. `stats_dir` is the value
/// of that setting and the place that sets it, `limit` the maximum size of a file in bytes.
pub fn uncounted(
    name: &str,
    stats_dir: Option<(String, String)>,
    limit: Option<u64>,
    is_filtered: bool,
) -> Finding {
    if let Some((_, named_by)) = stats_dir.filter(|(value, _)| value == "no") {
        let what = format!("{named_by}, so it is unknown whether handshakes land on lanes");
        return note("counters", what);
    }
    let (check, why, remedy) = match limit.filter(|limit| *limit < Page::BYTES) {
        Some(limit) => (
            "counters",
            format!(
                ": it may write no file with more than {limit} bytes (RLIMIT_FSIZE), and they need \
                 {}",
                Page::BYTES
            ),
            "raise the limit (LimitFSIZE= in a unit of systemd)",
        ),
        None if is_filtered => (
            "seccomp",
            ": its filter of system calls (seccomp) denies the calls that make their file"
                .to_owned(),
            "let the filter allow fallocate, fstatfs and mkdirat (SystemCallFilter= of its unit), \
             or set stats_dir = no",
        ),
        None => (
            "counters",
            " that can be read here".to_owned(),
            "name a directory on tmpfs, ext4 or XFS in stats_dir, where the user that starts the \
             server may write",
        ),
    };
    warning(
        check,
        format!("{name} has loaded the module and publishes no counters{why}"),
        format!("{remedy}; the lanes work without counters"),
    )
}

/// Reports why the counters of a service cannot be read.
pub fn unread(why: Unread) -> Finding {
    let (what, remedy) = match why {
        Unread::OtherVersion => (
            "its module is of another version than this program, which cannot read its counters",
            "use the command `lockstep` that was built with the module, or restart the service",
        ),
        Unread::Unreadable => (
            "its counters cannot be read",
            "run this as root, and name a directory in stats_dir that no user has mounted (FUSE)",
        ),
    };
    warning("counters", what, remedy)
}

/// A service counts as able to serve several requests at a time if at least one of `MET` requests
/// meets others. The share depends on the load of the machine.
const MET: u64 = 100;

/// Number of requests that met no others, including the first ones of each process.
fn alone(counted: &Snapshot) -> u64 {
    counted.fallbacks_for(Fallback::Lone) + counted.fallbacks_for(Fallback::First)
}

/// Whether there are enough signatures on lanes to say that requests meet.
fn has_met(counted: &Snapshot) -> bool {
    let signed = signatures(counted);
    signed > 0 && signed * MET >= alone(counted) + signed
}

/// Minimum number of requests that shows whether the lanes serve each of them or none.
const FEW: u64 = 24;
/// Minimum number of requests that shows whether requests meet, and whether jobs pause.
const MANY: u64 = 128;

/// Number of requests that the lanes never serve, because of this CPU or its settings.
fn never(counted: &Snapshot) -> u64 {
    let reasons = [Fallback::SlowLanes, Fallback::NoKernel, Fallback::NoBackend];
    reasons.map(|why| counted.fallbacks_for(why)).iter().sum()
}

/// Returns the number of requests for signatures, once there were enough to judge by.
pub fn settled(counted: &Snapshot) -> Option<u64> {
    let (signed, never) = (signatures(counted), never(counted));
    let asked = signed + alone(counted) + never;
    let is_clear = asked >= FEW && (never > 0 || is_most(signed, asked));
    (is_clear || asked >= MANY && has_met(counted)).then_some(asked)
}

/// Judges the counters of this number of handshakes, with `clients` at a time.
pub fn handshakes(
    counted: &Snapshot,
    made: u64,
    clients: usize,
    is_filtered: bool,
) -> Vec<Finding> {
    let lanes = use_of_lanes(counted, made, clients, is_filtered);
    match jobs(counted, made, clients) {
        // Requests of jobs that do not pause do not meet: the finding about jobs names the cause.
        Some(jobs) if lanes.check == "lone" => vec![jobs],
        jobs => std::iter::once(lanes).chain(jobs).collect(),
    }
}

fn use_of_lanes(counted: &Snapshot, made: u64, clients: usize, is_filtered: bool) -> Finding {
    let signed = signatures(counted);
    let alone = alone(counted);
    if counted.operations() + counted.fallbacks() == 0 {
        return failed(
            "used",
            format!(
                "it has loaded lockstep, and asked it for nothing in {made} handshakes: another \
                 provider, or another OpenSSL in the process, served them"
            ),
            "look at default_properties in its configuration, and at `libcrypto` above",
        );
    }
    if counted.fallbacks_for(Fallback::Randomness) > 0 && is_filtered {
        return failed(
            "seccomp",
            "a filter of system calls (seccomp) denies the module getrandom, so OpenSSL's own code \
             computes",
            "let the filter allow getrandom (SystemCallFilter= of its unit)",
        );
    }
    if counted.failed_checks > 0 {
        return failed(
            "checks",
            format!("{} results failed their check", counted.failed_checks),
            "run `lockstep doctor`, which says what to look for",
        );
    }
    if has_met(counted) {
        let fill = counted.average_fill();
        let what = format!(
            "{signed} signatures of {made} handshakes were made on {} lanes, {fill:.1} requests at \
             a time on average; {alone} were alone",
            counted.backend
        );
        return good("used", what);
    }
    let stock = format!(
        "OpenSSL's own code made the signatures of {made} handshakes: {}",
        reasons(counted)
    );
    if never(counted) > 0 {
        // `instructions` or `settings` has said so.
        return note("used", stock);
    }
    if alone > 0 {
        return warning(
            "lone",
            format!(
                "with {clients} clients at a time, {alone} of {} requests for signatures were still \
                 alone: the service computes one at a time, and OpenSSL's own code is \
                 faster with one",
                alone + signed
            ),
            "have it serve several handshakes at a time: in HAProxy, ssl-mode-async in `global`; \
             an nginx worker cannot",
        );
    }
    let page = Manual::Troubleshooting.name();
    let remedy = format!("{page} says what each of these reasons means");
    failed("used", stock, remedy)
}

/// Reports jobs that blocked their thread, if there are more than a few, and the limit that was
/// reached.
fn jobs(counted: &Snapshot, made: u64, clients: usize) -> Option<Finding> {
    let bounded = counted.unpaused.saturating_sub(counted.no_descriptor);
    // Healthy servers have a few, too.
    let (count, why, remedy) = if counted.no_descriptor > 0 && counted.no_descriptor * 2 >= made {
        (
            counted.no_descriptor,
            "more than half of the file descriptors that the process may have are in use"
                .to_owned(),
            "raise its limit (LimitNOFILE in a unit of systemd); for HAProxy see maxpipes in its \
             recipe",
        )
    } else if bounded == 0 || bounded * 10 < made {
        return None;
    } else if counted.lost >= counted.max_lost {
        (
            bounded,
            format!("the bound of lost jobs ({}) is reached", counted.max_lost),
            "restart or reload the server",
        )
    } else if counted.max_async <= counted.paused.max(clients as u64) {
        (
            bounded,
            format!(
                "as many others were paused as max_async ({}) allows",
                counted.max_async
            ),
            "raise max_async in the module's section, or remove it there",
        )
    } else {
        (
            bounded,
            "no worker thread could be started".to_owned(),
            "raise the limit of processes (LimitNPROC in a unit of systemd)",
        )
    };
    let what = format!("{count} async jobs blocked their thread, because {why}");
    Some(warning("jobs", what, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    /// Counters in which these shapes, by name, and reasons were counted.
    fn counted(shapes: &[(&str, u64)], reasons: &[(Fallback, u64)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (name, count) in shapes {
            let shape = Shape::ALL.into_iter().find(|shape| shape.name() == *name);
            snapshot.by_shape[shape.unwrap().index()] = *count;
        }
        for (reason, count) in reasons {
            snapshot.by_reason[*reason as usize] = *count;
        }
        snapshot
    }

    fn of(counted: &Snapshot, is_filtered: bool) -> Vec<(&'static str, Verdict)> {
        let findings = handshakes(counted, 50, 8, is_filtered).into_iter();
        findings.map(|own| (own.check, own.verdict)).collect()
    }

    #[test]
    fn handshakes_are_judged_by_what_they_moved() {
        let keys = ("x25519-keygen", 50);
        let lone = |count| (Fallback::Lone, count);
        let all = counted(&[("rsa2048", 45), keys], &[lone(5)]);
        assert_eq!(of(&all, false), [("used", Verdict::Good)]);
        let alone = counted(&[("rsa2048", 1), keys], &[lone(499)]);
        assert_eq!(of(&alone, false), [("lone", Verdict::Warning)]);
        // Such as PostgreSQL, with one process for each connection.
        let first = counted(&[], &[(Fallback::First, 150)]);
        assert_eq!(of(&first, false), [("lone", Verdict::Warning)]);
        assert_eq!(of(&Snapshot::default(), false), [("used", Verdict::Failed)]);
        let refused = counted(&[keys], &[(Fallback::KeySize, 50)]);
        assert_eq!(of(&refused, false), [("used", Verdict::Failed)]);
        // The CPU has no lanes for the key.
        for reason in [Fallback::SlowLanes, Fallback::NoBackend] {
            let limited = counted(&[keys], &[(reason, 50), (Fallback::First, 4)]);
            assert_eq!(of(&limited, false), [("used", Verdict::Note)]);
        }
        // More connections would not change the result.
        for (signed, reasons, settled_at) in [
            (24, vec![], Some(24)),
            (23, vec![], None),
            (2, vec![lone(30)], None),
            (0, vec![(Fallback::SlowLanes, 24)], Some(24)),
            (20, vec![lone(108)], Some(128)),
            (20, vec![lone(107)], None),
            (0, vec![lone(3000)], None),
        ] {
            assert_eq!(
                settled(&counted(&[("rsa2048", signed)], &reasons)),
                settled_at
            );
        }
        let blind = counted(&[], &[(Fallback::Randomness, 50)]);
        assert_eq!(of(&blind, true), [("seccomp", Verdict::Failed)]);
        assert_eq!(of(&blind, false), [("used", Verdict::Failed)]);
    }

    #[test]
    fn jobs_that_block_are_named_with_the_bound() {
        let mut some = counted(&[("rsa2048", 50), ("p256-verify", 5)], &[]);
        (some.unpaused, some.max_async, some.max_lost) = (15, 1, 100);
        let what = |snapshot: &Snapshot| jobs(snapshot, 50, 8).map(|own| own.what);
        let bounded = what(&some).unwrap();
        assert!(bounded.starts_with("15 async jobs"), "{bounded}");
        assert!(bounded.contains("as max_async (1) allows"), "{bounded}");
        assert_eq!(
            of(&some, false),
            [("used", Verdict::Good), ("jobs", Verdict::Warning)]
        );
        some.by_shape = Snapshot::default().by_shape;
        some.by_reason[Fallback::Lone as usize] = 50;
        assert_eq!(of(&some, false), [("jobs", Verdict::Warning)]);
        some.max_async = 1024;
        assert!(what(&some).unwrap().contains("no worker thread"));
        some.lost = 100;
        assert!(
            what(&some)
                .unwrap()
                .contains("the bound of lost jobs (100) is reached")
        );
        (some.unpaused, some.no_descriptor) = (24, 24);
        assert_eq!(what(&some), None);
        (some.unpaused, some.no_descriptor) = (25, 25);
        assert!(what(&some).unwrap().contains("file descriptors"));
        (some.unpaused, some.no_descriptor) = (4, 4);
        assert_eq!(what(&some), None);
    }

    #[test]
    fn a_cpu_without_lanes_and_a_setting_that_disables_them_are_told_apart() {
        let set = |value: &str| Some((value.to_owned(), format!("LOCKSTEP_BACKEND={value}")));
        let of = |set, hardware| {
            let own = backend(set, hardware);
            ((own.check, own.verdict), own.what)
        };
        let (found, what) = of(None, None);
        assert_eq!(found, ("instructions", Verdict::Note));
        assert!(what.contains("no AVX-512 IFMA"), "{what}");
        let (found, what) = of(set("none"), None);
        assert_eq!(found, ("settings", Verdict::Failed));
        assert!(what.starts_with("LOCKSTEP_BACKEND=none disables"), "{what}");
        let Some(best) = Backend::best_hardware() else {
            return;
        };
        let expected = match rsa_gains_nothing(best) {
            true => Verdict::Note,
            false => Verdict::Good,
        };
        assert_eq!(of(set("auto"), Some(best)).0, ("instructions", expected));
        if let Some(slower) = Backend::from_name("avx2").filter(|avx2| *avx2 != best) {
            let (found, _) = of(set(slower.name()), Some(best));
            assert_eq!(found, ("settings", Verdict::Warning));
        }
    }

    #[test]
    fn counters_that_are_missing_have_a_cause() {
        let set = Some(("no".to_owned(), "`stats_dir = no`".to_owned()));
        let of = |set: Option<(String, String)>, limit, is_filtered| {
            let own = uncounted("nginx", set, limit, is_filtered);
            (own.check, own.verdict, own.what)
        };
        let (check, verdict, what) = of(set, Some(0), true);
        assert_eq!((check, verdict), ("counters", Verdict::Note), "{what}");
        let (check, _, what) = of(None, Some(4096), true);
        assert!(
            check == "counters" && what.contains("more than 4096 bytes"),
            "{what}"
        );
        let (check, _, what) = of(None, Some(1 << 30), true);
        assert!(check == "seccomp" && what.contains("seccomp"), "{what}");
        assert_eq!(of(None, None, false).0, "counters");
        assert!(
            unread(Unread::OtherVersion)
                .what
                .contains("another version")
        );
    }
}
