//! Verdicts beside OpenSSL's: for signatures, keys and messages of which bytes were changed, on all
//! lanes. `cargo xtask nightly mutated` does so for long.

mod common;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockstep::{
    Algorithm, Hash, Key, PrivateKey, PublicKey, Reason, Rows as _, Salt, Scheme, ToAgree, ToSign,
    ToVerify, Workers, rows,
};
use lockstep_testkit::Random;
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, PointConversionForm};
use openssl::hash::{MessageDigest, hash};
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer, Verifier};

/// One of OpenSSL's keys and schemes.
struct Peer {
    scheme: Scheme,
    key: PKey<Private>,
    digest: Option<MessageDigest>,
    /// Length of PSS's salt when a signature is made and when it is checked; -2 for any.
    pss: Option<[i32; 2]>,
}

impl Peer {
    fn new(scheme: Scheme, key: PKey<Private>, digest: Option<MessageDigest>) -> Peer {
        let pss = None;
        Peer {
            scheme,
            key,
            digest,
            pss,
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let mut signer = match self.digest {
            Some(digest) => Signer::new(digest, &self.key),
            None => Signer::new_without_digest(&self.key),
        }
        .expect("a signer");
        if let Some([salt, _]) = self.pss {
            signer.set_rsa_padding(Padding::PKCS1_PSS).expect("PSS");
            signer
                .set_rsa_pss_saltlen(RsaPssSaltlen::custom(salt))
                .expect("a salt");
        }
        signer.sign_oneshot_to_vec(message).expect("a signature")
    }

    /// OpenSSL's verdict with a key; false if it refuses the input.
    fn accepts(&self, key: &PKey<Public>, message: &[u8], signature: &[u8]) -> bool {
        let verifier = match self.digest {
            Some(digest) => Verifier::new(digest, key),
            None => Verifier::new_without_digest(key),
        };
        let Ok(mut verifier) = verifier else {
            return false;
        };
        if let Some([_, salt]) = self.pss {
            verifier.set_rsa_padding(Padding::PKCS1_PSS).expect("PSS");
            verifier
                .set_rsa_pss_saltlen(RsaPssSaltlen::custom(salt))
                .expect("a salt");
        }
        verifier.verify_oneshot(signature, message).unwrap_or(false)
    }

    fn public(&self) -> PKey<Public> {
        let der = self.key.public_key_to_der().expect("a public key");
        PKey::public_key_from_der(&der).expect("a public key")
    }
}

fn ec(curve: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(curve).expect("a curve");
    let key = EcKey::generate(&group).expect("a key");
    PKey::from_ec_key(key).expect("a key")
}

fn rsa(bits: u32) -> PKey<Private> {
    let key = Rsa::generate(bits).expect("a key");
    PKey::from_rsa(key).expect("a key")
}

fn peers() -> Vec<Peer> {
    let ed25519 = PKey::generate_ed25519().expect("a key");
    let sha256 = Some(MessageDigest::sha256());
    let long = rsa(3072);
    let pss = |scheme: Scheme, made, checked| Peer {
        pss: Some([made, checked]),
        ..Peer::new(scheme, rsa(2048), sha256)
    };
    vec![
        Peer::new(Scheme::ES256.der(), ec(Nid::X9_62_PRIME256V1), sha256),
        Peer::new(
            Scheme::ES384.der(),
            ec(Nid::SECP384R1),
            Some(MessageDigest::sha384()),
        ),
        Peer::new(
            Scheme::ecdsa(lockstep::Curve::P384, Hash::Sha512).der(),
            ec(Nid::SECP384R1),
            Some(MessageDigest::sha512()),
        ),
        Peer::new(Scheme::ED25519, ed25519, None),
        Peer::new(Scheme::RS256, rsa(2048), sha256),
        Peer::new(Scheme::RS512, long, Some(MessageDigest::sha512())),
        pss(Scheme::PS256, 32, 32),
        // A length that is recovered from the signature.
        pss(Scheme::PS256.salt(Salt::Any), 222, -2),
        pss(Scheme::PS256.salt(Salt::Bytes(20)), 20, 20),
    ]
}

/// All lanes, and a device of OpenCL beside the fastest.
fn workers() -> Vec<Workers> {
    let mut found = common::workers();
    match Workers::new().with_threads(1).with_devices(&["opencl:0"]) {
        Ok(workers) => found.push(workers.with_device_threshold(2)),
        Err(error) => println!("skipped: {error}"),
    }
    found
}

/// A number below another one, which is at most 2^32.
fn below(random: &mut Random, limit: usize) -> usize {
    ((random.word() >> 32) as usize * limit) >> 32
}

/// Changes bytes.
fn mutated(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match below(random, 8) {
        0 if !bytes.is_empty() => {
            let place = below(random, bytes.len());
            bytes[place] ^= 1 << below(random, 8);
        }
        1 if !bytes.is_empty() => {
            let place = below(random, bytes.len());
            bytes.remove(place);
        }
        2 => {
            let place = below(random, bytes.len() + 1);
            bytes.insert(place, below(random, 256) as u8);
        }
        3 if !bytes.is_empty() => {
            let place = below(random, bytes.len());
            bytes[place] = [0, 1, 0x7f, 0x80, 0xff][below(random, 5)];
        }
        4 => bytes.truncate(below(random, bytes.len() + 1)),
        5 => {
            let (start, value) = (below(random, bytes.len() + 1), [0, 0xff][below(random, 2)]);
            bytes[start..].fill(value);
        }
        _ => {}
    }
    bytes
}

/// A peer with its public key, OpenSSL's and ours.
struct Mutable {
    peer: Peer,
    public: PKey<Public>,
    key: PublicKey,
}

impl Mutable {
    fn new(peer: Peer) -> Mutable {
        let public = peer.public();
        let der = public.public_key_to_der().expect("a key");
        Mutable {
            key: PublicKey::from_der(&der).expect("a key"),
            peer,
            public,
        }
    }

