//! Keys of Ed25519 with a part of small order, and signatures for them, in plain numbers.

use lockstep_testkit::{Edwards, little_endian};
use num_bigint::BigUint;
use sha2::{Digest, Sha512};

use super::common::{Bytes, Random};

/// A signature that a verifier without cofactor accepts.
pub struct Signed {
    pub key: Bytes,
    pub message: Vec<u8>,
    pub signature: [u8; 64],
}

/// Returns `count` signatures for keys A = a·B + T, where T has order 8, 4 or 2.
///
/// With R = r·B − j·T and S = r + k·a, the equation R = S·B − k·A holds if k ≡ j modulo the order
/// of T. So the signer tries each j.
pub fn signatures(count: usize) -> Vec<Signed> {
    let curve = Edwards::new();
    let (base, order_8) = (curve.base(), curve.of_order_8());
    let mut random = Random(81);
    let mut below_order = || BigUint::from_bytes_le(&random.bytes::<64>()) % curve.order();
    let scalars: Vec<_> = (0..count).map(|_| [below_order(), below_order()]).collect();
    let mut all = Vec::new();
    for (i, [a, r]) in scalars.into_iter().enumerate() {
        let torsion = curve.multiply(&(1_u32 << (i % 3)).into(), &order_8);
        let key = curve.encode(&curve.add(&curve.multiply(&a, &base), &torsion));
        let r_point = curve.multiply(&r, &base);
        let found = (0_u32..).find_map(|attempt| {
            let j = BigUint::from(attempt % 8);
            let minus_j = BigUint::from(8 - attempt % 8);
            let first = curve.encode(&curve.add(&r_point, &curve.multiply(&minus_j, &torsion)));
            let message = attempt.to_le_bytes().to_vec();
            let hash = Sha512::new()
                .chain_update(first)
                .chain_update(key)
                .chain_update(&message)
                .finalize();
            let k = BigUint::from_bytes_le(&hash) % curve.order();
            let part = 8_u32 >> (i % 3);
            (&k % part == &j % part).then(|| {
                let second = little_endian(&((&r + k * &a) % curve.order()));
                Signed {
                    key,
                    message,
                    signature: [first, second].concat().try_into().unwrap(),
                }
            })
        });
        all.extend(found);
    }
    all
}
