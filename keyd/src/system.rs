//! Calls of the operating system and of systemd, which all other parts share.

pub mod accounts;
pub mod log;
pub mod memory;
pub mod privileges;
pub mod stack;
pub mod systemd;