    /// Makes signatures, changes them and messages, and returns the items whose verdicts differ
    /// from OpenSSL's.
    fn differences(&self, all: &[Workers], random: &mut Random, number: usize) -> Vec<String> {
        let scheme = self.peer.scheme;
        let texts: [&[u8]; 2] = [b"a message", b"another one"];
        let signatures: Vec<_> = (0..8).map(|_| self.peer.sign(texts[0])).collect();
        let items: Vec<_> = (0..number)
            .map(|_| {
                let signature = &signatures[below(random, 8)];
                let signature = mutated(random, signature);
                (usize::from(below(random, 9) == 0), signature)
            })
            .collect();
        let accepts = |(text, signature): &(usize, Vec<u8>)| {
            self.peer.accepts(&self.public, texts[*text], signature)
        };
        let expected: Vec<bool> = items.iter().map(accepts).collect();
        let good = expected.iter().filter(|good| **good).count();
        assert!(good > 0 && good < number || number < 50, "{scheme:?}");
        let hashed = |text| Some(hash(self.peer.digest?, text).expect("a digest"));
        let digests = texts.map(hashed);
        let mut forms = vec![(scheme, texts)];
        if let [Some(own), Some(other)] = &digests {
            forms.push((scheme.prehashed(), [own, other]));
        }
        // The key object gets a table of its multiples; the raw key has none.
        let keys = [Some(Key::Object(&self.key)), self.key.raw().map(Key::Raw)];
        let keys = keys.iter().flatten();
        let all = all
            .iter()
            .flat_map(|own| keys.clone().map(move |key| (own, *key)));
        let mut differences = Vec::new();
        for ((workers, key), (scheme, texts)) in
            all.flat_map(|own| forms.iter().map(move |form| (own, form)))
        {
            let items = rows(number, |number| {
                let (text, signature) = &items[number];
                ToVerify::new(key, texts[*text], signature)
            });
            let found = workers.verify_many(*scheme, &items).expect("a scheme");
            for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                if found.is_ok() != *expected {
                    let (signature, lanes) = (items.row(place).signature, workers.lanes());
                    let what = format!("{scheme:?} on {lanes}: {found:?}, {signature:x?}");
                    differences.push(what);
                }
            }
        }
        differences
    }
}

