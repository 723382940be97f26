//! The configuration that is looked at, and the module that it names.

use std::path::{Path, PathBuf};

use crate::effective::{Effective, Provider};
use crate::failure::Failure;
use crate::module_file::damage;

/// The configuration that is looked at.
pub struct Configuration {
    /// What it has OpenSSL do.
    pub effective: Effective,
    /// Whether the environment names it.
    pub in_use: bool,
}

impl Configuration {
    /// The one that the environment names, or else the one beside this program.
    pub fn find() -> Result<Configuration, Failure> {
        let named = std::env::var_os("OPENSSL_CONF").map(PathBuf::from);
        let in_use = named.is_some();
        let path = match named {
            Some(path) => path,
            None => beside("openssl.cnf").ok_or_else(|| {
                Failure::new(
                    "OPENSSL_CONF is not set and there is no openssl.cnf beside this program",
                )
                .remedy("name a configuration with OPENSSL_CONF; `cargo xtask dist` makes dist/openssl.cnf")
            })?,
        };
        Configuration::at(&path, in_use)
    }

    /// This one.
    pub fn at(path: &Path, in_use: bool) -> Result<Configuration, Failure> {
        let effective = Effective::read(path)?;
        Ok(Configuration { effective, in_use })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.effective.path
    }

    /// The provider that is lockstep.
    pub fn provider(&self) -> Option<Provider> {
        let mut providers = self.effective.providers().into_iter();
        providers.find(Provider::is_lockstep)
    }

    /// The module that it names, if that is one.
    pub fn module(&self) -> Result<PathBuf, Failure> {
        let shown = self.path().display();
        let Some(module) = self.provider().and_then(|provider| provider.module) else {
            return Err(Failure::new(format!(
                "{shown} names no module lockstep.so, so programs that use it run without lockstep"
            ))
            .remedy(match beside("openssl.cnf") {
                Some(path) => format!("use another configuration: OPENSSL_CONF={}", path.display()),
                None => "let OPENSSL_CONF name the openssl.cnf that `cargo xtask dist` writes"
                    .to_owned(),
            }));
        };
        if !module.exists() {
            return Err(Failure::new(format!(
                "{shown} names {}, which is not there, so programs that use it run without lockstep",
                module.display()
            ))
            .remedy("put the module there (cargo xtask dist), or correct `module` in that file"));
        }
        match damage(&module) {
            None => Ok(module),
            Some(damage) => Err(Failure::new(format!(
                "{}, which {shown} names, {damage}",
                module.display()
            ))
            .remedy(
                "put the module there again (cargo xtask dist --out DIR), readable by every user",
            )),
        }
    }
}

/// A file in the directory of this program.
pub fn beside(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let path = program.parent()?.join(name);
    path.is_file().then_some(path)
}
