//! How a service is reached: where it listens, as far as that is on the loopback interface.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::handshake::{Client, Offer};
use super::sockets::{by_loopback, listening, open_sockets};
use super::subject::Subject;
use crate::doctor::finding::{Named, Verdict};

/// A client that has shaken hands with a service, at this address or where it listens, and asked
/// for this name.
pub fn client(
    subject: &Subject,
    connect: Option<&str>,
    name: Option<&str>,
) -> Result<Client, Named> {
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
        let tried = Client::new(address.as_str(), name)
            .and_then(|client| client.handshake(Offer::default()).map(|_| client));
        match tried {
            Ok(client) => return Ok(client),
            Err(failure) => refusals.push(format!("{address}: {}", failure.what)),
        }
    }
    let tried = match &refusals[..] {
        [] => "it listens nowhere on the loopback interface".to_owned(),
        _ => refusals.join("; "),
    };
    Err(failed(
        format!("no TLS handshake with {}: {tried}", subject.shown()),
        "name an address at which it serves TLS, --connect HOST:PORT, and where it serves none \
         without a name, that: --servername NAME",
    ))
}

/// Where it can be reached over the loopback interface.
fn addresses(subject: &Subject) -> BTreeSet<SocketAddr> {
    let serving = subject.serving();
    let open = serving
        .iter()
        .flat_map(|process| open_sockets(process))
        .collect();
    let listeners = serving.iter().flat_map(|process| listening(process, &open));
    listeners.filter_map(by_loopback).collect()
}