#[test]
fn mutated_items_have_the_verdicts_of_openssl() {
    let (all, mut random) = (workers(), Random(7));
    for peer in peers() {
        let differences = Mutable::new(peer).differences(&all, &mut random, 300);
        assert!(differences.is_empty(), "{differences:#?}");
    }
}

/// The planted defect: our key is another one than OpenSSL's.
#[test]
fn other_verdicts_than_openssls_are_found() {
    let all = workers();
    for (own, other) in peers().into_iter().zip(peers()) {
        let key = Mutable::new(other).key;
        let planted = Mutable {
            key,
            ..Mutable::new(own)
        };
        let differences = planted.differences(&all, &mut Random(7), 60);
        assert!(!differences.is_empty(), "{:?}", planted.peer.scheme);
    }
}

/// Runs as long as `cargo xtask nightly mutated` says, each time from the next seed.
#[test]
#[ignore = "cargo xtask nightly mutated"]
fn mutated_items_for_long() {
    const ITEMS: usize = 1000;
    let number = |name, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let end = Instant::now() + Duration::from_secs(number("NIGHTLY_SECONDS", 60));
    let first = number("NIGHTLY_NEXT", 0);
    let seed = AtomicU64::new(first);
    let found = Mutex::new(Vec::new());
    let peers: Vec<_> = peers().into_iter().map(Mutable::new).collect();
    let all: Vec<_> = workers()
        .into_iter()
        .map(|own| own.with_threads(1))
        .collect();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while Instant::now() < end {
                    let mut random = Random(seed.fetch_add(1, Ordering::Relaxed) + 1);
                    for peer in &peers {
                        let differences = peer.differences(&all, &mut random, ITEMS);
                        found.lock().expect("no panic").extend(differences);
                    }
                }
            });
        }
    });
    let (next, found) = (seed.into_inner(), found.into_inner().expect("no panic"));
    found.iter().for_each(|difference| println!("{difference}"));
    let cases = (next - first) * (ITEMS * peers.len()) as u64;
    println!(
        "\nnightly: cases {cases} findings {} next {next} note items of {} schemes",
        found.len(),
        peers.len()
    );
}

/// Bytes that are keys, and bytes that are none.
#[test]
fn mutated_keys_have_the_verdicts_of_openssl() {
    let mut random = Random(7);
    let all = workers();
    for (peer, algorithm) in peers().into_iter().zip([
        Some(Algorithm::P256),
        Some(Algorithm::P384),
        None,
        Some(Algorithm::Ed25519),
    ]) {
        let Some(algorithm) = algorithm else {
            continue;
        };
        let signature = peer.sign(b"text");
        let der = peer.public().public_key_to_der().expect("a key");
        let key = PublicKey::from_der(&der).expect("a key");
        let raw = key.raw().expect("a curve").to_vec();
        let keys: Vec<_> = (0..300).map(|_| mutated(&mut random, &raw)).collect();
        let expected: Vec<bool> = keys
            .iter()
            .map(|raw| {
                let theirs = theirs(algorithm, raw);
                theirs.is_some_and(|key| peer.accepts(&key, b"text", &signature))
            })
            .collect();
        assert!(expected.contains(&true) && expected.contains(&false));
        for workers in &all {
            let items = rows(keys.len(), |number| ToVerify {
                key: Key::Raw(&keys[number]),
                message: b"text",
                signature: &signature,
            });
            let found = workers.verify_many(peer.scheme, &items).expect("a scheme");
            let found: Vec<bool> = found.iter().map(Result::is_ok).collect();
            assert_eq!(found, expected, "{algorithm:?} on {}", workers.lanes());
        }
    }
}

