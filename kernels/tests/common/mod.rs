//! What several tests share: keys, a generator of repeatable random bytes, an independent oracle.

#![allow(dead_code, reason = "each test uses its part")]

use lockstep_kernels::rsa::{Blinding, Components, PrivateKey, Size};
use num_bigint::BigUint;

/// A key as numbers and as prepared for lanes.
pub struct TestKey {
    pub name: String,
    pub n: BigUint,
    pub e: BigUint,
    /// n, e, p, q, dp, dq, qinv, big-endian.
    pub parts: [Vec<u8>; 7],
    pub prepared: PrivateKey,
}

impl TestKey {
    /// c^d mod n by Chinese remainders, in num-bigint.
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

    /// A number as bytes as long as the modulus.
    pub fn bytes(&self, number: &BigUint) -> Vec<u8> {
        let bytes = number.to_bytes_be();
        let mut padded = vec![0; self.prepared.size().bytes() - bytes.len()];
        padded.extend_from_slice(&bytes);
        padded
    }

    pub fn blinding(&self, random: &mut Random) -> Blinding {
        let bytes = random.bytes(Blinding::random_bytes(self.prepared.size()));
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

/// The committed keys of one size.
pub fn keys(size: Size) -> Vec<TestKey> {
    include_str!("../data/rsa_keys.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let bits: usize = fields.next()?.parse().ok()?;
            let name = fields.next()?.to_owned();
            if bits != size.bits() {
                return None;
            }
            let parts: [Vec<u8>; 7] =
                core::array::from_fn(|_| hex(fields.next().expect("seven parts")));
            let prepared = PrivateKey::new(&components(&parts)).expect("supported");
            let number = |i: usize| BigUint::from_bytes_be(&parts[i]);
            Some(TestKey {
                name,
                n: number(0),
                e: number(1),
                parts: parts.clone(),
                prepared,
            })
        })
        .collect()
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex"))
        .collect()
}

/// xorshift64*: repeatable, and good enough to find bugs.
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.word() >> 32) as u8).collect()
    }

    pub fn below(&mut self, bound: &BigUint) -> BigUint {
        BigUint::from_bytes_be(&self.bytes(bound.to_bytes_be().len() + 8)) % bound
    }
}
