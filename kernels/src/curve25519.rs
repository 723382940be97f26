//! x
pub mod field;
pub mod ladder;
