//! Code that the programs `lockstep` and `lockstep-bench` share: the command line
//! ([`arguments()`]), failures with their remedies ([`Failure`]), the pages of the manual that
//! messages name ([`Manual`]), standard output, temporary directories, the `openssl.cnf` that loads
//! the module ([`Configuration`]), and the files from which root may take code.
//!
//! The crate has no command of its own.
#![forbid(unsafe_code)]

mod arguments;
mod effective;
mod failure;
mod guard;
mod manual;
mod module_file;
mod openssl_conf;
mod output;
mod programs;
mod scratch;
mod terminal;
mod trust;

pub use arguments::{Documents, arguments};
pub use effective::{Effective, Properties, Provider, quoted};
pub use failure::{Failure, Outcome, conclude};
pub use manual::Manual;
pub use module_file::damage;
pub use openssl_conf::{Configuration, INSTALLED, beside, own_module};
pub use output::write;
pub use programs::{program, search_path};
pub use scratch::Scratch;
pub use terminal::{
    fit_for_terminal, is_unfit_for_terminal, json_for_terminal, line_for_terminal, word_for_shell,
};
pub use trust::{insist_on_own, insist_on_own_file, is_root, others_can_change};
