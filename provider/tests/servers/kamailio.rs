//! Kamailio, whose processes share OpenSSL's memory and hand connections to each other: the module
//! stands back, and the server works as without it.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use lockstep_engine::Fallback;

use crate::client::Client;
use crate::site::{Site, is_running, within};

/// A request that Kamailio answers by itself.
fn request(number: usize) -> String {
    format!(
        "OPTIONS sip:a@127.0.0.1 SIP/2.0\r\n\
         Via: SIP/2.0/TLS 127.0.0.1:9;branch=z9hG4bK{number}\r\n\
         From: <sip:b@127.0.0.1>;tag=1\r\n\
         To: <sip:a@127.0.0.1>\r\n\
         Call-ID: {number}\r\n\
         CSeq: 1 OPTIONS\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

#[test]
fn kamailio_works_as_without_the_module() {
    let modules = "/usr/lib/x86_64-linux-gnu/kamailio/modules/tls.so";
    if !Path::new(modules).exists() {
        println!("skipped: {modules} is not installed (`cargo xtask setup` installs it)");
        return;
    }
    let Some(site) = Site::start("kamailio") else {
        return;
    };
    let (master, workers) = (site.running_master(), site.workers());
    let client = Client::of(&site);
    // Without the mend it ends at its first disconnect. Several connections at a time, of TLS 1.2
    // and 1.3, are used by processes that did not make them.
    for round in 0..6 {
        let mut open: Vec<_> = (0..4)
            .map(|number| {
                let version_12 = (round + number) % 2 == 0;
                client.open(version_12).expect("a connection")
            })
            .collect();
        for turn in 0..2 {
            for (number, session) in open.iter_mut().enumerate() {
                let text = request(100 * round + 10 * number + turn);
                session.write_all(text.as_bytes()).expect("it reads");
                let mut answer = [0; 2000];
                let length = session.read(&mut answer).expect("an answer");
                let answer = String::from_utf8_lossy(&answer[..length]);
                assert!(
                    answer.starts_with("SIP/2.0 200 OK"),
                    "{answer}\n{}",
                    site.logs()
                );
            }
        }
        for mut session in open {
            let _ = session.shutdown();
        }
    }
    // A connection that has ended is taken down a moment later.
    std::thread::sleep(Duration::from_millis(500));
    let alive = [&[master][..], &workers].concat();
    assert!(alive.iter().all(|&pid| is_running(pid)), "{}", site.logs());
    let log = fs::read_to_string(site.path("kamailio.log")).expect("its log");
    assert!(!log.contains("signal"), "{log}");

    let published = within(Duration::from_secs(5), || {
        site.counters().fallbacks_for(Fallback::SharedMemory) > 0
    });
    let counters = site.counters();
    assert!(published, "{counters:?}");
    let did = (
        counters.operations(),
        counters.derivations,
        counters.ciphers,
    );
    assert_eq!(did, (0, 0, 0), "{counters:?}");
    assert!(site.perform("check").contains("shared_memory"));
}
