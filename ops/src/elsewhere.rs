//! Private operations that another device computes, such as a GPU. For RSA the device gets blinded
//! inputs, and its results pass the check that results of lanes pass. For ECDSA the device gets
//! nonces, and lanes check a sample of its signatures.

use std::collections::HashMap;
use std::sync::Arc;

use lockstep_kernels::nist::p256::BYTES as P256_BYTES;
use lockstep_kernels::nist::{Signature, WIDE_BYTES};
use lockstep_kernels::rsa::{BATCH, Blinding, PrivateJob, Returned, blind_batch, unblind_batch};
use zeroize::Zeroizing;

use crate::bytes::Bytes;
use crate::failed::Failed;
use crate::keys::{EcKey, Secret};
use crate::lanes::{Lanes, Memory};
use crate::operation::nist::{Kernels, P256};
use crate::operation::{GuardedRequest, Request, Response};
use crate::rsa_key::RsaKey;

/// A blinded input.
pub struct RsaBlinded<'a> {
    /// The key.
    pub key: &'a Arc<RsaKey>,
    /// c, big-endian, as long as the modulus and below it.
    pub input: Zeroizing<Vec<u8>>,
}

/// A result of RSA from elsewhere.
pub enum RsaElsewhere {
    /// It passed the check.
    Right(Response),
    /// It failed the check, by a fault or since the key is inconsistent. [`Lanes::execute`] with
    /// the request tells which.
    Wrong,
    /// There is none, since the input could not be blinded. [`Lanes::execute`] with the request
    /// tells why.
    NotBlinded,
}

/// The private half of an RSA key, big-endian, each number half as long as the modulus.
pub struct RsaCrt {
    /// The first prime.
    pub p: Secret,
    /// The second prime.
    pub q: Secret,
    /// d mod p − 1.
    pub dp: Secret,
    /// d mod q − 1.
    pub dq: Secret,
    /// 1/q mod p.
    pub qinv: Secret,
}

impl RsaKey {
    /// Returns the numbers of its private half, for another device that computes with them.
    pub fn crt(&self) -> RsaCrt {
        let part = || Secret::new(&vec![0; self.modulus_bytes() / 2]);
        let (mut p, mut q, mut dp, mut dq, mut qinv) = (part(), part(), part(), part(), part());
        let places = [&mut p, &mut q, &mut dp, &mut dq, &mut qinv];
        self.private().write_parts(places.map(Secret::as_bytes_mut));
        RsaCrt { p, q, dp, dq, qinv }
    }
}

/// A digest to sign by ECDSA on P-256.
pub struct EcdsaNonced<'a> {
    /// The secret key.
    pub key: &'a [u8; P256_BYTES],
    /// The nonce, to be taken modulo the order.
    pub nonce: &'a [u8; WIDE_BYTES],
    /// The digest, of which the first 32 bytes count.
    pub digest: &'a [u8],
}

/// The requests with a key, and blinding pairs of it. Each pair blinds one input after the other.
struct OfKey<'a> {
    key: &'a Arc<RsaKey>,
    pairs: Vec<Blinding>,
    places: Vec<usize>,
    is_right: bool,
}

