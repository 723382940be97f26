//! The device that tests use.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockstep_opencl::{Device, Error};

/// A device of one test at a time, since all who open it have its state in common.
pub struct Alone(
    Device,
    #[allow(dead_code, reason = "held")] MutexGuard<'static, ()>,
);

impl Deref for Alone {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0
    }
}

/// Returns the device that `LOCKSTEP_TEST_DEVICE` names, or else the first one; says so if there is
/// no device.
#[allow(dead_code, reason = "not each program uses both")]
pub fn device() -> Option<Alone> {
    device_with(|device| device.with_time_limit(Duration::from_secs(300)))
}

/// Returns the same device with changes.
pub fn device_with(change: impl FnOnce(Device) -> Device) -> Option<Alone> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let named = std::env::var("LOCKSTEP_TEST_DEVICE").ok();
    match Device::open(named.as_deref().unwrap_or("opencl:0")) {
        Ok(device) => Some(Alone(change(device), guard)),
        Err(error @ (Error::NoLoader(_) | Error::NoDevice { .. })) if named.is_none() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the start of random numbers of a long test, which is another one each time, and prints
/// it.
#[allow(dead_code, reason = "not each program has long tests")]
pub fn seed() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock");
    let seed = since.as_nanos() as u64;
    println!("seed {seed}");
    seed
}
