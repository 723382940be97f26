//! Counts of this process are read back, beside any other files in the directory.

mod strangers;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use lockstep_testkit::{Named, TempDir};

use super::counters::Counters;
use super::layout::{MAGIC, MOST, OWNERS, SLOT_WORDS, SLOTS, WORDS, counter, header, owner};
use super::process::{Realm, ticks_since_boot};
use super::reader::Budget;
use super::*;
use crate::fallback::Fallback;

/// A directory of the test, which is removed at its end.
struct Directory(TempDir);

impl Directory {
    fn new(name: &str) -> Directory {
        Directory(TempDir::new(name))
    }

    fn page(&self, keep: bool) -> Page {
        let page = Page::create(&StatsDir::At(self.0.to_path_buf()), keep);
        page.unwrap().unwrap()
    }

    fn read(&self) -> Published {
        read_published(&self.0).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Leaves a file of one process that has made five batches, and changes some of its words.
    fn leave(&self, name: &str, owner: [u64; owner::WORDS], change: impl Fn(&mut [u64])) {
        let here = Realm::here();
        let mut words = vec![0; WORDS];
        words[header::MAGIC] = MAGIC;
        words[header::LAYOUT] = super::snapshot::layout();
        words[header::WORDS] = WORDS as u64;
        words[header::BOOT..][..2].copy_from_slice(&here.boot);
        words[header::NAMESPACE] = here.namespace;
        words[OWNERS..][..owner::WORDS].copy_from_slice(&owner);
        words[SLOTS + 3..][..1].copy_from_slice(&[5]);
        change(&mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        fs::write(self.0.join(name), bytes).unwrap();
    }

    /// Sets the time of the last change of a file.
    fn set_changed(&self, name: &str, time: SystemTime) {
        let file = File::options().write(true).open(self.0.join(name));
        file.unwrap().set_modified(time).unwrap();
    }
}

/// Returns a time before this system started.
fn before_boot() -> SystemTime {
    super::process::booted().unwrap() - Duration::from_secs(60)
}

fn busy(metrics: &Counters) {
    metrics.batch(1, 7, 7, 4);
    metrics.batch(4, 1, 1, 4);
    metrics.fallback(Fallback::CheckFailed);
    metrics.fallback(Fallback::MultiPrime);
    metrics.yielded();
    metrics.submitted();
}

fn own_pid() -> u64 {
    std::process::id().into()
}

#[test]
fn the_file_is_private_current_and_removed() {
    let directory = Directory::new("file");
    let page = directory.page(false);
    let found = directory.read();
    assert!(found.processes.is_empty(), "nothing counted yet");
    assert_eq!(found.idle.len(), 1);
    let metrics = Counters::new("portable", 2, Some(&page));
    busy(&metrics);
    let names = directory.names();
    let about = fs::metadata(directory.0.join(&names[0])).unwrap();
    assert_eq!(
        (about.permissions().mode() & 0o777, about.len()),
        (0o600, 8 * WORDS as u64)
    );
    let stats = directory.read().processes;
    assert_eq!(stats.len(), 1);
    assert_eq!(stats[0].snapshot, metrics.snapshot());
    assert!(stats[0].alive && stats[0].elsewhere.is_none());
    assert!(!stats[0].name.as_deref().unwrap().is_empty());

    // A second engine of this process with a file of its own.
    let second = directory.page(false);
    busy(&Counters::new("portable", 2, Some(&second)));
    let stats = directory.read().processes;
    let operations: u64 = stats.iter().map(|stats| stats.snapshot.operations()).sum();
    assert_eq!((stats.len(), operations), (2, 16));

    page.withdraw();
    second.withdraw();
    assert_eq!(directory.names(), [""; 0]);
    let kept = directory.page(true);
    busy(&Counters::new("portable", 2, Some(&kept)));
    kept.withdraw();
    assert_eq!(directory.read().processes.len(), 1, "kept on request");
}

/// Root reads text that others can write: no character changes a terminal or a document.
#[test]
fn mistakes_in_settings_are_read_before_anything_is_counted() {
    let directory = Directory::new("mistakes");
    let page = directory.page(false);
    assert_eq!(directory.read().processes.len(), 0);
    page.note_mistakes("slots is 'many', but must be a number");
    let [process] = &directory.read().processes[..] else {
        panic!("no process");
    };
    assert_eq!(
        process.snapshot.mistakes,
        "slots is 'many', but must be a number"
    );
    page.note_mistakes(&"\x1b[2J\n\u{9b}\"}\\x".repeat(1000));
    let shown = &directory.read().processes[0].snapshot;
    assert_eq!(shown.mistakes.len(), 8 * header::MISTAKES_WORDS);
    assert!(shown.mistakes.starts_with("?[2J????}?x?[2J"), "{shown:?}");
    assert_eq!(Snapshot::from_json(&shown.to_json()).as_ref(), Some(shown));
    page.withdraw();
}

#[test]
fn threads_that_count_at_once_lose_nothing() {
    let directory = Directory::new("threads");
    let page = directory.page(false);
    let metrics = Counters::new("portable", 2, Some(&page));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25_000).for_each(|_| metrics.submitted()));
        }
    });
    let stats = directory.read().processes;
    assert_eq!(stats[0].snapshot.async_submitted, 100_000);
    page.withdraw();
}

