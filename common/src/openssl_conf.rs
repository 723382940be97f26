//! The configuration to examine, and the module that it names.

use std::path::{Path, PathBuf};

use crate::effective::{Effective, Provider};
use crate::failure::Failure;
use crate::module_file::damage;
use crate::trust::insist_on_own;

/// The configuration that a command examines.
pub struct Configuration {
    /// Its effect on OpenSSL.
    pub effective: Effective,
    /// Whether the environment names the configuration.
    pub in_use: bool,
}

impl Configuration {
    /// Finds the configuration: the file that the environment names, the file beside this program,
    /// or the file that `lockstep install` has made.
    pub fn find() -> Result<Configuration, Failure> {
        let named = std::env::var_os("OPENSSL_CONF").map(PathBuf::from);
        let in_use = named.is_some();
        let path = match named {
            Some(path) => path,
            None => beside("openssl.cnf").or_else(installed).ok_or_else(|| {
                Failure::new(format!(
                    "OPENSSL_CONF is not set, and there is no openssl.cnf beside this program and \
                     no /{INSTALLED}"
                ))
                .remedy("`lockstep install` makes one; or name a configuration with OPENSSL_CONF")
            })?,
        };
        insist_on_own(&path)?;
        Configuration::at(&path, in_use)
    }

    /// Reads the configuration in a file.
    pub fn at(path: &Path, in_use: bool) -> Result<Configuration, Failure> {
        let effective = Effective::read(path)?;
        Ok(Configuration { effective, in_use })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.effective.path
    }

    /// The provider lockstep.
    pub fn provider(&self) -> Option<Provider> {
        let mut providers = self.effective.providers().into_iter();
        providers.find(Provider::is_lockstep)
    }

    /// Returns the module that the configuration names. Fails if the file of the module is missing
    /// or cannot be a module.
    pub fn module(&self) -> Result<PathBuf, Failure> {
        let shown = self.path().display();
        let Some(module) = self.provider().and_then(|provider| provider.module) else {
            return Err(Failure::new(format!(
                "{shown} names no module lockstep.so, so programs that use it run without lockstep"
            ))
            .remedy(match beside("openssl.cnf").or_else(installed) {
                Some(path) => format!("use another configuration: OPENSSL_CONF={}", path.display()),
                None => "let OPENSSL_CONF name the one that `lockstep install` makes, or a file \
                         with what `lockstep configuration` prints"
                    .to_owned(),
            }));
        };
        if !module.exists() {
            return Err(Failure::new(format!(
                "{shown} names {}, which is not there, so programs that use it run without lockstep",
                module.display()
            ))
            .remedy(
                "install lockstep's package again, or put the module there (cargo xtask dist), or \
                 correct `module` in that file",
            ));
        }
        match damage(&module) {
            None => Ok(module),
            Some(damage) => Err(Failure::new(format!(
                "{}, which {shown} names, {damage}",
                module.display()
            ))
            .remedy(
                "put the module there again, readable by every user: by lockstep's package, or by \
                 cargo xtask dist --out DIR",
            )),
        }
    }
}

/// Path, under the root, of the configuration that `lockstep install` makes where there is none
/// beside the program.
pub const INSTALLED: &str = "etc/lockstep/openssl.cnf";

fn installed() -> Option<PathBuf> {
    let path = Path::new("/").join(INSTALLED);
    path.is_file().then_some(path)
}

/// The module of this program: beside it, or in the place of the packages.
pub fn own_module() -> Result<PathBuf, Failure> {
    const PLACES: [&str; 2] = [
        "../lib/x86_64-linux-gnu/ossl-modules/lockstep.so",
        "../lib64/ossl-modules/lockstep.so",
    ];
    let found = beside("lockstep.so").or_else(|| PLACES.into_iter().find_map(beside));
    found
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            Failure::new(
            "there is no lockstep.so beside this program nor where packages put it, so it does not \
             know which module to load",
        )
        .remedy("name the module with --module")
        })
}

/// A file in the directory of this program.
pub fn beside(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let path = program.parent()?.join(name);
    path.is_file().then_some(path)
}
