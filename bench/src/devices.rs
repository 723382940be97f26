//! `lockstep-bench devices`, which `lockstep devices` starts: the devices that the library for
//! arrays can use, and the figures by which it uses them.

use std::process::ExitCode;

use clap::Args;
use lockstep::{DeviceError, devices};
use lockstep_common::{Failure, Outcome, outln};

use crate::bulk;
use crate::format::{thousands, within};
use crate::table::Table;

/// Lists the devices of OpenCL that the library for arrays can use.
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// Show how many operations each does in a second; measures those that were not used yet
    #[arg(long)]
    rates: bool,
    /// Items of a call that measures, at most
    #[arg(
        long, value_name = "N", default_value = "10000", value_parser = within(64_usize, 1_000_000)
    )]
    items: usize,
}

const NOTES: &str = "\
The names are those of `bulk --device` and of `Workers`. The library keeps the rates of the first
call in $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep. A device gets no work in a call with fewer
items than that from which it pays: threads alone are through with them before the device is through
with a few.";

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let told = |error: DeviceError| {
        Failure::new(error.to_string())
            .remedy("install a driver of OpenCL, or `pocl-opencl-icd` for a device on the CPU")
    };
    let (devices, failure) = devices().map_err(told)?;
    if let Some(failure) = failure {
        outln!(
            "A platform fails: its further devices, and those behind it, are left out. {failure}"
        );
    } else if devices.is_empty() {
        outln!("OpenCL has no device.");
    }
    for device in devices {
        let kind = if device.is_gpu { "GPU" } else { "no GPU" };
        let (name, product, platform) = (&device.name, &device.product, &device.platform);
        let (units, memory, driver) = (device.units, device.memory >> 20, &device.driver);
        outln!("{name}  {product} ({kind}, {platform})");
        outln!("          {units} units, {memory} MiB, driver {driver}");
        if options.rates {
            let mut table = Table::new(1, "operation | device, 1/s | a thread, 1/s | pays from");
            for rate in bulk::rates(name, options.items)? {
                table.add([
                    rate.operation,
                    thousands(rate.device),
                    thousands(rate.thread),
                    thousands(rate.pays_from as f64),
                ]);
            }
            outln!("{table}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
