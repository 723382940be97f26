//! Calls of OpenCL that fail, one after the other, and a device that does not answer.

mod common;

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lockstep_opencl::{Device, Error, PrivateParts};
use lockstep_testkit::RsaParts;

/// More calls than an operation makes.
const MOST_CALLS: usize = 500;

/// Functions that every operation calls.
const FUNCTIONS: [&str; 10] = [
    "clCreateCommandQueue",
    "clCreateBuffer",
    "clEnqueueWriteBuffer",
    "clCreateKernel",
    "clSetKernelArg",
    "clEnqueueNDRangeKernel",
    "clEnqueueReadBuffer",
    "clEnqueueFillBuffer",
    "clFlush",
    "clGetEventInfo",
];

fn agree(device: &Device) -> Result<Vec<u8>, Error> {
    let (own, mut peer) = ([7; 32], [0; 32]);
    peer[0] = 9;
    device
        .x25519(&[(&own, &peer), (&own, &own)])
        .map(|secrets| secrets.to_vec())
}

fn sign(device: &Device) -> Result<Vec<u8>, Error> {
    let [_, _, p, q, dp, dq, qinv] = &RsaParts::ordinary(1024).parts;
    let input = [3; 128];
    let mut small = input;
    small[0] = 0;
    let items = [(0, &small[..]), (0, &input[1..]), (0, &small[..])];
    let keys = [device.rsa_key(1024, PrivateParts { p, q, dp, dq, qinv })?];
    let refused = device.rsa_private(1024, &keys, &items).map(drop);
    assert_eq!(refused, Err(Error::Input));
    device
        .rsa_private(1024, &keys, &[items[0], items[2]])
        .map(|results| results.to_vec())
}

#[test]
fn each_call_that_fails_is_told_and_the_next_work_is_right() {
    let Some(device) = common::device() else {
        return;
    };
    for work in [agree, sign] {
        device.plan().fail(usize::MAX, false);
        let right = work(&device).expect("results");
        let (objects, mut failed) = (device.plan().objects(), BTreeSet::new());
        let (mut number, mut sweeps) = (0, 0);
        loop {
            assert!(number < MOST_CALLS, "no end");
            device.plan().fail(number, false);
            number += 1;
            let result = work(&device);
            // Whatever fails, nothing stays behind.
            assert_eq!(device.plan().objects(), objects);
            let Some(function) = device.plan().failed() else {
                assert_eq!(result.as_ref(), Ok(&right));
                let is_missing = |function: &&&str| !failed.contains(**function);
                let missing: Vec<_> = FUNCTIONS.iter().filter(is_missing).collect();
                if missing.is_empty() {
                    break;
                }
                // A run in which the work ends soon has fewer calls than others.
                (number, sweeps) = (0, sweeps + 1);
                assert!(sweeps < 4, "{missing:?}");
                continue;
            };
            failed.insert(function);
            match result {
                // Objects that are not released.
                Ok(result) => assert_eq!(result, right, "{function}"),
                Err(Error::Call { function: told, .. }) => assert_eq!(told, function),
                Err(error) => panic!("{function}: {error}"),
            }
            assert_eq!(work(&device).as_ref(), Ok(&right), "after {function}");
        }
    }
}

#[test]
fn a_device_of_which_all_calls_fail_is_told_and_leaves_little_behind() {
    let Some(device) = common::device() else {
        return;
    };
    let right = agree(&device).expect("results");
    let mut own = None;
    for number in 0..MOST_CALLS {
        let device = own.as_ref().unwrap_or(&*device);
        let objects = device.plan().objects();
        device.plan().fail(number, true);
        let result = agree(device);
        if device.plan().failed().is_none() {
            assert_eq!(result, Ok(right));
            assert!(own.is_some(), "it was given up");
            return;
        }
        assert!(result.is_err() || result.as_ref() == Ok(&right), "{number}");
        assert_eq!(device.plan().objects(), objects, "{number}");
        if !device.is_usable() {
            // It gets no more work, so that this happens once.
            let calls = device.plan().calls();
            assert_eq!(agree(device), Err(Error::GivenUp));
            assert_eq!(device.plan().calls(), calls);
            own = Some(Device::open("opencl:0").expect("a device"));
            agree(own.as_ref().expect("set")).expect("results");
        }
    }
    panic!("no end");
}

/// A private key goes to no device but the one that was named before a platform failed.
#[test]
fn a_broken_platform_changes_no_number() {
    let Some(_alone) = common::device() else {
        return;
    };
    let open = |number, name| {
        Device::open_planted(name, |plan| {
            plan.double();
            plan.fail(number, false);
        })
    };
    open(usize::MAX, "opencl:1").expect("the second platform");
    assert!(open(usize::MAX, "opencl:2").is_err());
    // The calls of the first platform, behind two that list both.
    for number in 2..6 {
        for name in ["opencl:0", "opencl:1"] {
            let failure = open(number, name).map(|_| ());
            assert!(matches!(failure, Err(Error::Call { .. })), "{failure:?}");
        }
    }
}

