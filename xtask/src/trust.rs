//! `cargo xtask trust`: renders docs/trust.md from the claims below and the record of the nightly
//! checks. No figure of that page is typed by hand.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::command::{Outcome, on, root};
use crate::nightly::CHECKS;
use crate::record::{self, Record};

/// What users are promised.
struct Claim {
    claim: &'static str,
    /// The nightly checks that show it.
    checks: &'static [&'static str],
    /// What else shows it.
    also: &'static str,
    /// What none of these would notice.
    gap: &'static str,
}

const CLAIMS: &[Claim] = &[
    Claim {
        claim: "No branch, table index or division depends on a secret",
        checks: &["trace", "taint"],
        also: "exact lists of jumps, divisions and gathers of the machine code (`cargo xtask \
               lint-asm`)",
        gap: "`trace` compares runs with finitely many keys, nonces and messages, one request in a \
              batch, from the call of libcrypto to its return. OpenSSL's own PKCS#1 v1.5 \
              decryption and its preparation of the public modulus may differ. How long the CPU \
              takes for one instruction is not seen. `taint` sees the kernels only, compiled with \
              MemorySanitizer and with plain Rust in place of RSA's assembly, and loses carries in \
              the big integers that blinding uses.",
    },
    Claim {
        claim: "No RSA result leaves without its check",
        checks: &["limbs"],
        also: "the type of a result says that it is checked; faults are injected into the lanes by \
               `cargo xtask test tests`",
        gap: "A fault in code after the check, or in OpenSSL's own code. Signatures on curves are \
              checked by sample.",
    },
    Claim {
        claim: "Whatever a program does with its keys, it gets what OpenSSL alone would give it, and \
                nothing is read or written out of bounds",
        checks: &["fuzz", "fuzz-addresses", "fuzz-kems", "ciphers", "coverage"],
        also: "the kept inputs run in `cargo xtask test fuzz`; every run first finds planted \
               defects",
        gap: "ML-KEM is compared with OpenSSL 3.5, which the nightly check builds. Calls that \
              OpenSSL's own provider does not survive are not tried. The programs of calls of \
              AES-GCM are random, and no coverage leads them. Threads, and jobs that are \
              abandoned, have tests of their own. The kernels are not instrumented.",
    },
    Claim {
        claim: "A TLS server answers wrong and unusual messages as it does with OpenSSL alone",
        checks: &["tlsfuzzer"],
        also: "ten of the scripts run in `cargo xtask test tlsfuzzer`; every run first finds a \
               planted defect. Both need a copy of tlsfuzzer (`LOCKSTEP_TLSFUZZER`)",
        gap: "What the server fails without the module is not compared, and neither is how long it \
              takes to answer. At most three scripts run at a time; the tests of servers open \
              many connections.",
    },
    Claim {
        claim: "OpenSSL's own tests end with the module as they end without it",
        checks: &["openssl-tests"],
        also: "every run first finds a planted defect; `cargo xtask test openssl-tests` compares the \
               vectors of public-key operations, once the nightly check has built the tests",
        gap: "Tests that call internal functions of libcrypto use one that is built from the \
              distribution's sources, of the newest offered version of the installed series. Tests \
              that call functions below the providers show only that the module leaves them alone. \
              Two tests with an iteration for each cipher have three more: the module's of AES-GCM.",
    },
    Claim {
        claim: "Each OpenSSL from 3.0 to 4.0 gives the same results with the module as without it, and \
                lanes compute them",
        checks: &["matrix"],
        also: "every run first finds TLS groups that a configuration takes away, and lanes that did not \
               run; `cargo xtask test matrix` tries the system's version, and docs/user/matrix.md lists \
               the others",
        gap: "Versions between those that are tried. Programs other than the `openssl` command and \
              HAProxy.",
    },
    Claim {
        claim: "Threads and jobs do not race, and each is woken for its answer",
        checks: &["threads", "forks"],
        also: "loom tries the interleavings of the models of the queue and of the ring in `cargo xtask \
               test loom`, and must find twelve planted defects",
        gap: "ThreadSanitizer sees races that happen in a run, and nothing of what libcrypto itself \
              reads and writes. The models have two or three threads and at most three preemptions.",
    },
    Claim {
        claim: "A hostile client of the key daemon harms its own requests only, and a hostile daemon \
                gives wrong answers at most",
        checks: &["ring", "keyd"],
        also: "the same programs in `cargo xtask test tests`, which must find five planted defects \
               of the ring; two hundred client processes that are killed at random, by the ring's \
               tests and by the daemon's",
        gap: "The programs change the ring between two steps of the other side; a change during a \
              step is tried by chance alone. AddressSanitizer sees nothing in memory that is mapped, \
              as that of the ring and of keys.",
    },
    Claim {
        claim: "A denied system call costs speed or counters at most, and all calls that the module adds \
                are in docs/user/settings.md",
        checks: &["syscalls"],
        also: "the tests of confined processes in `cargo xtask test`",
        gap: "Calls denied by their arguments. A call that OpenSSL makes too in the same stage, and \
              more often, is not seen as added. `brk` and `rseq`, without which glibc ends a program.",
    },
    Claim {
        claim: "No command that root runs executes code that another user can change, or shows what \
                that user may not read",
        checks: &[],
        also: "a test in which another user plants modules, links, pipes and devices in all places \
               that a process or a directory names, and one that follows root's commands by \
               `strace` and compares them with [a list](user/root.md)",
        gap: "Flaws of the `openssl` command, which is the client of the service that is examined, \
              and of libcrypto's parser, which runs with the rights of the examined process.",
    },
    Claim {
        claim: "A program in which the module is not active runs as it does without the configuration \
                that loads it",
        checks: &[],
        also: "C, Python, Perl, OpenVPN, nginx and HAProxy read a configuration whose module is \
               gone, damaged or refuses to load, and the C program one with a healthy module in \
               another library context and under `provider=default`: the queue of errors, the \
               groups and the results are those of a run without it; a planted list of groups must \
               be found",
        gap: "Programs of LibreSSL and of OpenSSL 1.x, which end at any configuration that names \
              providers. Other versions of OpenSSL than the system's.",
    },
    Claim {
        claim: "Processes that share OpenSSL's memory get OpenSSL's own code, and no other process's \
                state",
        checks: &[],
        also: "a model with a shared arena, in which three workers pass objects of every operation \
               and TLS connections to each other, with a planted defect; Kamailio as a server",
        gap: "An allocator that begins to share memory after the module was loaded. OpenSIPS.",
    },
    Claim {
        claim: "No function of the module needs more stack than an async job has left, and none fails \
                without a reason in the queue of errors",
        checks: &[],
        also: "a program calls every function of the dispatch tables that is not OpenSSL's own in a \
               job with a guard page, and fails on a function that it does not call; a planted \
               defect must be found",
        gap: "The decoders of references, which need a file. Paths that no call of the program takes.",
    },
    Claim {
        claim: "A request waits little longer than OpenSSL would take, whatever other threads do",
        checks: &[],
        also: "short requests beside threads of low priority, beside longer operations, beside \
               messages of 64 MiB, and behind leaders that were stopped or left by `siglongjmp`; \
               models of waiters that leave",
        gap: "A slow leader may hold up a request for 50 ms. A thread that leaves the module by a \
              jump while it holds a lock of the queue, for some nanoseconds, stops all.",
    },
    Claim {
        claim: "One bad key, one dead or stopped daemon and any number of processes harm no other key \
                and no other user of the key daemon",
        checks: &["keyd"],
        also: "one bad key of each kind among a hundred good ones; 1,000 processes; fifty reloads \
               beside connections that last; a socket that nobody serves and a stopped daemon \
               beside plain HTTP of nginx; descriptors, memory and another user's latency while \
               hostile clients are at work",
        gap: "A pass of RSA-4096 is not interrupted, so another user may wait for one. The units were \
              not tried with systemd as process 1 since their limits changed.",
    },
    Claim {
        claim: "Without randomness there is an error: no nonce or key occurs twice, and no RSA operation \
                runs without blinding",
        checks: &[],
        also: "tests in which the system's randomness fails, the application's, or both; a module that \
               ignores the failure must be found",
        gap: "A generator that gives predictable numbers and reports success. Snapshots of a virtual \
              machine that are resumed twice.",
    },
    Claim {
        claim: "Servers stand steady load, and memory and descriptors do not grow",
        checks: &["soak"],
        also: "the tests of servers in `cargo xtask test`",
        gap: "Load of weeks; servers other than HAProxy, Apache, nginx and stunnel.",
    },
    Claim {
        claim: "A package is the same bytes wherever it is built, serves from its installation on, through \
                an upgrade under load, and leaves nothing when it goes but what somebody has \
                changed",
        checks: &["packages"],
        also: "",
        gap: "Debian 12 and 13 with HAProxy only, in a chroot. What the key daemon's units do is \
              tried with systemd as process 1, the rest without it. The RPM is installed there \
              too, by Debian's rpm, and on no distribution with RPM. Another version of Rust \
              makes other bytes.",
    },
];

