//! Clients: their admission, their limits, and the checks of their requests.

pub mod accept;
pub mod client;
pub mod early_clients;
pub mod idle;
pub mod journal;
pub mod limits;
pub mod padding;
pub mod request;
