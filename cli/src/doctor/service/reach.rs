//! How a service is reached: where it listens, as far as that is on the loopback interface.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::handshake::{Client, Offer, Session};
use super::sockets::{by_loopback, listening, open_sockets};
use super::subject::Subject;
use crate::doctor::finding::{Named, Verdict};

/// The alert of a server that can go on no further, as without its key (RFC 8446, section 6.2).
const INTERNAL_ERROR: &str = "alert internal error";

/// The most addresses that are tried. A process may listen at any number of them, and not answer.
const MOST_ADDRESSES: usize = 16;

/// A client that has shaken hands with a service, at this address or where it listens, and asked
/// for this name; with what they agreed on.
pub fn client(
    subject: &Subject,
    connect: Option<&str>,
    name: Option<&str>,
) -> Result<(Client, Session), Named> {
    let failed = |what: String, remedy: &str| {
        let answer = (Verdict::Failed, what, Some(remedy.to_owned()));
        ("handshakes", answer)
    };
    let has_own_network = subject.main().is_some_and(|main| !main.shares("net"));
    if connect.is_none() && has_own_network {
        return Err(failed(
            format!("{} has a network of its own", subject.shown()),
            "name an address of it: --connect HOST:PORT",
        ));
    }
    let addresses: Vec<String> = match connect {
        Some(address) => vec![address.to_owned()],
        None => addresses(subject).iter().map(ToString::to_string).collect(),
    };
    let mut refusals = Vec::new();
    for address in addresses {
        let tried = Client::new(address.as_str(), name).and_then(|client| {
            let session = client.handshake(Offer::default())?;
            Ok((client, session))
        });
        match tried {
            Ok(reached) => return Ok(reached),
            Err(failure) => refusals.push(format!("{address}: {}", failure.what)),
        }
    }
    let tried = match &refusals[..] {
        [] => "it listens nowhere on the loopback interface".to_owned(),
        _ => refusals.join("; "),
    };
    let remedy = match tried.contains(INTERNAL_ERROR) {
        true => {
            "see what the server logs about it: it may lack the key of its certificate, as where \
             that is in the key daemon, which does not answer (lockstep doctor says so)"
        }
        false => {
            "name an address at which it serves TLS, --connect HOST:PORT, and where it serves none \
             without a name, that: --servername NAME"
        }
    };
    let what = format!("no TLS handshake with {}: {tried}", subject.shown());
    Err(failed(what, remedy))
}

/// Where it can be reached over the loopback interface.
fn addresses(subject: &Subject) -> BTreeSet<SocketAddr> {
    let serving = subject.serving();
    let open = serving
        .iter()
        .flat_map(|process| open_sockets(process))
        .collect();
    let listeners = serving.iter().flat_map(|process| listening(process, &open));
    let addresses: BTreeSet<SocketAddr> = listeners.filter_map(by_loopback).collect();
    addresses.into_iter().take(MOST_ADDRESSES).collect()
}
