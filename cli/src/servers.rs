//! The servers that Lockstep knows: their files, what starts them, and what their own
//! configurations say.

pub mod drop_in;
pub mod hybrid;
mod limits;
pub mod named;
mod server;
pub mod site;
pub mod starter;

pub use server::{CONF, SERVERS, Server, UNIT, server_called, server_names, units};
