//! Interfaces to the kernel, to systemd and to the log. All other parts use them.

pub mod accounts;
pub mod log;
pub mod privileges;
pub mod stack;
pub mod systemd;
pub mod trusted;
