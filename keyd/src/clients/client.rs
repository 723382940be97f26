//! Clients: the processes that the daemon serves.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use lockstep_engine::{Request, Secret};
use lockstep_remote::Operation;
use lockstep_remote::protocol::{self, Offered, Uses, Verdict, status};
use lockstep_ring::{Answers, Closing, Credentials, Server};

use crate::clients::padding::is_signature;
use crate::clients::rate::Rate;
use crate::keys::access::{Access, Account};
use crate::keys::key::{Key, Private};

/// A process that has just been welcomed has so much time for its request.
pub const BRIEFLY_IDLE: Duration = Duration::from_millis(20);

/// A key that the daemon serves.
pub struct Held {
    /// What references call it.
    pub name: String,
    /// The key.
    pub key: Key,
    /// Who may use it.
    pub access: Access,
    /// The daemon holds it no longer.
    pub has_left: AtomicBool,
}

/// What processes with the same rights share: the keys that they may use, and how they learn it.
pub struct Offer {
    /// The keys, and for what. A handle is a place in here.
    grants: Vec<(Arc<Held>, Uses)>,
    /// The list of these keys, which the daemon sends behind the welcome.
    pub list: Vec<u8>,
}

impl Offer {
    /// Of these keys; `None` if they fit into no list.
    fn new(grants: Vec<(Arc<Held>, Uses)>) -> Option<Offer> {
        let offered = |(handle, (held, uses)): (usize, &(Arc<Held>, Uses))| Offered {
            handle: handle as u64,
            uses: *uses,
            name: held.name.clone(),
            public: held.key.public.clone(),
        };
        let offered: Vec<Offered> = grants.iter().enumerate().map(offered).collect();
        let list = protocol::list(&offered)?;
        Some(Offer { grants, list })
    }

    /// Whether one of the keys has left.
    pub fn is_outdated(&self) -> bool {
        let mut grants = self.grants.iter();
        grants.any(|(held, _)| held.has_left.load(Ordering::Acquire))
    }

    /// How long the answers about these keys may be.
    pub fn answers(&self) -> Answers {
        answers_of(self.grants.iter().map(|(held, _)| held))
    }

    /// How many keys there are.
    pub fn count(&self) -> usize {
        self.grants.len()
    }
}

/// The offers that processes have at this moment. A process that comes back after it was idle gets
/// that of the others with its rights, and nothing is made anew.
pub struct Offers {
    keys: Vec<Arc<Held>>,
    /// By what may be done with each key.
    shared: HashMap<Vec<Uses>, Weak<Offer>>,
}

impl Offers {
    /// Of these keys.
    pub fn new(keys: Vec<Arc<Held>>) -> Offers {
        let shared = HashMap::new();
        Offers { keys, shared }
    }

    /// Offers these keys from now on.
    pub fn change(&mut self, keys: Vec<Arc<Held>>) {
        self.keys = keys;
        self.shared.clear();
    }

    /// The keys that are offered now.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<Arc<Held>> {
        self.keys.clone()
    }

    /// In whose name a process may use one of the keys; `None` if it may use none.
    pub fn account(&self, peer: Credentials) -> Option<Account> {
        let accounts = self
            .keys
            .iter()
            .filter_map(|key| key.access.account_of(peer));
        accounts.min()
    }

    /// The verdict on a process that may use none of the keys which this version knows.
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

    /// What a process may use that speaks this version, or the verdict with which it is sent away.
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
        // There are never more of them than processes.
        self.shared.retain(|_, offer| offer.strong_count() > 0);
        self.shared.insert(uses, Arc::downgrade(&offer));
        Ok(offer)
    }
}

/// How long the answers about some keys may be.
pub fn answers_of<'a>(mut keys: impl Iterator<Item = &'a Arc<Held>>) -> Answers {
    match keys.any(|held| held.key.has_long_answers()) {
        true => Answers::Long,
        false => Answers::Short,
    }
}

/// Whether processes know a key that speak this version.
fn is_known(key: &Held, version: u32) -> bool {
    !key.key.has_long_answers() || protocol::has_ml_dsa(version)
}

/// A process that is served.
pub struct Client {
    /// Who it is.
    pub peer: Credentials,
    /// In whose name it is served.
    pub account: Account,
    /// Its ring.
    pub ring: Server,
    /// Open for as long as the process has its end open.
    pub stream: UnixStream,
    /// What it may use.
    offer: Arc<Offer>,
    /// It is shared by all processes of the account.
    rate: Arc<Rate>,
    gone: AtomicBool,
    /// When the last request that was admitted came, in microseconds since `start`.
    last: AtomicU64,
    start: Instant,
    served: AtomicU64,
    refused: AtomicU64,
}

