//! The first memory for keys of a program. It is a program of its own, because this memory stays
//! with a process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use lockstep_vault::{OnFork, Slice, Usage, usage};

/// Returns a size of this process, in bytes, as the kernel reports it.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
    let number = lines.next().expect("a line of that name");
    let number = number.trim().trim_end_matches(" kB");
    number.parse::<usize>().expect("a number") << 10
}

#[test]
fn the_first_regions_are_there_and_locked_up_to_half_of_the_limit() {
    assert_eq!(usage(), Usage::default());
    assert_eq!(status("VmLck:"), 0);
    // One region of each kind, four pages long. Half of the limit of locked memory is left to the
    // program.
    let region = 4 * 4096;
    let low = Rlimit {
        current: Some(2 * region as u64),
        maximum: getrlimit(Resource::Memlock).maximum,
    };
    setrlimit(Resource::Memlock, low).expect("a lower limit");
    let serve = || [OnFork::Keep, OnFork::Wipe].map(|own| Slice::<u8>::zeroed(4096, own));
    let first = serve();
    let locked = region;
    let (regions, heap) = (2 * region, 0);
    let expected = Usage {
        regions,
        locked,
        heap,
    };
    assert_eq!(usage(), expected);
    assert_eq!(status("VmLck:"), locked);
    drop((first, serve()));
    assert_eq!(usage(), expected, "these are the regions that serve");
}
