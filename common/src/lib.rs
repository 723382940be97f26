//! What the programs `lockstep` and `lockstep-bench` share: failures with their remedies, standard
//! output, directories for a moment, and the `openssl.cnf` that loads the module.
#![forbid(unsafe_code)]

mod configuration;
mod effective;
mod failure;
mod module_file;
mod output;
mod scratch;

pub use configuration::{Configuration, beside};
pub use effective::{Effective, Properties, Provider, quoted};
pub use failure::{Failure, Outcome, conclude};
pub use output::write;
pub use scratch::Scratch;