impl Client {
    /// A client that is offered this.
    pub fn new(
        (peer, account): (Credentials, Account),
        offer: Arc<Offer>,
        (ring, stream): (Server, UnixStream),
        rate: Arc<Rate>,
    ) -> Client {
        Client {
            peer,
            account,
            ring,
            stream,
            offer,
            rate,
            gone: AtomicBool::new(false),
            last: AtomicU64::new(0),
            start: Instant::now(),
            served: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// What a request of this client asks. It costs next to nothing.
    ///
    /// Only the client's own table says what it may do; whatever it writes is checked in the
    /// daemon's copy.
    pub fn admit(&self, request: &lockstep_ring::Taken, now: Instant) -> Asked {
        let admitted = self.check(request, now);
        if admitted.is_ok() {
            self.last.store(self.age(now), Ordering::Relaxed);
        }
        admitted
    }

    /// Counts a request that is served.
    pub fn count_served(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts requests that are refused.
    pub fn count_refused(&self, count: u64) {
        self.refused.fetch_add(count, Ordering::Relaxed);
    }

    fn check(&self, request: &lockstep_ring::Taken, now: Instant) -> Asked {
        if !self.rate.take(now) {
            return Err(status::BUSY);
        }
        let place = usize::try_from(request.key()).map_err(|_| status::FORBIDDEN)?;
        let (held, uses) = self.offer.grants.get(place).ok_or(status::FORBIDDEN)?;
        let operation = Operation::from_number(request.operation()).ok_or(status::UNFIT)?;
        asked(&held.key, *uses, operation, request.input())
    }

    /// Whether a request was admitted within the last `within` microseconds.
    pub fn is_active(&self, now: Instant, within: u64) -> bool {
        self.age(now) < self.last.load(Ordering::Relaxed) + within
    }

    /// For how long the client has asked for nothing. None while it waits for an answer, or was
    /// welcomed a moment ago and is about to ask.
    pub fn idle(&self, now: Instant) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed);
        let idle = Duration::from_micros(self.age(now).saturating_sub(last));
        let is_new = last == 0 && idle < BRIEFLY_IDLE;
        (!is_new && !self.ring.is_awaited()).then_some(idle)
    }

    fn age(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_micros() as u64
    }

    /// Says that the connection has ended. A process that lives on, and has only lost its socket,
    /// learns of it by its ring, and connects anew; so the ring says so before any of its requests
    /// is dropped.
    pub fn leave(&self, why: Closing) {
        self.ring.close_as(why);
        self.gone.store(true, Ordering::Release);
    }

    /// Whether it may use a key that has left.
    pub fn is_outdated(&self) -> bool {
        self.offer.is_outdated()
    }

    /// Whether the connection has ended.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// How many requests were served, and how many refused.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.served.load(Ordering::Relaxed),
            self.refused.load(Ordering::Relaxed),
        )
    }
}

/// What a request asks of the engine, and what must be checked before it is served; or the status
/// that it is answered with.
pub type Asked = Result<(Request, Duty), u16>;

/// What is to be checked of an input when it is its turn, since that takes some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing.
    Nothing,
    /// That it is padded as a signature.
    Signature,
}

impl Duty {
    /// Whether the input is as it has to be.
    pub fn is_fulfilled(self, input: &[u8]) -> bool {
        self == Duty::Nothing || is_signature(input)
    }
}

fn asked(key: &Key, uses: Uses, operation: Operation, input: &[u8]) -> Asked {
    use Operation::{DeferrableRsaPrivate, DeterministicMlDsaSign, MlDsaSign, RsaPrivate};
    let is_rsa = matches!(operation, RsaPrivate | DeferrableRsaPrivate);
    if !is_rsa && !uses.sign {
        return Err(status::FORBIDDEN);
    }
    let is_of_key = match &key.private {
        Private::Rsa(_) => is_rsa,
        Private::Ec(_) => operation == Operation::EcdsaSign,
        Private::Ed25519(_) => operation == Operation::Ed25519Sign,
        Private::MlDsa(_) => matches!(operation, MlDsaSign | DeterministicMlDsaSign),
    };
    if !is_of_key {
        return Err(status::UNFIT);
    }
    let randomness = (operation == DeterministicMlDsaSign).then(|| Secret::new(&[0; 32]));
    let request = key.private.request(input, randomness);
    let request = request.ok_or(status::UNFIT)?;
    if !uses.any() {
        return Err(status::FORBIDDEN);
    }
    let duty = match is_rsa && !uses.decrypt {
        true => Duty::Signature,
        false => Duty::Nothing,
    };
    Ok((request, duty))
}

