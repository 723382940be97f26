//! Signatures that devices check.
//!
//! A device only does arithmetic: items are read and hashed here. Of the signatures that the device
//! accepts, lanes check one in 64 again. Lanes also check all signatures that the device refuses,
//! and give the reason: here if these are few, and on the threads of the call if they are many.

use std::collections::HashMap;
use std::sync::Arc;

use lockstep_opencl::{Ed25519Claim, P256Claim, PublicParts};
use lockstep_ops::{self as ops, Curve};
use sha2::{Digest as _, Sha512};

use crate::device::{self, Device, DeviceError, digest_of_p256, told};
use crate::error::{Reason, Verdict};
use crate::key::{Public, RsaNumbers};
use crate::rows::Rows;
use crate::scheme::{Kind, Scheme};
use crate::verify::{Fixed, Key, ToVerify, full_length, is_padded, point_of};
use crate::workers::{PIECE, Thread, Workers};

/// Maximum number of refused signatures among [`PIECE`] that are checked again without other
/// threads.
const FEW: usize = 8;

impl Workers {
    /// Returns the operation of a device that checks signatures.
    pub(crate) fn kind_of_device<'a>(
        &self,
        scheme: Scheme,
        items: &(impl Rows<ToVerify<'a>> + ?Sized),
    ) -> Option<device::Kind> {
        match scheme.kind {
            _ if self.devices.is_empty() => None,
            Kind::Ecdsa(Curve::P256, ..) => Some(device::Kind::P256Verify),
            Kind::Ed25519 => Some(device::Kind::Ed25519Verify),
            Kind::RsaPkcs1(_) | Kind::RsaPss(..) => {
                let sizes = (0..items.len()).filter_map(|number| match items.row(number).key {
                    Key::Object(key) => match &key.half {
                        Public::Rsa(key) => Some(key.prepared.size().bits()),
                        _ => None,
                    },
                    Key::Raw(_) => None,
                });
                sizes.max().map(device::Kind::RsaPublic)
            }
            Kind::Ecdsa(Curve::P384, ..) | Kind::MlDsa(_) => None,
        }
    }
}

impl Thread<'_> {
    /// Checks signatures, by the thread's device if it has one.
    pub(crate) fn verify(&mut self, scheme: Scheme, items: &[ToVerify<'_>], place: &mut [Verdict]) {
        let Some(device) = self.device else {
            return self.verify_in_lanes(scheme, items, place);
        };
        let Some(accepted) = verify(device, scheme, items) else {
            self.gives_back = true;
            return;
        };
        let mut own = Vec::with_capacity(items.len());
        for (block, accepted) in accepted.chunks(PIECE).enumerate() {
            let numbers = PIECE * block..PIECE * block + accepted.len();
            let refused = accepted.iter().filter(|accepted| !**accepted).count();
            match refused > FEW {
                true => self.blocks.push(numbers),
                false => own.extend(numbers),
            }
        }
        let has_result: Vec<bool> = own.iter().map(|number| accepted[*number]).collect();
        let again: Vec<usize> = device::again(&has_result)
            .into_iter()
            .map(|place| own[place])
            .collect();
        let items: Vec<_> = again.iter().map(|number| items[*number]).collect();
        let mut verdicts = vec![Err(Reason::Internal); items.len()];
        self.verify_in_lanes(scheme, &items, &mut verdicts);
        let verdicts = || again.iter().zip(&verdicts);
        if verdicts().any(|(number, verdict)| accepted[*number] && verdict.is_err()) {
            device.distrust();
            self.gives_back = true;
            return;
        }
        own.iter().for_each(|number| place[*number] = Ok(()));
        for (number, verdict) in verdicts() {
            place[*number] = *verdict;
        }
    }
}

