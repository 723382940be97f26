//! The failure of a library that does not take a key.

use lockstep_common::Failure;

pub fn bad_key(name: &str) -> Failure {
    Failure::new(format!("{name} cannot read a key"))
}
