//! Servers of the distribution with the module: the recipes of `docs/user/servers`, run as they
//! stand there, and what servers must live through.
//!
//! `site` reads a recipe and runs it, `client` shakes hands and misbehaves, `ledger` counts what a
//! server holds of memory, `daemon` has the key daemon hold its key, which `keyd` tries, `sabotage`
//! has `lockstep doctor` name what is wrong. `kamailio` is a server whose processes share OpenSSL's
//! objects. All of it happens without privileges, in a directory
//! under `/tmp`, one server at a time. A server that is not installed is passed over with a line.

mod client;
#[path = "../provider/compiler.rs"]
mod compiler;
mod daemon;
mod kamailio;
mod keyd;
mod ledger;
mod recipes;
mod sabotage;
mod site;
mod storms;
