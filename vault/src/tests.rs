//! Blocks of both kinds, in this process and in children.

use super::*;

const BOTH: [OnFork; 2] = [OnFork::Keep, OnFork::Wipe];

#[test]
fn blocks_are_aligned_zero_and_apart() {
    for on_fork in BOTH {
        let mut slices = Vec::new();
        for count in [1, 8, 9, 40, 80, 511, 512, 513, 30_000] {
            for number in 0..50 {
                let mut slice = Slice::<u64>::zeroed(count, on_fork);
                assert_eq!(slice.as_ptr().addr() % 64, 0);
                assert!(slice.iter().all(|&word| word == 0));
                slice.fill(number << 32 | count as u64);
                slices.push((number << 32 | count as u64, slice));
            }
        }
        for (mark, slice) in &slices {
            assert!(slice.iter().all(|word| word == mark));
            assert_eq!(**slice, *slice.clone());
        }
    }
}

#[test]
fn empty_slices_take_no_memory() {
    let slice = Slice::<u64>::zeroed(0, OnFork::Keep);
    assert!(slice.is_empty() && slice.clone().is_empty());
    assert!(Slice::<u64>::try_zeroed(usize::MAX, OnFork::Keep).is_none());
    assert!(Slice::<u64>::try_zeroed(usize::MAX / 16, OnFork::Keep).is_none());
}

#[test]
fn a_block_is_wiped_when_it_is_freed() {
    for on_fork in BOTH {
        let mut slice = Slice::<u8>::zeroed(100, on_fork);
        slice.fill(0xa5);
        let (start, region) = (slice.start, slice.origin);
        drop(slice);
        let Some(Origin::Region(_)) = region else {
            continue;
        };
        // SAFETY: regions are never unmapped. Another test may have taken the block since, and
        // fills it with other bytes.
        let left = unsafe { start.read_volatile() };
        assert_ne!(left, 0xa5);
    }
}

#[test]
#[cfg(not(miri))]
fn a_mark_is_wiped_in_a_child_alone() {
    let mark = Mark::new().expect("memory");
    forked(|| mark.is_wiped() && Mark::new().is_some_and(|own| !own.is_wiped()));
    assert!(!mark.is_wiped());
    mark.wipe();
    assert!(mark.is_wiped());
}

#[test]
fn a_value_is_filled_in_place() {
    let mut value = Boxed::<[u8; 40]>::zeroed(OnFork::Keep);
    assert_eq!(*value, [0; 40]);
    value[39] = 1;
    value.wipe();
    assert_eq!(*value, [0; 40]);
    value[39] = 1;
    assert_eq!(value.clone()[..], Boxed::copy_of(&*value, OnFork::Wipe)[..]);
    assert_eq!(format!("{value:?}"), "[redacted]");
    assert_eq!(format!("{:?}", value.0), "[redacted]");
    let value = Boxed::<[u8; 40]>::try_zeroed(OnFork::Keep);
    assert_eq!(*value.expect("memory"), [0; 40]);
}

#[test]
fn threads_never_share_a_block() {
    std::thread::scope(|scope| {
        for thread in 1..=4_u64 {
            scope.spawn(move || {
                let mut held: Vec<Slice<u64>> = Vec::new();
                let mut random = thread;
                for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if held.len() > 60 || !held.is_empty() && random % 3 == 0 {
                        let slice = held.swap_remove(random as usize % held.len());
                        assert!(slice.iter().all(|&word| word == thread));
                    } else {
                        let on_fork = BOTH[random as usize / 8 % 2];
                        let mut slice = Slice::zeroed(random as usize % 90, on_fork);
                        assert!(slice.iter().all(|&word| word == 0));
                        slice.fill(thread);
                        held.push(slice);
                    }
                }
            });
        }
    });
}

#[test]
fn memory_that_is_freed_is_used_again() {
    let fill = || -> Vec<_> {
        (0..2000)
            .map(|i| Slice::<u64>::zeroed(20 + i % 60, OnFork::Keep))
            .collect()
    };
    drop(fill());
    let before = usage().regions;
    for _ in 0..50 {
        drop(fill());
    }
    // Other tests allocate at the same time.
    assert!(usage().regions <= 2 * before + (8 << 20));
}

/// Runs `child` in a forked child, and asserts that it returns true.
#[cfg(not(miri))]
fn forked(child: impl FnOnce() -> bool) {
    // SAFETY: the child allocates memory only here, as the test wants, and ends without
    // handlers.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(i32::from(!child()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        assert_eq!(status, 0);
    }
}

