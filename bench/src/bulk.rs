//! `lockstep-bench bulk`: the library for arrays, OpenSSL and other libraries, each with the same
//! keys and messages, in interleaved rounds of one process.
//!
//! The other libraries are there if the program was built with the feature `peers`, and
//! `ed25519-simd` if it was also built for a CPU with AVX-512 IFMA. `crypto_mb` is loaded at run
//! time.

mod agreement;
mod candidate;
mod checker;
mod crypto_mb;
mod data;
mod ecdsa;
mod library;
#[cfg(feature = "peers")]
mod peers;
mod report;
mod rounds;
mod stock;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use lockstep::{DeviceRate, Workers};
use lockstep_common::{Failure, Outcome, out, outln};

use crate::format::{seconds_within, within};
use crate::measure;
use crate::progress::Progress;
use crate::speed::{Machine, Threads, threads};
use candidate::{Candidate, Checked};
use crypto_mb::Library;
use data::{Algorithm, Data, Operation};
use report::{Report, Row, Skipped};

/// Compares the library for arrays with OpenSSL and other libraries, in interleaved rounds.
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// Operations to measure [default: all]
    #[arg(value_name = "OPERATION", value_parser = Operation::from_name)]
    operations: Vec<Operation>,
    /// Items of a call, at most; slow operations have fewer
    #[arg(
        long, value_name = "N", default_value = "10000", value_parser = within(64_usize, 1_000_000)
    )]
    items: usize,
    /// Numbers of threads, or `all` for one on every CPU
    #[arg(
        long, value_name = "LIST", value_delimiter = ',', default_value = "1,all",
        value_parser = threads
    )]
    threads: Vec<Threads>,
    /// Time for each figure
    #[arg(
        long, value_name = "S", default_value = "1", value_parser = seconds_within(0.001, 3600.0),
        allow_negative_numbers = true
    )]
    seconds: Duration,
    /// Measure Intel's crypto_mb, too, from this shared library
    #[arg(long, value_name = "FILE")]
    crypto_mb: Option<PathBuf>,
    /// Measure the library with this device beside its threads, too; may be repeated
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Print one JSON document in place of the table
    #[arg(long)]
    json: bool,
}

