//! Publishing, as configured: the file of counters, and the mistakes in the settings.

use lockstep_counters::{Page, StatsDir, warn_of_mistakes};

use crate::config::Config;
use crate::mistakes::ConfigError;

impl Config {
    /// Makes the file of counters, and puts the mistakes in the settings there and into the
    /// system's log. A directory that cannot be used is such a mistake; then the default place is
    /// used.
    pub fn publish(&mut self) -> Option<Page> {
        let keep = self.stats_keep;
        let create = |place: &StatsDir| Page::create(place, keep);
        let page = match (create(&self.stats_dir), &self.stats_dir) {
            (Err(reason), StatsDir::At(_)) => {
                let page = create(&StatsDir::Auto);
                // If a limit or a filter of system calls denies every file, the setting is no
                // mistake.
                if reason.is_wrong_place() || page.is_ok() {
                    let named = "stats_dir (or LOCKSTEP_STATS_DIR)";
                    let mistake = ConfigError::impossible(named, &reason.to_string());
                    self.mistakes.add(mistake);
                }
                page
            }
            (page, _) => page,
        };
        let page = page.ok().flatten();
        if !self.mistakes.is_empty() {
            let mistakes = self.mistakes.to_string();
            let is_new = page.as_ref().map(|page| page.note_mistakes(&mistakes));
            if is_new != Some(false) {
                warn_of_mistakes(&self.syslog, &mistakes);
            }
        }
        page
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use lockstep_counters::Syslog;
    use lockstep_testkit::TempDir;

    use super::*;

    /// The directory of counters may lie below a directory whose name is not UTF-8.
    #[test]
    fn a_directory_may_have_a_name_that_is_not_utf_8() {
        let directory = TempDir::new("bytes-above");
        let below = directory.join(OsStr::from_bytes(b"caf\xe9"));
        std::fs::create_dir(&below).expect("a directory");
        let pair = ("stats_dir".to_owned(), &below);
        let mut config = Config::from_pairs([pair]).strict().expect("no mistake");
        config.syslog = Syslog::Off;
        let page = config.publish().expect("a file of counters");
        let count = std::fs::read_dir(&below).expect("a directory").count();
        assert_eq!((page.directory(), count), (below, 1));
        page.withdraw();
    }

    /// One mistake of each kind, and a missing directory: all other settings have their effect.
    #[test]
    fn a_mistake_costs_its_own_setting_alone() {
        let pairs = [
            ("backend", "avx513"),
            ("slots", "many"),
            ("slot", "3"),
            ("setting_of_tomorrow", "1"),
            ("stats_dir", "/nonexistent"),
            ("max_async", "7"),
            ("syslog", "no"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut config = Config::from_pairs(pairs);
        let page = config.publish().expect("counters in the default place");
        page.withdraw();
        let mistakes = std::mem::take(&mut config.mistakes).to_string();
        let mut expected = Config::from_pairs::<&str>([]);
        expected.max_async = 7;
        expected.syslog = Syslog::Off;
        expected.stats_dir = config.stats_dir.clone();
        assert_eq!(config, expected);
        for part in [
            "backend is 'avx513', but must be auto, none or one that this CPU has",
            "; slots is 'many', but must be a number",
            "; slot is not a setting; is slots meant?; ",
            "setting_of_tomorrow is not a setting of lockstep ",
            "; stats_dir (or LOCKSTEP_STATS_DIR) cannot be followed: no file of counters in \
             /nonexistent: ",
        ] {
            assert!(mistakes.contains(part), "{part}: {mistakes}");
        }
    }
}
