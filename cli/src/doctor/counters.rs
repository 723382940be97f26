//! Places of counters, and whether processes that are started here can publish theirs.

use std::ffi::OsStr;
use std::path::Path;

use lockstep_common::Configuration;
use lockstep_engine::{Config, Page, StatsDir};

use super::finding::{Finding, advice, failed, good, note};

/// A place where processes publish their counters.
pub struct CountersPlace {
    place: StatsDir,
    /// Setting or default that names the place.
    named_by: String,
}

impl CountersPlace {
    /// Places where processes publish their counters: first the place of processes that are started
    /// here, then other possible places. The environment overrides the configuration. Another check
    /// reports mistakes in either.
    pub fn all(configuration: Option<&Configuration>) -> Vec<CountersPlace> {
        let parsed = |value: &OsStr, named_by: String| {
            let pair = ("stats_dir".to_owned(), value.to_owned());
            let place = Config::from_pairs([pair]).strict().ok()?.stats_dir;
            Some(CountersPlace { place, named_by })
        };
        let of_environment = || {
            let variable = "LOCKSTEP_STATS_DIR";
            let value = std::env::var_os(variable).filter(|value| !value.is_empty());
            parsed(&value?, variable.to_owned())
        };
        let of_configuration = || {
            let configuration = configuration?;
            let provider = configuration.provider()?;
            let value = configuration.effective.setting(&provider, "stats_dir")?;
            let path = configuration.path().display();
            parsed(
                value.as_ref(),
                format!("`stats_dir` in [{}] of {path}", provider.section),
            )
        };
        let default = parsed("auto".as_ref(), "the default".to_owned());
        let all = [of_environment(), of_configuration(), default];
        all.into_iter().flatten().collect()
    }

    pub fn directory(&self) -> Option<&Path> {
        match &self.place {
            StatsDir::At(path) => Some(path),
            StatsDir::Auto | StatsDir::Off => None,
        }
    }
}

/// Whether a process that this user starts here could publish its counters.
pub fn counters(place: &CountersPlace) -> Finding {
    const CHECK: &str = "counters";
    let CountersPlace { place, named_by } = place;
    match Page::create(place, false) {
        Ok(Some(page)) => {
            let directory = page.directory();
            page.withdraw();
            let what = format!(
                "processes that you start publish their counters in {} ({named_by})",
                directory.display()
            );
            good(CHECK, what)
        }
        Ok(None) => note(
            CHECK,
            format!(
                "{named_by} disables the counters: `lockstep stat` will not show the processes that \
                 you start"
            ),
        ),
        Err(reason) if reason.is_wrong_place() && matches!(place, StatsDir::At(_)) => failed(
            CHECK,
            format!(
                "{named_by} has no effect, because the directory cannot hold counters: {reason}; \
                 the processes that you start publish them in the default place"
            ),
            "create the directory, let the user that starts the server write there, or set \
             stats_dir to auto or no",
        ),
        Err(reason) => {
            let what =
                format!("`lockstep stat` will not show the processes that you start: {reason}");
            let remedy = "raise the limit, or name another directory in stats_dir; the lanes work \
                          without counters";
            advice(CHECK, what, remedy)
        }
    }
}