const NOTES: &str = "\
Operations:
  p256-verify, p256-verify-few, p256-sign (ES256), the same of p384 (ES384) and ed25519
  p256-agree, p384-agree, x25519 (one private key, a public key for each item)
  rsa2048-verify-few, rsa2048-sign, rsa4096-sign (PKCS#1 v1.5 with SHA-256)
  mldsa44-verify, mldsa44-verify-few, mldsa44-sign

`-verify` has a key for each item, which each side reads from bytes in the time that is measured.
`-verify-few` has 16 keys and `-sign` has one, which are read before. A call of lockstep gets all
items. The others get one item after the other, or batches where they take them, on as many threads.
Each slice lies between gauges of the clock and of the sibling thread; slices in which the core was
shared do not count. LOCKSTEP_LANES chooses the lanes.";

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let cpus = measure::allowed_cpus();
    let threads = options.threads.iter().map(|threads| threads.of(&cpus));
    let threads: BTreeSet<usize> = threads.collect::<Result<_, _>>()?;
    crate::stock::insist()?;
    let operations = match options.operations.is_empty() {
        true => Operation::ALL.to_vec(),
        false => options.operations.clone(),
    };
    let crypto_mb = options
        .crypto_mb
        .as_deref()
        .map(Library::load)
        .transpose()?;
    let crypto_mb = crypto_mb.as_ref();
    let devices: Vec<&str> = options.device.iter().map(String::as_str).collect();
    measure::keep_to(&cpus[..1]);
    let mut report = Report {
        machine: Machine::describe(cpus.len(), Workers::new().lanes()),
        crypto_mb: crypto_mb.and_then(Library::version),
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for operation in operations {
        let mut progress = Progress::new(operation.name());
        progress.show("making keys and signatures");
        let data = Data::new(operation, options.items.min(operation.most()))?;
        let damaged = data.damaged();
        for &threads in &threads {
            let mut candidates = Vec::new();
            let pairs = all(&data, threads, crypto_mb, &devices)?.into_iter();
            for (candidate, on_damaged) in pairs.zip(all(&damaged, threads, crypto_mb, &devices)?) {
                progress.show(&format!("checking {}", candidate.name));
                match candidate.check(&on_damaged, &data)? {
                    Checked::Right => candidates.push(candidate),
                    Checked::Skipped(why) => report.skip(Skipped {
                        op: operation.name(),
                        name: candidate.name,
                        why,
                    }),
                }
            }
            // Without lockstep there is nothing to compare the others with.
            if !candidates.first().is_some_and(|first| first.is_whole) {
                continue;
            }
            let figures = rounds::measure(
                &candidates,
                data.count(),
                &cpus[..threads],
                options.seconds,
                |done| progress.show(&format!("{threads} thread(s), {:.0} %", done * 100.0)),
            )?;
            let rows = candidates.iter().zip(figures);
            report.rows.extend(rows.map(|(candidate, figure)| Row {
                op: operation.name(),
                name: candidate.name,
                threads,
                items: data.count(),
                figure,
            }));
        }
        progress.finish();
    }
    match options.json {
        true => outln!("{}", report.document()),
        false => out!("{}", report.to_table()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the rates of a device. Operations that were not measured yet are run, with at most this
/// number of items.
pub fn rates(device: &str, items: usize) -> Result<Vec<DeviceRate>, Failure> {
    let workers = library::on_devices(measure::allowed_cpus().len(), &[device])?;
    // So that a device is measured that pays from more items.
    let workers = workers.with_device_threshold(2);
    let has_kernels =
        |of: &Operation| !matches!(of.algorithm, Algorithm::P384 | Algorithm::MlDsa44);
    for operation in Operation::ALL.into_iter().filter(has_kernels) {
        let data = Data::new(operation, items.min(operation.most()))?;
        let library = library::of_workers(library::NAME, workers.clone(), &data)?;
        // A device that compiles in the first call is measured in the second.
        for _ in 0..2 {
            library.run(0..data.count(), &mut |_, _| {});
        }
    }
    Ok(workers.devices().swap_remove(0).rates)
}

/// Everyone that has the operation, lockstep first.
fn all<'a>(
    data: &'a Data,
    threads: usize,
    crypto_mb: Option<&Library>,
    devices: &[&str],
) -> Result<Vec<Candidate<'a>>, Failure> {
    let mut all = vec![library::candidate(data, threads)?];
    all.extend(library::with_devices(data, threads, devices)?);
    all.extend(stock::candidate(data)?);
    if let Some(library) = crypto_mb {
        all.extend(library.candidate(data)?);
    }
    #[cfg(feature = "peers")]
    all.extend(peers::candidates(data)?);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_computes_each_operation_and_refuses_what_is_wrong() {
        for operation in Operation::ALL {
            let data = Data::new(operation, 70).unwrap();
            let damaged = data.damaged();
            let pairs = all(&data, 2, None, &[]).unwrap().into_iter();
            for (candidate, on_damaged) in pairs.zip(all(&damaged, 2, None, &[]).unwrap()) {
                let checked = candidate.check(&on_damaged, &data).unwrap();
                if let Checked::Skipped(why) = checked {
                    println!("skipped: {} by {}: {why}", operation.name(), candidate.name);
                }
            }
        }
    }

    #[test]
    fn a_device_computes_each_operation_and_refuses_what_is_wrong() {
        let device = ["opencl:0"];
        if let Err(error) = Workers::new().with_devices(&device) {
            println!("skipped: {error}");
            return;
        }
        for operation in Operation::ALL {
            let data = Data::new(operation, 200).unwrap();
            let damaged = data.damaged();
            let side = |data| library::with_devices(data, 1, &device).unwrap().unwrap();
            side(&data).check(&side(&damaged), &data).unwrap();
        }
    }

    #[test]
    fn a_side_that_is_wrong_is_found() {
        let data = Data::new(Operation::from_name("p256-verify").unwrap(), 70).unwrap();
        let says_yes = || Candidate::verifying("yes", |_| true);
        let says_no = || Candidate::verifying("no", |_| false);
        for wrong in [says_yes, says_no] {
            assert!(wrong().check(&wrong(), &data).is_err());
        }
        for name in [
            "p256-sign",
            "ed25519-sign",
            "rsa2048-sign",
            "mldsa44-sign",
            "p384-agree",
            "x25519",
        ] {
            let data = Data::new(Operation::from_name(name).unwrap(), 70).unwrap();
            let others = all(&data, 1, None, &[]).unwrap();
            let shifted = || {
                Candidate::new("shifted", |items, take| {
                    others[0].run(items.start + 1..items.end + 1, &mut |item, result| {
                        take(item - 1, result);
                    });
                })
            };
            assert!(shifted().check(&shifted(), &data).is_err(), "{name}");
        }
    }
}
