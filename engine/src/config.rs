//! Settings: from the provider's section of `openssl.cnf`, and from the environment.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use lockstep_kernels::backend::Backend;

use crate::policy::{JobsLead, Lone};

/// How an engine works. `Default` is right for almost everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which lanes compute.
    pub backend: BackendChoice,
    /// How many batches may run at a time. Default: the CPUs that this process may use.
    pub slots: usize,
    /// How many submitted requests may be open; more are declined. Default: 1024.
    pub max_async: usize,
    /// Which requests of asynchronous jobs the jobs' own threads serve, rather than workers. Default:
    /// those of curves, but for ECDH and verification on P-384.
    pub jobs_lead: JobsLead,
    /// Whether requests that are alone go to stock OpenSSL. Default: where it was measured faster.
    pub lone: Lone,
    /// How often a leader that expects more requests may yield its CPU. Default: 16; 0 turns
    /// gathering off.
    pub gather: u32,
    /// How many key pairs of a kind are made at a time, the rest kept for later callers. Default: 16;
    /// 0 makes every pair for its caller.
    pub key_pool: usize,
    /// One pass of ECDSA or Ed25519 signatures in so many is checked before it leaves, on average.
    /// Default: 64; 1 checks all, which takes six to eight times as long.
    pub check_every: u32,
    /// Where to publish the counters. Default: nowhere.
    pub stats_dir: Option<PathBuf>,
    /// Whether the published counters stay when the engine is dropped. Default: no.
    pub stats_keep: bool,
}

/// Which lanes compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The best that this CPU has instructions for; without any, everything is declined.
    #[default]
    Auto,
    /// This one; the slow portable one too.
    Named(Backend),
    /// None: everything is declined.
    None,
}

impl BackendChoice {
    /// The backend that this choice means on this CPU.
    pub fn resolve(self) -> Option<Backend> {
        match self {
            BackendChoice::Auto => Backend::best_hardware(),
            BackendChoice::Named(backend) => Some(backend),
            BackendChoice::None => None,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            backend: BackendChoice::Auto,
            slots: thread::available_parallelism().map_or(1, NonZero::get),
            max_async: 1024,
            jobs_lead: JobsLead::Auto,
            lone: Lone::Auto,
            gather: 16,
            key_pool: 16,
            check_every: 64,
            stats_dir: None,
            stats_keep: false,
        }
    }
}

impl Config {
    /// The names of all settings. In the environment they are upper-case behind `LOCKSTEP_`.
    pub const KEYS: &[&str] = &[
        "backend",
        "slots",
        "max_async",
        "jobs_lead",
        "lone",
        "gather",
        "key_pool",
        "check_every",
        "stats_dir",
        "stats_keep",
    ];

    /// The default, changed by settings as text.
    pub fn from_pairs(
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        for (key, value) in pairs {
            config.set(&key, &value)?;
        }
        Ok(config)
    }

