//! The table of settings: their names, their values, and their effects on a [`Config`].

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use lockstep_counters::{LONGEST_PATH, StatsDir, Syslog};
use lockstep_ops::Backend;

use super::{BackendChoice, Config, Keys};
use crate::mistakes::ConfigError;
use crate::policy::Lone;

/// A setting, as a row of the table that `docs/user/settings.md` prints.
pub struct Setting {
    /// The name in `openssl.cnf`. In the environment it is in upper case behind `LOCKSTEP_`.
    pub name: &'static str,
    /// The default value.
    pub default: &'static str,
    /// The possible values, in words.
    pub values: &'static str,
    /// The effect, in Markdown.
    pub meaning: &'static str,
    set: fn(&mut Config, &Given<'_>, &str) -> Result<(), ConfigError>,
}

/// Names that were settings.
const GONE: [&str; 7] = [
    "batch",
    "check_every",
    "gather",
    "jobs_lead",
    "key_pool",
    "max_lost",
    "rsa_schedule",
];

/// A setting with its given value, which is text, or a path of any bytes.
struct Given<'a> {
    name: &'static str,
    value: &'a OsStr,
}

impl Setting {
    /// All settings.
    pub const ALL: &[Setting] = &[
        Setting {
            name: "backend",
            default: "auto",
            values: "`auto`, `none`, or the name of lanes that the CPU has: `avx512ifma`, \
                     `avx512ifma256`, `avx512ifma512`, `avx2`, `portable`",
            meaning: "Which lanes compute. `auto` takes the best that the CPU has instructions \
                      for. With `none` OpenSSL computes everything, key derivation too; the \
                      module computes only ML-KEM, where OpenSSL has none. `portable` is slow: \
                      for tests.",
            set: |config, _, value| {
                config.backend = backend(value)?;
                Ok(())
            },
        },
        Setting {
            name: "slots",
            default: "the CPUs that the process may use",
            values: "1 to 4096",
            meaning: "How many batches of blocking threads and workers may run at a time, and how many workers \
                      there are for async jobs.",
            set: |config, setting, value| {
                config.slots = setting.number(value, 1, 4096)?;
                Ok(())
            },
        },
        Setting {
            name: "max_async",
            default: "1024",
            values: "0 to 1048576",
            meaning: "How many async jobs may be paused in the process at a time. Beyond this number, and \
                      always with 0, a job blocks its thread until it is served.",
            set: |config, setting, value| {
                config.max_async = setting.number(value, 0, 1 << 20)?;
                Ok(())
            },
        },
        Setting {
            name: "lone",
            default: "auto",
            values: "`auto`, `lanes` or `stock`",
            meaning: "Which implementation serves a request that is alone. `auto`: the faster \
                      one, by measurement. `lanes`: always the lanes, also where OpenSSL would \
                      be faster with any number of requests; a request that is in the batch of \
                      another thread waits for that for up to ten seconds. `stock`: always \
                      OpenSSL's own code.",
            set: |config, setting, value| {
                config.lone = match value {
                    "auto" => Lone::Auto,
                    "lanes" => Lone::Lanes,
                    "stock" => Lone::Stock,
                    _ => return Err(setting.refuses(value, "auto, lanes or stock")),
                };
                Ok(())
            },
        },
        Setting {
            name: "aes_gcm",
            default: "yes",
            values: "`yes` or `no`",
            meaning: "Whether the module encrypts and decrypts with AES-GCM itself: the records of TLS, and \
                      whatever a program does with `EVP_CIPHER`. It does so for OpenSSL 3.0, on CPUs with \
                      VAES and VPCLMULQDQ; the code of later versions is as fast.",
            set: |config, setting, value| {
                config.aes_gcm = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(setting.refuses(value, "yes or no")),
                };
                Ok(())
            },
        },
        Setting {
            name: "keys",
            default: "process",
            values: "`process` or `daemon`",
            meaning: "Where signatures with ordinary RSA keys are computed. With `daemon` the \
                      process asks the [key daemon](keyd.md#ordinary-keys), if that has the same \
                      key. The process computes every request that the daemon does not answer.",
            set: |config, setting, value| {
                config.keys = match value {
                    "process" => Keys::Process,
                    "daemon" => Keys::Daemon,
                    _ => return Err(setting.refuses(value, "process or daemon")),
                };
                Ok(())
            },
        },
        Setting {
            name: "references",
            default: "no",
            values: "`yes` or `no`",
            meaning: "Whether a [reference](keyd.md) to a key of the key daemon can stand where a \
                      program reads a private key. `yes` is for servers whose keys the daemon \
                      holds, and [never for a program that reads keys of \
                      strangers](keyd.md#programs-that-must-not-read-references).",
            set: |config, setting, value| {
                config.references = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(setting.refuses(value, "yes or no")),
                };
                Ok(())
            },
        },
        Setting {
            name: "keyd_socket",
            default: "auto",
            values: "`auto` or the absolute path of a socket",
            meaning: "Where the key daemon listens, for the settings `keys` and `references`; with \
                      `auto` at `/run/lockstep-keyd.sock`.",
            set: |config, setting, value| {
                config.keyd_socket = match value {
                    "auto" => None,
                    _ => Some(setting.socket("auto")?),
                };
                Ok(())
            },
        },
        Setting {
            name: "stats_dir",
            default: "auto",
            values: "`auto`, `no` or the absolute path of a directory",
            meaning: "Where the process publishes its counters for `lockstep stat`. A directory must exist \
                      and be writable for the user that starts the server.",
            set: |config, setting, value| {
                config.stats_dir = match value {
                    "auto" => StatsDir::Auto,
                    "no" => StatsDir::Off,
                    path if path.starts_with('/') => StatsDir::At(setting.path()),
                    _ => return Err(setting.refuses(value, "auto, no or an absolute path")),
                };
                Ok(())
            },
        },
        Setting {
            name: "stats_keep",
            default: "no",
            values: "`yes` or `no`",
            meaning: "Whether the published counters stay when the process ends, for `lockstep stat --ended`.",
            set: |config, setting, value| {
                config.stats_keep = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(setting.refuses(value, "yes or no")),
                };
                Ok(())
            },
        },
        Setting {
            name: "syslog",
            default: "yes",
            values: "`yes`, `no` or the absolute path of a datagram socket",
            meaning: "Whether the process writes [warnings](#warnings-in-the-systems-log) to the \
                      system's log (`/dev/log`), or to this socket.",
            set: |config, setting, value| {
                config.syslog = match value {
                    "yes" => Syslog::On,
                    "no" => Syslog::Off,
                    _ => Syslog::At(setting.socket("yes, no")?),
                };
                Ok(())
            },
        },
    ];

    /// Returns the settings as a table in Markdown.
    pub fn reference() -> String {
        let mut table = "| setting | takes | default | |\n|---|---|---|---|\n".to_owned();
        for setting in Setting::ALL {
            let Setting {
                name,
                default,
                values,
                meaning,
                ..
            } = setting;
            table.push_str(&format!(
                "| `{name}` | {values} | {default} | {meaning} |\n"
            ));
        }
        table
    }

    pub(super) fn names() -> Vec<&'static str> {
        Setting::ALL.iter().map(|setting| setting.name).collect()
    }

    /// Returns the settings that this build reads. With the feature `laboratory` they include some
    /// values that are constants in the product.
    pub fn readable() -> impl Iterator<Item = &'static Setting> {
        Setting::ALL.iter().chain(LABORATORY)
    }

    /// Returns whether a name was a setting before 0.2.0, and this build does not read it. Such a
    /// name has no effect, and is no mistake: a configuration that was valid stays valid.
    pub fn is_gone(name: &str) -> bool {
        GONE.contains(&name) && Setting::called(name).is_none()
    }

    /// Returns the names of the environment variables of [former settings](Self::is_gone).
    pub fn gone_variables() -> impl Iterator<Item = String> {
        let gone = GONE.into_iter().filter(|name| Setting::is_gone(name));
        gone.map(variable)
    }

    fn called(name: &str) -> Option<&'static Setting> {
        Setting::readable().find(|setting| setting.name == name)
    }

    /// Returns the setting's name in the environment.
    pub fn variable(&self) -> String {
        variable(self.name)
    }
}

