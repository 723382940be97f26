//! The program that has loaded the module: its libcrypto, memory, stacks, settings and system.

pub mod c_library;
pub mod counted;
pub mod instance;
pub mod loader;
pub mod mapped;
pub mod memory;
pub mod priority;
pub mod query;
pub mod settings;
pub mod shared_memory;
pub mod stack;