/// OpenSSL's key of these bytes.
fn theirs(algorithm: Algorithm, raw: &[u8]) -> Option<PKey<Public>> {
    let curve = match algorithm {
        Algorithm::Ed25519 => return PKey::public_key_from_raw_bytes(raw, Id::ED25519).ok(),
        Algorithm::P256 => Nid::X9_62_PRIME256V1,
        _ => Nid::SECP384R1,
    };
    // RFC 5480 forbids the hybrid form, and this library does not take it.
    if !matches!(raw.first(), Some(2..=4)) {
        return None;
    }
    let group = EcGroup::from_curve_name(curve).ok()?;
    let mut context = BigNumContext::new().ok()?;
    let point = openssl::ec::EcPoint::from_bytes(&group, raw, &mut context).ok()?;
    let key = EcKey::from_public_key(&group, &point).ok()?;
    PKey::from_ec_key(key).ok()
}

/// Returns both compressed forms of an uncompressed point: its own first.
fn compressed(point: &[u8]) -> [Vec<u8>; 2] {
    let length = point.len() / 2;
    let tag = 2 + point[2 * length] % 2;
    [tag, 5 - tag].map(|tag| [&[tag], &point[1..=length]].concat())
}

/// Returns encodings that are compressed points, or look so: with an x that no point has, that is
/// not below p, and of other tags and lengths.
fn encodings(curve: Nid, points: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut random = Random(5);
    let length = points[0].len() / 2;
    let mut p = BigNum::new().expect("memory");
    let [mut a, mut b] = [(); 2].map(|()| BigNum::new().expect("memory"));
    let group = EcGroup::from_curve_name(curve).expect("a curve");
    let mut context = BigNumContext::new().expect("memory");
    let read = group.components_gfp(&mut p, &mut a, &mut b, &mut context);
    read.expect("the numbers of a curve");
    let padded = |number: &BigNum| number.to_vec_padded(length as i32).expect("a length");
    let mut all: Vec<Vec<u8>> = points.iter().flat_map(|point| compressed(point)).collect();
    for small in 0..20 {
        let x = BigNum::from_u32(small).expect("memory");
        let numbers = [padded(&x), padded(&(&p + &x)), padded(&(&p - &x))];
        all.extend(
            numbers
                .iter()
                .flat_map(|x| [2, 3].map(|tag| [&[tag], &x[..]].concat())),
        );
    }
    all.extend((0..100).map(|number| [vec![2 + number % 2], random.vec(length)].concat()));
    all.extend((0..=8).map(|tag| [&[tag], &points[0][1..=length]].concat()));
    all.extend([
        vec![],
        vec![2],
        [&[2], &points[0][1..length]].concat(),
        vec![3; length + 2],
    ]);
    all
}

