//! What a program has before its first block: a program of its own, because memory for keys stays
//! with a process.

use lockstep_vault::{OnFork, Slice, Usage, prepare, usage};

/// What the system says of this process, in bytes.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
    let number = lines.next().expect("a line of that name");
    let number = number.trim().trim_end_matches(" kB");
    number.parse::<usize>().expect("a number") << 10
}

/// How much this process may lock.
fn limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|soft| soft.parse().ok())
        .unwrap_or(usize::MAX)
}

#[test]
fn the_first_regions_are_there_and_locked() {
    assert_eq!(usage(), Usage::default());
    assert_eq!(status("VmLck:"), 0);
    prepare();
    // One of each kind, four pages long; half of what may be locked is the program's.
    let region = 4 * 4096;
    let locked = (limit() / 2 / region).min(2) * region;
    let (regions, heap) = (2 * region, 0);
    let expected = Usage {
        regions,
        locked,
        heap,
    };
    assert_eq!(usage(), expected);
    assert_eq!(status("VmLck:"), locked);
    prepare();
    for on_fork in [OnFork::Keep, OnFork::Wipe] {
        drop(Slice::<u8>::zeroed(4096, on_fork));
    }
    assert_eq!(usage(), expected, "these are the regions that serve");
}
