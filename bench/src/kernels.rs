//! `lockstep-bench kernels`: cycles for one operation of the kernels, without the engine.

mod aes_gcm;
mod bench;
mod curve25519;
mod mlkem;
mod nist;
mod rsa;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use lockstep_common::Outcome;
use lockstep_engine::Backend;
use lockstep_kernels::aes_gcm::Lanes;
use lockstep_kernels::rsa::Size;

use crate::measure;
use bench::Bench;

/// Prints cycles for one operation of the kernels, for full and for nearly empty batches.
#[derive(Subcommand)]
pub enum Kernels {
    /// RSA private key operations, with blinding and check
    Rsa {
        #[command(flatten)]
        options: Options,
        /// Sizes of keys [default: all]
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
        bits: Vec<Size>,
    },
    /// X25519 and Ed25519
    Curve25519(Options),
    /// P-256 and P-384
    Nist(Options),
    /// ML-KEM-768
    Mlkem(Options),
    /// AES-GCM, in cycles a byte
    AesGcm {
        /// Time for each figure
        #[arg(long, value_name = "S", default_value = "1", value_parser = measure::seconds)]
        seconds: Duration,
        /// The instructions [default: the best of this CPU]
        #[arg(long, value_name = "NAME", value_parser = lanes)]
        lanes: Option<Lanes>,
    },
}

/// What all kernels are measured with.
#[derive(Args)]
pub struct Options {
    /// The lanes [default: the best of this CPU]
    #[arg(long, value_name = "NAME", value_parser = backend)]
    backend: Option<Backend>,
    /// Time for each figure
    #[arg(long, value_name = "S", default_value = "1", value_parser = measure::seconds)]
    seconds: Duration,
}

/// Runs the command.
pub fn run(kernels: &Kernels) -> Outcome {
    measure::keep_to(&measure::allowed_cpus()[..1]);
    match kernels {
        Kernels::Rsa { options, bits } => rsa::run(&options.bench(), bits)?,
        Kernels::Curve25519(options) => curve25519::run(&options.bench())?,
        Kernels::Nist(options) => nist::run(&options.bench())?,
        Kernels::Mlkem(options) => mlkem::run(&options.bench())?,
        Kernels::AesGcm { seconds, lanes } => {
            let lanes = lanes.or(Lanes::best_hardware());
            let bench = Bench::new(Backend::PORTABLE, *seconds);
            aes_gcm::run(&bench, lanes.unwrap_or(Lanes::PORTABLE))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn backend(name: &str) -> Result<Backend, String> {
    Backend::from_name(name).ok_or_else(|| {
        let available = Backend::available();
        let names: Vec<&str> = available.iter().map(|backend| backend.name()).collect();
        format!("this CPU has {}", names.join(", "))
    })
}

fn lanes(name: &str) -> Result<Lanes, String> {
    Lanes::from_name(name).ok_or_else(|| {
        let available: Vec<&str> = Lanes::available().map(Lanes::name).collect();
        format!("this CPU has {}", available.join(", "))
    })
}

fn size(text: &str) -> Result<Size, String> {
    let size = Size::ALL
        .into_iter()
        .find(|size| size.bits().to_string() == text);
    size.ok_or_else(|| "it takes 1024, 2048, 3072 and 4096".to_owned())
}

impl Options {
    fn bench(&self) -> Bench {
        let backend = self.backend.unwrap_or(Backend::available()[0]);
        Bench::new(backend, self.seconds)
    }
}
