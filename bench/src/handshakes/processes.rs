//! CPU time of a server: of its process and of all processes below it, also of ended ones.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, kill_process};

/// A process as `/proc/PID/stat` describes it.
struct Entry {
    pid: u32,
    parent: u32,
    /// Clock ticks of all its threads, also of ended ones.
    ticks: u64,
    /// Clock ticks of its children that have ended and were waited for.
    ticks_of_children: u64,
    /// Whether it has ended, and nobody has waited for it yet.
    has_ended: bool,
}

impl Entry {
    fn parse(stat: &str) -> Option<Entry> {
        // The second field, in parentheses, may hold anything.
        let (head, tail) = stat.rsplit_once(')')?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Entry {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            // utime, stime, cutime, cstime: fields 14 to 17 of proc(5), where the state is the
            // third.
            ticks: ticks(11)? + ticks(12)?,
            ticks_of_children: ticks(13)? + ticks(14)?,
            has_ended: fields[0] == "Z",
        })
    }

    fn read(directory: &Path) -> Option<Entry> {
        let stat = fs::read(directory.join("stat")).ok()?;
        Entry::parse(&String::from_utf8_lossy(&stat))
    }

    /// A process and all below it.
    fn tree(root: u32) -> Vec<Entry> {
        let listing = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut others: Vec<Entry> = listing
            .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
            .filter_map(|entry| Entry::read(&entry.path()))
            .collect();
        let mut tree: Vec<Entry> = Vec::new();
        loop {
            let of_tree = |entry: &Entry| {
                entry.pid == root || tree.iter().any(|member| member.pid == entry.parent)
            };
            let (found, rest): (Vec<Entry>, Vec<Entry>) = others.into_iter().partition(of_tree);
            if found.is_empty() {
                return tree;
            }
            tree.extend(found);
            others = rest;
        }
    }
}

/// The numbers of a process and of all below it.
pub fn ids(root: u32) -> Vec<u32> {
    Entry::tree(root).iter().map(|entry| entry.pid).collect()
}

/// The CPU time that a process and all processes below it have used so far.
///
/// The system's figure for a process is rounded down to ticks of 10 ms. Its figure for a thread is
/// exact, but gone with the thread. The greater is the better: exact where threads stay, else to
/// the tick.
pub fn cpu_time(root: u32) -> Duration {
    let times = Entry::tree(root).into_iter().map(|entry| {
        of_threads(entry.pid).max(from_ticks(entry.ticks)) + from_ticks(entry.ticks_of_children)
    });
    times.sum()
}

fn from_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
}

/// Of the threads that a process has now.
fn of_threads(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let nanoseconds = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
    Duration::from_nanos(nanoseconds.sum())
}

/// Whether a child of this process has not ended.
pub fn is_running(child: u32) -> bool {
    let entry = Entry::read(Path::new(&format!("/proc/{child}")));
    entry.is_some_and(|entry| !entry.has_ended)
}

/// Sends a signal to those below a process; they may outlive it otherwise.
pub fn signal_descendants(root: u32, signal: Signal) {
    for entry in Entry::tree(root) {
        let pid = i32::try_from(entry.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| entry.pid != root) {
            // It may have ended in the meantime.
            let _ = kill_process(pid, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command, Stdio};
    use std::time::Instant;

    use super::*;

    #[test]
    fn time_of_threads_and_children_counts() {
        let before = cpu_time(process::id());
        let spin = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(120) {
                std::hint::spin_loop();
            }
        };
        std::thread::spawn(spin).join().unwrap();
        let of_thread = cpu_time(process::id()) - before;
        assert!(of_thread >= Duration::from_millis(20), "{of_thread:?}");

        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'while :; do :; done' & wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let busy = |child: &process::Child| cpu_time(child.id()) >= Duration::from_millis(50);
        while !busy(&child) {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(is_running(child.id()));
        signal_descendants(child.id(), Signal::KILL);
        while is_running(child.id()) {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        child.wait().unwrap();
    }

    #[test]
    fn names_of_processes_may_hold_anything() {
        let stat = "17 (a) b (c) S 4 17 17 0 -1 4194560 1 2 3 4 100 20 3 1 20 0 1 0 55 0";
        let entry = Entry::parse(stat).unwrap();
        assert_eq!((entry.pid, entry.parent), (17, 4));
        assert_eq!((entry.ticks, entry.ticks_of_children), (120, 4));
        assert!(Entry::parse("17 (a) S 4").is_none());
    }
}
