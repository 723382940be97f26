//! Requests and answers between two processes that distrust each other, through shared memory.
//!
//! The key daemon creates one ring per client process ([`Server::create`]) and passes its
//! descriptor once over a Unix socket ([`send`], [`receive`]). From then on the threads of the
//! client claim slots, write requests into them and post them ([`Client::submit`]). The daemon
//! takes posted requests ([`Server::take`]) and answers in place ([`Taken::answer`]). A request
//! does not use the socket. A futex wakes a side that sleeps; a side that is awake costs no system
//! call.
//!
//! **Nothing in the ring is trusted.** The other process may change any byte at any time:
//!
//! - All shared memory is atomics, so a change at a bad moment gives a wrong value and no undefined
//!   behaviour. Each shared word is read once, into private memory, and checked there.
//! - Each side knows the size of the ring from the kernel, which keeps the size of the file sealed.
//! - Each side keeps in private memory which slots are free, which are in flight, and their
//!   generations. No index comes from the ring: a set bit names a slot by its place.
//! - A hostile client can waste its own requests and its own part of the daemon's time. A hostile
//!   daemon can give wrong answers, or none.
//!
//! A client that is killed at any instruction leaves a ring that the daemon drops. A forked child
//! does not inherit the ring: it attaches a ring of its own. The reasons are in
//! `docs/decisions/ring.md`.

mod board;
mod client;
mod fault;
mod layout;
mod memory;
mod server;
mod sleep;
mod sleeper;
#[cfg(not(any(loom, miri)))]
mod socket;
mod sync;
mod watcher;

pub use client::{Call, Client, Lost, Refused, Reply, Sent};
pub use layout::{Answers, INPUT, LONG_OUTPUT, MOST_SLOTS, OUTPUT, ring_bytes, status};
pub use memory::AttachError;
pub use server::{Closing, Faults, Server, Taken};
pub use sleep::Patience;
pub use sleeper::Sleeper;
#[cfg(not(any(loom, miri)))]
pub use socket::{
    Credentials, Received, credentials, has_hung_up, receive, send, tells_senders, unread,
};

// Two attributes each: cargo-mutants recognises modules of tests by `cfg(test)` only.
#[cfg(test)]
#[cfg(miri)]
mod heap_tests;
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod hostile;
#[cfg(test)]
#[cfg(loom)]
mod models;
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod sleeping;
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests;
