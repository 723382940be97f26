//! Batches of RSA requests.

use std::sync::Arc;

use lockstep_kernels::rsa::{self, Blinding, JobError, PrivateJob, Scratch};

use super::Job;
use super::cpu::{Cpu, CpuRequest};
use crate::declined::Declined;
use crate::request::{Request, Response};
use crate::rsa_key::RsaKey;

impl Cpu {
    /// One RSA batch: blinding pairs out of each key's pool, the kernel, blinding pairs back.
    pub(super) fn run_rsa(&self, scratch: &mut Scratch, jobs: &mut [Job<Cpu>]) {
        let mut blindings = self.blindings(jobs);
        for (job, blinding) in jobs.iter_mut().zip(&blindings) {
            if blinding.is_none() {
                job.answer = Some(Err(Declined::Randomness));
            }
        }

        let mut lanes: Vec<PrivateJob<'_>> = Vec::with_capacity(jobs.len());
        for (job, blinding) in jobs.iter().zip(&mut blindings) {
            let Some(blinding) = blinding else { continue };
            let (key, input) = parts(&job.request);
            lanes.push(PrivateJob {
                key: key.private(),
                input,
                check_input: &job.request.check_input,
                blinding,
                result: None,
            });
        }
        if !lanes.is_empty() {
            rsa::private_batch(self.backend, scratch, &mut lanes);
        }
        let mut results = lanes
            .into_iter()
            .map(|lane| lane.result)
            .collect::<Vec<_>>()
            .into_iter();

        for (job, blinding) in jobs.iter_mut().zip(blindings) {
            let Some(blinding) = blinding else { continue };
            let (key, _) = parts(&job.request);
            job.answer = results.next().flatten().map(|result| match result {
                Ok(signature) => {
                    key.return_blinding(self.epoch, blinding);
                    Ok(Response::Rsa(signature))
                }
                // A pair that took part in a fault is not trusted again.
                Err(JobError::CheckFailed) => Err(Declined::CheckFailed),
                Err(error) => {
                    key.return_blinding(self.epoch, blinding);
                    Err(Declined::Input(error))
                }
            });
        }
    }

    /// A blinding pair for each job, all of one key at a time: fresh ones are cheaper together.
    fn blindings(&self, jobs: &[Job<Cpu>]) -> Vec<Option<Blinding>> {
        let mut blindings: Vec<Option<Blinding>> = Vec::new();
        blindings.resize_with(jobs.len(), || None);
        for first in 0..jobs.len() {
            let key = parts(&jobs[first].request).0;
            let same = |job: &Job<Cpu>| Arc::ptr_eq(key, parts(&job.request).0);
            if jobs[..first].iter().any(same) {
                continue;
            }
            let count = jobs[first..].iter().filter(|job| same(job)).count();
            let mut pairs = key.blindings(self.epoch, count).unwrap_or_default();
            for (job, blinding) in jobs.iter().zip(&mut blindings).skip(first) {
                if same(job) {
                    *blinding = pairs.pop();
                }
            }
        }
        blindings
    }
}

/// The key and the input of a request whose shape is RSA's.
fn parts(request: &CpuRequest) -> (&Arc<RsaKey>, &[u8]) {
    match &request.request {
        Request::RsaPrivate { key, input } => (key, input),
        _ => unreachable!("a batch has requests of its shape"),
    }
}
