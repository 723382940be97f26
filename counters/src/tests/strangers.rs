//! Files of other users, which take little of a reader and deceive none.

use super::*;

/// Leaves a file in which processes of another PID namespace have counted in all slots.
fn leave_full(directory: &Directory, name: &str) {
    leave_processes(directory, name, 5);
}

/// Leaves such a file, of processes that have counted this number of batches.
fn leave_processes(directory: &Directory, name: &str, batches: u64) {
    let there = Realm::here().namespace + 1;
    directory.leave(name, [1, 1, 7, there], |words| {
        for slot in 1..MOST {
            let pid = slot as u64 + 1;
            words[OWNERS + slot * owner::WORDS..][..owner::WORDS]
                .copy_from_slice(&[pid, 1, 7, there]);
            words[SLOTS + slot * SLOT_WORDS + counter::BATCHES] = batches;
        }
    });
}

#[test]
fn a_user_can_show_a_stranger_so_many_idle_processes_at_most() {
    let directory = Directory::new("idle");
    for number in 0..20 {
        leave_processes(&directory, &format!("1-{number}-0.counters"), 0);
    }
    let own = fs::metadata(&directory.0).unwrap().uid();
    let seen = |trusted: u32| {
        let found = super::reader::read_within(Budget::of([trusted; 2]), &directory.0).unwrap();
        (found.idle.len(), found.incomplete.contains(&own))
    };
    assert_eq!(seen(own), (4096, true));
    assert_eq!(seen(own + 1), (1024, true));
}

#[test]
fn a_user_can_show_a_stranger_so_many_processes_at_most() {
    let directory = Directory::new("strangers");
    let seen = |trusted: [u32; 2]| {
        let found = super::reader::read_within(Budget::of(trusted), &directory.0).unwrap();
        (found.processes.len(), found.cut_off)
    };
    leave_full(&directory, "1-1-0.counters");
    let own = fs::metadata(&directory.0).unwrap().uid();
    let (friend, stranger) = ([own; 2], [own + 1; 2]);
    assert_eq!(seen(friend), (256, false));
    assert_eq!(seen(stranger), (256, false));
    leave_full(&directory, "1-2-0.counters");
    assert_eq!(seen(friend), (512, false));
    assert_eq!(seen(stranger), (256, true));
    for number in 3..20 {
        leave_full(&directory, &format!("1-{number}-0.counters"));
    }
    assert_eq!(seen(friend), (4096, true));
    assert_eq!(seen(stranger), (256, true));
}

#[test]
fn a_user_can_have_a_stranger_read_so_many_files_at_most() {
    let directory = Directory::new("files");
    directory.leave("1-0-0.counters", [0; owner::WORDS], |_| {});
    let cut_off = |trusted: [u32; 2]| {
        let found = super::reader::read_within(Budget::of(trusted), &directory.0);
        found.unwrap().cut_off
    };
    let own = fs::metadata(&directory.0).unwrap().uid();
    let (friend, stranger) = ([own; 2], [own + 1; 2]);
    let path = |number: u32| directory.0.join(format!("1-{number}-0.counters"));
    for number in 1..=256 {
        assert!(!cut_off(stranger), "{number} files");
        fs::hard_link(path(0), path(number)).unwrap();
    }
    assert!(cut_off(stranger) && !cut_off(friend));
}

#[test]
fn no_file_has_more_processes_without_a_slot_than_a_system_can_run() {
    let directory = Directory::new("missed");
    for (file, (missed, seen)) in [(3, 3), (4, 7), (1 << 63, 1 << 22), (u64::MAX, 1 << 22)]
        .into_iter()
        .enumerate()
    {
        let name = format!("1-{file}-0.counters");
        directory.leave(&name, [0; owner::WORDS], |words| {
            words[header::MISSED] = missed
        });
        assert_eq!(directory.read().missed, seen);
    }
}