/// Compressed points, read one by one and in columns, beside uncompressed ones.
#[test]
fn compressed_points_have_the_verdicts_of_openssl() {
    const KEYS: usize = 20;
    for (peer, algorithm) in peers().into_iter().zip([Algorithm::P256, Algorithm::P384]) {
        let curve = peer.key.ec_key().expect("a key").group().curve_name();
        let pairs = Workers::new().generate_many(algorithm, KEYS).expect("keys");
        let secrets = (0..KEYS).map(|number| PrivateKey::from_raw(algorithm, pairs.secret(number)));
        let secrets: Vec<_> = secrets.map(|key| key.expect("a key")).collect();
        let points: Vec<_> = (0..KEYS)
            .map(|number| pairs.public(number).to_vec())
            .collect();
        let own = rows(KEYS, |number| ToSign::new(&secrets[number], b"text"));
        let signed = Workers::new()
            .sign_many(peer.scheme, &own)
            .expect("a scheme");
        // Compressed points of keys come first, two of each key.
        let mut cases = encodings(curve.expect("a name"), &points);
        // The point at infinity, and a compact point, which has an x alone.
        let x = &points[0][1..=points[0].len() / 2];
        cases.extend([vec![0], [&[5], x].concat()]);
        cases.extend(points);
        let key_of = |number: usize| match number.checked_sub(cases.len() - KEYS) {
            Some(number) => number,
            None => number / 2 % KEYS,
        };
        let signature = |number| signed.get(key_of(number)).expect("a signature");
        let theirs: Vec<_> = cases.iter().map(|case| theirs(algorithm, case)).collect();
        for (case, theirs) in cases.iter().zip(&theirs) {
            let own = PublicKey::from_raw(algorithm, case).ok();
            let theirs = theirs
                .as_ref()
                .map(|key| key.public_key_to_der().expect("DER"));
            assert_eq!(own.and_then(|key| key.to_der()), theirs, "{case:02x?}");
        }
        let expected = theirs.iter().enumerate().map(|(number, key)| match key {
            None => Err(Reason::MalformedKey),
            Some(key) if peer.accepts(key, b"text", signature(number)) => Ok(()),
            Some(_) => Err(Reason::WrongSignature),
        });
        let expected: Vec<_> = expected.collect();
        let good = expected.iter().filter(|verdict| verdict.is_ok()).count();
        assert_eq!(good, 2 * KEYS);
        let secret_of = |number: usize, peer| ToAgree::new(&secrets[number % KEYS], peer);
        let objects = cases
            .iter()
            .map(|case| PublicKey::from_raw(algorithm, case).ok());
        let objects: Vec<_> = objects.collect();
        let items = rows(cases.len(), |number| {
            let key = objects[number].as_ref();
            secret_of(number, key.map_or(Key::Raw(&[]), Key::Object))
        });
        let agreed = Workers::new().agree_many(algorithm, &items);
        let agreed = agreed.expect("a scheme");
        for workers in &workers() {
            let items = rows(cases.len(), |number| {
                ToVerify::new(Key::Raw(&cases[number]), b"text", signature(number))
            });
            let found = workers.verify_many(peer.scheme, &items);
            assert_eq!(found.expect("a scheme"), expected, "{}", workers.lanes());
            let digest = match algorithm {
                Algorithm::P256 => openssl::sha::sha256(b"text").to_vec(),
                _ => openssl::sha::sha384(b"text").to_vec(),
            };
            let items = rows(cases.len(), |number| {
                ToVerify::new(Key::Raw(&cases[number]), &digest, signature(number))
            });
            let found = workers.verify_many(peer.scheme.prehashed(), &items);
            assert_eq!(found.expect("a scheme"), expected, "{}", workers.lanes());
            let items = rows(cases.len(), |number| {
                secret_of(number, Key::Raw(&cases[number]))
            });
            let found = workers.agree_many(algorithm, &items).expect("a scheme");
            assert!(found.iter().eq(agreed.iter()), "{}", workers.lanes());
            let known = found.verdicts().map(|verdict| verdict.is_ok());
            assert!(known.eq(theirs.iter().map(Option::is_some)));
        }
    }
}

