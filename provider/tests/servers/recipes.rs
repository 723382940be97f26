//! Every recipe of `docs/user/servers`, from its first block to its last.

use lockstep_engine::Fallback;

use crate::client::{Client, Load, wait_for};
use crate::site::{Site, has_ifma};

/// Runs a recipe, and expects that lanes have computed these shapes at its end; without AVX-512
/// IFMA, where no job pauses, only the keys of X25519 that are made in advance.
fn follow(name: &'static str, shapes: &[&str]) {
    let Some(site) = Site::start(name) else {
        return;
    };
    let has_ifma = has_ifma();
    let on_lanes = |shape: &&str| has_ifma || *shape == "x25519-keygen";
    let shapes: Vec<&str> = shapes.iter().copied().filter(on_lanes).collect();
    let mut shown = site.perform("check");
    // On a machine that is busy with other work, no two handshakes may meet in a second.
    for _ in 0..9 {
        if shapes.iter().all(|shape| site.on_lanes(shape) > 0) {
            break;
        }
        shown = site.perform("check");
    }
    for shape in &shapes {
        assert!(
            site.on_lanes(shape) > 0,
            "{shape}: {shown}\n{}",
            site.logs()
        );
        let line = shown
            .lines()
            .find(|line| line.trim_start().starts_with(shape));
        assert!(
            line.is_some(),
            "`lockstep stat` does not show {shape}: {shown}"
        );
    }
    let counters = site.counters();
    assert_eq!(counters.failed_checks, 0, "{shown}");
    if has_ifma && ["haproxy", "trafficserver"].contains(&name) {
        assert!(counters.async_submitted > 0, "{shown}");
    }
    // A request that was not on lanes was the first of its process or key, was alone, found the
    // slots taken for longer than OpenSSL takes, or has no lanes on this CPU; nothing was refused.
    let usual = match has_ifma {
        true => &[Fallback::First, Fallback::Lone, Fallback::Late][..],
        false => &[
            Fallback::First,
            Fallback::Lone,
            Fallback::Late,
            Fallback::SlowLanes,
            Fallback::NoKernel,
        ],
    };
    let usual = usual.iter().map(|&reason| counters.fallbacks_for(reason));
    assert_eq!(counters.fallbacks(), usual.sum::<u64>(), "{shown}");
    // And after it reloads or upgrades, as the document has it, everything goes on.
    for occasion in ["reload", "upgrade"] {
        if !site.has(occasion) {
            continue;
        }
        let before = site.workers();
        site.perform(occasion);
        // stunnel stays the process that it is.
        if name != "stunnel" {
            wait_for("new worker", || site.has_replaced(&before));
        }
        // On a machine that is busy with other work, no two handshakes may meet.
        for _ in 0..10 {
            let load = Load::start(&Client::of(&site), 8);
            load.shake_hands(100);
            load.flawless_but_for(&site, site.tolerated());
            if site.on_lanes("x25519-keygen") > 0 {
                break;
            }
        }
        assert!(
            site.on_lanes("x25519-keygen") > 0,
            "{occasion}: {}",
            site.logs()
        );
    }
}

#[test]
fn haproxy_signs_on_lanes() {
    follow("haproxy", &["rsa2048", "x25519", "x25519-keygen"]);
}

#[test]
fn apache_signs_on_lanes() {
    follow("apache", &["rsa3072", "x25519-keygen"]);
}

#[test]
fn traffic_server_signs_on_lanes_by_async_jobs() {
    follow("trafficserver", &["rsa2048", "x25519-keygen"]);
}

#[test]
fn dnsdist_signs_on_lanes() {
    follow("dnsdist", &["rsa3072", "x25519-keygen"]);
}

#[test]
fn nginx_signs_on_lanes() {
    follow("nginx", &["p256-sign", "x25519-keygen"]);
}

#[test]
fn stunnel_signs_on_lanes() {
    follow("stunnel", &["rsa3072", "x25519-keygen"]);
}

/// By the server's own list of groups: no configuration of OpenSSL names them.
fn offers_the_hybrid(name: &'static str) {
    let changed = Site::start_changed(name, |site| {
        site.perform("hybrid");
    });
    let Some(site) = changed else { return };
    let connect = format!(
        "OPENSSL_CONF=$LOCKSTEP/openssl.cnf openssl s_client -groups X25519MLKEM768 \
         -connect 127.0.0.1:{} < /dev/null",
        site.port()
    );
    site.shell(&connect);
    wait_for("a share", || site.on_lanes("x25519mlkem768-server") > 0);
    // Clients without it go on as before.
    let plain = connect.replace("X25519MLKEM768", "X25519");
    site.shell(&plain.replace("OPENSSL_CONF=$LOCKSTEP/openssl.cnf ", ""));
}

#[test]
fn haproxy_offers_the_hybrid() {
    offers_the_hybrid("haproxy");
}

#[test]
fn apache_offers_the_hybrid() {
    offers_the_hybrid("apache");
}

#[test]
fn nginx_offers_the_hybrid() {
    offers_the_hybrid("nginx");
}

#[test]
fn stunnel_offers_the_hybrid() {
    offers_the_hybrid("stunnel");
}
