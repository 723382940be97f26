//! RSA private operations.

use std::sync::Arc;

use lockstep_kernels::rsa::{self, BATCH, Blinding, JobError, PrivateJob, Signature, Verified};
use smallvec::SmallVec;

use super::group::Group;
use crate::bytes::Bytes;
use crate::epoch::Epoch;
use crate::failed::Failed;
use crate::lanes::{Lanes, Memory};
use crate::rsa_key::RsaKey;

/// The input of an RSA private operation.
///
/// # Examples
///
/// An array of signatures with one key:
///
/// ```
/// use std::sync::Arc;
///
/// use lockstep_ops::{
///     Backend, Lanes, GuardedRequest, Memory, Request, Response, RsaComponents, RsaInput, RsaKey,
/// };
///
/// # let lockstep_testkit::RsaParts { parts, .. } = lockstep_testkit::RsaParts::ordinary(2048);
/// # let [n, e, p, q, dp, dq, qinv] = &parts;
/// let components = RsaComponents { n, e, p, q, dp, dq, qinv };
/// let key = Arc::new(RsaKey::new(&components).expect("a key that lanes can serve"));
/// // Stands for a message that is padded: a number below the modulus.
/// let padded = |number: u8| {
///     let mut input = vec![number; key.modulus_bytes()];
///     input[0] = 0;
///     input.into()
/// };
/// let sign = |number| {
///     let key = Arc::clone(&key);
///     let input = padded(number);
///     GuardedRequest::from(Request::RsaPrivate(RsaInput { key, input }))
/// };
/// let requests: Vec<_> = (1..=5).map(sign).collect();
///
/// let lanes = Lanes::new(Backend::best_hardware().unwrap_or(Backend::PORTABLE), 64, 0);
/// let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
/// let jobs = requests.iter().zip(&mut answers);
/// lanes.execute(key.shape(), &mut Memory::default(), jobs);
/// for answer in answers {
///     let Some(Ok(Response::Rsa(signature))) = answer else {
///         panic!("no signature: {answer:?}");
///     };
///     // s^e = m was checked already: a result of another type cannot be had.
///     assert_eq!(signature.into_bytes().len(), 256);
/// }
/// ```
pub struct RsaInput {
    /// The key, shared with other requests.
    pub key: Arc<RsaKey>,
    /// m, big-endian, exactly as long as the modulus, below n.
    pub input: Bytes,
}

/// s = m^d mod n with this key.
#[derive(Clone, Copy, Debug)]
pub struct RsaPrivate<'a>(pub &'a RsaKey);

/// A request as the kernel takes it.
pub(super) struct ToCompute<'a> {
    key: &'a Arc<RsaKey>,
    input: &'a [u8],
    check_input: &'a [u8],
    blinding: Option<Blinding>,
}

/// Reads a request, with the second copy of its input.
pub(super) fn read<'a>(
    RsaInput { key, input }: &'a RsaInput,
    check_input: &'a [u8],
) -> ToCompute<'a> {
    ToCompute {
        key,
        input,
        check_input,
        blinding: None,
    }
}

impl Lanes {
    /// Computes a batch: takes blinding pairs out of each key, runs the kernel, and gives the pairs
    /// back.
    pub(super) fn rsa(
        &self,
        memory: &mut Memory,
        group: Group<'_, ToCompute<'_>, Verified<Signature>>,
    ) {
        let Group {
            mut inputs,
            answers,
        } = group;
        let Some(scratch) = memory.rsa() else {
            return answers.fail(Failed::NoMemory);
        };
        let here = self.home.here();
        take_blindings(here, &mut inputs);
        let mut lanes = Vec::with_capacity(inputs.len());
        lanes.extend(inputs.iter_mut().filter_map(|request| {
            Some(PrivateJob {
                key: request.key.private(),
                input: request.input,
                check_input: request.check_input,
                blinding: request.blinding.as_mut()?,
                result: None,
            })
        }));
        if !lanes.is_empty() {
            rsa::private_batch(self.backend, scratch, &mut lanes);
        }
        let results: SmallVec<[_; BATCH]> = lanes.into_iter().map(|lane| lane.result).collect();
        let mut results = results.into_iter();
        answers.give(inputs.into_iter().map(|ToCompute { key, blinding, .. }| {
            let blinding = blinding.ok_or(Failed::Randomness)?;
            match results.next().flatten() {
                Some(Ok(signature)) => {
                    key.return_blinding(here, blinding);
                    Ok(signature)
                }
                // A pair that took part in a fault is not used again.
                Some(Err(JobError::CheckFailed)) => Err(Failed::CheckFailed),
                Some(Err(error)) => {
                    key.return_blinding(here, blinding);
                    Err(Failed::Input(error))
                }
                None => Err(Failed::Internal),
            }
        }));
    }
}

/// Gives each request a blinding pair of its key. Takes all pairs of one key at a time, as fresh
/// pairs are cheaper together. A request gets no pair if the system gives no randomness.
fn take_blindings(here: Epoch, requests: &mut [ToCompute<'_>]) {
    for first in 0..requests.len() {
        let key = requests[first].key;
        let same = |request: &ToCompute<'_>| Arc::ptr_eq(key, request.key);
        if requests[..first].iter().any(same) {
            continue;
        }
        let count = requests[first..].iter().filter(|other| same(other)).count();
        let mut pairs = key.blindings(here, count).unwrap_or_default();
        for request in &mut requests[first..] {
            if same(request) {
                request.blinding = pairs.pop();
            }
        }
    }
}
