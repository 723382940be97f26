//! RSA public operations on every backend against num-bigint.

mod common;

use common::{Random, below};
use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::{JobError, PublicJob, PublicKey, Scratch, Size, public_batch_vartime};
use num_bigint::BigUint;

/// A key as numbers, and prepared.
struct TestKey {
    n: BigUint,
    e: BigUint,
    prepared: PublicKey,
}

impl TestKey {
    fn new(n: &[u8], e: &BigUint) -> Self {
        Self {
            n: BigUint::from_bytes_be(n),
            e: e.clone(),
            prepared: PublicKey::new(n, &e.to_bytes_be()).expect("supported"),
        }
    }

    /// Returns a number as bytes, as long as the modulus.
    fn bytes(&self, number: &BigUint) -> Vec<u8> {
        let bytes = number.to_bytes_be();
        let mut padded = vec![0; self.prepared.size().bytes() - bytes.len()];
        padded.extend_from_slice(&bytes);
        padded
    }

    /// Computes s^e mod n with num-bigint, or the reason why there is no result.
    fn expected(&self, input: &[u8]) -> Result<Vec<u8>, JobError> {
        let number = BigUint::from_bytes_be(input);
        if input.len() != self.prepared.size().bytes() {
            return Err(JobError::InputLength);
        }
        if number >= self.n {
            return Err(JobError::InputTooLarge);
        }
        Ok(self.bytes(&number.modpow(&self.e, &self.n)))
    }
}

/// Exponents from the shortest to one with its top bit and its lowest bit in different words.
fn exponents(size: Size) -> Vec<BigUint> {
    let mut exponents: Vec<BigUint> = [3, 5, 17, 65537, 65537, 0xffff_ffff, u64::MAX]
        .map(BigUint::from)
        .into();
    if size.bits() <= 3072 {
        exponents.push((BigUint::from(1_u8) << 64) + 1_u8);
        exponents.push((BigUint::from(1_u8) << 200) - 1_u8);
    }
    exponents
}

/// Returns keys of one size with all moduli and exponents in turn.
fn keys(size: Size) -> Vec<TestKey> {
    let moduli = lockstep_testkit::rsa_keys(size.bits());
    let pairs = moduli.iter().cycle().zip(exponents(size));
    pairs
        .map(|(parts, e)| TestKey::new(&parts.parts[0], &e))
        .collect()
}

fn assert_right(backend: Backend, scratch: &mut Scratch, requests: &[(&TestKey, Vec<u8>)]) {
    let mut jobs: Vec<_> = requests
        .iter()
        .map(|(key, input)| PublicJob::new(&key.prepared, input))
        .collect();
    public_batch_vartime(backend, scratch, &mut jobs);
    for (place, (job, (key, input))) in jobs.into_iter().zip(requests).enumerate() {
        let result = job.result.expect("set");
        let fill = requests.len();
        assert_eq!(
            result,
            key.expected(input),
            "{backend:?}, {place} of {fill}, {:?}, e = {}",
            key.prepared,
            key.e
        );
    }
}

/// Returns the sizes to test on these lanes: the portable ones are slow.
fn sizes(backend: Backend) -> &'static [Size] {
    match backend == Backend::PORTABLE {
        true => &Size::ALL[..1],
        false => &Size::ALL,
    }
}

#[test]
fn every_fill_with_mixed_keys() {
    let (mut scratch, mut random) = (Scratch::new(), Random(21));
    for backend in Backend::available() {
        for &size in &Size::ALL {
            let keys = keys(size);
            let fills = match backend == Backend::PORTABLE {
                true if size > Size::Rsa2048 => 3..=3,
                true => 1..=5,
                false => 1..=17,
            };
            for fill in fills {
                let requests: Vec<_> = (0..fill)
                    .map(|i| {
                        let key = &keys[(i + fill) % keys.len()];
                        (key, key.bytes(&below(&mut random, &key.n)))
                    })
                    .collect();
                assert_right(backend, &mut scratch, &requests);
            }
        }
    }
}