#[test]
fn a_process_that_ends_before_its_child_has_a_slot_leaves_the_file() {
    let directory = Directory::new("daemon");
    let page = directory.page(false);
    page.forking();
    page.withdraw();
    assert_eq!(directory.names().len(), 1);
    page.claim();
    page.forked();
    page.withdraw();
    assert_eq!(directory.names().len(), 0);
}

#[test]
fn a_slot_is_given_back_and_begins_anew() {
    let directory = Directory::new("again");
    let page = directory.page(false);
    busy(&Counters::new("portable", 2, Some(&page)));
    assert_eq!(directory.read().processes.len(), 1);
    page.release();
    assert_eq!(directory.read().processes.len(), 0);
    page.claim();
    let metrics = Counters::new("portable", 2, Some(&page));
    assert_eq!(metrics.snapshot().operations(), 0);
    metrics.count(ExternalEvent::Derivation);
    assert_eq!(directory.read().processes[0].snapshot.derivations, 1);
    page.withdraw();
}

/// Process 1 of a PID namespace may have a child that is process 1 of another one.
#[test]
fn a_child_with_the_number_of_its_parent_leaves_the_counters_to_it() {
    for handlers in [0, 1, 2] {
        let directory = Directory::new("namesake");
        let mut page = directory.page(false);
        busy(&Counters::new("portable", 2, Some(&page)));
        page.wipe();
        (0..handlers).for_each(|_| page.forked());
        if handlers > 0 {
            busy(&Counters::new("portable", 2, Some(&page)));
            assert_eq!(directory.read().processes.len(), 2);
        }
        page.withdraw();
        assert_eq!(directory.read().processes.len(), 1, "{handlers}");
    }
}

/// Gives all slots of a page but the first to other processes.
fn fill(page: &Page, owner: impl Fn(usize) -> [u64; owner::WORDS]) {
    for slot in 1..super::layout::MOST {
        page.write_owner(slot, owner(slot));
    }
}

#[test]
fn slots_are_allocated_when_processes_need_them() {
    let directory = Directory::new("growing");
    let page = directory.page(false);
    let blocks = || {
        fs::metadata(directory.0.join(&directory.names()[0]))
            .unwrap()
            .blocks()
    };
    let at_first = blocks();
    let (first, namespace) = (page.own().unwrap(), Realm::here().namespace);
    for others in [3, 40, 255] {
        for other in 0..others {
            page.write_owner(other, [1, 1, u64::MAX, namespace]);
        }
        page.forking();
        page.forked();
        let own = page.own().expect("a slot");
        let distance = own.as_ptr().addr() - first.as_ptr().addr();
        assert_eq!(distance / size_of_val(own), others);
        busy(&Counters::new("portable", 2, Some(&page)));
        page.write_owner(others, [0; owner::WORDS]);
    }
    // Before Linux 5.14 all are there at first.
    assert!(
        at_first < blocks() || at_first * 512 >= 8 * WORDS as u64,
        "{at_first}"
    );
}

#[test]
fn an_engine_without_a_slot_counts_in_private() {
    let directory = Directory::new("full");
    let page = directory.page(false);
    let first = page.own().unwrap();
    // The process of number 1 runs.
    let namespace = Realm::here().namespace;
    fill(&page, |_| [1, 1, u64::MAX, namespace]);
    page.write_owner(0, [1, 1, u64::MAX, namespace]);
    page.forked();
    assert!(page.own().is_none());
    let metrics = Counters::new("portable", 2, Some(&page));
    busy(&metrics);
    assert_eq!(metrics.snapshot().operations(), 8);
    let found = directory.read();
    assert_eq!((found.processes.len(), found.missed), (0, 1));
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    assert!(first.iter().all(|word| load(word) == 0));
}

