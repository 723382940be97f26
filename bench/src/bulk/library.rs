//! The library for arrays.

use std::ops::Range;

use lockstep::{Column, Key, PrivateKey, PublicKey, ToAgree, ToSign, ToVerify, Workers};
use lockstep::{Reason, rows};
use lockstep_common::Failure;

use super::candidate::{Answer, Candidate};
use super::data::{Data, Kind};

/// The name of this side.
pub const NAME: &str = "lockstep";

/// The name of the library with devices.
pub const WITH_DEVICES: &str = "lockstep+device";

/// The library on this number of threads.
pub fn candidate(data: &Data, threads: usize) -> Result<Candidate<'_>, Failure> {
    of_workers(NAME, Workers::new().with_threads(threads), data)
}

/// The library on this number of threads and on devices; `None` if no device is named.
pub fn with_devices<'a>(
    data: &'a Data,
    threads: usize,
    devices: &[&str],
) -> Result<Option<Candidate<'a>>, Failure> {
    if devices.is_empty() {
        return Ok(None);
    }
    let workers = on_devices(threads, devices)?;
    of_workers(WITH_DEVICES, workers, data).map(Some)
}

/// Workers with this number of threads and with devices.
pub fn on_devices(threads: usize, devices: &[&str]) -> Result<Workers, Failure> {
    let workers = Workers::new().with_threads(threads).with_devices(devices);
    workers.map_err(|error| {
        Failure::new(error.to_string()).remedy("`lockstep-bench devices` lists what there is")
    })
}

/// The library on these workers.
pub fn of_workers<'a>(
    name: &'static str,
    workers: Workers,
    data: &'a Data,
) -> Result<Candidate<'a>, Failure> {
    let scheme = data.operation.scheme();
    let candidate = match data.operation.kind {
        Kind::Verify => Candidate::new(name, move |items, take| {
            let keys = |item| Key::Raw(data.public(item));
            verify(&workers, data, keys, items, take);
        }),
        Kind::VerifyFew => {
            let keys = data.pairs().iter().map(|pair| data.public_key(pair));
            let keys: Vec<PublicKey> = keys.collect::<Result<_, _>>()?;
            Candidate::new(name, move |items, take| {
                let keys = |item| Key::Object(&keys[data.key(item)]);
                verify(&workers, data, keys, items, take);
            })
        }
        Kind::Sign => {
            let key: PrivateKey = data.private_key(data.own())?;
            Candidate::new(name, move |items, take| {
                let start = items.start;
                let inputs = rows(items.len(), |number| {
                    ToSign::new(&key, data.message(start + number))
                });
                give(&workers.sign_many(scheme, &inputs), items, take);
            })
        }
        Kind::Agree => {
            let key: PrivateKey = data.private_key(data.own())?;
            let algorithm = data.library_algorithm();
            Candidate::new(name, move |items, take| {
                let start = items.start;
                let inputs = rows(items.len(), |number| {
                    ToAgree::new(&key, Key::Raw(data.public(start + number)))
                });
                give(&workers.agree_many(algorithm, &inputs), items, take);
            })
        }
    };
    Ok(candidate.whole())
}

fn verify<'a>(
    workers: &Workers,
    data: &'a Data,
    key: impl Fn(usize) -> Key<'a> + Sync,
    items: Range<usize>,
    take: &mut dyn FnMut(usize, Answer<'_>),
) {
    let start = items.start;
    let inputs = rows(items.len(), |number| ToVerify {
        key: key(start + number),
        message: data.message(start + number),
        signature: data.signature(start + number),
    });
    match workers.verify_many(data.operation.scheme(), &inputs) {
        Ok(verdicts) => {
            for (item, verdict) in items.zip(verdicts) {
                take(item, verdict.map(|()| &[][..]).map_err(Reason::text));
            }
        }
        Err(_) => take(start, Err("the call fails")),
    }
}

/// Gives the results of a call.
fn give(
    results: &Result<Column, lockstep::Error>,
    items: Range<usize>,
    take: &mut dyn FnMut(usize, Answer<'_>),
) {
    match results {
        Ok(results) => {
            for (item, result) in items.zip(results.iter()) {
                take(item, result.map_err(Reason::text));
            }
        }
        Err(_) => take(items.start, Err("the call fails")),
    }
}