#[test]
#[cfg(not(miri))]
fn a_child_finds_what_it_may_find() {
    let kept = Slice::copy_of(&[7_u64; 40], OnFork::Keep);
    let wiped = Slice::copy_of(&[7_u64; 40], OnFork::Wipe);
    let large = Slice::copy_of(&[7_u64; 4000], OnFork::Wipe);
    forked(|| {
        after_fork();
        let kept = kept.iter().all(|&word| word == 7);
        let zero = |slice: &[u64]| slice.iter().all(|&word| word == 0);
        kept && zero(&wiped) && zero(&large)
    });
    assert!(wiped.iter().chain(large.iter()).all(|&word| word == 7));
}

/// A child inherits no locks, and locks all regions again. With another limit that fails.
#[test]
#[cfg(not(miri))]
fn a_child_asks_for_its_locks_again() {
    drop(Slice::<u8>::zeroed(1, OnFork::Keep));
    forked(|| {
        let before = usage().locked;
        after_fork();
        let again = usage().locked == before;
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: it reads the structure.
        let limited = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &none) } == 0;
        after_fork();
        again && limited && (before == 0 || usage().locked < before)
    });
}

/// Returns whether this kernel has `memfd_secret`, and allows it to this process.
#[cfg(not(miri))]
fn has_secret_memory() -> bool {
    // SAFETY: the call takes one number, and returns a descriptor that has no other owner.
    unsafe {
        let number = libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC);
        number >= 0 && libc::close(number as i32) == 0
    }
}

#[test]
#[cfg(not(miri))]
fn secret_memory_is_used_where_the_kernel_has_it() {
    let has = has_secret_memory();
    forked(|| use_secret_memory() == has);
}

#[test]
#[cfg(not(miri))]
fn each_region_has_twice_as_many_pages_up_to_a_bound() {
    forked(|| {
        let bytes = || -> Vec<usize> { KEPT.all().map(Region::bytes).collect() };
        let all = || bytes().iter().sum::<usize>();
        let (counted, there) = (usage().regions, all());
        let most = bytes().len().max(10) + 1;
        let mut held = Vec::new();
        while bytes().len() < most && held.len() < 20_000 {
            held.push(Slice::<u8>::zeroed(PAGE, OnFork::Keep));
        }
        let pages = (0..most).map(|index| (4 << index).min(1024));
        let expected: Vec<usize> = pages.map(|pages| pages * 4096).collect();
        bytes() == expected && usage().regions - counted == all() - there
    });
}

#[test]
#[cfg(not(miri))]
fn without_memory_to_map_small_blocks_are_on_the_heap() {
    forked(|| {
        let mut held = Vec::with_capacity(20_000);
        // Room in the heap, which cannot grow any more from here on.
        let room: Vec<_> = (0..100)
            .map(|_| (vec![1_u8; 16_000], Box::new(1)))
            .collect();
        let (room, pins): (Vec<_>, Vec<_>) = room.into_iter().unzip();
        drop(room);
        let none = libc::rlimit {
            rlim_cur: 1,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: it reads the structure.
        if unsafe { libc::setrlimit(libc::RLIMIT_AS, &none) } != 0 {
            return false;
        }
        let large = Slice::<u8>::try_zeroed(PAGE + 1, OnFork::Keep).is_none();
        let before = usage().heap;
        while usage().heap == before && held.len() < held.capacity() {
            match Slice::<u8>::try_zeroed(PAGE, OnFork::Keep) {
                Some(block) => held.push(block),
                None => return false,
            }
        }
        let counted = usage().heap == before + PAGE;
        let block = held.pop().unwrap();
        let zero = block.iter().all(|byte| *byte == 0) && block.as_ptr().addr() % UNIT == 0;
        drop(block);
        drop(pins);
        large && counted && zero && usage().heap == before
    });
}

#[test]
#[cfg(not(miri))]
fn a_child_allocates_whatever_other_threads_did_at_the_fork() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(Slice::<u64>::zeroed(50, OnFork::Keep));
                    drop(Slice::<u64>::zeroed(50, OnFork::Wipe));
                }
            });
        }
        for _ in 0..100 {
            forked(|| {
                (0..40).all(|_| {
                    BOTH.into_iter().all(|on_fork| {
                        let mut slice = Slice::<u64>::zeroed(50, on_fork);
                        let zero = slice.iter().all(|&word| word == 0);
                        slice.fill(9);
                        zero
                    })
                })
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}
