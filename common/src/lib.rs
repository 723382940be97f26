//! What the programs `lockstep` and `lockstep-bench` share: the command line, failures with their
//! remedies, the pages that messages name, standard output, directories for a moment, and the
//! `openssl.cnf` that loads the module.
#![forbid(unsafe_code)]

mod arguments;
mod configuration;
mod effective;
mod failure;
mod guard;
mod manual;
mod module_file;
mod output;
mod scratch;

pub use arguments::{Documents, arguments};
pub use configuration::{Configuration, INSTALLED, beside, own_module};
pub use effective::{Effective, Properties, Provider, quoted};
pub use failure::{Failure, Outcome, conclude};
pub use manual::Manual;
pub use module_file::damage;
pub use output::write;
pub use scratch::Scratch;
