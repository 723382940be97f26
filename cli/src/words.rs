//! Parts of messages, and documents.

use std::fmt::Display;

use lockstep_common::Failure;
use serde::Serialize;

/// A document as JSON, in one line.
pub fn json(document: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(document).map_err(|error| Failure::new(error.to_string()))
}

/// All of these, as they are shown, with a separator between them.
pub fn joined(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let shown: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    shown.join(separator)
}