const INTRODUCTION: &str = "\
# What you can rely on, and how it is shown

<!-- Rendered by `cargo xtask trust`; the claims are in xtask/src/trust.rs. -->

Each row is a claim, the checks that show it, and what these checks do not cover. Checks in code
type belong to `cargo xtask nightly`, which runs them for as long as it is given and keeps a record;
the second table is that record. Most of them also run in a short form in `cargo xtask test`, before
each change. [SECURITY.md](../SECURITY.md) says what is protected, and against whom.

";

/// The page.
pub fn render(record: &Record) -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "| claim | shown by | not covered | last run |\n|---|---|---|---|\n";
    for claim in CLAIMS {
        let mut shown: Vec<String> = claim
            .checks
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        shown.extend((!claim.also.is_empty()).then(|| claim.also.to_owned()));
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            claim.claim,
            shown.join(", "),
            claim.gap,
            last_runs(claim, record),
        );
    }
    page += "\n## The record\n\nCases and hours are sums over all runs; a fuzzer's hours are CPU \
             time. Findings are those of\nthe commit that is named.\n\n";
    page += "| check | what it does | cases | findings | hours | last run | CPU | commit |\n";
    page += "|---|---|---|---|---|---|---|---|\n";
    for check in CHECKS {
        let mut seen = false;
        for (cpu, entry) in record.of(check.name) {
            seen = true;
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} | {:.1} | {} | {cpu} | {} |",
                check.name,
                check.about,
                entry.cases,
                entry.findings,
                entry.hours,
                entry.date,
                entry.commit,
            );
        }
        if !seen {
            let _ = writeln!(
                page,
                "| `{}` | {} | | | | not recorded yet | | |",
                check.name, check.about
            );
        }
    }
    page
}

