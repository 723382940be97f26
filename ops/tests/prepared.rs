//! Arrays of signatures to check, with plain and prepared keys mixed, against the answers to single
//! requests.

use std::sync::Arc;

use lockstep_ops::{
    Answer, Backend, Bytes, Curve, EcKey, EcdsaSignInput, EcdsaVerifyInput, EcdsaVerifyJob,
    Ed25519Key, Ed25519SignInput, Ed25519VerifyInput, Ed25519VerifyJob, Failed, GuardedRequest,
    KeyKind, Keypair, Lanes, Memory, PreparedKey, Request, Response, VerifyingKey,
};

/// Number of keys of each kind.
const KEYS: usize = 5;

/// Answers requests of one shape.
fn answers(lanes: &Lanes, requests: Vec<Request>) -> Vec<Answer> {
    let mut all = Vec::new();
    let mut requests = requests.into_iter().map(GuardedRequest::from).peekable();
    while let Some(first) = requests.peek() {
        let shape = first.request.shape();
        let batch: Vec<_> = requests.by_ref().take(lanes.batch(shape)).collect();
        let mut answers: Vec<_> = batch.iter().map(|_| None).collect();
        let jobs = batch.iter().zip(&mut answers);
        lanes.execute(shape, &mut Memory::default(), jobs);
        all.extend(answers.into_iter().map(|answer| answer.expect("an answer")));
    }
    all
}

/// Returns the verdicts in answers.
fn verdicts(answers: Vec<Answer>) -> Vec<Result<bool, Failed>> {
    let verdict = |answer| match answer {
        Ok(Response::Verified(good)) => Ok(good),
        Ok(other) => panic!("{other:?}"),
        Err(failed) => Err(failed),
    };
    answers.into_iter().map(verdict).collect()
}

fn keypairs(lanes: &Lanes, kind: KeyKind) -> Vec<Keypair> {
    let made = answers(lanes, (0..KEYS).map(|_| Request::Keypair(kind)).collect());
    let pair = |answer| match answer {
        Ok(Response::Keypair(pair)) => pair,
        other => panic!("{other:?}"),
    };
    made.into_iter().map(pair).collect()
}

fn signatures(lanes: &Lanes, requests: Vec<Request>) -> Vec<Vec<u8>> {
    let signature = |answer| match answer {
        Ok(Response::Signature(signature)) => signature.to_vec(),
        other => panic!("{other:?}"),
    };
    let signed = answers(lanes, requests).into_iter();
    signed.map(signature).collect()
}

/// A key, a digest or message, and a signature.
type Claim = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Spoils some of the claims, each in a different way; the keys stay as long as they were.
fn spoil(claims: &mut [Claim]) {
    for (i, (_, text, signature)) in claims.iter_mut().enumerate() {
        match i % 8 {
            1 => text[0] ^= 1,
            2 => signature[3] ^= 1,
            3 => signature.truncate(63),
            4 => signature.push(0),
            5 => signature.clear(),
            6 => signature.fill(0xff),
            _ => {}
        }
    }
}

