//! Fault injection (feature `fault-injection`, for tests only).
//!
//! `LOCKSTEP_FAULT=POINT:REQUEST:HALF:LIMB:BIT` flips a bit in every batch of the process; example:
//! `Accumulator:0:1:7:51`; see [`lockstep_kernels::fault`]. `LOCKSTEP_PLANT=DEFECT` plants a defect
//! in the module itself, which a check of the rig must find: see [`planted`].

use std::cell::UnsafeCell;

use lockstep_engine::{is_planted, plant_of_environment};
use lockstep_kernels::fault::{Fault, Point, arm_all_threads};

/// Arms the fault that the environment names, if it names one.
pub fn arm() -> Result<(), String> {
    plant_of_environment();
    let Ok(text) = std::env::var("LOCKSTEP_FAULT") else {
        return Ok(());
    };
    let fault = parse(&text).ok_or_else(|| format!("lockstep: LOCKSTEP_FAULT is '{text}'"))?;
    arm_all_threads(fault);
    Ok(())
}

/// Returns whether this defect is planted:
///
/// - `short-buffer` writes an Ed25519 signature into a buffer that is too short for it.
/// - `padding-byte` changes one bit of a decrypted message.
/// - `wrong-secret` changes one bit of a decapsulated secret.
/// - `wrong-tag` changes one bit of a tag of AES-GCM.
/// - `lost-context` signs with ML-DSA without the context of the message.
/// - `wrong-answer` changes one bit of the key daemon's signature with an RSA key that the process
///   has, too.
/// - `shared-memory` serves a program that gives OpenSSL memory which processes share.
/// - `no-room` prepares keys on the stack of the caller.
/// - `data-race` is in [`race`].
///
/// The engine and its operations have further defects (`ops/src/fault.rs`).
pub fn planted(defect: &str) -> bool {
    plant_of_environment();
    is_planted(defect)
}

/// Causes a data race of threads that call this at the same time, if `data-race` is planted.
pub fn race() {
    struct Word(UnsafeCell<u64>);
    // SAFETY: deliberately unsound. Only the rig plants this defect, and must find the race.
    unsafe impl Sync for Word {}
    static WORD: Word = Word(UnsafeCell::new(0));
    if planted("data-race") {
        // SAFETY: as above.
        unsafe { *WORD.0.get() += 1 };
    }
}

fn parse(text: &str) -> Option<Fault> {
    let (name, numbers) = text.split_once(':')?;
    let point = Point::ALL
        .into_iter()
        .find(|point| format!("{point:?}") == name)?;
    let numbers: Vec<usize> = numbers
        .split(':')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let [request, half, limb, bit] = numbers[..] else {
        return None;
    };
    Some(Fault {
        point,
        request,
        half,
        limb,
        bit: bit as u32,
    })
}
