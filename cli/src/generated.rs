//! Configurations that this program has made: their first line marks them, and a checksum shows
//! whether somebody has changed one. The checksum leaves out the settings of the module at the end:
//! they belong to the administrator, and stay when the rest is made anew.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Text before and after the path of the configuration that this one was made from.
const ORIGIN: (&str, &str) = (
    "# Written by `lockstep configuration`: ",
    " with lockstep loaded.",
);
const CHECKSUM: &str = "# Checksum of the lines from here to the settings: ";
const SETTINGS: &str = "# Settings of the module follow; they stay when this file is made anew.\n";

/// A configuration that this program has made.
pub struct Made {
    /// The configuration that it was made from.
    pub origin: PathBuf,
    /// Text before the settings.
    pub text: String,
    /// Settings of the module, which follow the text.
    pub settings: String,
    /// Whether nobody has changed the text.
    pub is_intact: bool,
}

/// The text of a configuration that was made from `origin`: a head with a checksum, then `body`.
/// `body` ends within the module's section, so that settings can follow.
pub fn made(origin: &Path, body: &str) -> String {
    let (before, after) = ORIGIN;
    let body = format!("{body}{SETTINGS}");
    format!(
        "{before}{}{after}\n# Use it with OPENSSL_CONF=<this file>. Paths are absolute.\n\
         {CHECKSUM}{}\n{body}",
        origin.display(),
        checksum(&body)
    )
}

impl Made {
    /// Parses a configuration that this version of the program or an older one has made; `None` for
    /// other texts.
    pub fn parse(text: &str) -> Option<Made> {
        let (before, after) = ORIGIN;
        let first = text.lines().next()?;
        let origin = first.strip_prefix(before)?.strip_suffix(after)?;
        let end = text.find(SETTINGS).map(|at| at + SETTINGS.len());
        let (text, settings) = text.split_at(end.unwrap_or(text.len()));
        let sealed = text
            .split_once(CHECKSUM)
            .and_then(|(_, rest)| rest.split_once('\n'));
        Some(Made {
            origin: PathBuf::from(origin),
            is_intact: sealed.is_some_and(|(sum, body)| sum == checksum(body)),
            text: text.to_owned(),
            settings: settings.to_owned(),
        })
    }

    /// Whether this configuration equals `now`, apart from the module's path and the checksum.
    pub fn is_like(&self, now: &str) -> bool {
        let same = |line: &&str| !line.starts_with("module = ") && !line.starts_with(CHECKSUM);
        let lines = self.text.lines().filter(same);
        lines.eq(now.lines().filter(same))
    }
}

fn checksum(text: &str) -> String {
    let sum = Sha256::digest(text);
    sum[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_noticed_and_settings_do_not_count_as_changes() {
        let text = made(
            Path::new("/etc/ssl/openssl.cnf"),
            "a = b\n[l]\nmodule = m\n",
        );
        let parsed = Made::parse(&text).unwrap();
        assert_eq!(parsed.origin, Path::new("/etc/ssl/openssl.cnf"));
        assert_eq!(
            (parsed.text.as_str(), parsed.settings.as_str()),
            (text.as_str(), "")
        );
        assert!(parsed.is_intact);
        let set = Made::parse(&format!("{text}slots = 2\n")).unwrap();
        assert_eq!(
            (set.is_intact, set.settings.as_str()),
            (true, "slots = 2\n")
        );
        assert!(
            !Made::parse(&text.replace("a = b", "a = c"))
                .unwrap()
                .is_intact
        );
        let without = text.replace(SETTINGS, "");
        assert!(!Made::parse(&without).unwrap().is_intact);
        assert!(Made::parse("a = b\n").is_none());
        let now = |body: &str| made(Path::new("/etc/ssl/openssl.cnf"), body);
        assert!(parsed.is_like(&now("a = b\n[l]\nmodule = n\n")));
        assert!(!parsed.is_like(&now("a = c\n[l]\nmodule = m\n")));
    }
}