/// Checks claims with plain keys, with prepared ones, and with both in turn; `keys` are prepared,
/// and claim i is by key i modulo [`KEYS`].
fn assert_verdicts(
    claims: &[Claim],
    keys: &[PreparedKey],
    expected: &[Result<bool, Failed>],
    verify: impl Fn(&[(VerifyingKey<'_>, &[u8], &[u8])]) -> Vec<Result<bool, Failed>>,
) {
    assert!(expected.contains(&Ok(true)) && expected.contains(&Ok(false)));
    for step in [1, 2, claims.len()] {
        let jobs: Vec<_> = claims
            .iter()
            .enumerate()
            .map(|(i, (key, text, signature))| {
                let key = match i % step {
                    0 => VerifyingKey::Prepared(&keys[i % KEYS]),
                    _ => VerifyingKey::Plain(key),
                };
                (key, &text[..], &signature[..])
            })
            .collect();
        assert_eq!(verify(&jobs), expected, "{step}");
    }
}

#[test]
fn ecdsa_verdicts_are_those_of_single_requests() {
    for backend in Backend::available() {
        let lanes = Lanes::new(backend, 0, 0);
        let count = if backend == Backend::PORTABLE {
            24
        } else {
            200
        };
        for curve in Curve::ALL {
            let pairs = keypairs(&lanes, KeyKind::Nist(curve));
            let sign = |i: usize| {
                let secret = pairs[i % KEYS].secret.as_bytes();
                Request::EcdsaSign(EcdsaSignInput {
                    key: Arc::new(EcKey::new(curve, secret, None).unwrap()),
                    digest: Bytes::from_slice(&[i as u8; 32]),
                })
            };
            let signed = signatures(&lanes, (0..count).map(sign).collect());
            let claim = |(i, signature): (usize, Vec<u8>)| {
                (
                    pairs[i % KEYS].public.to_vec(),
                    vec![i as u8; 32],
                    signature,
                )
            };
            let mut claims: Vec<_> = signed.into_iter().enumerate().map(claim).collect();
            spoil(&mut claims);
            let request = |(public, digest, signature): &Claim| {
                Request::EcdsaVerify(EcdsaVerifyInput {
                    curve,
                    public: public.clone(),
                    digest: digest.clone().into(),
                    signature: signature.clone(),
                })
            };
            let expected = verdicts(answers(&lanes, claims.iter().map(request).collect()));
            let publics: Vec<_> = pairs.iter().map(|pair| &pair.public[..]).collect();
            let keys: Vec<_> = lanes.prepare_ecdsa(curve, &publics);
            let keys: Vec<_> = keys.into_iter().map(Result::unwrap).collect();
            assert_verdicts(&claims, &keys, &expected, |jobs| {
                let mut jobs: Vec<_> = jobs
                    .iter()
                    .map(|(key, digest, signature)| EcdsaVerifyJob::new(*key, digest, signature))
                    .collect();
                lanes.verify_ecdsa(curve, &mut jobs);
                jobs.iter().map(|job| job.result.unwrap()).collect()
            });
        }
    }
}

#[test]
fn ed25519_verdicts_are_those_of_single_requests() {
    for backend in Backend::available() {
        let lanes = Lanes::new(backend, 0, 0);
        let count = if backend == Backend::PORTABLE {
            24
        } else {
            200
        };
        let keys: Vec<_> = (0..KEYS)
            .map(|i| Arc::new(Ed25519Key::new(&[i as u8; 32]).unwrap()))
            .collect();
        let text = |i: usize| vec![i as u8; 1 + i % 50];
        let sign = |i: usize| {
            Request::Ed25519Sign(Ed25519SignInput {
                key: Arc::clone(&keys[i % KEYS]),
                message: Bytes::from_slice(&text(i)),
            })
        };
        let signed = signatures(&lanes, (0..count).map(sign).collect());
        let publics: Vec<_> = keys.iter().map(|key| lanes.ed25519_public(key)).collect();
        let claim =
            |(i, signature): (usize, Vec<u8>)| (publics[i % KEYS].to_vec(), text(i), signature);
        let mut claims: Vec<_> = signed.into_iter().enumerate().map(claim).collect();
        spoil(&mut claims);
        let request = |(public, message, signature): &Claim| {
            Request::Ed25519Verify(Ed25519VerifyInput {
                public: public.clone(),
                message: message.clone().into(),
                signature: signature.clone(),
            })
        };
        let expected = verdicts(answers(&lanes, claims.iter().map(request).collect()));
        let publics: Vec<_> = publics.iter().map(|public| &public[..]).collect();
        let keys = lanes.prepare_ed25519(&publics).into_iter();
        let keys: Vec<_> = keys.map(Result::unwrap).collect();
        assert_verdicts(&claims, &keys, &expected, |jobs| {
            let mut jobs: Vec<_> = jobs
                .iter()
                .map(|(key, message, signature)| Ed25519VerifyJob::new(*key, message, signature))
                .collect();
            lanes.verify_ed25519(&mut jobs);
            jobs.iter().map(|job| job.result.unwrap()).collect()
        });
    }
}

#[test]
fn keys_that_are_no_points_or_of_another_kind_are_told() {
    let lanes = Lanes::new(Backend::available()[0], 0, 0);
    let of = |curve| keypairs(&lanes, KeyKind::Nist(curve)).remove(0).public;
    let (p256, p384) = (of(Curve::P256), of(Curve::P384));
    let mut off = p256.to_vec();
    off[40] ^= 1;
    let of_x = [&[2 + p256[64] % 2], &p256[1..33]].concat();
    assert_eq!(lanes.ec_point(Curve::P256, &of_x).as_deref(), Some(&*p256));
    assert_eq!(lanes.ec_point(Curve::P384, &of_x), None);
    let prepared = lanes.prepare_ecdsa(Curve::P256, &[&p256, &off, &p384, &[], &of_x]);
    let is_good = prepared.iter().map(|key| match key {
        Ok(key) => {
            assert_eq!(key.table_bytes(), 53_248);
            true
        }
        Err(failed) => {
            assert_eq!(*failed, Failed::BadPoint);
            false
        }
    });
    assert!(is_good.eq([true, false, false, false, true]));
    let two = [[2; 1].as_slice(), &[0; 31]].concat();
    let edwards = lanes.prepare_ed25519(&[&[1; 31], &two, &[1; 33]]);
    assert!(
        edwards
            .iter()
            .all(|key| matches!(key, Err(Failed::BadPoint)))
    );
    let neutral = [[1; 1].as_slice(), &[0; 31]].concat();
    let edwards = lanes.prepare_ed25519(&[&neutral]).remove(0).unwrap();
    assert_eq!(edwards.table_bytes(), 78_336);
    let key = lanes.prepare_ecdsa(Curve::P384, &[&p384]).remove(0);
    assert_eq!(key.unwrap().table_bytes(), 118_272);

    let p256_key = prepared[0].as_ref().unwrap();
    let check = |curve, key| {
        let mut jobs = [EcdsaVerifyJob::new(key, &[1; 32], &[1; 96])];
        lanes.verify_ecdsa(curve, &mut jobs);
        jobs[0].result.unwrap()
    };
    let bad = Err(Failed::BadPoint);
    assert_eq!(check(Curve::P384, VerifyingKey::Prepared(p256_key)), bad);
    assert_eq!(check(Curve::P384, VerifyingKey::Prepared(&edwards)), bad);
    assert_eq!(check(Curve::P384, VerifyingKey::Plain(&p256)), bad);
    assert_eq!(check(Curve::P384, VerifyingKey::Plain(&of_x)), bad);
    assert_eq!(check(Curve::P384, VerifyingKey::Plain(&p384)), Ok(false));
    let mut jobs = [
        Ed25519VerifyJob::new(VerifyingKey::Prepared(p256_key), b"", &[0; 64]),
        Ed25519VerifyJob::new(VerifyingKey::Plain(&[1; 31]), b"", &[0; 64]),
        Ed25519VerifyJob::new(VerifyingKey::Plain(&two), b"", &[0; 64]),
        Ed25519VerifyJob::new(VerifyingKey::Prepared(&edwards), b"", &[0; 64]),
    ];
    lanes.verify_ed25519(&mut jobs);
    let results = jobs.map(|job| job.result.unwrap());
    assert_eq!(results, [bad, bad, bad, Ok(false)]);
}
