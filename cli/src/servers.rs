//! The servers that Lockstep knows: their files, the service that starts each, and their own
//! configurations.

pub mod drop_in;
pub mod hybrid;
mod limits;
pub mod named;
mod server;
pub mod site;
pub mod starter;

pub use server::{CONF, SERVERS, Server, UNIT, server_called, server_names, units};