impl Given<'_> {
    fn path(&self) -> PathBuf {
        PathBuf::from(self.value)
    }

    fn number<N: FromStr + PartialOrd + fmt::Display>(
        &self,
        value: &str,
        least: N,
        most: N,
    ) -> Result<N, ConfigError> {
        match value.parse() {
            Ok(number) if least <= number && number <= most => Ok(number),
            _ => Err(self.refuses(value, &format!("a number from {least} to {most}"))),
        }
    }

    /// Reads the path of a socket. An error also names `others`, the other possible values.
    fn socket(&self, others: &str) -> Result<PathBuf, ConfigError> {
        let path = self.path();
        match path.is_absolute() && self.value.len() <= LONGEST_PATH {
            true => Ok(path),
            false => {
                let wanted = format!("{others} or an absolute path of at most 107 bytes");
                Err(self.refuses(&self.value.to_string_lossy(), &wanted))
            }
        }
    }

    fn refuses(&self, value: &str, wanted: &str) -> ConfigError {
        ConfigError::value(self.name, value, wanted)
    }
}

impl Config {
    pub(super) fn set(&mut self, key: &str, value: &OsStr) -> Result<(), ConfigError> {
        match Setting::called(key) {
            Some(setting) => {
                let name = setting.name;
                (setting.set)(self, &Given { name, value }, &value.to_string_lossy())
            }
            None if Setting::is_gone(key) => Ok(()),
            None => Err(ConfigError::unknown(key, &Setting::names())),
        }
    }
}

