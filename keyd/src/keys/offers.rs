//! Offers: the keys that a process may use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use lockstep_remote::protocol::{self, Offered, Uses, Verdict};
use lockstep_ring::{Answers, Credentials};

use crate::keys::access::{Access, Account};
use crate::keys::key::Key;

/// A key that the daemon serves.
pub struct ServedKey {
    /// Its name in references.
    pub name: String,
    /// The key.
    pub key: Key,
    /// Its users, and the permitted operations.
    pub access: Access,
    /// Whether the daemon holds it no longer.
    pub is_removed: AtomicBool,
}

/// The keys that processes with the same rights may use, and the encoded list of these keys.
pub struct Offer {
    /// The keys and permitted operations. A handle is an index.
    grants: Vec<(Arc<ServedKey>, Uses)>,
    /// The list of these keys, as the daemon sends it after the verdict.
    pub list: Vec<u8>,
}

impl Offer {
    /// Creates the offer of these keys; `None` if their list is too long.
    pub fn new(grants: Vec<(Arc<ServedKey>, Uses)>) -> Option<Offer> {
        let offered = |(handle, (served, uses)): (usize, &(Arc<ServedKey>, Uses))| Offered {
            handle: handle as u64,
            uses: *uses,
            name: served.name.clone(),
            public: served.key.public.clone(),
        };
        let offered: Vec<Offered> = grants.iter().enumerate().map(offered).collect();
        let list = protocol::list(&offered)?;
        Some(Offer { grants, list })
    }

    /// Returns whether one of the keys has been removed.
    pub fn is_outdated(&self) -> bool {
        let mut grants = self.grants.iter();
        grants.any(|(served, _)| served.is_removed.load(Ordering::Acquire))
    }

    /// Returns the length of answers that these keys need.
    pub fn answers(&self) -> Answers {
        answers_of(self.grants.iter().map(|(served, _)| served))
    }

    /// Returns the key with this handle, and its permitted operations.
    pub fn grant(&self, handle: u64) -> Option<&(Arc<ServedKey>, Uses)> {
        self.grants.get(usize::try_from(handle).ok()?)
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.grants.len()
    }
}

/// The current offers. A process that connects again shares the offer of the other processes with
/// its rights.
pub struct Offers {
    keys: Vec<Arc<ServedKey>>,
    /// Offers by the permitted operations of each key.
    shared: HashMap<Vec<Uses>, Weak<Offer>>,
}

impl Offers {
    /// Creates the offers of these keys.
    pub fn new(keys: Vec<Arc<ServedKey>>) -> Offers {
        let shared = HashMap::new();
        Offers { keys, shared }
    }

    /// Offers these keys from now on.
    pub fn change(&mut self, keys: Vec<Arc<ServedKey>>) {
        self.keys = keys;
        self.shared.clear();
    }

    /// Returns the keys that are offered now.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<Arc<ServedKey>> {
        self.keys.clone()
    }

    /// Returns the account of a process; `None` if it may use no key.
    pub fn account(&self, peer: Credentials) -> Option<Account> {
        let accounts = self
            .keys
            .iter()
            .filter_map(|key| key.access.account_of(peer));
        accounts.min()
    }

    /// Returns the verdict on a process that may use none of the keys known to this version of the
    /// protocol; `None` if it may use one.
    pub fn verdict(&self, peer: Credentials, version: u32) -> Option<Verdict> {
        let own = self.keys.iter();
        let own = own.filter(|key| key.access.uses_of(peer).any());
        let known = own.map(|key| is_known(key, version));
        match known.max() {
            None => Some(Verdict::Stranger),
            Some(false) => Some(Verdict::OtherVersion),
            Some(true) => None,
        }
    }

    /// Returns the offer for a process that speaks this version, or the verdict of the rejection.
    pub fn of(&mut self, peer: Credentials, version: u32) -> Result<Arc<Offer>, Verdict> {
        let uses = self.keys.iter().map(|key| match is_known(key, version) {
            true => key.access.uses_of(peer),
            false => Uses::default(),
        });
        let uses: Vec<Uses> = uses.collect();
        if let Some(offer) = self.shared.get(&uses).and_then(Weak::upgrade) {
            return Ok(offer);
        }
        let all = self.keys.iter().cloned().zip(uses.iter().copied());
        let grants: Vec<_> = all.filter(|(_, uses)| uses.any()).collect();
        if grants.is_empty() {
            return Err(self.verdict(peer, version).unwrap_or(Verdict::Stranger));
        }
        let offer = Arc::new(Offer::new(grants).ok_or(Verdict::Failed)?);
        // At most one offer for each process remains.
        self.shared.retain(|_, offer| offer.strong_count() > 0);
        self.shared.insert(uses, Arc::downgrade(&offer));
        Ok(offer)
    }
}

/// Returns the length of answers that some keys need.
pub fn answers_of<'a>(mut keys: impl Iterator<Item = &'a Arc<ServedKey>>) -> Answers {
    match keys.any(|served| served.key.has_long_answers()) {
        true => Answers::Long,
        false => Answers::Short,
    }
}

