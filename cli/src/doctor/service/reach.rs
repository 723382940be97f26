//! Ports of a service that the loopback interface reaches.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use lockstep_common::Failure;

use super::handshake::{Client, Offer, Session};
use super::sockets::{by_loopback, listening, open_sockets};
use super::subject::Subject;
use crate::doctor::finding::{Finding, Verdict};

/// Alert of a server that cannot continue, as without its key (RFC 8446, section 6.2).
const INTERNAL_ERROR: &str = "alert internal error";

/// Maximum number of addresses to try. A process may listen at any number of them, and not answer.
const MOST_ADDRESSES: usize = 16;

/// Tries a handshake at this address, or at each port where the service listens. Returns a client
/// that asks for this name for each port where the handshake succeeds, and reports the other ports.
pub fn clients(
    subject: &Subject,
    connect: Option<&str>,
    name: Option<&str>,
) -> (Vec<(Client, Session)>, Option<Finding>) {
    let has_own_network = subject.main().is_some_and(|main| !main.shares("net"));
    let (addresses, mut refused) = match connect {
        Some(address) => (vec![address.to_owned()], Vec::new()),
        None if has_own_network => (Vec::new(), vec!["it has a network of its own".to_owned()]),
        None => addresses(subject),
    };
    let mut reached = Vec::new();
    for address in addresses {
        let tried = Client::new(address.as_str(), name).and_then(|client| {
            let session = client.handshake(Offer::default())?;
            Ok((client, session))
        });
        match tried {
            Ok(both) => reached.push(both),
            Err(failure) => refused.push(format!("{address}: {}", failure.what)),
        }
    }
    let refused = match (&refused[..], reached.is_empty()) {
        ([], false) => return (reached, None),
        ([], true) => "it listens nowhere".to_owned(),
        _ => refused.join("; "),
    };
    let lacks_key = refused.contains(INTERNAL_ERROR);
    let verdict = match lacks_key || reached.is_empty() {
        true => Verdict::Failed,
        false => Verdict::Note,
    };
    let remedy = match lacks_key {
        true => {
            "see what the server logs about it: it may lack the key of its certificate. The key \
             daemon may have the key and not answer (see lockstep doctor)"
        }
        false => {
            "none is needed for a port without TLS; otherwise name an address at which it serves \
             TLS, --connect HOST:PORT, and where it serves none without a name, that: --servername \
             NAME"
        }
    };
    let what = format!("no TLS handshake with {}: {refused}", subject.shown());
    let failure = Failure::new(what).remedy(remedy);
    (reached, Some(Finding::of("handshakes", verdict, failure)))
}

/// Lists the addresses that the loopback interface reaches, and the others with the reason why they
/// are not tried.
fn addresses(subject: &Subject) -> (Vec<String>, Vec<String>) {
    let serving = subject.serving();
    let open = serving
        .iter()
        .flat_map(|process| open_sockets(process))
        .collect();
    let listeners = serving.iter().flat_map(|process| listening(process, &open));
    let all: BTreeSet<SocketAddr> = listeners.collect();
    let (near, far): (Vec<_>, Vec<_>) = all.iter().partition(|own| by_loopback(**own).is_some());
    let near: BTreeSet<SocketAddr> = near.into_iter().copied().filter_map(by_loopback).collect();
    let far = far
        .iter()
        .map(|own| format!("{own}: not tried, it may be another machine's by now"));
    let more = near.iter().skip(MOST_ADDRESSES);
    let more = more.map(|own| format!("{own}: not tried, after {MOST_ADDRESSES} others"));
    let tried = near.iter().take(MOST_ADDRESSES).map(ToString::to_string);
    (tried.collect(), more.chain(far).collect())
}
