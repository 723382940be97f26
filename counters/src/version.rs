//! The version of a build: the number of the release, and the commit.
//!
//! `cargo xtask dist` writes the commit into the module and the programs once they are built, so
//! that a new commit compiles nothing.

use std::sync::atomic::{AtomicU8, Ordering};

/// The text by which `cargo xtask dist` finds the place of the commit.
const MARK: &[u8; 24] = b"lockstep was built from:";
/// The length of that place.
const LENGTH: usize = 32;

/// The mark, and behind it the commit, or zeros. A used static of atomics may have any value at run
/// time, so the compiler folds no load of it.
#[used]
static PLACE: [AtomicU8; MARK.len() + LENGTH] = {
    let mut place = [const { AtomicU8::new(0) }; MARK.len() + LENGTH];
    let mut at = 0;
    while at < MARK.len() {
        place[at] = AtomicU8::new(MARK[at]);
        at += 1;
    }
    place
};

/// Returns the version of this build, like `0.2.0+8ce81adafe.20261128`: the number, the commit, and
/// the day of the commit (UTC). `.dirty` at the end says that files differed from the commit.
/// `0.2.0+source` was built without a commit.
pub fn version() -> String {
    let place = PLACE[MARK.len()..].iter();
    let commit = place.map(|byte| byte.load(Ordering::Relaxed));
    let commit: String = commit
        .take_while(|byte| *byte != 0)
        .map(char::from)
        .collect();
    let commit = match commit.is_empty() {
        true => "source",
        false => &commit,
    };
    format!("{}+{commit}", env!("CARGO_PKG_VERSION"))
}
