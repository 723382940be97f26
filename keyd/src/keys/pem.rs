//! Files in PEM, by OpenSSL's rules.
//!
//! A byte order mark at the start of a file is ignored, and so are blanks at the end of a line. The
//! lines of a block have any length. Only the lines behind an empty line, which ends a header, must
//! have 64 characters, and the last one at most 64.

use std::iter;

use base64ct::{Base64, Encoding as _};
use zeroize::Zeroizing;

/// Start of a line that begins or ends a block.
pub const DASHES: &str = "-----";
/// End of the label of each block with a private key.
pub const PRIVATE: &str = "PRIVATE KEY";

/// A block of a text.
pub struct Block<'a> {
    /// Name of its contents, from its first line.
    pub label: &'a str,
    /// Number of its first line.
    pub number: usize,
    /// Lines between its first and its last one.
    pub lines: Vec<&'a [u8]>,
    /// Whether the line after these lines ends the block.
    pub is_whole: bool,
}

/// Returns the lines of a text, with their numbers.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    // Where `char` is signed, OpenSSL treats bytes beyond ASCII as blanks.
    let is_visible = |byte: &u8| byte.is_ascii() && *byte > b' ';
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let lines =
        lines.map(move |line| &line[..line.iter().rposition(is_visible).map_or(0, |at| at + 1)]);
    (1..).zip(lines)
}

/// Returns the blocks of a text. Any line that starts with dashes ends a block, so no block
/// contains a part of another one.
pub fn blocks(text: &[u8]) -> impl Iterator<Item = Block<'_>> {
    let mut lines = lines(text).peekable();
    iter::from_fn(move || {
        let (number, label) = lines.find_map(|(number, line)| Some((number, begin(line)?)))?;
        let is_inner = |(_, line): &(usize, &[u8])| !line.starts_with(DASHES.as_bytes());
        let inner = iter::from_fn(|| lines.next_if(is_inner)).map(|(_, line)| line);
        let inner = inner.collect();
        let end = format!("{DASHES}END {label}{DASHES}");
        let is_whole = lines
            .peek()
            .is_some_and(|(_, line)| *line == end.as_bytes());
        #[rustfmt::skip]
        let block = Block { label, number, lines: inner, is_whole };
        Some(block)
    })
}

/// Returns the label of the block that begins with this line.
fn begin(line: &[u8]) -> Option<&str> {
    let label = line
        .strip_prefix(b"-----BEGIN ")?
        .strip_suffix(DASHES.as_bytes())?;
    str::from_utf8(label)
        .ok()
        .filter(|label| !label.contains(DASHES))
}

impl Block<'_> {
    /// Returns whether it has a header of legacy encryption (RFC 1421).
    pub fn is_encrypted(&self) -> bool {
        self.lines
            .iter()
            .any(|line| line.starts_with(b"Proc-Type:"))
    }

    /// Returns its bytes, unless it is damaged or encrypted.
    pub fn decoded(&self) -> Option<Zeroizing<Vec<u8>>> {
        /// Maximum length of a header that is ignored.
        const HEADER: usize = 10;
        let mut lines = &self.lines[..];
        if let Some(empty) = lines.iter().position(|line| line.is_empty()) {
            let header: usize = lines[..empty].iter().map(|line| line.len() + 1).sum();
            lines = &lines[empty + 1..];
            let (last, before) = lines.split_last()?;
            let are_full = before.iter().all(|line| line.len() == 64);
            if header > HEADER || !are_full || !(1..=64).contains(&last.len()) {
                return None;
            }
        }
        let length = lines.iter().map(|line| line.len()).sum();
        let mut text = Zeroizing::new(Vec::with_capacity(length));
        let letters = lines.iter().copied().flatten();
        text.extend(letters.filter(|byte| !b" \t\r".contains(byte)));
        // A dash ends the contents.
        let length = text
            .iter()
            .position(|byte| *byte == b'-')
            .unwrap_or(text.len());
        let mut bytes = Zeroizing::new(vec![0; length / 4 * 3]);
        let length = Base64::decode(&text[..length], &mut bytes).ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}