/// Checks signatures; returns whether each is right, and false for an item that the device does not
/// compute. `None` if the device fails.
fn verify(device: &Device, scheme: Scheme, items: &[ToVerify<'_>]) -> Option<Vec<bool>> {
    let answers = match scheme.kind {
        Kind::Ecdsa(curve, hash, encoding) => {
            let read = items.iter().map(|item| {
                let [4, coordinates @ ..] = point_of(curve, item.key).ok()? else {
                    return None;
                };
                let signature = Fixed::read(curve, encoding, item.signature).ok()?;
                let message = scheme.digest(hash, item.message).ok()?;
                let digest = digest_of_p256(&message);
                let signature: [u8; 64] = (*signature).try_into().ok()?;
                Some((<[u8; 64]>::try_from(coordinates).ok()?, signature, digest))
            });
            let owned: Vec<_> = read.collect();
            let claims = owned
                .iter()
                .flatten()
                .map(|(key, signature, digest)| P256Claim {
                    key,
                    signature,
                    digest: *digest,
                });
            let claims: Vec<_> = claims.collect();
            let verdicts = device.p256_verify(&claims);
            verdicts.map(|verdicts| spread(owned.iter().map(Option::is_some), verdicts))
        }
        Kind::Ed25519 => {
            let read = items.iter().map(|item| {
                let key: &[u8; 32] = match item.key {
                    Key::Raw(bytes) => bytes.try_into().ok()?,
                    Key::Object(key) => match &key.half {
                        Public::Ed25519(bytes) => bytes,
                        _ => return None,
                    },
                };
                let signature: &[u8; 64] = item.signature.try_into().ok()?;
                let hash = Sha512::new()
                    .chain_update(&signature[..32])
                    .chain_update(key);
                let hash = hash.chain_update(item.message).finalize().into();
                Some(Ed25519Claim {
                    key,
                    signature,
                    hash,
                })
            });
            let read: Vec<_> = read.collect();
            let claims: Vec<_> = read.iter().flatten().copied().collect();
            let verdicts = device.ed25519_verify(&claims);
            verdicts.map(|verdicts| spread(read.iter().map(Option::is_some), verdicts))
        }
        Kind::RsaPkcs1(_) | Kind::RsaPss(..) => verify_rsa(device, scheme, items),
        Kind::MlDsa(_) => return None,
    };
    told(device, answers)
}

/// Returns a verdict for each item. An item that could not be read has the verdict false.
fn spread(is_read: impl Iterator<Item = bool>, verdicts: Vec<bool>) -> Vec<bool> {
    let mut verdicts = verdicts.into_iter();
    is_read
        .map(|is_read| is_read && verdicts.next().unwrap_or(false))
        .collect()
}

/// Checks signatures of RSA, the keys of each size together.
fn verify_rsa(
    device: &Device,
    scheme: Scheme,
    items: &[ToVerify<'_>],
) -> Result<Vec<bool>, DeviceError> {
    let mut verdicts = vec![false; items.len()];
    let (Kind::RsaPkcs1(hash) | Kind::RsaPss(hash, _)) = scheme.kind else {
        return Ok(verdicts);
    };
    for size in ops::Size::ALL {
        let (mut keys, mut places) = (Vec::new(), HashMap::new());
        let (mut numbers, mut signatures, mut which) = (Vec::new(), Vec::new(), Vec::new());
        for (number, item) in items.iter().enumerate() {
            let Key::Object(key) = item.key else { continue };
            let Public::Rsa(key) = &key.half else {
                continue;
            };
            if key.prepared.size() != size {
                continue;
            }
            let Some(parts) = parts(key) else { continue };
            let Ok(signature) = full_length(scheme, item.signature, size.bytes()) else {
                continue;
            };
            if *signature >= *parts.modulus {
                continue;
            }
            let place = *places.entry(Arc::as_ptr(key)).or_insert_with(|| {
                keys.push(parts);
                keys.len() - 1
            });
            which.push(place);
            numbers.push(number);
            signatures.push(signature);
        }
        let inputs = which.iter().zip(&signatures);
        let inputs: Vec<_> = inputs
            .map(|(place, signature)| (*place, &**signature))
            .collect();
        let mut powers = device.rsa_public(size.bits(), &keys, &inputs)?;
        for (number, power) in numbers.iter().zip(powers.chunks_mut(size.bytes())) {
            let digest = scheme.digest(hash, items[*number].message);
            verdicts[*number] = digest.is_ok_and(|digest| is_padded(scheme.kind, &digest, power));
        }
    }
    Ok(verdicts)
}

/// Returns the numbers of a public key, if a device computes with them: e has 32 bits at most.
fn parts(key: &RsaNumbers) -> Option<PublicParts<'_>> {
    let exponent = match key.exponent.len() {
        1..=4 => key
            .exponent
            .iter()
            .fold(0, |e, byte| e << 8 | u32::from(*byte)),
        _ => return None,
    };
    let modulus = &key.modulus;
    Some(PublicParts { modulus, exponent })
}

#[cfg(test)]
mod tests {
    use std::ops::Deref;
    use std::sync::{Mutex, MutexGuard};
    use std::time::Duration;

    use lockstep_testkit::{Random, RsaParts};

    use super::*;
    use crate::key::{Algorithm, PrivateKey};
    use crate::rates::locked;
    use crate::{ToAgree, ToSign, rows};

    /// Workers of one test at a time, since all have their device in common.
    struct Alone(
        Workers,
        #[allow(dead_code, reason = "held")] MutexGuard<'static, ()>,
    );

    impl Deref for Alone {
        type Target = Workers;

        fn deref(&self) -> &Workers {
            &self.0
        }
    }

    fn open() -> Result<Workers, DeviceError> {
        let workers = Workers::new().with_threads(1).with_devices(&["opencl:0"])?;
        Ok(workers.with_device_threshold(2))
    }

    /// Returns a thread with the first device, or says that there is none.
    fn workers() -> Option<Alone> {
        static ONE: Mutex<()> = Mutex::new(());
        let guard = locked(&ONE);
        match open() {
            Ok(workers) => Some(Alone(workers, guard)),
            Err(error @ (DeviceError::NoLoader(_) | DeviceError::NoDevice { .. })) => {
                println!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn rsa_key(bits: usize) -> PrivateKey {
        let parts = RsaParts::ordinary(bits).parts;
        PrivateKey::of_numbers(parts.each_ref().map(|part| &part[..])).expect("a key")
    }

    /// Signs and checks by a scheme, and asserts the results. Returns the number of items of both
    /// calls.
    fn sign_and_verify(workers: &Workers, scheme: Scheme, count: usize) -> usize {
        let mut random = Random(6);
        let key = match scheme.algorithm() {
            Algorithm::Rsa => rsa_key(1024),
            algorithm => PrivateKey::from_raw(algorithm, &[7; 32]).expect("a key"),
        };
        let public = key.public();
        let messages: Vec<_> = (0..count).map(|number| random.vec(number % 50)).collect();
        let items = rows(count, |number| ToSign::new(&key, &messages[number]));
        let signatures = workers.sign_many(scheme, &items).expect("signatures");
        let mut signatures: Vec<_> = signatures
            .iter()
            .map(|signature| signature.expect("one").to_vec())
            .collect();
        // The lanes accept all signatures. One in five is then changed.
        let verify = |workers: &Workers, signatures: &[Vec<u8>]| {
            let items = rows(count, |number| {
                ToVerify::new(&public, &messages[number], &signatures[number])
            });
            workers.verify_many(scheme, &items).expect("verdicts")
        };
        let threads = Workers::new();
        assert!(
            verify(&threads, &signatures).iter().all(Result::is_ok),
            "{scheme:?}"
        );
        signatures
            .iter_mut()
            .step_by(5)
            .for_each(|signature| signature[9] ^= 1);
        let expected = verify(&threads, &signatures);
        assert_eq!(verify(workers, &signatures), expected, "{scheme:?}");
        assert_eq!(
            expected.iter().filter(|verdict| verdict.is_err()).count(),
            count.div_ceil(5)
        );
        2 * count
    }

    fn agree(workers: &Workers, count: usize) -> usize {
        let mut random = Random(7);
        let key = PrivateKey::from_raw(Algorithm::X25519, &[7; 32]).expect("a key");
        let peers: Vec<Vec<u8>> = (0..count)
            .map(|number| match number % 9 {
                // Refused: of low order, and too short.
                3 => vec![0; 32],
                4 => vec![1; 31],
                _ => random.vec(32),
            })
            .collect();
        let items = rows(count, |number| ToAgree::new(&key, Key::Raw(&peers[number])));
        let of = |workers: &Workers| {
            let secrets = workers
                .agree_many(Algorithm::X25519, &items)
                .expect("secrets");
            let owned = secrets.iter().map(|secret| secret.map(<[u8]>::to_vec));
            owned.collect::<Vec<Result<Vec<u8>, Reason>>>()
        };
        assert_eq!(of(workers), of(&Workers::new()));
        count
    }

    const SCHEMES: [Scheme; 4] = [Scheme::ES256, Scheme::ED25519, Scheme::RS256, Scheme::PS256];

    fn all(workers: &Workers, count: usize) {
        for scheme in SCHEMES {
            sign_and_verify(workers, scheme, count);
        }
        agree(workers, count);
    }

    #[test]
    fn results_are_those_of_threads_for_any_number_of_items() {
        let Some(workers) = workers() else { return };
        for count in [1, 2, 64, 65, 1000] {
            all(&workers, count);
        }
        let [state] = &workers.devices()[..] else {
            panic!("one device")
        };
        assert_eq!(state.failure, None);
        assert!(state.items > 500, "{}", state.items);
    }

    #[test]
    fn keys_of_another_algorithm_are_told_beside_a_device() {
        let Some(workers) = workers() else { return };
        let key = PrivateKey::from_raw(Algorithm::P256, &[7; 32]).expect("a key");
        let items = [ToSign::new(&key, b"text")];
        let signed = workers.sign_many(Scheme::RS256, &items).expect("a scheme");
        assert_eq!(signed.get(0), Err(Reason::OtherAlgorithm));
    }

    #[test]
    fn signatures_of_rsa_are_those_of_threads_for_every_length() {
        let Some(workers) = workers() else { return };
        for bits in [1024, 2048, 3072, 4096] {
            let key = rsa_key(bits);
            let messages: Vec<_> = (0_u8..40).map(|number| [number; 9]).collect();
            let items = rows(messages.len(), |number| {
                ToSign::new(&key, &messages[number])
            });
            let sign = |workers: &Workers| {
                let signatures = workers
                    .sign_many(Scheme::RS256, &items)
                    .expect("signatures");
                let owned = signatures.iter().map(|one| one.map(<[u8]>::to_vec));
                owned.collect::<Vec<_>>()
            };
            let expected = sign(&Workers::new());
            assert!(expected.iter().all(Result::is_ok));
            let before = workers.devices[0].items();
            while workers.devices[0].items() == before {
                assert_eq!(sign(&workers), expected, "{bits}");
            }
        }
        assert_eq!(workers.devices[0].failure(), None);
    }

    #[test]
    fn every_item_has_its_result_whichever_call_of_opencl_fails() {
        let Some(mut workers) = workers() else { return };
        for scheme in SCHEMES.map(Some).into_iter().chain([None]) {
            let work = |workers: &Workers| match scheme {
                Some(scheme) => sign_and_verify(workers, scheme, 200),
                None => agree(workers, 200),
            };
            let mut failures = 0;
            for number in (0..60).step_by(3) {
                workers.devices[0].plan().fail(number, number % 2 == 1);
                work(&workers);
                workers.devices[0].plan().fail(usize::MAX, false);
                failures += usize::from(workers.devices[0].failure().is_some());
                if !workers.devices[0].is_usable() {
                    workers.0 = open().expect("a device");
                }
            }
            assert!(failures > 0);
            // A device that failed gets work again.
            let before = workers.devices[0].items();
            while workers.devices[0].items() == before {
                work(&workers);
            }
        }
    }

    #[test]
    fn threads_compute_what_a_device_keeps_that_does_not_answer() {
        let Some(mut workers) = workers() else { return };
        let device = lockstep_opencl::Device::open("opencl:0").expect("a device");
        let device = device.with_time_limit(Duration::from_millis(100));
        workers.0.devices = vec![Device::of(device, "")];
        workers.devices[0].plan().hang(true);
        while workers.devices[0].is_usable() {
            all(&workers, 300);
        }
        assert_eq!(
            workers.devices()[0].failure,
            Some(DeviceError::TimeOut(100))
        );
        all(&workers, 300);
    }

    #[test]
    fn a_device_with_a_wrong_result_of_a_private_key_is_given_up() {
        let Some(mut workers) = workers() else { return };
        for scheme in [Scheme::RS256, Scheme::PS256, Scheme::ES256] {
            let other = open().expect("a device");
            workers.devices[0].plan().lie(true);
            while workers.devices[0].is_usable() {
                sign_and_verify(&workers, scheme, 300);
            }
            let device = &workers.devices[0];
            assert_eq!(device.failure(), Some(DeviceError::WrongResult));
            // Neither these workers nor others use it, until it is opened again.
            let items = device.items();
            sign_and_verify(&workers, scheme, 300);
            sign_and_verify(&other, scheme, 300);
            assert_eq!((device.items(), other.devices[0].items()), (items, 0));
            workers.0 = open().expect("a device");
            assert!(workers.devices[0].is_usable() && !other.devices[0].is_usable());
        }
        workers.devices[0].plan().lie(true);
        while workers.devices[0].is_usable() {
            agree(&workers, 300);
        }
    }

    #[test]
    fn a_device_whose_secrets_are_zeros_is_given_up() {
        let Some(workers) = workers() else { return };
        workers.devices[0].plan().blank();
        for _ in (0..100).take_while(|_| workers.devices[0].is_usable()) {
            agree(&workers, 300);
        }
        assert_eq!(workers.devices[0].failure(), Some(DeviceError::WrongResult));
    }

    #[test]
    fn a_device_is_trusted_with_keys_that_are_wrong() {
        let Some(workers) = workers() else { return };
        // Another exponent modulo p − 1: the parts fit, and every result is wrong.
        let mut parts = RsaParts::ordinary(1024).parts;
        parts[4][20] ^= 1;
        let wrong = PrivateKey::of_numbers(parts.each_ref().map(|part| &part[..])).expect("a key");
        let messages: Vec<_> = (0..200_u8).map(|number| [number; 3]).collect();
        let items = rows(200, |number| ToSign::new(&wrong, &messages[number]));
        while workers.devices[0].items() == 0 {
            let signed = workers.sign_many(Scheme::RS256, &items).expect("a column");
            let all_refused = signed.iter().all(|one| one == Err(Reason::CheckFailed));
            assert!(all_refused, "{:?}", signed.get(0));
        }
        assert!(workers.devices[0].is_usable());
        assert_eq!(workers.devices[0].failure(), None);
    }

    #[test]
    fn a_key_leaves_the_device_when_it_is_dropped() {
        let Some(workers) = workers() else { return };
        let sign = |key: &PrivateKey| {
            let before = workers.devices[0].items();
            let items = rows(64, |_| ToSign::new(key, b"text"));
            while workers.devices[0].items() == before {
                workers.sign_many(Scheme::RS256, &items).expect("a column");
            }
            workers.devices[0].plan().objects()
        };
        let key = rsa_key(1024);
        let with_one = sign(&key);
        assert_eq!(sign(&key), with_one, "it is brought once");
        let other = rsa_key(1024);
        // A buffer, and the queue that wipes it.
        assert_eq!(sign(&other), with_one + 2);
        let copy = key.clone();
        drop(key);
        assert_eq!(workers.devices[0].plan().objects(), with_one + 2);
        drop(copy);
        assert_eq!(workers.devices[0].plan().objects(), with_one);
        for _ in 0..80 {
            sign(&rsa_key(1024));
        }
        assert_eq!(workers.devices[0].plan().objects(), with_one);
    }

    #[test]
    fn a_device_gets_no_work_below_the_number_from_which_it_pays() {
        let Some(mut workers) = workers() else { return };
        all(&workers, 1);
        assert_eq!(workers.devices[0].items(), 0);
        workers.0.device_threshold = Some(500);
        all(&workers, 499);
        assert_eq!(workers.devices[0].items(), 0);
        while workers.devices()[0].rates.is_empty() {
            let before = workers.devices[0].items();
            agree(&workers, 600);
            // The device takes about half, in one piece, and nothing of the rest.
            assert!(workers.devices[0].items() - before <= 320);
        }
        // Without a threshold of the user, the measured one applies.
        workers.0.device_threshold = None;
        let rates = workers.devices().remove(0).rates;
        let [rate] = &rates[..] else {
            panic!("{rates:?}")
        };
        assert_eq!(rate.operation, "x25519");
        assert!(rate.device > 0.0 && rate.thread > 0.0 && rate.pays_from >= 2);
        let before = workers.devices[0].items();
        agree(&workers, rate.pays_from - 1);
        assert_eq!(workers.devices[0].items(), before);
    }

    #[test]
    fn a_device_that_accepts_wrong_signatures_is_given_up() {
        let Some(workers) = workers() else { return };
        workers.devices[0].plan().lie(true);
        let key = PrivateKey::from_raw(Algorithm::Ed25519, &[7; 32])
            .expect("a key")
            .public();
        let verify = || {
            let items = rows(300, |_| ToVerify::new(&key, b"message", &[1; 64]));
            let verdicts = workers.verify_many(Scheme::ED25519, &items);
            let verdicts = verdicts.expect("verdicts");
            assert_eq!(verdicts, vec![Err(Reason::WrongSignature); 300]);
        };
        while workers.devices[0].is_usable() {
            verify();
        }
    }

    #[test]
    fn threads_check_what_a_device_refuses_in_great_number() {
        let Some(workers) = workers() else { return };
        let key = PrivateKey::from_raw(Algorithm::Ed25519, &[7; 32]).expect("a key");
        let public = key.public();
        let items = rows(1000, |_| ToSign::new(&key, b"message"));
        let signed = workers
            .sign_many(Scheme::ED25519, &items)
            .expect("a column");
        // All items of some blocks are wrong, and one in each of the other blocks.
        let is_wrong = |number: usize| (number / 64).is_multiple_of(3) || number % 64 == 9;
        let items = rows(1000, |number| {
            let message: &[u8] = if is_wrong(number) {
                b"other"
            } else {
                b"message"
            };
            ToVerify::new(&public, message, signed.get(number).expect("one"))
        });
        while workers.devices[0].items() < 2000 {
            let verdicts = workers.verify_many(Scheme::ED25519, &items);
            for (number, verdict) in verdicts.expect("verdicts").iter().enumerate() {
                let expected = match is_wrong(number) {
                    true => Err(Reason::WrongSignature),
                    false => Ok(()),
                };
                assert_eq!(*verdict, expected, "{number}");
            }
        }
        assert_eq!(workers.devices[0].failure(), None);
    }

    #[test]
    fn an_unknown_device_is_told_in_a_line() {
        let error = Workers::new()
            .with_devices(&["opencl:99"])
            .expect_err("no such device");
        assert!(!error.to_string().contains('\n'));
    }
}