/// All clients that are served now.
#[derive(Default)]
pub struct Clients(Mutex<Arc<Vec<Arc<Client>>>>);

impl Clients {
    /// Those at this moment.
    pub fn now(&self) -> Arc<Vec<Arc<Client>>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the list.
    pub fn change(&self, change: impl FnOnce(&mut Vec<Arc<Client>>)) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clients = now.to_vec();
        change(&mut clients);
        *now = Arc::new(clients);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use lockstep_engine::{Config, MlDsa, MlDsaKey, RsaComponents, RsaKey};
    use lockstep_remote::protocol::{EARLIER, VERSION};
    use lockstep_ring::{Call, Client as Ring, Lost, Sent};
    use lockstep_testkit::RsaParts;

    use super::*;
    use crate::keyd_conf::KeySection;
    use crate::keys::access::Accounts;
    use crate::keys::access::tests::peer;

    const SIGN: Uses = Uses {
        sign: true,
        decrypt: false,
    };
    const DECRYPT: Uses = Uses {
        sign: false,
        decrypt: true,
    };

    /// The key of RFC 8410, section 10.3.
    pub(crate) fn ed25519() -> Key {
        let engine = crate::engine(Config::default());
        let text = "-----BEGIN PRIVATE KEY-----\n\
                    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                    -----END PRIVATE KEY-----\n";
        Key::from_pem(text.as_bytes(), &engine).expect("a key")
    }

    /// Of the seed of 32 bytes 7.
    pub(crate) fn ml_dsa(set: MlDsa) -> Key {
        let private = MlDsaKey::from_seed(set, &[7; 32]).expect("a key");
        Key {
            private: Private::MlDsa(Arc::new(private)),
            public: Vec::new(),
        }
    }

    fn rsa2048() -> Key {
        let parts = RsaParts::ordinary(2048).parts;
        let [n, e, p, q, dp, dq, qinv] = parts.each_ref().map(Vec::as_slice);
        #[rustfmt::skip]
        let components = RsaComponents { n, e, p, q, dp, dq, qinv };
        let private = RsaKey::new(&components).expect("a key");
        Key {
            private: Private::Rsa(Arc::new(private)),
            public: Vec::new(),
        }
    }

    /// A key for Ed25519 and one of 2048 bits for RSA.
    pub(crate) static HELD: LazyLock<[Arc<Held>; 2]> = LazyLock::new(|| {
        [("ed25519", ed25519()), ("rsa2048", rsa2048())].map(|(name, key)| {
            Arc::new(Held {
                name: name.to_owned(),
                key,
                access: Access::default(),
                has_left: AtomicBool::new(false),
            })
        })
    });

    /// A client that may do all with two keys, one for Ed25519 and one of 2048 bits for RSA; and
    /// its own side of the ring.
    pub(crate) struct Connected {
        pub(crate) client: Arc<Client>,
        ring: Ring,
    }

    /// An offer of no keys, which is sent as these bytes.
    pub(crate) fn offer(list: Vec<u8>) -> Arc<Offer> {
        let grants = Vec::new();
        Arc::new(Offer { grants, list })
    }

    impl Connected {
        pub(crate) fn new() -> Connected {
            Connected::of(7, 8)
        }

        /// The same of a user, with a ring of so many slots.
        pub(crate) fn of(user: u32, slots: usize) -> Connected {
            let (server, descriptor) = Server::create(slots).expect("a ring");
            let (stream, _) = UnixStream::pair().expect("sockets");
            let uses = Uses {
                sign: true,
                decrypt: true,
            };
            let grants = HELD.each_ref().map(|held| (Arc::clone(held), uses));
            let offer = Offer::new(grants.to_vec()).map(Arc::new).expect("a list");
            let rate = Arc::new(Rate::new(0, 0, Instant::now()));
            let who = (peer(user, 7), Account::User(user));
            let client = Client::new(who, offer, (server, stream), rate);
            Connected {
                client: Arc::new(client),
                ring: Ring::attach(descriptor).expect("a ring"),
            }
        }

        /// The same, whose last request came so long ago.
        pub(crate) fn idle_for(user: u32, time: Duration) -> Connected {
            let mut connected = Connected::of(user, 4);
            let client = Arc::get_mut(&mut connected.client).expect("it is nobody else's");
            client.last = AtomicU64::new(1_000_000);
            client.start -= Duration::from_secs(1) + time;
            connected
        }