/// When and where the checks of a claim last ran.
fn last_runs(claim: &Claim, record: &Record) -> String {
    if claim.checks.is_empty() {
        return "with each change".to_owned();
    }
    let newest = |name: &&str| {
        let newest = record.of(name).max_by(|a, b| a.1.date.cmp(&b.1.date));
        match newest {
            Some((cpu, entry)) => format!("`{name}`: {}, {cpu}", entry.date),
            None => format!("`{name}`: not recorded yet"),
        }
    };
    let runs: Vec<String> = claim.checks.iter().map(newest).collect();
    runs.join("; ")
}

fn page() -> PathBuf {
    root().join("docs/trust.md")
}

/// Renders the page from the record in the repository.
pub fn write() -> Outcome {
    let text = render(&Record::load(&record::published_file())?);
    let path = page();
    fs::write(&path, text).map_err(on(&path, "write"))?;
    println!("{}", path.display());
    Ok(())
}

/// Copies the sums of this working tree's runs into the repository and renders the page.
///
/// Entries of other CPUs that are there already stay.
pub fn publish() -> Outcome {
    let mut published = Record::load(&record::published_file())?;
    published.merge(Record::load(&record::working_file())?);
    published.store(&record::published_file())?;
    println!("{}", record::published_file().display());
    write()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_record_renders() {
        let page = fs::read_to_string(page()).unwrap();
        let rendered = render(&Record::load(&record::published_file()).unwrap());
        assert!(
            page == rendered,
            "docs/trust.md is stale: run `cargo xtask trust`"
        );
    }

    #[test]
    fn claims_name_checks_that_exist() {
        for name in CLAIMS.iter().flat_map(|claim| claim.checks) {
            assert!(CHECKS.iter().any(|check| check.name == *name), "{name}");
        }
    }
}
