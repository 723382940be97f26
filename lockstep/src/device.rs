//! Devices that compute beside the threads of a call.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};

use lockstep_opencl::{self as opencl, P256ToSign, PrivateParts};
use lockstep_ops::{self as ops, EcdsaNonced, RsaBlinded, RsaKey, Secret};
use zeroize::Zeroizing;

use crate::rates::{Rates, locked};

pub use crate::rates::DeviceRate;
pub(crate) use lockstep_opencl::Kind;
pub use lockstep_opencl::{Description as DeviceDescription, Error as DeviceError};

/// Average number of a device's results for each one that lanes compute again, where lanes do not
/// check all.
const CHECK_EVERY: usize = 64;

/// Maximum number of private keys that a device keeps.
const KEPT_KEYS: usize = 64;

/// A device of [`Workers`](crate::Workers), as it is now.
#[derive(Clone, Debug)]
pub struct DeviceState {
    /// Properties that OpenCL reports.
    pub description: DeviceDescription,
    /// Number of items that it has computed since it was opened.
    pub items: u64,
    /// Reason of its last failure. Threads have computed the items of a failed piece.
    pub failure: Option<DeviceError>,
    /// Its rates, of operations that were measured.
    pub rates: Vec<DeviceRate>,
}

/// Lists the devices of this machine, up to the first platform of OpenCL that fails, and that
/// failure.
///
/// # Errors
///
/// [`DeviceError::NoLoader`] where OpenCL is not installed, and others.
pub fn devices() -> Result<(Vec<DeviceDescription>, Option<DeviceError>), DeviceError> {
    opencl::devices()
}

/// A device with the private keys that it keeps.
pub(crate) struct Device {
    opencl: opencl::Device,
    /// Keys by the addresses of their originals, which are only compared. The key that was used
    /// last is the last one.
    keys: Mutex<Vec<(usize, opencl::RsaKey)>>,
    pub(crate) rates: Rates,
}

/// All devices that are open.
static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

impl Device {
    /// Opens a device, for workers with these lanes.
    pub(crate) fn open(name: &str, lanes: &str) -> Result<Arc<Device>, DeviceError> {
        Ok(Device::of(opencl::Device::open(name)?, lanes))
    }

    pub(crate) fn of(opencl: opencl::Device, lanes: &str) -> Arc<Device> {
        let rates = Rates::of(opencl.description(), lanes);
        let keys = Mutex::default();
        let device = Arc::new(Device {
            opencl,
            keys,
            rates,
        });
        let mut open = locked(&OPEN);
        open.retain(|device| device.strong_count() > 0);
        open.push(Arc::downgrade(&device));
        device
    }

    /// Returns a key of the device. Copies the key there unless the device keeps it already.
    fn key(&self, key: &Arc<RsaKey>) -> Result<opencl::RsaKey, DeviceError> {
        let take = || {
            let mut keys = locked(&self.keys);
            let known = keys.iter().position(|(own, _)| *own == address(key))?;
            let kept = keys.remove(known);
            let brought = kept.1.clone();
            keys.push(kept);
            Some(brought)
        };
        if let Some(brought) = take() {
            return Ok(brought);
        }
        // Not under the lock: the device may compile for minutes, or not answer.
        let crt = key.crt();
        let parts = PrivateParts {
            p: crt.p.as_bytes(),
            q: crt.q.as_bytes(),
            dp: crt.dp.as_bytes(),
            dq: crt.dq.as_bytes(),
            qinv: crt.qinv.as_bytes(),
        };
        let brought = self.opencl.rsa_key(8 * key.modulus_bytes(), parts)?;
        // Another thread may have brought it, too.
        if let Some(earlier) = take() {
            return Ok(earlier);
        }
        let mut keys = locked(&self.keys);
        keys.push((address(key), brought.clone()));
        let oldest = (keys.len() > KEPT_KEYS).then(|| keys.remove(0));
        drop(keys);
        drop(oldest);
        Ok(brought)
    }

    /// Forgets a key.
    fn forget(&self, key: &Arc<RsaKey>) {
        let is_it = |(own, _): &mut (usize, opencl::RsaKey)| *own == address(key);
        let forgotten: Vec<_> = locked(&self.keys).extract_if(.., is_it).collect();
        // Not under the lock: the driver wipes the key.
        drop(forgotten);
    }

    /// Gives the device up, since a result is wrong.
    pub(crate) fn distrust(&self) {
        self.give_up(&DeviceError::WrongResult);
    }
}

impl Deref for Device {
    type Target = opencl::Device;

    fn deref(&self) -> &opencl::Device {
        &self.opencl
    }
}

/// An RSA key, which devices forget when it is dropped.
pub(crate) struct RsaPrivate(pub(crate) Arc<RsaKey>);