impl Lanes {
    /// Has RSA private operations of one size computed elsewhere. `compute` gets the inputs that
    /// can be blinded, and returns c^d mod n for each, concatenated, each as long as the modulus.
    ///
    /// Returns `None` if `compute` returns `None` or another length, if there is no memory, or if a
    /// request is not RSA's.
    pub fn rsa_elsewhere(
        &self,
        memory: &mut Memory,
        requests: &[&GuardedRequest],
        compute: impl FnOnce(&[RsaBlinded<'_>]) -> Option<Zeroizing<Vec<u8>>>,
    ) -> Option<Vec<RsaElsewhere>> {
        let here = self.home.here();
        let (mut keys, mut known): (Vec<OfKey<'_>>, _) = (Vec::new(), HashMap::new());
        let input = |place: usize| match &requests[place].request {
            Request::RsaPrivate(asked) => Some(asked),
            _ => None,
        };
        for place in 0..requests.len() {
            let key = &input(place)?.key;
            let known = *known.entry(Arc::as_ptr(key)).or_insert_with(|| {
                let (pairs, places) = (Vec::new(), Vec::new());
                keys.push(OfKey {
                    key,
                    pairs,
                    places,
                    is_right: true,
                });
                keys.len() - 1
            });
            keys[known].places.push(place);
        }

        let (mut blinded, mut unblindings) = (Vec::new(), Vec::new());
        let mut left: Vec<_> = keys.iter().map(|of| of.places.clone()).collect();
        loop {
            let (mut jobs, mut jobs_of) = (Vec::new(), Vec::new());
            for (number, (of, left)) in keys.iter_mut().zip(&mut left).enumerate() {
                let count = left.len().min(BATCH);
                of.pairs.retain(|pair| !pair.needs_refresh());
                let missing = count.saturating_sub(of.pairs.len());
                let fresh = of.key.blindings(here, missing);
                of.pairs.extend(fresh.unwrap_or_default());
                let count = count.min(of.pairs.len());
                for (place, blinding) in left.drain(..count).zip(&mut of.pairs) {
                    jobs.push(PrivateJob {
                        key: of.key.private(),
                        input: &input(place)?.input,
                        check_input: &requests[place].check_input,
                        blinding,
                        result: None,
                    });
                    jobs_of.push((place, number, of.key));
                }
            }
            if jobs.is_empty() {
                break;
            }
            let made = blind_batch(self.backend, memory.rsa()?, &mut jobs);
            for ((place, number, key), made) in jobs_of.into_iter().zip(made) {
                if let Ok((input, unblinding)) = made {
                    blinded.push(RsaBlinded { key, input });
                    unblindings.push((place, number, unblinding));
                }
            }
        }

        let outputs = match blinded.is_empty() {
            true => Zeroizing::default(),
            false => compute(&blinded)?,
        };
        let bytes = blinded.first().map_or(1, |of| of.key.modulus_bytes());
        if outputs.len() != bytes * blinded.len() {
            return None;
        }
        let returned = outputs.chunks(bytes).zip(&unblindings).zip(&blinded);
        let mut jobs: Vec<_> = returned
            .map(|((output, (place, _, unblinding)), of)| Returned {
                key: of.key.private(),
                input: &requests[*place].check_input,
                unblinding,
                output,
                result: None,
            })
            .collect();
        unblind_batch(self.backend, memory.rsa()?, &mut jobs);
        let mut answers: Vec<_> = requests.iter().map(|_| RsaElsewhere::NotBlinded).collect();
        for (job, (place, number, _)) in jobs.into_iter().zip(&unblindings) {
            // Pairs that may have taken part in a fault are not used again.
            keys[*number].is_right &= job.result.is_some();
            let right = |result| RsaElsewhere::Right(Response::Rsa(result));
            answers[*place] = job.result.map_or(RsaElsewhere::Wrong, right);
        }
        for of in keys.into_iter().filter(|of| of.is_right) {
            let pairs = of.pairs.into_iter();
            pairs.for_each(|pair| of.key.return_blinding(here, pair));
        }
        Some(answers)
    }

    /// Has digests signed elsewhere by ECDSA on P-256, with hedged nonces. `compute` returns r ‖ s
    /// for each input, concatenated, and zeros for a key or a nonce out of range: lanes sign these
    /// digests then. Returns `None` if `compute` returns `None` or another length.
    ///
    /// Lanes check a sample of the signatures. If one is wrong, they check all, and the wrong ones
    /// are [`Failed::CheckFailed`]. A key of another curve is a [`Failed::BadScalar`].
    pub fn sign_p256_elsewhere(
        &self,
        inputs: &[(&EcKey, &[u8])],
        compute: impl FnOnce(&[EcdsaNonced<'_>]) -> Option<Vec<u8>>,
    ) -> Option<Vec<Result<Bytes, Failed>>> {
        let pairs = inputs
            .iter()
            .map(|(key, digest)| Some((P256::pair(key)?, *digest)));
        let Some(readable) = pairs.collect::<Option<Vec<_>>>() else {
            return Some(self.sign_ecdsa(crate::kinds::Curve::P256, inputs));
        };
        let Some(nonces) = self.hedged(&readable.iter().collect::<Vec<_>>()) else {
            return Some(vec![Err(Failed::Randomness); inputs.len()]);
        };
        let nonced = readable.iter().zip(&nonces);
        let nonced: Vec<_> = nonced
            .map(|((pair, digest), nonce)| EcdsaNonced {
                key: pair.secret().as_bytes(),
                nonce: nonce.as_bytes(),
                digest,
            })
            .collect();
        let signatures = compute(&nonced)?;
        let (signatures, rest) = signatures.as_chunks::<{ 2 * P256_BYTES }>();
        if signatures.len() != inputs.len() || !rest.is_empty() {
            return None;
        }
        let signed = signatures.iter().map(|signature| {
            let (r, s) = signature.split_at(P256_BYTES);
            match signature.iter().all(|byte| *byte == 0) {
                true => Err(Failed::Internal),
                false => Ok(Signature {
                    r: r.try_into().map_err(|_| Failed::Internal)?,
                    s: s.try_into().map_err(|_| Failed::Internal)?,
                }),
            }
        });
        let mut signed = self.checked::<P256, P256_BYTES>(&readable, signed.collect());
        for (signed, input) in signed.iter_mut().zip(&readable) {
            if *signed == Err(Failed::Internal) {
                let mut again = self.sign_nist::<P256, P256_BYTES>(std::slice::from_ref(input));
                *signed = again.pop().unwrap_or(Err(Failed::Internal));
            }
        }
        Some(signed)
    }
}

#[cfg(test)]
mod tests {
    use lockstep_kernels::backend::Backend;
    use lockstep_testkit::RsaParts;

    use super::*;
    use crate::operation::RsaInput;
    use crate::{EcdsaVerifyJob, RsaComponents, VerifyingKey};

    /// Computes the requests one by one, in the place of another device.
    fn compute(lanes: &Lanes, requests: &[&GuardedRequest]) -> Zeroizing<Vec<u8>> {
        let mut outputs = Zeroizing::new(Vec::new());
        for request in requests {
            let mut answer = [None];
            let jobs = [*request].into_iter().zip(&mut answer);
            lanes.execute(request.request.shape(), &mut Memory::default(), jobs);
            match &answer[0] {
                Some(Ok(Response::Rsa(result))) => outputs.extend_from_slice(result.as_bytes()),
                other => panic!("{other:?}"),
            }
        }
        outputs
    }

    #[test]
    fn results_of_rsa_are_right_or_wrong_or_were_not_asked_for() {
        let keys: Vec<_> = lockstep_testkit::rsa_keys(1024)
            .iter()
            .take(3)
            .map(|RsaParts { parts, .. }| {
                let [n, e, p, q, dp, dq, qinv] = parts.each_ref().map(|part| &part[..]);
                #[rustfmt::skip]
                let components = RsaComponents { n, e, p, q, dp, dq, qinv };
                Arc::new(RsaKey::new(&components).expect("a key"))
            })
            .collect();
        let ask = |key: &Arc<RsaKey>, input: Vec<u8>| {
            let key = Arc::clone(key);
            GuardedRequest::from(Request::RsaPrivate(RsaInput {
                key,
                input: input.into(),
            }))
        };
        // One request of the second key; of each other key more requests than a key keeps pairs.
        // The inputs 7 and 20 cannot be blinded.
        let asked: Vec<_> = (0..300_usize)
            .map(|number| {
                let mut input = vec![number as u8; 128];
                input[0] = if matches!(number, 7 | 20) { 0xff } else { 0 };
                input[1] = (number >> 8) as u8;
                ask(&keys[if number == 9 { 1 } else { number % 2 * 2 }], input)
            })
            .collect();
        let asked: Vec<_> = asked.iter().collect();
        for backend in Backend::available() {
            let lanes = Lanes::new(backend, 64, 0);
            let expected = asked
                .iter()
                .enumerate()
                .map(|(number, request)| match number {
                    7 | 20 => Vec::new(),
                    _ => compute(&lanes, &[*request]).to_vec(),
                });
            let expected: Vec<_> = expected.collect();
            let answers = lanes.rsa_elsewhere(&mut Memory::default(), &asked, |blinded| {
                assert_eq!(blinded.len(), 298);
                let again = blinded.iter().map(|of| ask(of.key, of.input.to_vec()));
                let again: Vec<_> = again.collect();
                let mut outputs = compute(&lanes, &again.iter().collect::<Vec<_>>());
                // One of the first key, in the second round.
                outputs[128 * 18 + 60] ^= 4;
                Some(outputs)
            });
            let (mut wrong, mut right) = (0, 0);
            for (number, answer) in answers.expect("answers").into_iter().enumerate() {
                match answer {
                    RsaElsewhere::Right(Response::Rsa(result)) => {
                        assert_eq!(result.as_bytes(), expected[number], "{number}");
                        right += 1;
                    }
                    RsaElsewhere::Right(_) => panic!("{number}"),
                    RsaElsewhere::Wrong => wrong += 1,
                    RsaElsewhere::NotBlinded => assert!(matches!(number, 7 | 20), "{number}"),
                }
            }
            assert_eq!((wrong, right), (1, 297), "{}", backend.name());
            for outputs in [None, Some(vec![0; 128])] {
                let outputs = outputs.map(Zeroizing::new);
                let none = lanes.rsa_elsewhere(&mut Memory::default(), &asked, |_| outputs);
                assert!(none.is_none());
            }
        }
    }

    #[test]
    fn nonces_of_ecdsa_never_repeat_and_zeros_are_computed_again() {
        let lanes = Lanes::new(Backend::PORTABLE, 1, 0);
        let curve = crate::kinds::Curve::P256;
        let key = EcKey::new(curve, &[7; 32], None).expect("a key");
        let inputs = [(&key, &[1_u8; 32][..]); 40];
        let mut nonces = Vec::new();
        for is_wrong in [false, true] {
            let signed = lanes.sign_p256_elsewhere(&inputs, |nonced| {
                nonces.extend(nonced.iter().map(|of| *of.nonce));
                let mut signatures = vec![0; 64 * nonced.len()];
                signatures[64 * 5] = u8::from(is_wrong);
                Some(signatures)
            });
            let public = lanes.ec_public(&key).expect("a point");
            for (number, signed) in signed.expect("signatures").iter().enumerate() {
                if is_wrong && number == 5 {
                    assert_eq!(*signed, Err(Failed::CheckFailed));
                    continue;
                }
                let signature = signed.as_ref().expect("a signature");
                let key = VerifyingKey::Plain(&public);
                let mut jobs = [EcdsaVerifyJob::new(key, &[1; 32], signature)];
                lanes.verify_ecdsa(curve, &mut jobs);
                assert_eq!(jobs[0].result, Some(Ok(true)));
            }
        }
        nonces.sort_unstable();
        nonces.dedup();
        assert_eq!(nonces.len(), 80);
        assert!(
            lanes
                .sign_p256_elsewhere(&inputs, |_| Some(vec![0; 64]))
                .is_none()
        );
    }
}