#[test]
fn a_device_is_opened_or_the_failure_of_each_call_is_told() {
    let Some(_alone) = common::device() else {
        return;
    };
    let mut failed = BTreeSet::new();
    for number in 0.. {
        assert!(number < MOST_CALLS, "no end");
        let error = match Device::open_planted("opencl:0", |plan| plan.fail(number, false)) {
            Err(error) => error,
            Ok(device) => {
                // The compiler comes with the first work.
                let result = agree(&device);
                match (device.plan().failed(), result) {
                    (None, _) => break,
                    (Some(_), Ok(_)) => continue,
                    (Some(_), Err(error)) => error,
                }
            }
        };
        let text = error.to_string();
        assert!(!text.is_empty() && !text.contains('\n'), "{text}");
        match error {
            Error::Call { function, .. } => drop(failed.insert(function)),
            Error::Compiler(_) => drop(failed.insert("clBuildProgram")),
            error => panic!("{error}"),
        }
    }
    for function in [
        "clGetPlatformIDs",
        "clGetPlatformInfo",
        "clGetDeviceIDs",
        "clGetDeviceInfo",
        "clCreateContext",
        "clCreateProgramWithSource",
        "clBuildProgram",
    ] {
        assert!(failed.contains(function), "{function}");
    }
}

/// Set where this program runs as its own child.
const CHILD: &str = "LOCKSTEP_TEST_CHILD";

#[test]
fn a_device_that_does_not_answer_is_given_up_with_one_line() {
    let limit = Duration::from_millis(50);
    if std::env::var_os(CHILD).is_none() {
        let name = "a_device_that_does_not_answer_is_given_up_with_one_line";
        let mut child = Command::new(std::env::current_exe().expect("a path"));
        let child = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
        let output = child.output().expect("it runs");
        let text = String::from_utf8(output.stderr).expect("a text");
        assert!(output.status.success(), "{text}");
        let told: Vec<_> = text
            .lines()
            .filter(|line| line.contains("opencl:0"))
            .collect();
        let is_skipped = String::from_utf8_lossy(&output.stdout).contains("skipped: ");
        match &told[..] {
            [] if is_skipped => println!("skipped: as the child was"),
            [line] => {
                assert!(line.ends_with("gets no more work: the device did not answer in 50 ms"))
            }
            lines => panic!("{lines:?}"),
        }
        return;
    }
    let Some(device) = common::device_with(|device| device.with_time_limit(limit)) else {
        return;
    };
    agree(&device).expect("results");
    let other = Device::open("opencl:0").expect("a device");
    device.plan().hang(true);
    let start = Instant::now();
    assert_eq!(agree(&device), Err(Error::TimeOut(50)));
    assert!(start.elapsed() < Duration::from_secs(30));
    device.plan().hang(false);
    for device in [&*device, &other] {
        assert!(!device.is_usable());
        assert_eq!(agree(device), Err(Error::GivenUp));
    }
    agree(&Device::open("opencl:0").expect("a device")).expect("results");
}

#[test]
fn the_limit_does_not_count_the_work_of_others() {
    let limit = Duration::from_millis(400);
    let Some(device) = common::device_with(|device| device.with_time_limit(limit)) else {
        return;
    };
    agree(&device).expect("results");
    let other = Device::open("opencl:0").expect("a device");
    agree(&other).expect("results");
    device.plan().hang(true);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| agree(&device));
        let start = Instant::now();
        while start.elapsed() < 4 * limit {
            agree(&other).expect("results");
            assert!(!waiting.is_finished());
        }
        assert_eq!(waiting.join().expect("no panic"), Err(Error::TimeOut(400)));
    });
}

#[test]
fn work_that_needs_more_memory_is_refused() {
    let Some(device) = common::device_with(|device| device.with_memory(1 << 16)) else {
        return;
    };
    let pair = (&[7; 32], &[9; 32]);
    let result = device.x25519(&vec![pair; 1 << 12]);
    assert!(matches!(result, Err(Error::TooLittleMemory { needed, .. }) if needed == 1 << 18));
    let result = device.x25519(&vec![pair; 1 << 10]);
    assert!(matches!(result, Err(Error::TooLittleMemory { needed, .. }) if needed > 1 << 16));
    agree(&device).expect("results");
    assert!(device.chunk(lockstep_opencl::Kind::RsaPrivate(4096)) < 8);
}

#[test]
fn an_unknown_name_is_told_with_those_that_there_are() {
    let Some(_alone) = common::device() else {
        return;
    };
    for name in ["", "opencl", "opencl:", "opencl:99", "cuda:0"] {
        let text = Device::open(name).expect_err("no such device").to_string();
        assert!(
            text.contains(&format!("`{name}`")) && !text.contains('\n'),
            "{text}"
        );
    }
    assert!(!lockstep_opencl::devices().expect("devices").0.is_empty());
}
