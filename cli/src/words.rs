//! Parts of messages.

use std::fmt::Display;

/// All of these, as they are shown, with a separator between them.
pub fn joined(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let shown: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    shown.join(separator)
}
