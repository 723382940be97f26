//! Publishing counters: a mapped file for each loading of the module, in a directory that only its
//! user reads.
//!
//! The file ([`Page`]) is made when the module is loaded, before a server forks, drops its
//! privileges, changes its root directory or forbids itself system calls. The counters of a process
//! *are* words of that file, in a slot of the process's own. So counting makes no system call, and
//! no descriptor stays open. A forked child takes a slot in the same file.
//!
//! Where the setting `stats_dir` names no directory, a process of root uses `/run/lockstep` and any
//! other `/dev/shm/lockstep-UID`; `/tmp/lockstep-UID` serves where that fails. Each is made on
//! demand, with mode 0700, and used only if it belongs to the user and no other user may enter it.
//! A directory that another user has made there is left out.
//!
//! The file is removed when its last process ends. Files of killed processes are removed when a
//! program of that user next loads the module. Only processes of the same PID namespace decide that
//! a process has ended: containers that share a directory leave each other's files alone.
//!
//! # Examples
//!
//! A process publishes its counters, and another one reads them:
//!
//! ```
//! use lockstep_counters::{Counters, Fallback, Page, StatsDir, read_stats};
//!
//! # let directory = lockstep_testkit::TempDir::new("example").to_path_buf();
//! # std::fs::create_dir(&directory).expect("a directory");
//! let place = StatsDir::At(directory.clone());
//! let page = Page::create(&place, false).expect("a file").expect("a place");
//! let counters = Counters::new("avx512ifma", 4, Some(&page));
//! counters.fallback(Fallback::Lone);
//!
//! let processes = read_stats(&directory).expect("a directory that this user can read");
//! assert_eq!(processes[0].pid, std::process::id());
//! assert_eq!(processes[0].snapshot.fallbacks_for(Fallback::Lone), 1);
//! page.withdraw();
//! assert!(read_stats(&directory).expect("a directory").is_empty());
//! # std::fs::remove_dir(&directory).expect("an empty directory");
//! ```

#![forbid(unsafe_code)]

mod counters;
mod directory;
mod external_event;
mod fallback;
mod layout;
mod page;
mod permit;
mod plain;
mod process;
mod reader;
mod snapshot;
mod syslog;
mod version;
pub mod way;

pub use counters::{Counters, Waits};
pub use directory::StatsDir;
pub use external_event::{ExternalEvent, Unpaused};
pub use fallback::Fallback;
pub use page::{Page, Unpublished};
pub use permit::Permit;
pub use plain::{is_plain, plain};
pub use reader::{ProcessStats, Published, read_default_stats, read_published, read_stats};
pub use snapshot::Snapshot;
pub use syslog::{LONGEST_PATH, Syslog, warn_of_mistakes, warn_of_shared_memory};
pub use version::version;

#[cfg(test)]
mod tests;
