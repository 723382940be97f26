//! Servers of the distribution with the module: the recipes of `docs/user/servers`, run as they
//! stand there, and events that servers must survive.
//!
//! `site` reads a recipe and runs it, `client` shakes hands and misbehaves, `ledger` counts the
//! memory of a server, `daemon` has the key daemon hold its key, which `keyd` tries, `sabotage`
//! breaks a set-up and has `lockstep doctor` name the fault. `kamailio` is a server whose processes
//! share OpenSSL's objects. All of it happens without privileges, in a directory under `/tmp`, one
//! server at a time. A server that is not installed is passed over with a line.

mod client;
#[path = "../provider/compiler.rs"]
mod compiler;
mod daemon;
mod kamailio;
mod keyd;
mod ledger;
mod recipes;
mod renewal;
mod sabotage;
mod site;
mod storms;