impl Drop for RsaPrivate {
    fn drop(&mut self) {
        // A lock may be held for ever in a forked child.
        if !opencl::is_loaded() {
            return;
        }
        let open: Vec<_> = locked(&OPEN).iter().filter_map(Weak::upgrade).collect();
        for device in open {
            device.forget(&self.0);
        }
    }
}

fn address(key: &Arc<RsaKey>) -> usize {
    Arc::as_ptr(key).addr()
}

/// Returns the numbers of the items that lanes compute again: all without a result of the device,
/// and of the others one in each [`CHECK_EVERY`], at a random place, and at least one. If the
/// system gives no randomness, lanes compute all.
pub(crate) fn again(has_result: &[bool]) -> Vec<usize> {
    let mut random = [0];
    let drawn = ops::fill_random(&mut random);
    let results = has_result.iter().filter(|has_result| **has_result).count();
    let place = usize::from(random[0]) % CHECK_EVERY.min(results.max(1));
    let mut result = 0;
    let is_again = |number: &usize| {
        let is_sampled = drawn.is_err() || result % CHECK_EVERY == place;
        result += usize::from(has_result[*number]);
        is_sampled || !has_result[*number]
    };
    (0..has_result.len()).filter(is_again).collect()
}

/// Returns the answers of a device, or notes its error.
pub(crate) fn told<T>(device: &Device, answers: Result<T, DeviceError>) -> Option<T> {
    answers.map_err(|error| device.note(error)).ok()
}

/// Computes private operations of RSA. `None` if the device fails.
pub(crate) fn rsa_private(
    device: &Device,
    inputs: &[RsaBlinded<'_>],
) -> Option<Zeroizing<Vec<u8>>> {
    let (mut keys, mut places) = (Vec::new(), HashMap::new());
    let mut items = Vec::with_capacity(inputs.len());
    for input in inputs {
        let place = *places.entry(Arc::as_ptr(input.key)).or_insert(keys.len());
        if place == keys.len() {
            keys.push(told(device, device.key(input.key))?);
        }
        items.push((place, &input.input[..]));
    }
    let bits = 8 * inputs.first()?.key.modulus_bytes();
    told(device, device.rsa_private(bits, &keys, &items))
}

/// Signs by ECDSA on P-256. `None` if the device fails.
pub(crate) fn sign_p256(device: &Device, inputs: &[EcdsaNonced<'_>]) -> Option<Vec<u8>> {
    let items = inputs.iter().map(|input| P256ToSign {
        key: input.key,
        nonce: input.nonce,
        digest: digest_of_p256(input.digest),
    });
    told(device, device.p256_sign(&items.collect::<Vec<_>>()))
}

/// Returns the first 32 bytes of a digest, which count for ECDSA on P-256. A shorter digest gets
/// zeros in front.
pub(crate) fn digest_of_p256(digest: &[u8]) -> [u8; 32] {
    let length = digest.len().min(32);
    let mut padded = [0; 32];
    padded[32 - length..].copy_from_slice(&digest[..length]);
    padded
}

/// Agrees on secrets. A secret is zero if a key does not have 32 bytes. `None` if the device fails.
pub(crate) fn x25519(device: &Device, keys: &[(&[u8], &[u8])]) -> Option<Vec<Secret>> {
    let fit = keys.iter().map(|(own, peer)| {
        let pair: Option<(&[u8; 32], &[u8; 32])> = own.first_chunk().zip(peer.first_chunk());
        pair.filter(|_| own.len() == 32 && peer.len() == 32)
    });
    let fit: Vec<_> = fit.collect();
    let items: Vec<_> = fit.iter().flatten().copied().collect();
    let shared = told(device, device.x25519(&items))?;
    let mut shared = shared.chunks(32);
    let secret = |fit: &Option<_>| {
        let shared = fit.as_ref().and_then(|_| shared.next());
        Secret::new(shared.unwrap_or(&[0; 32]))
    };
    Some(fit.iter().map(secret).collect())
}

#[cfg(test)]
mod tests {
    use super::again;

    #[test]
    fn a_result_is_among_the_items_that_lanes_compute_again() {
        for _ in 0..200 {
            for count in [1, 5, 64, 65, 200] {
                let has_result: Vec<_> = (0..count).map(|number| number % 5 == 0).collect();
                let again = again(&has_result);
                let without = has_result.iter().filter(|has_result| !**has_result).count();
                let sampled = again.iter().filter(|number| has_result[**number]).count();
                assert_eq!(again.len(), without + sampled);
                assert!((1..=2).contains(&sampled), "{sampled} of {count}");
                assert!(again.is_sorted());
            }
        }
    }
}