/// Returns whether this version of the protocol knows a key.
fn is_known(key: &ServedKey, version: u32) -> bool {
    !key.key.has_long_answers() || protocol::has_ml_dsa(version)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use lockstep_engine::MlDsa;
    use lockstep_remote::protocol::{EARLIER, VERSION};

    use super::*;
    use crate::keyd_conf::KeySection;
    use crate::keys::access::tests::peer;
    use crate::keys::key::tests::{ed25519, ml_dsa, rsa2048};
    use crate::system::accounts::Accounts;

    const SIGN: Uses = Uses {
        sign: true,
        decrypt: false,
    };
    const DECRYPT: Uses = Uses {
        sign: false,
        decrypt: true,
    };

    /// A key of Ed25519 and one of RSA-2048.
    pub(crate) static SERVED_KEYS: LazyLock<[Arc<ServedKey>; 2]> = LazyLock::new(|| {
        [("ed25519", ed25519()), ("rsa2048", rsa2048())].map(|(name, key)| {
            Arc::new(ServedKey {
                name: name.to_owned(),
                key,
                access: Access::default(),
                is_removed: AtomicBool::new(false),
            })
        })
    });

    /// Creates an offer of no keys with these bytes as its list.
    pub(crate) fn offer(list: Vec<u8>) -> Arc<Offer> {
        let grants = Vec::new();
        Arc::new(Offer { grants, list })
    }

    #[test]
    fn processes_with_the_same_rights_share_what_they_are_offered() {
        let section = |users: &[&str], uses| KeySection {
            users: users.iter().map(|&user| user.to_owned()).collect(),
            uses,
            ..KeySection::default()
        };
        let held = |name: &str, section: &KeySection| {
            Arc::new(ServedKey {
                name: name.to_owned(),
                key: ed25519(),
                access: Access::new(section, &Accounts::of_system()).0,
                is_removed: AtomicBool::new(false),
            })
        };
        let keys = [
            held("a", &section(&["7", "8", "9"], SIGN)),
            held("b", &section(&["9"], DECRYPT)),
        ];
        let mut offers = Offers::new(keys.to_vec());
        let peer = |user| peer(user, 4711);
        let names = |offer: &Offer| {
            let list = protocol::read_list(&offer.list).expect("a list");
            let names = list.into_iter().map(|key| (key.handle, key.name, key.uses));
            names.collect::<Vec<_>>()
        };
        let (a, b) = ((0, "a".to_owned(), SIGN), (1, "b".to_owned(), DECRYPT));
        let mut of = |user| offers.of(peer(user), VERSION);
        let seven = of(7).expect("a key");
        let nine = of(9).expect("keys");
        assert_eq!((seven.count(), nine.count()), (1, 2));
        assert_eq!(names(&seven), std::slice::from_ref(&a));
        assert_eq!(names(&nine), [a, b]);
        let eight = of(8).expect("a key");
        assert!(Arc::ptr_eq(&seven, &eight));
        assert_eq!(of(10).err(), Some(Verdict::Stranger));
        let accounts = [8, 10].map(|user| offers.account(peer(user)));
        assert_eq!(accounts, [Some(Account::User(8)), None]);
        assert_eq!(offers.shared.len(), 2);
        // An offer is freed with its last process.
        drop(nine);
        drop((seven, eight));
        drop(offers.of(peer(9), VERSION));
        assert_eq!(offers.shared.len(), 1);
    }

    /// Rings of the previous release cannot hold signatures of ML-DSA.
    #[test]
    fn keys_of_ml_dsa_are_offered_to_those_who_know_them() {
        let section = |user: &str| KeySection {
            users: vec![user.to_owned()],
            uses: SIGN,
            ..KeySection::default()
        };
        let held = |name: &str, key, users: &str| {
            Arc::new(ServedKey {
                name: name.to_owned(),
                key,
                access: Access::new(&section(users), &Accounts::of_system()).0,
                is_removed: AtomicBool::new(false),
            })
        };
        let keys = vec![
            held("a", ml_dsa(MlDsa::MlDsa44), "7"),
            held("b", ed25519(), "7"),
            held("c", ml_dsa(MlDsa::MlDsa87), "8"),
            held("d", ed25519(), "9"),
        ];
        let mut offers = Offers::new(keys);
        let mut of = |user, version| {
            let offer = offers.of(peer(user, 4711), version)?;
            let list = protocol::read_list(&offer.list).expect("a list");
            let names: Vec<String> = list.into_iter().map(|key| key.name).collect();
            Ok((names.join(" "), offer.answers()))
        };
        let offered = |names: &str, answers| Ok((names.to_owned(), answers));
        assert_eq!(of(7, VERSION), offered("a b", Answers::Long));
        assert_eq!(of(7, EARLIER), offered("b", Answers::Short));
        assert_eq!(of(8, VERSION), offered("c", Answers::Long));
        assert_eq!(of(8, EARLIER), Err(Verdict::OtherVersion));
        assert_eq!(of(10, EARLIER), Err(Verdict::Stranger));
        assert_eq!(of(9, VERSION), offered("d", Answers::Short));
        assert_eq!(of(9, EARLIER), offered("d", Answers::Short));
    }
}
