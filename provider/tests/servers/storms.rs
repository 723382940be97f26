//! Storms that servers must survive: clients that misbehave, reloads under load, processes that are
//! killed or stopped, and limits. Nobody else's handshake may fail for it.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use lockstep_engine::Fallback;

use crate::client::{Client, Load, wait_for};
use crate::ledger::Account;
use crate::site::{Site, has_ifma, is_running, signal, stop};

const SERVERS: [&str; 4] = ["haproxy", "apache", "nginx", "stunnel"];

/// Number of storms after the first one, which warms a server up.
const FURTHER: usize = 4;

/// Number of well-behaved clients beside the others.
const CLIENTS: usize = 4;

/// Well-behaved clients connect while `storm` rages, and none of them notices.
fn unnoticed(site: &Site, storm: impl FnOnce(&Client)) {
    unnoticed_but_for(site, &[], storm);
}

/// The same, tolerating failures with these words.
fn unnoticed_but_for(site: &Site, words: &[&str], storm: impl FnOnce(&Client)) {
    let client = Client::of(site);
    client.handshake(0).expect("a server that works");
    let load = Load::start(&client, CLIENTS);
    storm(&client);
    // And afterwards.
    load.shake_hands(100);
    load.flawless_but_for(site, words);
    assert_eq!(site.counters().failed_checks, 0);
}

/// Calls `act` so often, from several threads.
fn many(times: usize, act: impl Fn(usize) + Sync) {
    const THREADS: usize = 4;
    thread::scope(|scope| {
        for first in 0..THREADS {
            let act = &act;
            scope.spawn(move || (first..times).step_by(THREADS).for_each(act));
        }
    });
}

/// Runs storms of `connections` connections each, beside well-behaved clients. The first one warms
/// the server up; memory that the others leave behind would be lost.
fn storms(server: &'static str, connections: usize, storm: impl Fn(&Client, &[u8])) {
    let site = Site::start_changed(server, |site| {
        site.keep_ledger();
        match server {
            // In one process, all of whose parts have been in use when the first storm is over.
            "apache" => {
                site.edit("httpd.conf", "ServerLimit 2", "ServerLimit 1");
                site.edit(
                    "httpd.conf",
                    "MaxRequestWorkers 128",
                    "MaxRequestWorkers 64",
                );
            }
            // It would keep the sessions.
            "stunnel" => site.edit("stunnel.conf", "accept", "sessionResume = no\naccept"),
            _ => {}
        }
    });
    let Some(site) = site else {
        return;
    };
    let storm = || unnoticed(&site, |client| storm(client, &client.hello()));
    // In the first ones OpenSSL's own code may not have been asked yet, or fewer of the server's
    // threads may have been at work at a time. Both keep something, once.
    storm();
    let mut before = site.account_at_rest();
    for _ in 0..6 {
        storm();
        let last = std::mem::replace(&mut before, site.account_at_rest());
        if before.all < last.all + 100 {
            break;
        }
    }
    assert!(before.blocks > 0, "the ledger of {server} is empty");
    for _ in 0..FURTHER {
        storm();
    }
    let most = most_after(&before, server, &site, FURTHER * connections);
    let rested = || site.account_at_rest();
    let mut after = rested();
    // A connection may take the server some seconds to give up.
    let deadline = Instant::now() + Duration::from_secs(15);
    while !after.is_within(&most(&after)) && Instant::now() < deadline {
        after = rested();
    }
    println!(
        "{server}: {before:?}, after further storms {after:?}, {} KiB resident",
        site.resident()
    );
    assert!(
        after.is_within(&most(&after)),
        "{server} may hold {:?}, and has open {:?}",
        most(&after),
        site.descriptors()
    );
    // The last event updates the counter: here, one more handshake.
    Client::of(&site).handshake(0).expect("a server that works");
    let deadline = Instant::now() + Duration::from_secs(10);
    while site.counters().paused != 0 && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }
    assert_eq!(
        site.counters().paused,
        0,
        "{server} keeps requests of lost jobs"
    );
}

