//! Roots, numbers near them, and roots for a wrong factor.

use num_bigint::BigUint;

use super::super::{Components, Size};
use super::*;
use crate::arena::Memory;
use crate::simd::portable::Portable;

const SIZE: Size = Size::Rsa1024;
const E: u32 = 65537;

/// Returns 2^512 − `below`. The check does not require a prime.
fn factor(below: u32) -> BigUint {
    (BigUint::from(1_u32) << 512) - below
}

fn key(p: &BigUint, q: &BigUint) -> PrivateKey {
    let bytes = |number: &BigUint| number.to_bytes_be();
    let (n, qinv) = (bytes(&(p * q)), bytes(&q.modinv(p).unwrap()));
    PrivateKey::new(&Components {
        n: &n,
        e: &bytes(&E.into()),
        p: &bytes(p),
        q: &bytes(q),
        dp: &[3],
        dq: &[3],
        qinv: &qinv,
    })
    .unwrap()
}

/// Returns whether the check accepts `output` as a root of `input`.
fn holds(key: &PrivateKey, input: &BigUint, output: &BigUint) -> bool {
    let padded = |number: &BigUint| {
        let bytes = number.to_bytes_be();
        [vec![0; SIZE.bytes() - bytes.len()], bytes].concat()
    };
    let input = padded(input);
    let mut memory = Memory::new(bytes::<Portable<8>, 10>());
    let mut claims = [Claim::new(key, &input, padded(output))];
    check::<Portable<8>, 10, 20>(Portable, memory.arena(), &mut claims);
    let [claim] = claims;
    claim.verdict().is_some()
}

#[test]
fn a_root_holds_and_nothing_near_it() {
    let (p, q) = (factor(569), factor(629));
    let (key, n) = (key(&p, &q), &p * &q);
    let output: BigUint = 12_345_u32.into();
    let input = output.modpow(&E.into(), &n);
    assert!(holds(&key, &input, &output));
    assert!(!holds(&key, &(&input + 1_u32), &output));
    assert!(!holds(&key, &input, &(&output + 1_u32)));
    // Right modulo one factor only.
    assert!(!holds(&key, &input, &(&output + &p)));
    assert!(!holds(&key, &input, &(&output + &q)));
    // Right modulo both, but not reduced.
    assert!(!holds(&key, &input, &(&output + &n)));
}

#[test]
fn a_root_for_a_wrong_factor_is_refused() {
    let (p, q, wrong) = (factor(569), factor(629), factor(571));
    let mut broken = key(&p, &q);
    let output: BigUint = 12_345_u32.into();
    let input = output.modpow(&E.into(), &(&wrong * &q));
    assert!(holds(&key(&wrong, &q), &input, &output));
    broken.p = key(&wrong, &q).p;
    assert!(!holds(&broken, &input, &output));
    let mut broken = key(&q, &p);
    broken.q = key(&q, &wrong).q;
    assert!(!holds(&broken, &input, &output));
}
