//! The version of a build.

/// Returns the version of this build.
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}