/// Compressed points in SubjectPublicKeyInfo and in SEC 1's form of a private key.
#[test]
fn compressed_points_are_read_from_files() {
    for peer in &peers()[..2] {
        let der = peer.public().public_key_to_der().expect("DER");
        let key = PublicKey::from_der(&der).expect("a key");
        let point = key.raw().expect("a curve");
        let identifier = &der[2..][..2 + usize::from(der[3])];
        let [own, other] = compressed(point).map(|point| {
            let bits = [&[3, point.len() as u8 + 1, 0], &point[..]].concat();
            let length = (identifier.len() + bits.len()) as u8;
            [&[0x30, length], identifier, &bits].concat()
        });
        for der in [&own, &other] {
            let theirs = PKey::public_key_from_der(der).expect("a key");
            let theirs = theirs.ec_key().expect("a key");
            let mut context = BigNumContext::new().expect("memory");
            let form = PointConversionForm::UNCOMPRESSED;
            let point = theirs
                .public_key()
                .to_bytes(theirs.group(), form, &mut context);
            let read = PublicKey::from_der(der).expect("a key");
            assert_eq!(read.raw(), Some(&point.expect("a point")[..]));
            assert_eq!(read == key, der == &own);
        }
        // SEQUENCE { 1, OCTET STRING, [0] curve, [1] BIT STRING }, of which the last is replaced.
        let scalar = peer
            .key
            .ec_key()
            .expect("a key")
            .private_key_to_der()
            .expect("DER");
        let header = if scalar[1] == 0x81 { 3 } else { 2 };
        let start = scalar.len() - point.len() - 5;
        for (point, is_own) in compressed(point).iter().zip([true, false]) {
            let length = point.len() as u8;
            let last = [&[0xa1, length + 3, 3, length + 1, 0], &point[..]].concat();
            let contents = [&scalar[header..start], &last].concat();
            let sec1 = [&[0x30, contents.len() as u8], &contents[..]].concat();
            let body = openssl::base64::encode_block(&sec1);
            let lines: Vec<_> = body.as_bytes().chunks(64).collect();
            let lines = lines.join(&b'\n');
            let text = String::from_utf8(lines).expect("text");
            let marks = ["BEGIN", "END"].map(|mark| format!("-----{mark} EC PRIVATE KEY-----"));
            let pem = format!("{}\n{text}\n{}\n", marks[0], marks[1]);
            let read = PrivateKey::from_pem(pem.as_bytes());
            assert_eq!(
                read.map(|read| read.public() == key).ok(),
                is_own.then_some(true)
            );
        }
    }
}

#[test]
#[expect(
    clippy::mutable_key_type,
    reason = "neither the table nor the lock of memory is compared"
)]
fn keys_are_equal_by_their_bytes() {
    let mut all = HashSet::new();
    let peers = peers();
    for peer in &peers {
        let public = peer.public();
        let der = PublicKey::from_der(&public.public_key_to_der().expect("DER"));
        let pem = PublicKey::from_pem(&public.public_key_to_pem().expect("PEM"));
        let (der, pem) = (der.expect("a key"), pem.expect("a key"));
        assert!(der == pem && !all.contains(&der));
        all.insert(der);
        assert!(!all.insert(pem));
        if let Ok(rsa) = public.rsa() {
            let [n, e] = [rsa.n(), rsa.e()].map(|number| [vec![0; 2], number.to_vec()].concat());
            let key = PublicKey::from_rsa(&n, &e).expect("a key");
            assert!(all.contains(&key));
            assert_eq!(PublicKey::from_der(&key.to_der().expect("DER")), Ok(key));
        }
    }
    // The same bytes of two algorithms.
    for algorithm in [Algorithm::Ed25519, Algorithm::X25519] {
        assert!(all.insert(PublicKey::from_raw(algorithm, &[9; 32]).expect("32 bytes")));
    }
    assert_eq!(all.len(), peers.len() + 2);
}

/// Each form in which OpenSSL writes a private key is read, and signs for its public half.
#[test]
fn keys_of_openssl_are_read_in_each_form() {
    let workers = Workers::new();
    for peer in peers() {
        let mut forms = vec![
            PrivateKey::from_der(&peer.key.private_key_to_pkcs8().expect("a key")),
            PrivateKey::from_pem(&peer.key.private_key_to_pem_pkcs8().expect("a key")),
        ];
        if let Ok(key) = peer.key.rsa() {
            forms.push(PrivateKey::from_pem(
                &key.private_key_to_pem().expect("PEM"),
            ));
            let der = key.public_key_to_pem_pkcs1().expect("PEM");
            assert!(PublicKey::from_pem(&der).is_ok());
        }
        if let Ok(key) = peer.key.ec_key() {
            forms.push(PrivateKey::from_pem(
                &key.private_key_to_pem().expect("PEM"),
            ));
            let mut context = BigNumContext::new().expect("memory");
            let form = PointConversionForm::UNCOMPRESSED;
            let point = key.public_key().to_bytes(key.group(), form, &mut context);
            let own = forms[0].as_ref().expect("a key").public();
            assert_eq!(own.raw(), Some(&point.expect("a point")[..]));
        }
        let public = peer.public();
        for key in forms {
            let key = key.expect("a key");
            let items = [ToSign::new(&key, b"text")];
            let signed = workers.sign_many(peer.scheme, &items).expect("a scheme");
            let signature = signed.get(0).expect("a signature");
            assert!(
                peer.accepts(&public, b"text", signature),
                "{:?}",
                peer.scheme
            );
            let der = key.public().to_der().expect("a form");
            assert_eq!(der, public.public_key_to_der().expect("DER"));
            let pem = public.public_key_to_pem().expect("PEM");
            assert_eq!(
                PublicKey::from_pem(&pem).expect("a key").to_der(),
                Some(der)
            );
        }
        let cipher = openssl::symm::Cipher::aes_128_cbc();
        let locked = peer
            .key
            .private_key_to_pem_pkcs8_passphrase(cipher, b"secret");
        let locked = PrivateKey::from_pem(&locked.expect("PEM")).map(drop);
        assert_eq!(locked, Err(lockstep::KeyError::Encrypted));
    }
}

