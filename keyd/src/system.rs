//! Calls of the operating system and of systemd, which all other parts share.

pub mod journal;
pub mod memory;
pub mod privileges;
pub mod signals;
pub mod systemd;