    /// This configuration, changed by the environment: `LOCKSTEP_BACKEND`, `LOCKSTEP_SLOTS` and so
    /// on. Empty variables count as unset.
    pub fn with_env(mut self) -> Result<Config, ConfigError> {
        for &key in Config::KEYS {
            let variable = format!("LOCKSTEP_{}", key.to_uppercase());
            let Some(value) = std::env::var_os(&variable).filter(|value| !value.is_empty()) else {
                continue;
            };
            let set = match value.to_str() {
                Some(value) => self.set(key, value),
                None if key == "stats_dir" => {
                    self.stats_dir = Some(PathBuf::from(value));
                    Ok(())
                }
                None => Err(ConfigError::value(key, &value.to_string_lossy(), "text")),
            };
            set.map_err(|error| ConfigError {
                key: variable,
                ..error
            })?;
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        match key {
            "backend" => self.backend = backend(value)?,
            "slots" => self.slots = number(key, value, 1, 4096)?,
            "max_async" => self.max_async = number(key, value, 0, 1 << 20)?,
            "jobs_lead" => {
                self.jobs_lead = match value {
                    "auto" => JobsLead::Auto,
                    "yes" => JobsLead::Yes,
                    "no" => JobsLead::No,
                    _ => return Err(ConfigError::value(key, value, "auto, yes or no")),
                }
            }
            "lone" => {
                self.lone = match value {
                    "auto" => Lone::Auto,
                    "lanes" => Lone::Lanes,
                    "stock" => Lone::Stock,
                    _ => return Err(ConfigError::value(key, value, "auto, lanes or stock")),
                }
            }
            "gather" => self.gather = number(key, value, 0, 1000)?,
            "key_pool" => {
                self.key_pool = match value {
                    "no" => 0,
                    _ => number(key, value, 0, 64)?,
                }
            }
            "check_every" => self.check_every = number(key, value, 1, 1 << 20)?,
            "stats_dir" => {
                self.stats_dir = (!value.is_empty()).then(|| PathBuf::from(value));
            }
            "stats_keep" => {
                self.stats_keep = match value {
                    "1" | "yes" => true,
                    "0" | "no" => false,
                    _ => return Err(ConfigError::value(key, value, "yes or no")),
                }
            }
            _ => {
                let problem = format!("is not a setting; there are {}", Config::KEYS.join(", "));
                return Err(ConfigError {
                    key: key.to_owned(),
                    problem,
                });
            }
        }
        Ok(())
    }
}

fn backend(value: &str) -> Result<BackendChoice, ConfigError> {
    let available = Backend::available();
    let chosen = Backend::from_name(value).filter(|backend| available.contains(backend));
    match (value, chosen) {
        ("auto", _) => Ok(BackendChoice::Auto),
        ("none", _) => Ok(BackendChoice::None),
        (_, Some(backend)) => Ok(BackendChoice::Named(backend)),
        (_, None) => {
            let names: Vec<_> = available.iter().map(|backend| backend.name()).collect();
            let wanted = format!("auto, none or one that this CPU has: {}", names.join(", "));
            Err(ConfigError::value("backend", value, &wanted))
        }
    }
}

fn number<N: FromStr + PartialOrd + fmt::Display>(
    key: &str,
    value: &str,
    least: N,
    most: N,
) -> Result<N, ConfigError> {
    match value.parse() {
        Ok(number) if least <= number && number <= most => Ok(number),
        _ => Err(ConfigError::value(
            key,
            value,
            &format!("a number from {least} to {most}"),
        )),
    }
}

/// A setting that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    key: String,
    problem: String,
}

impl ConfigError {
    fn value(key: &str, value: &str, wanted: &str) -> ConfigError {
        ConfigError {
            key: key.to_owned(),
            problem: format!("is '{value}', but must be {wanted}"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lockstep: {} {}", self.key, self.problem)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn config(key: &str, value: &str) -> Result<Config, String> {
        Config::from_pairs([(key.to_owned(), value.to_owned())]).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_understood() {
        assert_eq!(config("slots", "3").unwrap().slots, 3);
        assert_eq!(config("max_async", "0").unwrap().max_async, 0);
        assert_eq!(config("jobs_lead", "no").unwrap().jobs_lead, JobsLead::No);
        assert_eq!(config("lone", "stock").unwrap().lone, Lone::Stock);
        assert_eq!(config("gather", "0").unwrap().gather, 0);
        assert_eq!(config("key_pool", "8").unwrap().key_pool, 8);
        assert_eq!(config("key_pool", "no").unwrap().key_pool, 0);
        assert_eq!(config("check_every", "1").unwrap().check_every, 1);
        assert_eq!(
            config("backend", "none").unwrap().backend,
            BackendChoice::None
        );
        assert_eq!(
            config("stats_dir", "/run/x").unwrap().stats_dir,
            Some("/run/x".into())
        );
        assert!(config("stats_keep", "yes").unwrap().stats_keep);
        let portable = BackendChoice::Named(Backend::PORTABLE);
        assert_eq!(config("backend", "portable").unwrap().backend, portable);
    }

    #[test]
    fn the_automatic_choice_is_never_the_portable_backend() {
        assert_ne!(BackendChoice::Auto.resolve(), Some(Backend::PORTABLE));
    }

    #[test]
    fn errors_name_the_setting_and_what_it_takes() {
        let error = |key, value| config(key, value).unwrap_err();
        assert!(error("slot", "3").starts_with("lockstep: slot is not a setting; there are back"));
        assert_eq!(
            error("slots", "0"),
            "lockstep: slots is '0', but must be a number from 1 to 4096"
        );
        assert_eq!(
            error("lone", "maybe"),
            "lockstep: lone is 'maybe', but must be auto, lanes or stock"
        );
        assert!(error("backend", "mmx").contains("'mmx', but must be auto, none or one that this"));
        assert!(error("max_async", "-1").contains("'-1'"));
        assert!(error("key_pool", "65").contains("from 0 to 64"));
        assert!(error("check_every", "0").contains("from 1 to"));
    }

    #[test]
    fn every_key_is_understood() {
        for key in Config::KEYS {
            let error = config(key, "\u{1}").map_or_else(|error| error, |_| String::new());
            assert!(!error.contains("is not a setting"), "{key}");
        }
    }
}
