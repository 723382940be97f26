//! Keys of ML-DSA, whose signatures need rings with long answers. The system's OpenSSL may have no
//! such keys, so an independent crate checks the signatures.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use lockstep_remote::protocol::{self, EARLIER, Offered, VERDICT, VERSION, status};
use lockstep_remote::{Connection, Failure, Operation, is_ml_dsa};
use lockstep_ring::{Answers, Call, Client, LONG_OUTPUT, OUTPUT, Patience, receive, ring_bytes};
use lockstep_testkit::TempDir;
use ml_dsa::{MlDsa44, MlDsa65, MlDsa87, MlDsaParams, Signature, VerifyingKey};

use crate::site::{Daemon, KEYS, own_user};

/// Names of the keys, last numbers of their names in ASN.1, lengths of a public key and of a
/// signature.
const SETS: [(&str, u8, usize, usize); 3] = [
    ("mldsa44", 17, 1312, 2420),
    ("mldsa65", 18, 1952, 3309),
    ("mldsa87", 19, 2592, 4627),
];

/// Starts a daemon with such keys in addition to its others. A process may have `queue` requests in
/// flight.
fn start(queue: usize) -> (Daemon, TempDir) {
    let place = TempDir::new("post-quantum");
    let mut settings = format!("queue = {queue}\n");
    for (name, number, ..) in SETS {
        // PKCS#8 with a seed (RFC 9881).
        let head = [
            0x30, 52, 2, 1, 0, 0x30, 11, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3,
        ];
        let key = [&head[..], &[number, 4, 34, 0x80, 32], &[number; 32]].concat();
        let line_ending = der::pem::LineEnding::LF;
        let text = der::pem::encode_string("PRIVATE KEY", line_ending, &key).expect("PEM");
        let file = place.join(name);
        fs::write(&file, text).expect("a file");
        let (file, user) = (file.display(), own_user());
        settings += &format!("[key {name}]\nfile = {file}\nusers = {user}\nuses = sign\n");
    }
    (Daemon::start(&settings), place)
}

fn is_signature(name: &str, key: &Offered, mu: &[u8; 64], signature: &[u8]) -> bool {
    fn verify<P: MlDsaParams>(public: &[u8], mu: &[u8; 64], signature: &[u8]) -> bool {
        let key = VerifyingKey::<P>::decode(&public.try_into().expect("a key's length"));
        let signature = Signature::<P>::try_from(signature);
        signature.is_ok_and(|signature| key.verify_mu(&(*mu).into(), &signature))
    }
    let (_, _, length, _) = SETS.iter().find(|own| own.0 == name).expect("a set");
    let public = &key.public[key.public.len() - length..];
    match name {
        "mldsa44" => verify::<MlDsa44>(public, mu, signature),
        "mldsa65" => verify::<MlDsa65>(public, mu, signature),
        _ => verify::<MlDsa87>(public, mu, signature),
    }
}

#[test]
fn keys_of_ml_dsa_sign_beside_others() {
    let (daemon, _place) = start(4);
    let connection = Connection::open(&daemon.socket()).expect("a daemon");
    assert_eq!(connection.keys().len(), SETS.len() + KEYS.len());
    for (name, _, _, length) in SETS {
        let key = connection.keys().iter().find(|key| key.name == name);
        let key = key.expect(name);
        assert!(is_ml_dsa(&key.public), "{name}");
        let sign = |operation, mu: &[u8]| {
            let signed = connection.ask(operation, key, mu, length);
            signed.map(|signature| signature.to_vec())
        };
        let [hedged, fixed] = [Operation::MlDsaSign, Operation::DeterministicMlDsaSign];
        for byte in 0..8 {
            let mu = [byte; 64];
            let made = [hedged, hedged, fixed, fixed].map(|operation| sign(operation, &mu));
            let made = made.map(|made| made.expect("a signature"));
            for signature in &made {
                assert!(is_signature(name, key, &mu, signature), "{name}");
            }
            assert!(made[0] != made[1] && made[2] == made[3], "{name}");
        }
        for input in [&[0; 63][..], &[0; 65], &[]] {
            assert_eq!(sign(hedged, input), Err(Failure::Unfit), "{name}");
        }
        assert_eq!(sign(Operation::Ed25519Sign, &[0; 64]), Err(Failure::Unfit));
    }
    // Several threads at once, with more requests than there are slots.
    std::thread::scope(|scope| {
        for (thread, (name, _, _, length)) in (0..12).zip(SETS.into_iter().cycle()) {
            let connection = &connection;
            scope.spawn(move || {
                let key = connection.keys().iter().find(|key| key.name == name);
                let (key, mu) = (key.expect(name), [thread; 64]);
                for _ in 0..10 {
                    let signed = connection.ask(Operation::MlDsaSign, key, &mu, length);
                    let signed = signed.expect("a signature");
                    assert!(is_signature(name, key, &mu, &signed), "{name}");
                }
            });
        }
    });
}

/// Returns the daemon's answer to a client that greets in a version: its keys, its ring, and the
/// size of the ring.
fn greeted(daemon: &Daemon, version: u32) -> (UnixStream, Vec<Offered>, Client, u64) {
    let mut stream = UnixStream::connect(daemon.socket()).expect("a daemon");
    stream
        .write_all(&protocol::greeting(version))
        .expect("a daemon");
    let mut bytes = [0; VERDICT];
    let received = receive(&stream, &mut bytes).expect("a verdict");
    assert_eq!(received.length, VERDICT);
    let (_, spoken, length) = protocol::read_verdict(&bytes).expect("a verdict");
    assert_eq!(spoken, version);
    let mut list = vec![0; length];
    stream.read_exact(&mut list).expect("a list");
    let ring = received.descriptor.expect("a ring");
    let client = Client::attach(&ring).expect("a ring");
    let size = File::from(ring).metadata().expect("a file").len();
    (
        stream,
        protocol::read_list(&list).expect("a list"),
        client,
        size,
    )
}

/// A client of the previous release only knows rings with short answers.
#[test]
fn a_client_of_the_release_before_is_offered_the_other_keys() {
    let (daemon, _place) = start(4);
    let names = |keys: &[Offered]| {
        let names: Vec<_> = keys.iter().map(|key| key.name.clone()).collect();
        names.join(" ")
    };
    let (_stream, keys, _, size) = greeted(&daemon, VERSION);
    assert_eq!(names(&keys), "mldsa44 mldsa65 mldsa87 ed25519 p256 rsa2048");
    assert_eq!(size, ring_bytes(4, Answers::Long) as u64);
    let (_stream, keys, client, size) = greeted(&daemon, EARLIER);
    assert_eq!(names(&keys), KEYS.join(" "));
    assert_eq!(size, ring_bytes(4, Answers::Short) as u64);
    // Any operation with any handle.
    for key in (0..8).chain([u64::MAX]) {
        for operation in [Operation::MlDsaSign, Operation::DeterministicMlDsaSign] {
            let (operation, input) = (operation as u16, &[7; 64][..]);
            #[rustfmt::skip]
            let call = Call { operation, key, input, notify: false };
            let mut ticket = client.submit(&call).expect("a place");
            let patience = Patience::new(Default::default(), lockstep_remote::connection::ANSWER);
            let answer = ticket.wait(patience).expect("not lost").expect("in time");
            assert!(
                matches!(answer.status, status::UNFIT | status::FORBIDDEN),
                "{key}"
            );
        }
    }
    assert!(OUTPUT < SETS[0].3 && SETS[2].3 <= LONG_OUTPUT);
}