        /// The same, which is never idle while a test runs.
        pub(crate) fn busy(user: u32) -> Connected {
            let connected = Connected::of(user, 4);
            connected
                .client
                .last
                .store(3_600_000_000, Ordering::Relaxed);
            connected
        }

        pub(crate) fn post(&self, operation: Operation) -> Sent {
            match operation {
                Operation::Ed25519Sign => self.post_input(operation, 0, &[1]),
                _ => self.post_input(operation, 1, &[1; 256]),
            }
        }

        pub(crate) fn post_input(&self, operation: Operation, key: u64, input: &[u8]) -> Sent {
            let operation = operation as u16;
            #[rustfmt::skip]
            let call = Call { operation, key, input, notify: false };
            self.ring.submit(&call).expect("there is room")
        }
    }

    #[test]
    fn a_process_that_has_lost_its_socket_loses_what_it_has_asked_for() {
        let process = Connected::new();
        let mut tickets = [(); 3].map(|()| process.post(Operation::Ed25519Sign));
        let mut taken = Vec::new();
        process.client.ring.take(|request| taken.push(request));
        process.client.leave(Closing::Unsaid);
        assert!(process.client.is_gone() && process.ring.is_gone());
        // Neither an answer nor a failure: the process asks again, over another connection.
        for ticket in &mut tickets {
            assert_eq!(ticket.poll().err(), Some(Lost::Gone));
        }
    }

    #[test]
    fn a_client_is_idle_from_its_last_request_on() {
        let idle = |process: &Connected, later: u64| {
            let now = process.client.start + Duration::from_millis(later);
            process.client.idle(now).map(|time| time.as_millis() as u64)
        };
        // It has just been welcomed, and is about to ask.
        let process = Connected::new();
        assert_eq!([idle(&process, 0), idle(&process, 19)], [None; 2]);
        assert_eq!(idle(&process, 20), Some(20));
        // One that has asked is idle at once, unless it waits for an answer.
        let ticket = process.post(Operation::Ed25519Sign);
        assert_eq!(idle(&process, 30), None);
        let at = process.client.start + Duration::from_millis(30);
        process.client.ring.take(|request| {
            assert!(process.client.admit(&request, at).is_ok());
        });
        assert_eq!(idle(&process, 30), Some(0));
        assert_eq!(idle(&process, 35), Some(5));
        let active = |later| {
            let now = process.client.start + Duration::from_millis(later);
            process.client.is_active(now, 10_000)
        };
        assert!(active(30) && active(39) && !active(40) && !active(50));
        drop(ticket);
    }

