//! Bad inputs, which fail alone in their batch.

use super::*;

#[test]
fn bad_inputs_harm_nobody_else() {
    let engine = engine();
    for curve in Curve::ALL {
        let pair = direct::keypair(&engine, KeyKind::Nist(curve)).unwrap();
        let key = ec_key(curve, &pair);
        let ecdh = |key: &Arc<EcKey>, peer: &[u8]| {
            Request::Ecdh(EcdhInput {
                key: key.clone(),
                peer: peer.to_vec().into(),
            })
        };
        let good = || ecdh(&key, &pair.public);
        let mut off_curve = pair.public.to_vec();
        *off_curve.last_mut().unwrap() ^= 1;
        let mut compressed = pair.public[..=curve.bytes()].to_vec();
        compressed[0] = 2;
        let mut long = pair.public.to_vec();
        long.push(0);
        let peers = [&off_curve[..], &compressed, &long, &[0], &[], &[4; 7]];
        let peers = peers.map(|peer| ecdh(&key, peer)).into();
        for answer in with_good_neighbours(&engine, &good, peers) {
            assert!(
                matches!(answer, Err(Declined::Failed(Failed::BadPoint))),
                "{answer:?}"
            );
        }

        let scalars = [vec![0; curve.bytes()], vec![0xff; curve.bytes()]];
        let keys = scalars.map(|scalar| Arc::new(EcKey::new(curve, &scalar, None).unwrap()));
        let with_bad = keys.iter().map(|key| ecdh(key, &pair.public)).collect();
        for answer in with_good_neighbours(&engine, &good, with_bad) {
            assert!(
                matches!(answer, Err(Declined::Failed(Failed::BadScalar))),
                "{answer:?}"
            );
        }
        let sign = |key: &Arc<EcKey>| {
            Request::EcdsaSign(EcdsaSignInput {
                key: key.clone(),
                digest: vec![7; 32].into(),
            })
        };
        let with_bad = keys.iter().map(sign).collect();
        for answer in with_good_neighbours(&engine, &|| sign(&key), with_bad) {
            assert!(
                matches!(answer, Err(Declined::Failed(Failed::BadScalar))),
                "{answer:?}"
            );
        }

        let verify = |public: &[u8], signature: &[u8]| {
            Request::EcdsaVerify(EcdsaVerifyInput {
                curve,
                public: public.to_vec(),
                digest: vec![7; 32].into(),
                signature: signature.to_vec(),
            })
        };
        let signed = signature(one(&engine, sign(&key)));
        let good = || verify(&pair.public, &signed);
        let signatures = [
            &signed[1..],
            &[],
            &vec![0; signed.len()],
            &vec![0xff; signed.len()],
        ];
        let wrong = signatures.map(|signature| verify(&pair.public, signature));
        for answer in with_good_neighbours(&engine, &good, wrong.into()) {
            assert!(!verdict(answer));
        }
        let with_bad = vec![verify(&off_curve, &signed), verify(&[], &signed)];
        for answer in with_good_neighbours(&engine, &good, with_bad) {
            assert!(
                matches!(answer, Err(Declined::Failed(Failed::BadPoint))),
                "{answer:?}"
            );
        }
        let short = EcKey::new(curve, &pair.secret.as_bytes()[1..], None);
        assert_eq!(short.unwrap_err(), Malformed);
        let public = Some(&pair.public[1..]);
        let headless = EcKey::new(curve, pair.secret.as_bytes(), public);
        assert_eq!(headless.unwrap_err(), Malformed);
    }
    let counters = engine.metrics();
    assert_eq!(counters.fallbacks_for(Fallback::BadPoint), 2 * (6 + 2));
    assert_eq!(counters.fallbacks_for(Fallback::BadScalar), 2 * (2 + 2));
}

#[test]
fn bad_inputs_of_25519_harm_nobody_else() {
    let engine = engine();
    let pair = direct::keypair(&engine, KeyKind::X25519).unwrap();
    let agree = |secret: &[u8], peer: &[u8]| {
        Request::X25519(X25519Input {
            secret: Secret::new(secret),
            peer: peer.to_vec().into(),
        })
    };
    let own = pair.secret.as_bytes();
    let good = || agree(own, &pair.public);
    // The neutral element and a point of order 4, and wrong lengths.
    let mut one_point = [0; 32];
    one_point[0] = 1;
    let peers = [&[0; 32][..], &one_point, &[9; 31], &[9; 33]];
    let peers = peers.map(|peer| agree(own, peer)).into();
    for answer in with_good_neighbours(&engine, &good, peers) {
        assert!(
            matches!(answer, Err(Declined::Failed(Failed::BadPoint))),
            "{answer:?}"
        );
    }
    let secrets = vec![agree(&own[1..], &pair.public)];
    for answer in with_good_neighbours(&engine, &good, secrets) {
        assert!(
            matches!(answer, Err(Declined::Failed(Failed::BadScalar))),
            "{answer:?}"
        );
    }

    let [seed, public, message, signed] = ED25519.map(hex);
    let verify = |public: &[u8], signature: &[u8]| {
        Request::Ed25519Verify(Ed25519VerifyInput {
            public: public.to_vec(),
            message: message.clone().into(),
            signature: signature.to_vec(),
        })
    };
    let good = || verify(&public, &signed);
    let wrong = [&signed[1..], &[], &[0xff; 64]].map(|signature| verify(&public, signature));
    for answer in with_good_neighbours(&engine, &good, wrong.into()) {
        assert!(!verdict(answer));
    }
    // y = 2 is no point.
    let mut no_point = [0; 32];
    no_point[0] = 2;
    let with_bad = vec![verify(&no_point, &signed), verify(&public[1..], &signed)];
    for answer in with_good_neighbours(&engine, &good, with_bad) {
        assert!(
            matches!(answer, Err(Declined::Failed(Failed::BadPoint))),
            "{answer:?}"
        );
    }
    assert_eq!(Ed25519Key::new(&seed[1..]).unwrap_err(), Malformed);

    // A seed with this public key noted beside it.
    let sign = |public: [u8; 32]| {
        Request::Ed25519Sign(Ed25519SignInput {
            key: Arc::new(Ed25519Key::of_pair(&seed, public).unwrap()),
            message: message.clone().into(),
        })
    };
    let public: [u8; 32] = public.try_into().unwrap();
    let good = || sign(public);
    assert_eq!(signature(one(&engine, good())), signed);
    let others = [0, 15, 31].map(|place| {
        let mut other = public;
        other[place] ^= 0x80;
        sign(other)
    });
    for answer in with_good_neighbours(&engine, &good, others.into()) {
        assert!(
            matches!(answer, Err(Declined::Failed(Failed::Inconsistent))),
            "{answer:?}"
        );
    }
}