#[test]
fn many_strangers_displace_neither_root_nor_the_user_who_asks() {
    let directory = Directory::new("displaced");
    for user in 0..6 {
        let name = format!("{user}-1-0.counters");
        leave_full(&directory, &name);
        if chown(directory.0.join(name), Some(100_000 + user), None).is_err() {
            println!("skipped: only root can give files away");
            return;
        }
    }
    let seen = |trusted: [u32; 2]| {
        let found = super::reader::read_within(Budget::of(trusted), &directory.0).unwrap();
        let of = |user| found.processes.iter().filter(|p| p.user == user).count();
        assert!(found.cut_off);
        [0, 1, 2, 3, 4, 5].map(|user| of(100_000 + user))
    };
    assert_eq!(seen([0, 0]), [256, 256, 256, 256, 0, 0]);
    assert_eq!(seen([100_005, 100_005]), [256, 256, 256, 256, 0, 256]);
}

#[test]
fn what_could_deceive_a_reader_is_passed_over() {
    let directory = Directory::new("deceive");
    let here = Realm::here();
    let mine = [own_pid(), 1, u64::MAX, here.namespace];
    let path = |name: &str| directory.0.join(name);
    directory.leave("precious", mine, |_| {});
    symlink(path("precious"), path("1-1-0.counters")).unwrap();
    directory.leave("3-1-0.counters", mine, |words| words[header::MAGIC] ^= 1);
    directory.leave(
        "3-2-0.counters",
        [own_pid(), 0, u64::MAX, here.namespace],
        |_| {},
    );
    directory.leave(
        "3-3-0.counters",
        [u64::MAX, 1, u64::MAX, here.namespace],
        |_| {},
    );
    fs::write(path("4-1-0.counters"), "short").unwrap();
    fs::create_dir(path("4-2-0.counters")).unwrap();
    for name in [
        "5-1.counters",
        "5-1-0-0.counters",
        "5--0.counters",
        "a-1-0.counters",
        "5-1-0.json",
    ] {
        directory.leave(name, mine, |_| {});
    }
    let found = directory.read();
    assert!(found.processes.is_empty(), "{found:?}");
    assert_eq!((found.other_versions, found.cut_off), (0, false));

    // Files of other versions are counted, by the magic number, the layout or the length.
    directory.leave("6-1-0.counters", mine, |words| {
        words[header::MAGIC] ^= 1 << 63
    });
    directory.leave("6-2-0.counters", mine, |words| words[header::LAYOUT] ^= 1);
    directory.leave("6-3-0.counters", mine, |_| {});
    let longer = File::options()
        .write(true)
        .open(path("6-3-0.counters"))
        .unwrap();
    longer.set_len(1 << 30).unwrap();
    assert_eq!(directory.read().other_versions, 3);
    directory.leave("7-1-0.counters", mine, |_| {});
    assert_eq!(directory.read().processes.len(), 1);
}

/// A text may have characters that would change the terminal. A text of another build may have any
/// form, and hides no process.
#[test]
fn a_text_changes_no_terminal_and_hides_no_process() {
    let directory = Directory::new("texts");
    let mine = [own_pid(), 1, u64::MAX, Realm::here().namespace];
    let version = b"0.2.0 (a1b2c3d4\x1b 2026-11-28)\"\0\0\0";
    directory.leave("1-1-0.counters", mine, |words| {
        words[SLOTS] = u64::from_le_bytes(*b"a\x1b[2Jbcd");
        for (at, bytes) in (header::VERSION..).zip(version.chunks_exact(8)) {
            words[at] = u64::from_le_bytes(bytes.try_into().unwrap());
        }
    });
    let [process] = &directory.read().processes[..] else {
        panic!("no process");
    };
    let Snapshot {
        version, backend, ..
    } = &process.snapshot;
    assert_eq!(version, "0.2.0 (a1b2c3d4? 2026-11-28)?");
    assert_eq!(backend, "a?[2Jbcd");
}

/// A process with such a name is shown, and the next program that starts leaves its counters.
#[test]
fn a_process_may_have_a_name_that_is_no_text() {
    let directory = Directory::new("bytes");
    let named = Named::start(b"haproxy-gr\xc3\xb6\xc3");
    let owner = [named.id().into(), 1, u64::MAX, Realm::here().namespace];
    directory.leave("1-1-0.counters", owner, |_| {});
    directory.page(false).withdraw();
    assert_eq!(directory.names(), ["1-1-0.counters"]);
    let [process] = &directory.read().processes[..] else {
        panic!("no process");
    };
    assert!(process.alive);
    assert_eq!(process.name.as_deref(), Some("haproxy-gr\u{f6}\\xc3"));
}
