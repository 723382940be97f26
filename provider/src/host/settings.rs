//! The module's settings in `openssl.cnf`.
//!
//! The core returns the value of a key of the provider's section, and does not list the section's
//! keys. So an unknown name goes unnoticed here. The module does not read the file to find unknown
//! names, since that would slow down every program; `lockstep doctor`, `stat` and `install` do.

use lockstep_engine::{Config, Setting};

use crate::host::loader::Core;

/// Reads the settings in the provider's section of the configuration.
pub fn read(core: &Core) -> Config {
    let names = Setting::readable().map(|setting| setting.name);
    Config::from_pairs(names.filter_map(|name| Some((name.to_owned(), core.param(name)?))))
}
