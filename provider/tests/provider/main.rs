//! The provider from outside: real programs, with the module loaded as users load it.
//!
//! Whatever passes here with the wrong provider proves nothing, since the default provider answers
//! everything correctly. So every test reads the counters that the processes it started have left,
//! and expects of them how many operations ran on lanes, or why they did not.
//!
//! `common` runs processes and reads counters; `worker` is the multithreaded libcrypto program that
//! several tests start, which is this very executable. The C programs are in `programs/`.

mod common;
mod compiler;
mod keys;
mod worker;

mod aes_gcm;
mod allocations;
mod applications;
mod async_jobs;
mod bad_inputs;
mod bystanders;
mod command;
mod company;
mod configuration;
mod confined;
mod contexts;
mod curve_vectors;
mod curves;
mod decryption;
mod delays;
mod faults;
mod first;
mod foreign;
mod fork;
mod hosts;
mod key_derivation;
mod key_encapsulation;
mod key_memory;
mod long_inputs;
mod memory;
mod neighbours;
mod own_openssl;
mod randomness;
mod references;
mod secrets_left;
mod shared_keys;
mod shared_memory;
mod statistics;
mod syslog;
mod tables;
mod threads;
mod tls;
mod unchanged;
mod vectors;
mod versions;
