//! RSA public operations: s^e mod n, with which signatures are checked.

use std::fmt;

use lockstep_kernels::rsa::{PublicJob, PublicKey, Size, Unsupported, public_batch_vartime};

use crate::failed::Failed;
use crate::lanes::{Lanes, Memory};

/// A prepared RSA public key.
///
/// Preparing one takes as long as some fifteen results in a full array, so keep it where a key
/// occurs more than once.
#[derive(Clone)]
pub struct RsaPublicKey(PublicKey);

impl RsaPublicKey {
    /// Prepares a modulus and a public exponent, big-endian; leading zeros are allowed.
    ///
    /// # Errors
    ///
    /// [`Unsupported::Size`] for a modulus that is not of 1024, 2048, 3072 or 4096 bits,
    /// [`Unsupported::Even`] for an even one, and [`Unsupported::Exponent`] for an exponent that is
    /// even, 1, not below the modulus, or longer than 64 bits with a modulus of more than 3072
    /// bits.
    pub fn new(n: &[u8], e: &[u8]) -> Result<RsaPublicKey, Unsupported> {
        PublicKey::new(n, e).map(RsaPublicKey)
    }

    /// Returns the size of the modulus.
    pub fn size(&self) -> Size {
        self.0.size()
    }

    /// Returns the length of the modulus in bytes, which is that of every signature and result.
    pub fn modulus_bytes(&self) -> usize {
        self.size().bytes()
    }
}

impl fmt::Debug for RsaPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A signature to raise to e.
#[derive(Debug)]
pub struct RsaPublicJob<'a> {
    /// The key.
    pub key: &'a RsaPublicKey,
    /// s, big-endian, exactly as long as the modulus, below n.
    pub signature: &'a [u8],
    /// Set by [`Lanes::rsa_public`]: s^e mod n, as long as the modulus. [`Failed::Input`] says why
    /// a signature is no number below n of that length.
    pub result: Option<Result<Vec<u8>, Failed>>,
}

impl<'a> RsaPublicJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: &'a RsaPublicKey, signature: &'a [u8]) -> Self {
        Self {
            key,
            signature,
            result: None,
        }
    }
}

impl Lanes {
    /// Computes s^e mod n for an array of any length, in variable time: nothing of it is secret.
    /// Keys of all sizes may be mixed, in any order. Padding is not checked here.
    ///
    /// This is no row of [`Shape`](crate::Shape), and no queue serves it: it is for callers that
    /// have the whole array.
    ///
    /// # Examples
    ///
    /// ```
    /// use lockstep_ops::{Backend, Lanes, Memory, RsaPublicJob, RsaPublicKey};
    ///
    /// # let [n, e, ..] = &lockstep_testkit::RsaParts::ordinary(2048).parts;
    /// let key = RsaPublicKey::new(n, e)?;
    /// let signatures: Vec<_> = (1..=9).map(|number| vec![number; 256]).collect();
    /// let mut jobs: Vec<_> = signatures
    ///     .iter()
    ///     .map(|signature| RsaPublicJob::new(&key, signature))
    ///     .collect();
    ///
    /// let lanes = Lanes::new(Backend::best_hardware().unwrap_or(Backend::PORTABLE), 64, 0);
    /// lanes.rsa_public(&mut Memory::default(), &mut jobs);
    /// for job in jobs {
    ///     let padded = job.result.expect("set").expect("a number below n");
    ///     assert_eq!(padded.len(), 256); // to compare with the padded digest
    /// }
    /// # Ok::<(), lockstep_ops::Unsupported>(())
    /// ```
    pub fn rsa_public(&self, memory: &mut Memory, jobs: &mut [RsaPublicJob<'_>]) {
        let Some(scratch) = memory.rsa() else {
            for job in jobs {
                job.result = Some(Err(Failed::NoMemory));
            }
            return;
        };
        let mut lanes: Vec<_> = jobs
            .iter()
            .map(|job| PublicJob::new(&job.key.0, job.signature))
            .collect();
        public_batch_vartime(self.backend, scratch, &mut lanes);
        for (job, lane) in jobs.iter_mut().zip(lanes) {
            let result = lane.result.ok_or(Failed::Internal);
            job.result = Some(result.and_then(|result| result.map_err(Failed::Input)));
        }
    }
}