/// Returns the most that a server may hold after further storms: as much as after the first one,
/// and reserves, which grow with the largest number of concurrent connections.
fn most_after(
    before: &Account,
    server: &str,
    site: &Site,
    connections: usize,
) -> impl Fn(&Account) -> Account {
    let (before, slots) = (*before, site.counters().slots as i64);
    // HAProxy's descriptors that wait for a connection whose number is safe: `RESERVE` in
    // `provider/src/jobs/descriptors.rs`.
    let reserve = if server == "haproxy" { 64 } else { 0 };
    move |after| {
        // HAProxy's lost jobs (haproxy#3453). Each has the operation that it was in the middle of,
        // and OpenSSL's contexts and buffers.
        let lost = (after.jobs - before.jobs).max(0);
        Account {
            // The reserves are at most 64 key pairs and 32 pairs that blind an RSA key's input, of
            // two blocks each.
            blocks: before.blocks + 6 * lost + 2 * (64 + 32),
            // The reserves, buffers that grow, and the working memory of each slot from its first
            // batch on.
            bytes: before.bytes + 1024 * lost + (64 + 128 * slots) * 1024,
            // As many as are kept.
            stacks: 64,
            // Less than one for each connection, because the well-behaved ones count too.
            all: before.all + 40 * lost + connections as i64,
            events: before.events.max(reserve) + 4,
            descriptors: before.descriptors + 4,
            jobs: after.jobs,
        }
    }
}

#[test]
fn clients_reset_the_connection_after_their_hello() {
    for (server, times) in SERVERS.into_iter().zip([1000, 200, 200, 200]) {
        storms(server, times, |client, hello| {
            // At once, or when the handshake is well under way.
            many(times, |number| {
                let after = Duration::from_micros([0, 300, 1500][number % 3]);
                let _ = client.send_and_leave(hello, true, after);
            });
        });
    }
}

#[test]
fn clients_close_in_the_middle_and_send_garbage() {
    const TIMES: usize = 300;
    for server in SERVERS {
        storms(server, TIMES, |client, hello| {
            many(TIMES, |number| {
                let (bytes, after) = match number % 5 {
                    0 => (hello.to_vec(), 2),
                    1 => (hello[..hello.len() / 2].to_vec(), 0),
                    2 => ([hello, b"and then nonsense"].concat(), 2),
                    3 => (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 0),
                    _ => {
                        let mut bytes = hello.to_vec();
                        bytes[20 + number % 100] ^= 0xff;
                        (bytes, 2)
                    }
                };
                let _ = client.send_and_leave(&bytes, false, Duration::from_millis(after));
            });
        });
    }
}

#[test]
fn servers_reload_under_load() {
    for server in SERVERS {
        let Some(site) = Site::start(server) else {
            continue;
        };
        let before = site.workers();
        unnoticed_but_for(&site, site.tolerated(), |_| {
            for _ in 0..3 {
                site.perform("reload");
                sleep(Duration::from_millis(400));
            }
            if server == "nginx" {
                site.perform("upgrade");
            }
        });
        let is_replaced = site.has_replaced(&before);
        assert!(is_replaced || server == "stunnel", "{before:?}");
        assert!(site.on_lanes("x25519-keygen") > 0, "{}", site.logs());
    }
}

#[test]
fn keys_are_replaced_under_load() {
    for server in SERVERS {
        let Some(site) = Site::start(server) else {
            continue;
        };
        fs::copy(site.path("site.crt"), site.path("old.crt")).expect("a certificate");
        let renewed = "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost \
             -addext subjectAltName=DNS:localhost -keyout new.key -out new.crt";
        site.shell(renewed);
        let both = [&*site.path("old.crt"), &*site.path("new.crt")];
        let load = Load::start(&Client::trusting(&site, &both), CLIENTS);
        site.shell("cat new.crt new.key > new.pem; mv new.key site.key; mv new.pem site.pem; cp new.crt site.crt");
        site.perform("reload");
        // From some moment on, all get the new certificate.
        let new = Client::trusting(&site, &[&site.path("new.crt")]);
        let mut in_a_row = 0;
        let deadline = Instant::now() + Duration::from_secs(120);
        while in_a_row < 20 {
            in_a_row = if new.handshake(0).is_ok() {
                in_a_row + 1
            } else {
                0
            };
            assert!(
                Instant::now() < deadline,
                "{server} keeps the old key: {}",
                site.logs()
            );
        }
        load.flawless_but_for(&site, site.tolerated());
        assert!(site.on_lanes("x25519-keygen") > 0, "{}", site.logs());
    }
}

#[test]
fn a_worker_is_killed() {
    for server in ["apache", "nginx"] {
        let Some(site) = Site::start(server) else {
            continue;
        };
        let load = Load::start(&Client::of(&site), CLIENTS);
        load.shake_hands(50);
        let killed = site.workers()[0];
        signal(killed, libc::SIGKILL);
        wait_for("new worker", || {
            site.workers().iter().any(|&pid| pid != killed)
        });
        load.shake_hands(100);
        // Only connections that the killed process had can have failed.
        let (_, failures) = load.stop();
        assert!(failures.len() <= 2 * CLIENTS, "{server}: {failures:?}");
        let left = site.stats().into_iter().find(|stats| stats.pid == killed);
        assert!(!left.expect("what it had published").alive);
        let load = Load::start(&Client::of(&site), CLIENTS);
        load.shake_hands(100);
        load.flawless(&site);
        assert!(site.on_lanes("x25519-keygen") > 0, "{}", site.logs());
    }
}