fn variable(name: &str) -> String {
    format!("LOCKSTEP_{}", name.to_uppercase())
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

/// Values that are constants in the product. Tests of the module change them. So does
/// `lockstep-trace`, which compares the instructions of two runs. `rsa_schedule` changes the
/// backend, so it is read after `backend`.
#[cfg(feature = "laboratory")]
const LABORATORY: &[Setting] = &[
    value("max_lost", |config, given, text| {
        config.max_lost = given.number(text, 0, 1 << 20)?;
        Ok(())
    }),
    value("key_pool", |config, given, text| {
        config.key_pool = given.number(text, 0, 64)?;
        Ok(())
    }),
    value("check_every", |config, given, text| {
        config.check_every = given.number(text, 1, 1 << 20)?;
        Ok(())
    }),
    value("rsa_schedule", |config, given, text| {
        let schedule = lockstep_ops::Schedule::from_name(text);
        let schedule = schedule.ok_or_else(|| given.refuses(text, "an order of work of RSA"))?;
        if let Some(backend) = config.backend.resolve() {
            config.backend = BackendChoice::Named(backend.pinned(schedule));
        }
        Ok(())
    }),
];

#[cfg(feature = "laboratory")]
const fn value(
    name: &'static str,
    set: fn(&mut Config, &Given<'_>, &str) -> Result<(), ConfigError>,
) -> Setting {
    Setting {
        name,
        default: "",
        values: "",
        meaning: "",
        set,
    }
}

/// None in the product.
#[cfg(not(feature = "laboratory"))]
const LABORATORY: &[Setting] = &[];

impl Config {
    /// Changes this configuration by the environment: `LOCKSTEP_BACKEND`, `LOCKSTEP_SLOTS` and so
    /// on, and [`OPENSSL_ia32cap`](Self::masked). An empty `LOCKSTEP_` variable counts as unset. A
    /// variable that cannot be used has no effect, and is among the [`mistakes`](Self::mistakes).
    /// A variable whose name is nearly that of a setting is among them too.
    pub fn with_env(mut self) -> Config {
        for setting in Setting::readable() {
            let variable = setting.variable();
            let Some(value) = std::env::var_os(&variable).filter(|value| !value.is_empty()) else {
                continue;
            };
            if let Err(mistake) = self.set(setting.name, &value) {
                self.mistakes.add(mistake.of_variable(variable));
            }
        }
        for variable in Config::unknown_environment() {
            if let Some(mistake) = ConfigError::misspelt(&variable, &Setting::names()) {
                self.mistakes.add(mistake);
            }
        }
        self.masked_by_env()
    }

    /// Returns the variables of the environment whose names begin with `LOCKSTEP_`, but belong to
    /// no setting, in alphabetical order. They have no effect; some may be misspelt. Variables
    /// that [were settings](Setting::is_gone) are among them.
    pub fn unknown_environment() -> Vec<String> {
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        // Variables by which tests control their programs.
        const TESTS: [&str; 4] = [
            "LOCKSTEP_DIST",
            "LOCKSTEP_FAULT_DIST",
            "LOCKSTEP_FAULT",
            "LOCKSTEP_PLANT",
        ];
        let mut unknown: Vec<String> = names
            .filter(|name| name.starts_with("LOCKSTEP_") && !TESTS.contains(&name.as_str()))
            .filter(|name| Setting::readable().all(|setting| setting.variable() != *name))
            .collect();
        unknown.sort();
        unknown
    }
}
