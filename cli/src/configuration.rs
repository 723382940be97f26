//! The configuration file by which OpenSSL programs load the module.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

/// What that file says.
pub struct Configuration {
    pub path: PathBuf,
    /// Whether the environment names it.
    pub in_use: bool,
    text: String,
}

impl Configuration {
    /// The one that the environment names, or else the one beside this program.
    pub fn find() -> Result<Configuration, Failure> {
        let named = std::env::var_os("OPENSSL_CONF").map(PathBuf::from);
        let in_use = named.is_some();
        let path = match named {
            Some(path) => path,
            None => beside_this_program().ok_or_else(|| {
                Failure::new(
                    "OPENSSL_CONF is not set and there is no openssl.cnf beside this program",
                )
                .remedy("cargo xtask dist, then OPENSSL_CONF=dist/openssl.cnf dist/lockstep doctor")
            })?,
        };
        Configuration::at(path, in_use)
    }

    /// This one.
    pub fn at(path: PathBuf, in_use: bool) -> Result<Configuration, Failure> {
        let text = fs::read_to_string(&path).map_err(|error| {
            Failure::new(format!("cannot read {}: {error}", path.display()))
                .remedy("let OPENSSL_CONF name the openssl.cnf that `cargo xtask dist` writes")
        })?;
        Ok(Configuration { path, in_use, text })
    }

    /// The module that it names, if that is there.
    pub fn module(&self) -> Result<PathBuf, Failure> {
        let shown = self.path.display();
        let module =
            self.text
                .lines()
                .filter_map(|line| line.split('#').next()?.split_once('='))
                .filter(|(key, _)| key.trim() == "module")
                .map(|(_, value)| PathBuf::from(value.trim()))
                .find(|path| path.file_name().is_some_and(|name| name == "lockstep.so"))
                .ok_or_else(|| {
                    Failure::new(format!("{shown} names no module lockstep.so"))
                        .remedy(match beside_this_program() {
                        Some(path) => format!("OPENSSL_CONF={}", path.display()),
                        None => {
                            "let OPENSSL_CONF name the openssl.cnf that `cargo xtask dist` writes"
                                .to_owned()
                        }
                    })
                })?;
        if module.is_file() {
            return Ok(module);
        }
        Err(Failure::new(format!(
            "{shown} names {}, which is not there",
            module.display()
        ))
        .remedy("cargo xtask dist, or correct `module` in that file"))
    }
}

/// `openssl.cnf` in the directory of this program.
pub fn beside_this_program() -> Option<PathBuf> {
    let path = std::env::current_exe()
        .ok()?
        .parent()
        .map(Path::to_path_buf)?
        .join("openssl.cnf");
    path.is_file().then_some(path)
}