/// HAProxy's master ends with a worker that was killed, as stunnel is its only process: with
/// OpenSSL alone just the same. Their supervisor starts them anew.
#[test]
fn servers_that_end_when_killed_start_again() {
    for (server, with_lockstep) in [("haproxy", true), ("haproxy", false), ("stunnel", true)] {
        let site = Site::start_changed(server, |site| {
            if !with_lockstep {
                site.use_stock();
            }
        });
        let Some(site) = site else {
            continue;
        };
        let load = Load::start(&Client::of(&site), CLIENTS);
        load.shake_hands(50);
        let (master, killed) = (site.master().expect("it runs"), site.workers()[0]);
        signal(killed, libc::SIGKILL);
        wait_for("end", || !is_running(master));
        load.stop();
        site.perform("start");
        site.wait_until_open();
        if !with_lockstep {
            continue;
        }
        let left = site.stats().into_iter().find(|stats| stats.pid == killed);
        assert!(left.is_none_or(|left| !left.alive), "{server}");
        unnoticed(&site, |_| {});
        assert!(site.on_lanes("x25519-keygen") > 0, "{}", site.logs());
    }
}

#[test]
fn servers_are_stopped_for_a_second() {
    for server in SERVERS {
        let Some(site) = Site::start(server) else {
            continue;
        };
        unnoticed(&site, |_| {
            let workers = site.workers();
            workers.iter().for_each(|&pid| stop(pid));
            sleep(Duration::from_secs(1));
            workers.iter().for_each(|&pid| signal(pid, libc::SIGCONT));
        });
    }
}

#[test]
fn servers_run_out_of_descriptors() {
    for server in SERVERS {
        let Some(site) = Site::start(server) else {
            continue;
        };
        let client = Client::of(&site);
        client.handshake(0).expect("a server that works");
        let workers = site.workers();
        let limit = |free: Option<usize>| {
            for pid in &workers {
                let open = fs::read_dir(format!("/proc/{pid}/fd"))
                    .into_iter()
                    .flatten();
                let most = free.map_or(1024, |free| open.count() + free);
                site.shell(&format!("prlimit --pid {pid} --nofile={most}:"));
            }
        };
        let load = Load::start(&client, 16);
        for _ in 0..10 {
            // So few that connections, or the descriptors by which jobs wake, must do without.
            limit(Some(3));
            sleep(Duration::from_millis(20));
        }
        limit(None);
        load.stop();
        unnoticed(&site, |_| {});
    }
}

/// HAProxy forbids itself new threads, unless it is configured otherwise: then no worker can start.
/// Jobs that lead need none. The recipe leaves it at that.
#[test]
fn haproxy_uses_lanes_whether_it_forbids_threads_or_not() {
    if !has_ifma() {
        println!("skipped: this CPU has no AVX-512 IFMA, and no job pauses");
        return;
    }
    for forbids in [true, false] {
        let site = Site::start_changed("haproxy", |site| {
            if !forbids {
                let mode = "    ssl-mode-async\n";
                site.edit(
                    "haproxy.cfg",
                    mode,
                    &format!("{mode}    insecure-fork-wanted\n"),
                );
            }
            // With one slot no worker would be wanted.
            site.edit("lockstep/openssl.cnf", "stats_dir", "slots = 2\nstats_dir");
        });
        let Some(site) = site else {
            return;
        };
        unnoticed(&site, |_| {});
        let counters = site.counters();
        assert_eq!(counters.fallbacks_for(Fallback::NoWorkers), 0);
        assert!(counters.operations() > 0, "{counters:?}");
    }
}

/// All are there before the first job needs a descriptor, so there is no socket with a higher
/// number then, and there is none later.
#[test]
fn the_first_clients_of_a_new_haproxy_have_descriptors() {
    const CLIENTS: u64 = 64;
    // RSA is computed on all lanes, and pauses.
    let lanes = |site: &mut Site| site.set("LOCKSTEP_LONE", "lanes".into());
    let Some(site) = Site::start_changed("haproxy", lanes) else {
        return;
    };
    let open = Client::of(&site).open_together(CLIENTS as usize);
    let open = open.unwrap_or_else(|error| panic!("{error}\n{}", site.logs()));
    let counters = site.counters();
    assert_eq!(site.on_lanes("rsa2048"), CLIENTS, "{counters:?}");
    assert!(counters.async_submitted >= CLIENTS, "{counters:?}");
    let unpaused = (counters.unpaused, counters.no_descriptor);
    assert_eq!(unpaused, (0, 0), "{counters:?}");
    drop(open);
}

