//! Machines and limits that take away instructions and resources of the lanes, and buffers at odd
//! places.

use lockstep_engine::Backend;

use crate::common::{Place, dist, has_ifma};

/// Says that a program could not hide instructions.
const CANNOT_HIDE: i32 = 77;

/// The CPU hides instructions, or OpenSSL's variable does.
#[test]
fn without_the_instructions_stock_computes_and_the_doctor_says_so() {
    let place = Place::new();
    let masked = place.compile_library("masked");
    // Longer than the keys whose first request OpenSSL serves on any CPU.
    let key = place.key("rsa4096");
    place.write("data", b"data");
    let sign = format!("dgst -sha256 -sign {key} data");
    let expected = place.stock(&sign).succeed().stdout;
    let mut can_hide = true;
    for (variable, hidden, backend, reason, expected_finding) in [
        (
            "HIDDEN",
            "ifma",
            "avx2",
            "slow_lanes",
            "supports only avx2 lanes",
        ),
        (
            "HIDDEN",
            "avx2",
            "none",
            "no_backend",
            "has no AVX-512 IFMA",
        ),
        (
            "HIDDEN",
            "xsave",
            "none",
            "no_backend",
            "has no AVX-512 IFMA",
        ),
        (
            "OPENSSL_ia32cap",
            ":~0x200000",
            "avx2",
            "slow_lanes",
            "OPENSSL_ia32cap selects the avx2 lanes",
        ),
        (
            "OPENSSL_ia32cap",
            "~0x1000000000000000",
            "none",
            "no_backend",
            "OPENSSL_ia32cap disables the lanes",
        ),
    ] {
        let is_by_cpu = variable == "HIDDEN";
        let has_lanes = match backend {
            "avx2" => has_ifma(),
            _ => Backend::best_hardware().is_some(),
        };
        if is_by_cpu && !can_hide || !is_by_cpu && !has_lanes {
            continue;
        }
        let without = |program, arguments: &str| {
            let process = place.program(program, arguments).with_lockstep();
            let process = match is_by_cpu {
                true => process.env("LD_PRELOAD", &masked),
                false => process,
            };
            process
                .env(variable, hidden)
                .env("LOCKSTEP_BACKEND", "")
                .env("LOCKSTEP_LONE", "")
        };
        let signed = without("openssl".into(), &sign).run();
        if signed.status.code() == Some(CANNOT_HIDE) {
            println!("skipped in part: `cpuid` cannot be made to fault here");
            can_hide = false;
            continue;
        }
        assert!(signed.status.success(), "{hidden}: {signed}");
        assert_eq!(signed.stdout, expected, "{hidden}");
        let counters = signed.counters();
        // A CPU without AVX2 has nothing to hide there.
        let lacks = hidden == "ifma" && counters.backend == "none";
        assert!(
            counters.backend == backend || lacks,
            "{hidden}: {counters:?}"
        );
        assert_eq!(
            (counters.operations(), counters.fallbacks()),
            (0, 1),
            "{hidden}"
        );
        if !lacks {
            assert_eq!(counters.fallback(reason), 1, "{hidden}: {counters:?}");
            let doctor = without(dist().join("lockstep"), "doctor").run();
            assert!(!is_by_cpu || doctor.status.success(), "{hidden}: {doctor}");
            assert!(
                doctor.text().contains(expected_finding),
                "{hidden}: {doctor}"
            );
        }
    }
    if has_ifma() {
        // The preloaded library only hides the instructions.
        let signed = place.lockstep(&sign).env("LD_PRELOAD", &masked).succeed();
        assert_eq!(signed.stdout, expected);
        signed.on_lanes("rsa4096", 1);
    }
}

#[test]
fn a_process_that_may_lock_no_memory_uses_lanes() {
    let place = Place::new();
    let program = place.compile("small_stacks");
    let key = place.key("rsa2048");
    let limited = format!("--memlock=0:0 {} {key} 4 5", program.display());
    let finished = place.program("prlimit", &limited).with_lockstep().succeed();
    let counters = finished.counters();
    let done = ["rsa2048", "x25519-keygen"].map(|shape| counters.of(shape));
    assert_eq!((done, counters.fallbacks()), ([20, 20], 0), "{finished}");
}

#[test]
fn buffers_may_lie_anywhere_and_be_the_same() {
    let place = Place::new();
    let program = place.compile("unaligned");
    let shapes = ["rsa2048", "p256-sign", "p384-sign", "ed25519-sign"];
    let files = shapes.map(|shape| place.key(shape.trim_end_matches("-sign")));
    let process = || place.program(&program, &files.join(" "));
    let stock = process().succeed();
    let ours = process().with_lockstep().succeed();
    assert_eq!(ours.stdout, stock.stdout);
    let counters = ours.counters();
    for shape in shapes {
        // At each offset a signature; with RSA also a decryption and a raw operation.
        let times = if shape == "rsa2048" { 3 } else { 1 };
        assert_eq!(counters.of(shape), times * 63, "{shape}: {counters:?}");
    }
    assert_eq!(counters.of("x25519"), 2 * 63, "{counters:?}");
    assert_eq!(counters.fallbacks(), 0, "{counters:?}");
}