#[test]
fn one_key_in_every_lane_at_every_fill() {
    let (mut scratch, mut random) = (Scratch::new(), Random(22));
    for backend in Backend::available() {
        for &size in sizes(backend) {
            for key in &keys(size)[3..5] {
                for fill in [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 64] {
                    let input = |_| (key, key.bytes(&below(&mut random, &key.n)));
                    let requests: Vec<_> = (0..fill).map(input).collect();
                    assert_right(backend, &mut scratch, &requests);
                }
            }
        }
    }
}

#[test]
fn edge_inputs_in_every_lane() {
    let mut scratch = Scratch::new();
    for backend in Backend::available() {
        for &size in sizes(backend) {
            for (turn, key) in keys(size).iter().enumerate() {
                let one = BigUint::from(1_u8);
                let power = |bits: usize| &one << bits;
                let edges = [
                    BigUint::ZERO,
                    one.clone(),
                    BigUint::from(2_u8),
                    &key.n - &one,
                    &key.n >> 1,
                    power(size.bits() - 1) - &one,
                    power(52 * 7),
                    power(size.bits() / 2) - &one,
                ];
                let mut requests: Vec<_> =
                    edges.iter().map(|edge| (key, key.bytes(edge))).collect();
                requests.rotate_left(turn % 8);
                assert_right(backend, &mut scratch, &requests);
            }
        }
    }
}

/// Moduli of other forms than products of two primes: only the size and the lowest bit matter.
#[test]
fn extreme_moduli() {
    let (mut scratch, mut random) = (Scratch::new(), Random(23));
    for backend in Backend::available() {
        for &size in sizes(backend) {
            let one = BigUint::from(1_u8);
            let moduli = [
                (&one << size.bits()) - 1_u8,
                (&one << (size.bits() - 1)) + 1_u8,
                (&one << size.bits()) - (&one << (size.bits() / 2)) + 1_u8,
            ];
            let keys = moduli.map(|n| TestKey::new(&n.to_bytes_be(), &65537_u32.into()));
            let mut requests = Vec::new();
            for key in &keys {
                for number in [below(&mut random, &key.n), &key.n - 1_u8, &key.n - 2_u8] {
                    requests.push((key, key.bytes(&number)));
                }
            }
            assert_right(backend, &mut scratch, &requests);
        }
    }
}

/// All sizes and exponents in one array, with invalid inputs between them.
#[test]
fn sizes_mix_and_bad_requests_leave_their_neighbours_alone() {
    let (mut scratch, mut random) = (Scratch::new(), Random(24));
    let mut keys: Vec<_> = Size::ALL.into_iter().flat_map(keys).collect();
    let last = keys.len() - 1;
    for i in 0..last {
        keys.swap(i, i + (random.word() as usize) % (last - i));
    }
    for backend in Backend::available() {
        let mut requests = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let good = key.bytes(&below(&mut random, &key.n));
            let bad = match i % 5 {
                0 => key.n.to_bytes_be(),
                1 => good[1..].to_vec(),
                2 => vec![0xff; good.len()],
                3 => [&[0], &good[..]].concat(),
                _ => Vec::new(),
            };
            requests.push((key, good));
            if backend != Backend::PORTABLE || i % 3 == 0 {
                requests.push((key, bad));
            }
        }
        let bad = |(key, input): &&(&TestKey, Vec<u8>)| key.expected(input).is_err();
        assert!(requests.iter().filter(bad).count() >= keys.len() / 3);
        assert_right(backend, &mut scratch, &requests);
        // Only invalid requests, and none.
        let bad: Vec<_> = requests.iter().filter(bad).cloned().collect();
        assert_right(backend, &mut scratch, &bad);
        assert_right(backend, &mut scratch, &[]);
    }
}

/// What a private key signs is what its public key gives back.
#[test]
fn private_and_public_operations_are_inverse() {
    let (mut scratch, mut random) = (Scratch::new(), Random(25));
    for size in Size::ALL {
        for key in common::keys(size) {
            let message = below(&mut random, &key.n);
            let signature = key.private(&key.bytes(&message));
            for backend in Backend::available() {
                let mut jobs = [PublicJob::new(key.prepared.public(), &signature)];
                public_batch_vartime(backend, &mut scratch, &mut jobs);
                let [job] = jobs;
                assert_eq!(job.result, Some(Ok(key.bytes(&message))), "{}", key.name);
            }
        }
    }
}