/// HAProxy's table of descriptors has two places for each connection that `maxconn` allows, for the
/// client's socket and the one to a server behind it. A connection that has paused needs one more:
/// `maxpipes` reserves it. Without it connections are refused early, and HAProxy must not see a
/// descriptor beyond its table, since it aborts then.
#[test]
fn haproxy_has_descriptors_for_all_connections() {
    let behind = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = behind.local_addr().expect("bound").port();
    let (asked, asks) = channel();
    thread::spawn(move || behind.incoming().try_for_each(|stream| asked.send(stream)));
    // By which of the three numbers in a row the last descriptor would be beyond the table depends
    // on much.
    for (most, reserves) in [(100, false), (101, false), (102, false), (102, true)] {
        let site = Site::start_changed("haproxy", |site| {
            let reserve = if reserves {
                format!("    maxpipes {}\n", most / 2)
            } else {
                String::new()
            };
            let limits = format!("    maxconn {most}\n{reserve}");
            site.edit(
                "haproxy.cfg",
                "    maxconn 2000\n    maxpipes 1000\n",
                &limits,
            );
            let text = "http-request return status 200 content-type text/plain string \"hello\"";
            let held =
                format!("default_backend held\nbackend held\n    server held 127.0.0.1:{port}");
            site.edit("haproxy.cfg", text, &held);
        });
        let Some(site) = site else {
            return;
        };
        let client = Client::of(&site);
        let workers = site.workers();
        let open: Vec<_> = (0..most).map_while(|_| client.ask().ok()).collect();
        assert!(
            workers.iter().all(|&pid| is_running(pid)),
            "{}",
            site.logs()
        );
        if reserves {
            assert_eq!(open.len(), most, "{}", site.logs());
            // The server behind it holds them all.
            let held: Vec<_> = (0..most)
                .map_while(|_| asks.recv_timeout(Duration::from_secs(10)).ok())
                .collect();
            assert_eq!(held.len(), most, "{}", site.logs());
            let counters = site.counters();
            let paused = counters.async_submitted as usize;
            assert!(!has_ifma() || paused > most / 2, "{counters:?}");
        } else {
            assert!(open.len() >= most / 2, "{} of {most}", open.len());
        }
        drop(open);
        while asks.try_recv().is_ok() {}
        // It goes on with new connections.
        wait_for("a handshake", || client.handshake(0).is_ok());
        assert!(
            workers.iter().all(|&pid| is_running(pid)),
            "{}",
            site.logs()
        );
    }
}

/// HAProxy frees a connection whose job is paused, and libssl never frees the job (haproxy#3453).
/// `docs/user/servers/haproxy.md` promises a bound. Here connections end by HAProxy's own timeout
/// while they wait behind others for slow lanes, which is the surest way to lose jobs.
#[test]
fn what_haproxy_leaks_is_bounded() {
    // The bound is a constant of the shipped module.
    let Some(faulty) = std::env::var_os("LOCKSTEP_FAULT_DIST").map(PathBuf::from) else {
        println!("skipped: no LOCKSTEP_FAULT_DIST (cargo xtask test builds that module)");
        return;
    };
    let bound = 128;
    let storm = |with_lockstep: bool| {
        let site = Site::start_changed("haproxy", |site| {
            for timeout in ["timeout client 10s", "timeout http-request 10s"] {
                site.edit("haproxy.cfg", timeout, &timeout.replace("10s", "4ms"));
            }
            let module = site.path("lockstep/lockstep.so");
            fs::copy(faulty.join("lockstep.so"), module).expect("a module for tests");
            let conf = "lockstep/openssl.cnf";
            site.edit(
                conf,
                "stats_dir",
                &format!("max_lost = {bound}\nbackend = portable\nstats_dir"),
            );
            if !with_lockstep {
                site.use_stock();
            }
        })?;
        let client = Client::of(&site);
        let mut figures = vec![(site.resident(), site.counters().lost)];
        for _ in 0..2 {
            let load = Load::start(&client, 32);
            sleep(Duration::from_millis(800));
            load.stop();
            sleep(Duration::from_millis(300));
            figures.push((site.resident(), site.counters().lost));
        }
        Some(figures)
    };
    let Some(ours) = storm(true) else {
        return;
    };
    let theirs = storm(false).expect("it was there just now");
    println!("(KiB resident, jobs lost) as time goes on:");
    println!("with us {ours:?}; without {theirs:?}");
    let [first, .., last] = ours[..] else {
        panic!("three figures");
    };
    // Jobs that were paused when the bound was reached may be lost too.
    assert!(last.1 <= bound + 64, "{ours:?}");
    // The lost jobs, and the memory of a warm server.
    assert!(last.0 < first.0 + 40 * last.1 + 8 * 1024, "{ours:?}");
}
