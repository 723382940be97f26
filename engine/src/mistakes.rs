//! Mistakes in settings. Only the setting with the mistake has no effect; the lanes and the other
//! settings work. The system's log, `lockstep stat` and `lockstep doctor` name the mistake.

use std::fmt;

use lockstep_counters::{plain, version};

/// Maximum number of letters of a name, a value or a reason in a message.
const LONGEST: usize = 120;
/// Maximum number of mistakes that are kept. Further ones are counted.
const MOST: usize = 8;

/// All mistakes in the settings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    first: Vec<ConfigError>,
    more: usize,
}

impl Mistakes {
    /// Adds a mistake.
    pub fn add(&mut self, mistake: ConfigError) {
        match self.first.len() < MOST {
            true => self.first.push(mistake),
            false => self.more += 1,
        }
    }

    /// Returns the first mistake.
    pub fn first(&self) -> Option<&ConfigError> {
        self.first.first()
    }

    /// Returns whether there is no mistake.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }
}

/// Writes all mistakes in one line, which is empty if there are none.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, mistake) in self.first.iter().enumerate() {
            let separator = if number > 0 { "; " } else { "" };
            write!(f, "{separator}{mistake}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    key: String,
    problem: String,
}

impl ConfigError {
    /// Returns the mistake of an unknown setting. It names the setting that was probably meant, or
    /// else all.
    pub(crate) fn unknown(key: &str, known: &[&str]) -> ConfigError {
        let key = shown(key);
        let problem = match nearest(&key, known) {
            Some((near, _)) => format!("is not a setting; is {near} meant?"),
            None => {
                let (version, names) = (version(), known.join(", "));
                format!("is not a setting of lockstep {version}; there are {names}")
            }
        };
        ConfigError { key, problem }
    }

    /// Returns the mistake of a variable of the environment whose name is nearly that of a setting.
    /// Any other variable may belong to another program.
    pub(crate) fn misspelt(variable: &str, known: &[&str]) -> Option<ConfigError> {
        let name = shown(variable.strip_prefix("LOCKSTEP_")?).to_lowercase();
        let (near, edits) = nearest(&name, known)?;
        // A short name is near to many other words.
        (3 * edits <= name.len()).then(|| ConfigError {
            key: shown(variable),
            problem: format!(
                "is not a setting; is LOCKSTEP_{} meant?",
                near.to_uppercase()
            ),
        })
    }

    /// Returns the mistake of a value that is not possible for the setting.
    pub(crate) fn value(key: &str, value: &str, wanted: &str) -> ConfigError {
        ConfigError {
            key: key.to_owned(),
            problem: format!("is '{}', but must be {wanted}", shown(value)),
        }
    }

    /// Returns the mistake of a value that is possible for the setting and cannot be used here.
    pub(crate) fn impossible(key: &str, reason: &str) -> ConfigError {
        ConfigError {
            key: key.to_owned(),
            problem: format!("cannot be followed: {}", shown(reason)),
        }
    }

    /// Returns the same mistake, under the name of a variable of the environment.
    pub fn of_variable(self, variable: String) -> ConfigError {
        ConfigError {
            key: variable,
            ..self
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// Returns a text from outside as plain text.
fn shown(text: &str) -> String {
    plain(text, LONGEST)
}

/// Returns the setting whose name differs the least from `name`, and the number of letters that
/// differ; `None` if these are more than two.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<(&'a str, usize)> {
    let distances = known.iter().map(|known| (*known, distance(name, known)));
    let nearest = distances.min_by_key(|(_, edits)| *edits);
    nearest.filter(|(_, edits)| *edits <= 2)
}

/// Returns the number of letters that must be inserted, removed or replaced to turn one word into
/// the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.chars().count()]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use lockstep_counters::is_plain;

    use super::*;

    const KNOWN: [&str; 3] = ["lone", "slots", "stats_dir"];

    #[test]
    fn words_are_as_far_apart_as_edits() {
        for (a, b, edits) in [
            ("", "", 0),
            ("slot", "slots", 1),
            ("lnoe", "lone", 2),
            ("a", "xyz", 3),
        ] {
            assert_eq!(distance(a, b), edits);
            assert_eq!(distance(b, a), edits);
        }
    }

    #[test]
    fn only_a_variable_that_is_nearly_a_setting_is_a_mistake() {
        let mistake = ConfigError::misspelt("LOCKSTEP_STAT_DIR", &KNOWN).unwrap();
        let expected = "LOCKSTEP_STAT_DIR is not a setting; is LOCKSTEP_STATS_DIR meant?";
        assert_eq!(mistake.to_string(), expected);
        for other in ["LOCKSTEP_HOME", "LOCKSTEP_", "SLOT"] {
            assert_eq!(ConfigError::misspelt(other, &KNOWN), None, "{other}");
        }
    }

    #[test]
    fn a_message_is_one_line_of_bounded_length_whatever_it_repeats() {
        let hostile = "a\n\x1b[2J\"\\\u{9b}\u{202e}é".repeat(1000);
        let mut mistakes = Mistakes::default();
        for _ in 0..100 {
            mistakes.add(ConfigError::unknown(&hostile, &KNOWN));
            mistakes.add(ConfigError::value("slots", &hostile, "a number"));
            mistakes.add(ConfigError::impossible("stats_dir", &hostile));
        }
        let line = mistakes.to_string();
        assert!(line.chars().all(is_plain), "{line}");
        assert!(line.len() < MOST * 600, "{}", line.len());
        assert!(line.ends_with("; and 292 more"), "{line}");
        assert_eq!(Mistakes::default().to_string(), "");
    }
}
