//! Clients: their admission, their limits, and the checks of their requests.

pub mod client;
pub mod doorkeeper;
pub mod idlers;
pub mod journal;
pub mod padding;
pub mod porch;
pub mod rate;
pub mod request;
