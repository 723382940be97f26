//! Storms.
