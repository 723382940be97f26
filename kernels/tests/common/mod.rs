//! Helpers of several tests: prepared keys, an independent oracle.

#![allow(dead_code, reason = "each test uses its part")]

use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::{Blinding, Components, PrivateKey, Size};
use num_bigint::BigUint;

pub use lockstep_testkit::Random;

/// Returns all backends of this CPU, pinned to each of their schedules.
pub fn schedules() -> Vec<Backend> {
    let all = Backend::available().into_iter();
    all.flat_map(Backend::each_schedule).collect()
}

/// A key as numbers, and prepared for lanes.
pub struct TestKey {
    pub name: String,
    pub n: BigUint,
    pub e: BigUint,
    /// n, e, p, q, dp, dq, qinv, big-endian.
    pub parts: [Vec<u8>; 7],
    pub prepared: PrivateKey,
}

impl TestKey {
    /// Computes c^d mod n by Chinese remainders, with num-bigint.
    pub fn private(&self, input: &[u8]) -> Vec<u8> {
        let [_, _, p, q, dp, dq, qinv] = &self
            .parts
            .each_ref()
            .map(|part| BigUint::from_bytes_be(part));
        let input = BigUint::from_bytes_be(input);
        let (m_p, m_q) = (input.modpow(dp, p), input.modpow(dq, q));
        let h = ((m_p + p + p - &m_q) * qinv) % p;
        self.bytes(&(m_q + q * h))
    }

    /// Returns a number as bytes, as long as the modulus.
    pub fn bytes(&self, number: &BigUint) -> Vec<u8> {
        let bytes = number.to_bytes_be();
        let mut padded = vec![0; self.prepared.size().bytes() - bytes.len()];
        padded.extend_from_slice(&bytes);
        padded
    }

    pub fn blinding(&self, random: &mut Random) -> Blinding {
        let bytes = random.vec(Blinding::random_bytes(self.prepared.size()));
        Blinding::new(self.prepared.public(), &bytes).expect("invertible")
    }

    pub fn components(&self) -> Components<'_> {
        components(&self.parts)
    }
}

pub fn components(parts: &[Vec<u8>; 7]) -> Components<'_> {
    let [n, e, p, q, dp, dq, qinv] = parts;
    Components {
        n,
        e,
        p,
        q,
        dp,
        dq,
        qinv,
    }
}

/// Returns the test keys of one size.
pub fn keys(size: Size) -> Vec<TestKey> {
    lockstep_testkit::rsa_keys(size.bits())
        .into_iter()
        .map(|key| {
            let number = |i: usize| BigUint::from_bytes_be(&key.parts[i]);
            TestKey {
                name: key.name.to_owned(),
                n: number(0),
                e: number(1),
                prepared: PrivateKey::new(&components(&key.parts)).expect("supported"),
                parts: key.parts,
            }
        })
        .collect()
}

/// Returns a random number below a bound.
pub fn below(random: &mut Random, bound: &BigUint) -> BigUint {
    BigUint::from_bytes_be(&random.vec(bound.to_bytes_be().len() + 8)) % bound
}