    #[test]
    fn processes_with_the_same_rights_share_what_they_are_offered() {
        let section = |users: &[&str], uses| KeySection {
            users: users.iter().map(|&user| user.to_owned()).collect(),
            uses,
            ..KeySection::default()
        };
        let held = |name: &str, section: &KeySection| {
            Arc::new(Held {
                name: name.to_owned(),
                key: ed25519(),
                access: Access::new(section, &Accounts::of_system()).0,
                has_left: AtomicBool::new(false),
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
        // One goes with the last process that has it.
        drop(nine);
        drop((seven, eight));
        drop(offers.of(peer(9), VERSION));
        assert_eq!(offers.shared.len(), 1);
    }

    /// The release before has no ring in which their signatures fit.
    #[test]
    fn keys_of_ml_dsa_are_offered_to_those_who_know_them() {
        let section = |user: &str| KeySection {
            users: vec![user.to_owned()],
            uses: SIGN,
            ..KeySection::default()
        };
        let held = |name: &str, key, users: &str| {
            Arc::new(Held {
                name: name.to_owned(),
                key,
                access: Access::new(&section(users), &Accounts::of_system()).0,
                has_left: AtomicBool::new(false),
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

    #[test]
    fn a_key_of_ml_dsa_signs_what_stands_for_a_message() {
        let key = ml_dsa(MlDsa::MlDsa65);
        let asked = |uses, operation, input: &[u8]| {
            let asked = asked(&key, uses, operation, input);
            asked.map(|(request, duty)| match request {
                Request::MlDsaSign(input) => (input.mu, input.randomness.is_none(), duty),
                _ => panic!("another request"),
            })
        };
        let mu = [9; 64];
        let [hedged, fixed] = [Operation::MlDsaSign, Operation::DeterministicMlDsaSign];
        assert_eq!(asked(SIGN, hedged, &mu), Ok((mu, true, Duty::Nothing)));
        assert_eq!(asked(SIGN, fixed, &mu), Ok((mu, false, Duty::Nothing)));
        for operation in [hedged, fixed] {
            let forbidden = Err(status::FORBIDDEN);
            assert_eq!(asked(DECRYPT, operation, &mu), forbidden);
            for length in [0, 32, 63, 65, 1024] {
                let unfit = asked(SIGN, operation, &vec![9; length]);
                assert_eq!(unfit, Err(status::UNFIT), "{length}");
            }
        }
        assert_eq!(asked(SIGN, Operation::Ed25519Sign, &mu), Err(status::UNFIT));
        let other = super::asked(&ed25519(), SIGN, hedged, &mu).map(|_| ());
        assert_eq!(other, Err(status::UNFIT));
    }

    #[test]
    fn a_client_beyond_its_rate_is_asked_to_wait() {
        let mut process = Connected::of(7, 8);
        let client = Arc::get_mut(&mut process.client).expect("it is nobody else's");
        client.rate = Arc::new(Rate::new(1, 1, Instant::now()));
        let _tickets = [(); 2].map(|()| process.post(Operation::Ed25519Sign));
        let mut admitted = Vec::new();
        let now = Instant::now();
        process.client.ring.take(|request| {
            let admit = process.client.admit(&request, now);
            admitted.push(admit.map(|_| ()));
        });
        assert_eq!(admitted, [Ok(()), Err(status::BUSY)]);
    }

    #[test]
    fn a_key_that_only_signs_takes_signatures_alone() {
        let rsa = rsa2048();
        let duty = |uses, operation| {
            let asked = asked(&rsa, uses, operation, &[7; 256]);
            asked.map(|(_, duty)| duty)
        };
        let both = Uses {
            sign: true,
            decrypt: true,
        };
        for operation in [Operation::RsaPrivate, Operation::DeferrableRsaPrivate] {
            assert_eq!(duty(SIGN, operation), Ok(Duty::Signature));
            assert_eq!(duty(DECRYPT, operation), Ok(Duty::Nothing));
            assert_eq!(duty(both, operation), Ok(Duty::Nothing));
            assert_eq!(duty(Uses::default(), operation), Err(status::FORBIDDEN));
        }
        assert!(!Duty::Signature.is_fulfilled(&[7; 256]));
        assert!(Duty::Nothing.is_fulfilled(&[7; 256]));
    }

    #[test]
    fn what_fits_no_key_or_no_use_is_refused() {
        let ed25519 = ed25519();
        assert_eq!(ed25519.kind(), "Ed25519");
        let ask = |uses, operation, input: &[u8]| asked(&ed25519, uses, operation, input).err();
        assert_eq!(ask(SIGN, Operation::Ed25519Sign, &[]), None);
        assert_eq!(ask(SIGN, Operation::Ed25519Sign, &[7; 1024]), None);
        let forbidden = Some(status::FORBIDDEN);
        assert_eq!(ask(DECRYPT, Operation::Ed25519Sign, &[7]), forbidden);
        assert_eq!(
            ask(Uses::default(), Operation::Ed25519Sign, &[7]),
            forbidden
        );
        let text = "-----BEGIN PRIVATE KEY-----\n\
                    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCb73sUhR5EDkkm4Z\n\
                    pIaKHi8mos9G9IuKc0NOdij43NOhRANCAATOS22SYWGU/KWLrhr9Lfa7XDw3tA+G\n\
                    ++PPa6wSLGzpXP/MJ58EkaGF2XtpVUbQ6f5QTR4LwDL/x20TFlBID60Z\n\
                    -----END PRIVATE KEY-----\n";
        let engine = crate::engine(Config::default());
        let p256 = Key::from_pem(text.as_bytes(), &engine).expect("a key");
        let rsa = rsa2048();
        for (length, fits) in [(0, false), (1, true), (64, true), (65, false)] {
            let asked = asked(&p256, SIGN, Operation::EcdsaSign, &vec![7; length]);
            assert_eq!(asked.is_ok(), fits, "{length}");
        }
        for (length, fits) in [(0, false), (255, false), (256, true), (257, false)] {
            let asked = asked(&rsa, SIGN, Operation::RsaPrivate, &vec![7; length]);
            assert_eq!(asked.is_ok(), fits, "{length}");
        }
        let unfit = Some(status::UNFIT);
        assert_eq!(ask(SIGN, Operation::EcdsaSign, &[7; 32]), unfit);
        assert_eq!(ask(SIGN, Operation::RsaPrivate, &[7; 256]), unfit);
        assert_eq!(ask(SIGN, Operation::DeferrableRsaPrivate, &[7; 256]), unfit);
    }
}
