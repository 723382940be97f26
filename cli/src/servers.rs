//! The servers that Lockstep knows: their files, the service that starts each, and their own
//! configurations.

pub mod drop_in;
pub mod global;
pub mod hybrid;
pub mod named;
mod server;
pub mod site;
pub mod starter;

pub use server::{
    CONF, DROP_IN, SERVERS, Server, drop_in_of, marked, others, server, server_called,
    service_name, units,
};
