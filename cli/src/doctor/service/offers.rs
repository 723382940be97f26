//! The certificates and groups of a service, and which of them the lanes compute.

use lockstep_engine::Snapshot;

use super::groups::GroupList;
use super::handshake::{CERTIFICATES, CLIENTS, Client, HYBRID, HYBRIDS, Offer};
use super::judge;
use super::tally::{self, Tally};
use crate::doctor::finding::{Finding, failed, note};
use crate::words::joined;

/// Groups whose key exchange the lanes compute, or a part of it.
const GROUPS: [&str; 4] = [HYBRID, "X25519", "P-256", "P-384"];

/// Number of handshakes with each group.
const TRIES: u64 = 4;

/// Results of the handshakes at one port.
pub struct Served {
    address: String,
    /// Whether the service has certificates, but none of a kind in [`CERTIFICATES`].
    is_of_other_kind: bool,
    certificates: Vec<Tried>,
    groups: Vec<Tried>,
}

/// A certificate or a group that the service supports.
struct Tried {
    shown: String,
    handshakes: u64,
    /// Counters of the service's processes for these handshakes, if they are known.
    counted: Option<Snapshot>,
    is_on_lanes: bool,
}

impl Tried {
    fn shown(&self) -> String {
        let by = match (&self.counted, self.is_on_lanes) {
            (None, _) => "",
            (_, true) => " on lanes",
            (_, false) => " by OpenSSL's own code",
        };
        format!("{}{by}", self.shown)
    }
}

impl Served {
    /// Tries all kinds of certificates with several clients at a time, then the usual groups, and
    /// the other hybrids that a list of the service names.
    pub fn try_all(client: &Client, tally: Option<&Tally>, lists: &[GroupList]) -> Served {
        let certificates = CERTIFICATES.into_iter().filter_map(|(kind, signatures)| {
            let offer = Offer {
                signatures: Some(signatures),
                ..Offer::default()
            };
            let shown = client.handshake(offer).ok()?.shown(kind);
            let is_on_lanes = |counted: &Snapshot| judge::signatures(counted) > 0;
            Tried::new(shown, tally, is_on_lanes, |counted| {
                let enough = || match tally {
                    Some(_) => judge::settled(&counted()?),
                    None => Some(0),
                };
                client.many_handshakes(offer, &enough).unwrap_or(0)
            })
        });
        let certificates: Vec<Tried> = certificates.collect();
        let is_of_other_kind =
            certificates.is_empty() && client.handshake(Offer::default()).is_ok();
        let is_named = |group: &&str| lists.iter().any(|own| own.list.contains(*group));
        let groups = HYBRIDS.into_iter().filter(is_named).chain(GROUPS);
        let groups = groups.filter_map(|group| {
            let offer = Offer {
                groups: Some(group),
                ..Offer::default()
            };
            let is_on_lanes = |counted: &Snapshot| judge::exchanges(counted, group) > 0;
            Tried::new(group.to_owned(), tally, is_on_lanes, |_| {
                let agrees = || {
                    let session = client.handshake(offer);
                    session.is_ok_and(|session| session.has_agreed_on(group))
                };
                let failed = (0..TRIES).find(|_| !agrees());
                failed.unwrap_or(TRIES)
            })
        });
        Served {
            address: client.address().to_owned(),
            is_of_other_kind,
            certificates,
            groups: groups.collect(),
        }
    }

    /// Whether the service agrees on [`HYBRID`].
    pub fn has_hybrid(&self) -> bool {
        self.groups.iter().any(|tried| tried.shown == HYBRID)
    }

    pub fn findings(&self) -> [Finding; 2] {
        let list = |tried: &[Tried]| joined(tried.iter().map(Tried::shown), ", ");
        let Served {
            address,
            is_of_other_kind,
            certificates,
            groups,
        } = self;
        let kinds = CERTIFICATES.map(|(kind, _)| kind).join(", ");
        let certificates = match &certificates[..] {
            [] if *is_of_other_kind => {
                let what = format!(
                    "handshakes at {address} succeed, with a certificate of another kind than \
                     {kinds}, as RSA-PSS or Ed448: lanes do not sign with its key"
                );
                note("handshakes", what)
            }
            [] => {
                let what = format!(
                    "a handshake at {address} succeeded, and then none did with certificates of \
                     one kind ({kinds}), {CLIENTS} at a time"
                );
                let remedy = "see what the server logs about them; it may lack the key of its \
                              certificate";
                failed("handshakes", what, remedy)
            }
            tried => {
                let handshakes = self.handshakes();
                let certificates = list(tried);
                note(
                    "handshakes",
                    format!("{handshakes} handshakes at {address}, certificates: {certificates}"),
                )
            }
        };
        let groups = match &groups[..] {
            [] => format!(
                "at {address} it agrees on none of these groups: {}",
                GROUPS.join(", ")
            ),
            tried => format!("key exchange at {address}: {}", list(tried)),
        };
        [certificates, note("exchange", groups)]
    }

    fn handshakes(&self) -> u64 {
        self.certificates.iter().map(|tried| tried.handshakes).sum()
    }

    /// Judges the counters of all handshakes with several clients at a time; empty if there were
    /// none.
    pub fn judged(&self, is_filtered: bool) -> Vec<Finding> {
        if self.certificates.is_empty() {
            return Vec::new();
        }
        let counted = self.certificates.iter();
        let sum = tally::sum(counted.filter_map(|tried| tried.counted.clone()));
        let all = judge::handshakes(&sum, self.handshakes(), CLIENTS, is_filtered);
        let at = |own: Finding| Finding {
            what: format!("{} (at {})", own.what, self.address),
            ..own
        };
        all.into_iter().map(at).collect()
    }
}

impl Tried {
    /// Calls `make`, which makes handshakes and returns their number. It may ask for the counts so
    /// far. Returns `None` if it made no handshake.
    fn new(
        shown: String,
        tally: Option<&Tally>,
        is_on_lanes: impl Fn(&Snapshot) -> bool,
        make: impl FnOnce(&dyn Fn() -> Option<Snapshot>) -> u64,
    ) -> Option<Tried> {
        let read = || tally.and_then(|tally| tally.read().ok());
        let before = read();
        let counted = || {
            before
                .as_ref()
                .and_then(|before| Some(read()?.since(before)))
        };
        let handshakes = make(&counted);
        let counted = counted();
        (handshakes > 0).then(|| Tried {
            shown,
            handshakes,
            is_on_lanes: counted.as_ref().is_some_and(is_on_lanes),
            counted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn where_nothing_is_served_the_handshakes_have_failed() {
        let mut served = Served {
            address: "127.0.0.1:1".to_owned(),
            is_of_other_kind: false,
            certificates: Vec::new(),
            groups: Vec::new(),
        };
        let [shaken, groups] = served.findings();
        assert_eq!(
            (shaken.check, shaken.verdict),
            ("handshakes", Verdict::Failed)
        );
        assert!(shaken.what.contains("127.0.0.1:1") && shaken.remedy.is_some());
        assert!(groups.what.ends_with("X25519, P-256, P-384"), "{groups:?}");
        // There is no verdict about lanes.
        assert!(served.judged(false).is_empty());
        served.is_of_other_kind = true;
        assert_eq!(served.findings()[0].verdict, Verdict::Note);
    }
}