#[test]
fn the_slot_of_a_killed_process_is_taken_when_none_is_free() {
    let directory = Directory::new("abandoned");
    let page = directory.page(false);
    busy(&Counters::new("portable", 2, Some(&page)));
    let namespace = Realm::here().namespace;
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let ended = u64::from(ended.id());
    // A process that has ended by its number here may run in another namespace.
    fill(&page, |slot| match slot {
        100 => [ended, 1, 1, namespace + 1],
        200 => [ended, 1, 1, namespace],
        _ => [1, 1, u64::MAX, namespace],
    });
    page.write_owner(0, [1, 1, u64::MAX, namespace]);
    page.forked();
    let metrics = Counters::new("portable", 2, Some(&page));
    metrics.count(ExternalEvent::Derivation);
    // A second call changes nothing.
    page.forked();
    let stats = directory.read().processes;
    let own = |stats: &&ProcessStats| u64::from(stats.pid) == own_pid();
    let own: Vec<_> = stats.iter().filter(own).collect();
    assert_eq!(own.len(), 1);
    let counted = (own[0].snapshot.batches, own[0].snapshot.derivations);
    assert_eq!(counted, (0, 1));
}

#[test]
fn a_slot_that_another_process_has_taken_meanwhile_is_left_to_it() {
    let directory = Directory::new("overtaken");
    let page = directory.page(false);
    let namespace = Realm::here().namespace;
    let (ended, other) = (u64::from(u32::MAX), own_pid() + 1);
    let owner = [other, 1, 7, namespace];
    page.write_owner(5, owner);
    assert!(!page.take_over(5, ended));
    assert_eq!(page.read_owner(5), owner);
    page.write_owner(5, [ended, 1, 7, namespace]);
    assert!(page.take_over(5, ended));
    assert_eq!(page.read_owner(5)[..2], [own_pid(), 1]);
}

#[test]
fn what_ended_processes_left_is_swept_and_nothing_else() {
    let directory = Directory::new("sweep");
    let here = Realm::here();
    let (gone, namespace) = (u64::from(u32::MAX), here.namespace);
    let runs = [own_pid(), 1, u64::MAX - 1, namespace];
    let ended = [gone, 1, 7, namespace];
    directory.leave("1-1-0.counters", ended, |_| {});
    directory.leave("1-2-0.counters", [own_pid(), 1, 7, namespace], |_| {});
    directory.leave("2-1-0.counters", runs, |_| {});
    directory.leave("2-2-0.counters", ended, |words| {
        words[OWNERS + owner::WORDS..][..owner::WORDS].copy_from_slice(&runs);
    });
    // The files of other PID namespaces and systems stay.
    directory.leave("3-1-0.counters", [gone, 1, 7, namespace + 1], |words| {
        words[header::NAMESPACE] = namespace + 1;
    });
    directory.leave("3-2-0.counters", [gone, 1, 7, namespace + 1], |_| {});
    directory.leave("3-3-0.counters", ended, |words| words[header::BOOT] ^= 1);
    directory.leave("4-1-0.counters", ended, |words| words[header::KEEP] = 1);
    directory.leave("5-1-0.counters", ended, |words| words[header::LAYOUT] ^= 1);
    // A child of a recent fork is about to take a slot.
    directory.leave("5-2-0.counters", ended, |words| {
        words[header::FORKING] = 1;
        words[header::FORKED] = ticks_since_boot();
    });
    directory.leave("5-3-0.counters", ended, |words| words[header::FORKING] = 1);
    directory.leave("notes.txt", ended, |_| {});
    fs::write(directory.0.join("6-1-0.counters"), "").unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::write(directory.0.join("6-2-0.counters"), "").unwrap();
    directory.set_changed("6-2-0.counters", long_ago);
    // Files of processes of an earlier start of this system, of any PID namespace.
    let elsewhere = [own_pid(), 1, u64::MAX - 1, namespace + 1];
    for (name, boot) in [("7-1", 1), ("7-2", 1), ("7-3", 0)] {
        let name = format!("{name}-0.counters");
        directory.leave(&name, elsewhere, |words| {
            words[header::BOOT] ^= boot;
            words[header::FORKING] = 1;
            words[header::FORKED] = u64::MAX;
        });
        directory.set_changed(&name, before_boot());
    }
    directory.leave("7-2-0.counters", elsewhere, |words| {
        words[header::BOOT..][..2].fill(0);
    });
    directory.set_changed("7-2-0.counters", before_boot());
    // Files of another version, with the header of this one or not.
    let long_before = before_boot() - Duration::from_secs(60);
    for (name, at, change) in [
        ("8-1", header::LAYOUT, 1),
        ("8-2", header::WORDS, 1),
        ("8-3", header::MAGIC, 1 << 63),
        ("8-4", header::KEEP, 1),
        ("8-5", header::MAGIC, 1),
        ("8-6", header::LAYOUT, 1),
    ] {
        let name = format!("{name}-0.counters");
        directory.leave(&name, ended, |words| {
            words[header::LAYOUT] ^= u64::from(at == header::KEEP);
            words[at] ^= change;
        });
        directory.set_changed(&name, long_before);
    }
    directory.set_changed("8-6-0.counters", before_boot() + Duration::from_secs(10));

    let sweep = |kept_too, ended| {
        super::reader::sweep(
            &super::directory::open(&directory.0).unwrap(),
            here,
            kept_too,
            ended,
        )
        .unwrap();
        let mut left = directory.names();
        left.sort();
        left
    };
    let mut expected = vec![
        "2-1-0.counters",
        "2-2-0.counters",
        "3-1-0.counters",
        "3-2-0.counters",
        "3-3-0.counters",
        "4-1-0.counters",
        "5-1-0.counters",
        "5-2-0.counters",
        "6-1-0.counters",
        "7-2-0.counters",
        "7-3-0.counters",
        "8-3-0.counters",
        "8-4-0.counters",
        "8-5-0.counters",
        "8-6-0.counters",
        "notes.txt",
    ];
    assert_eq!(sweep(false, None), expected);
    // Files that are kept stay, unless they are to be removed too. `8-5` is no file of counters.
    let kept = ["4-1-0.counters", "8-3-0.counters", "8-4-0.counters"];
    expected.retain(|name| !kept.contains(name));
    assert_eq!(sweep(true, None), expected);
    // After `exec` another program runs under the number.
    assert_eq!(sweep(true, Some((std::process::id(), 7))), expected);
    expected.retain(|name| !["2-1-0.counters", "2-2-0.counters"].contains(name));
    let before = |at| Some((std::process::id(), at));
    assert_eq!(sweep(true, before(u64::MAX)), expected);
}

