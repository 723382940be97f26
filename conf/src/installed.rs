//! The OpenSSL that is installed.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::ffi::{self, libcrypto, text};

/// Facts that libcrypto reports about itself.
pub struct Installed {
    /// Text of the version, such as `OpenSSL 3.0.19 27 Jan 2026`.
    pub version: String,
    /// Number of the version, such as 0x3000_0130.
    pub number: u64,
    /// Directory of libcrypto's configuration.
    pub directory: PathBuf,
}

/// Asks the newest libcrypto that is installed.
///
/// # Errors
/// No libcrypto is installed, or it names no directory for its configuration.
pub fn installed() -> Result<Installed, Error> {
    let libcrypto = libcrypto()?;
    // SAFETY: each is a text that stays.
    let [version, directory] = [ffi::VERSION, ffi::DIRECTORY]
        .map(|what| unsafe { text(libcrypto.OpenSSL_version(what)) }.unwrap_or_default());
    let directory = directory
        .strip_prefix("OPENSSLDIR: \"")
        .and_then(|rest| rest.strip_suffix('"'))
        .map(|directory| Path::new(directory).to_owned())
        .ok_or_else(|| {
            Error::new(format!(
                "libcrypto names no directory for its configuration: {directory}"
            ))
        })?;
    Ok(Installed {
        version,
        // SAFETY: the function takes no arguments.
        number: unsafe { libcrypto.OpenSSL_version_num() },
        directory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_one_that_the_command_names() {
        let installed = installed().unwrap();
        let answer = std::process::Command::new("openssl")
            .args(["version", "-v", "-d"])
            .output()
            .expect("the openssl command");
        let answer = String::from_utf8(answer.stdout).unwrap();
        let (version, directory) = answer.trim_end().split_once('\n').unwrap();
        assert!(version.starts_with(&installed.version), "{version}");
        assert_eq!(
            directory,
            format!("OPENSSLDIR: \"{}\"", installed.directory.display())
        );
        assert_eq!(
            version.split(['.', ' ']).nth(1).unwrap(),
            (installed.number >> 28).to_string()
        );
    }
}