/// No text and no bytes end a reader.
#[test]
fn damaged_keys_are_refused() {
    let mut random = Random(3);
    for peer in peers() {
        let der = peer.key.private_key_to_pkcs8().expect("a key");
        let pem = peer.key.private_key_to_pem_pkcs8().expect("a key");
        let public = peer.public().public_key_to_der().expect("a key");
        for _ in 0..200 {
            let _ = PrivateKey::from_der(&mutated(&mut random, &der));
            let _ = PrivateKey::from_pem(&mutated(&mut random, &pem));
            let _ = PublicKey::from_der(&mutated(&mut random, &public));
            let cut = below(&mut random, der.len());
            assert!(PrivateKey::from_der(&der[..cut]).is_err());
        }
    }
    for text in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"kty":"EC","crv":"P-256"}"#,
        r#"{"kty":7}"#,
    ] {
        assert!(PublicKey::from_jwk(text).is_err() && PrivateKey::from_jwk(text).is_err());
    }
    let deep = "[".repeat(100_000);
    assert!(PublicKey::from_jwk(&deep).is_err());
    assert_eq!(
        PublicKey::from_jwk_set("{}").map(drop),
        Err(lockstep::KeyError::Jwk)
    );
}

/// Points that are not on the curve, and halves that do not belong together.
#[test]
fn wrong_keys_are_told_by_their_items() {
    let workers = Workers::new();
    let mut point = [1; 65];
    point[0] = 4;
    let items = [ToVerify {
        key: Key::Raw(&point),
        message: b"text",
        signature: &[1; 64],
    }];
    let found = workers
        .verify_many(Scheme::ES256, &items)
        .expect("a scheme");
    assert_eq!(found, [Err(Reason::MalformedKey)]);
    let [one, other] = [ec(Nid::SECP384R1), ec(Nid::SECP384R1)];
    let [own, others] = [&one, &other].map(|key| key.ec_key().expect("a key"));
    let mixed = EcKey::from_private_components(own.group(), own.private_key(), others.public_key());
    let der = PKey::from_ec_key(mixed.expect("a key")).expect("a key");
    let der = der.private_key_to_pkcs8().expect("DER");
    assert!(PrivateKey::from_der(&der).is_err());
    assert!(PrivateKey::from_raw(Algorithm::P256, &[0; 32]).is_err());
    assert!(PrivateKey::from_raw(Algorithm::P256, &[0xff; 32]).is_err());
}

/// A salt that no modulus has room for is an item's reason, and takes no memory.
#[test]
fn an_endless_salt_is_refused() {
    let key = PrivateKey::from_der(&rsa(2048).private_key_to_pkcs8().expect("a key"));
    let key = key.expect("a key");
    let scheme = Scheme::PS256.salt(Salt::Bytes(usize::MAX));
    let items = [ToSign::new(&key, b"text"); 100];
    let signed = Workers::new().sign_many(scheme, &items).expect("a scheme");
    assert!(
        signed
            .iter()
            .all(|signature| signature == Err(Reason::MalformedInput))
    );
}
