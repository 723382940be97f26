//! Memory of `memfd_secret`: a program of its own, because all memory for keys of a process comes
//! from there once it has asked for that.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use lockstep_vault::{OnFork, Slice, use_secret_memory};

/// Returns the name and the flags of the mapping at an address, by `/proc/self/smaps`.
fn mapping_of(address: usize) -> (String, String) {
    let text = fs::read_to_string("/proc/self/smaps").expect("smaps");
    let mut name = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bounds = words.first().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        let bounds = bounds.and_then(|(start, end)| Some(number(start)?..number(end)?));
        match (bounds, &name) {
            (Some(bounds), _) if bounds.contains(&address) => name = Some(words[5..].join(" ")),
            (None, Some(name)) if line.starts_with("VmFlags:") => {
                return (name.clone(), line.to_owned());
            }
            _ => {}
        }
    }
    panic!("nothing is mapped at {address:x}");
}

/// Reads memory as a debugger does, and as root reads the memory of other processes.
fn read_from_outside(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut read = vec![0; bytes.len()];
    let memory = File::open("/proc/self/mem")?;
    memory.read_exact_at(&mut read, bytes.as_ptr().addr() as u64)?;
    Ok(read)
}

#[test]
fn keys_are_where_nothing_else_reads_them() {
    let before = Slice::copy_of(&[7_u8; 100], OnFork::Keep);
    // It allows all mappings below, while half of it is less than these regions.
    let low = Rlimit {
        current: Some(224 << 10),
        maximum: getrlimit(Resource::Memlock).maximum,
    };
    setrlimit(Resource::Memlock, low).expect("a lower limit");
    if !use_secret_memory() {
        println!("skipped: this kernel has no memfd_secret, or does not allow it");
        return;
    }
    // Older blocks stay where they are, and their region has room for more.
    assert_eq!(
        read_from_outside(&before).expect("ordinary memory"),
        *before
    );
    let small: Vec<_> = (0..100_u8)
        .map(|byte| Slice::copy_of(&[byte; 1000], OnFork::Wipe))
        .collect();
    let large = Slice::copy_of(&[9_u8; 50_000], OnFork::Keep);
    let mut bytes = 0;
    for (slice, byte) in small.iter().zip(0..).chain([(&large, 9)]) {
        assert!(slice.iter().all(|own| *own == byte));
        let (name, flags) = mapping_of(slice.as_ptr().addr());
        if !name.contains("secretmem") {
            continue;
        }
        bytes += slice.len();
        // Locked, in no dump, in no child.
        for flag in ["lo", "dd", "dc"] {
            assert!(flags.split_whitespace().any(|own| own == flag), "{flags}");
        }
        assert!(read_from_outside(slice).is_err(), "{flags}");
    }
    println!("{bytes} bytes are in memory of memfd_secret");
    // All of it counts as locked, beyond half of the limit too.
    let usage = lockstep_vault::usage();
    assert_eq!(usage.locked, usage.regions, "{usage:?}");
    // The first region has 16 KiB; a low limit on locked memory may leave no more.
    assert!(bytes >= 10_000);
}