#[test]
fn processes_of_other_namespaces_are_told_apart() {
    let directory = Directory::new("namespaces");
    let here = Realm::here();
    directory.leave(
        "1-1-0.counters",
        [1, 1, u64::MAX, here.namespace + 1],
        |_| {},
    );
    directory.leave(
        "1-2-0.counters",
        [u32::MAX.into(), 1, 7, here.namespace],
        |_| {},
    );
    let stats = directory.read().processes;
    assert_eq!(stats.len(), 2);
    let seen: Vec<_> = stats
        .iter()
        .map(|stats| (stats.alive, stats.elsewhere))
        .collect();
    assert_eq!(seen, [(false, Some(here.namespace + 1)), (false, None)]);
}

#[test]
fn no_process_outlives_its_system() {
    let directory = Directory::new("reboot");
    let here = Realm::here();
    for (name, namespace) in [("1-1-0.counters", 0), ("1-2-0.counters", 1)] {
        let owner = [own_pid(), 1, u64::MAX - 1, here.namespace + namespace];
        directory.leave(name, owner, |words| words[header::BOOT] ^= 1);
    }
    let seen = || {
        let stats = directory.read().processes.into_iter();
        let seen = stats.map(|stats| (stats.alive, stats.elsewhere.is_some()));
        seen.collect::<Vec<_>>()
    };
    // Another system shares the directory, and its processes may run.
    assert_eq!(seen(), [(false, true); 2]);
    directory.set_changed("1-1-0.counters", before_boot());
    directory.set_changed("1-2-0.counters", before_boot());
    assert_eq!(seen(), [(false, false); 2]);
}

#[test]
fn without_a_directory_there_is_a_reason() {
    let refused = |path: &str| {
        let page = Page::create(&StatsDir::At(path.into()), false);
        page.unwrap_err().to_string()
    };
    let message = refused("/nonexistent");
    assert!(message.contains("/nonexistent: No such file"), "{message}");
    assert!(refused("/proc").contains("/proc"));
    assert!(Page::create(&StatsDir::Off, false).unwrap().is_none());
    assert!(read_published(Path::new("/nonexistent")).is_err());
}
