//! Settings: from the provider's section of `openssl.cnf`, and from the environment.

use std::ffi::OsStr;
use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use lockstep_counters::{LONGEST_PATH, StatsDir, Syslog};
use lockstep_ops::{Backend, Schedule, Shape};

use crate::ia32cap::{self, Hidden};
use crate::mistakes::{ConfigError, Mistakes};
use crate::policy::{self, Batch, JobsLead, Lone};

/// How an engine works. `Default` is right for almost everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which lanes compute.
    pub backend: BackendChoice,
    /// The schedule of RSA on lanes that have several. Default: none; a race chooses.
    pub rsa_schedule: Option<Schedule>,
    /// How many batches may run at a time. Default: 0, which stands for the CPUs that this process
    /// may use; [`with_cpus`](Self::with_cpus) counts them.
    pub slots: usize,
    /// How many asynchronous jobs may be paused at a time; beyond that number a job blocks its
    /// thread. Default: 1024.
    pub max_async: usize,
    /// How many asynchronous jobs may be lost; after that no job is paused. Default: 16384.
    pub max_lost: usize,
    /// Which requests wait for company. Default: RSA.
    pub batch: Batch,
    /// Which of these requests of asynchronous jobs the jobs' own threads serve, where the
    /// application has set no callback. Default: all; workers help with RSA, if there is more than
    /// one slot.
    pub jobs_lead: JobsLead,
    /// Whether OpenSSL's own implementation serves requests that are alone. Default: where it was
    /// measured to be faster.
    pub lone: Lone,
    /// How often a leader that expects more requests may yield its CPU. Default: 16; 0 disables
    /// gathering.
    pub gather: u32,
    /// How many key pairs of a kind are made at a time, the rest kept for later callers. Default:
    /// 16; 0 makes every pair for its caller.
    pub key_pool: usize,
    /// On average one in every N passes of ECDSA or Ed25519 signatures is verified before it is
    /// returned. Default: 64; 1 verifies all. Then an ECDSA signature takes six to eight times as
    /// long, and an Ed25519 signature two and a half times. See
    /// `docs/decisions/operations.md`.
    pub check_every: u32,
    /// Whether the module encrypts with AES-GCM itself where that is faster. Default: yes.
    pub aes_gcm: bool,
    /// Which ordinary keys the key daemon may compute with. Default: none.
    pub keys: Keys,
    /// Whether a reference to a key of the key daemon can stand where a program reads a private
    /// key. Default: no.
    pub references: bool,
    /// Where the key daemon listens. Default: at its usual place.
    pub keyd_socket: Option<PathBuf>,
    /// Where to publish the counters. Default: nowhere; what the module reads of `openssl.cnf`
    /// starts from [`StatsDir::Auto`].
    pub stats_dir: StatsDir,
    /// Whether the published counters stay when the engine is dropped. Default: no.
    pub stats_keep: bool,
    /// Where to send warnings. Default: nowhere; what the module reads of `openssl.cnf` starts from
    /// [`Syslog::On`].
    pub syslog: Syslog,
    /// What among the settings could not be used, and has no effect.
    pub mistakes: Mistakes,
    /// Whether `OPENSSL_ia32cap` takes lanes away.
    pub is_masked: bool,
}

/// Which lanes compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The best that this CPU has instructions for; without any, all is declined but key
    /// encapsulation, which OpenSSL may lack.
    #[default]
    Auto,
    /// This one; the slow portable one too.
    Named(Backend),
    /// None: all is declined but key encapsulation.
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

/// Where signatures with ordinary RSA keys are computed, whose private parts this process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// In this process.
    #[default]
    Process,
    /// In the key daemon, where that has the key.
    Daemon,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            backend: BackendChoice::Auto,
            rsa_schedule: None,
            slots: 0,
            max_async: 1024,
            max_lost: 16384,
            batch: Batch::Rsa,
            jobs_lead: JobsLead::Auto,
            lone: Lone::Auto,
            gather: 16,
            key_pool: 16,
            check_every: 64,
            aes_gcm: true,
            keys: Keys::Process,
            references: false,
            keyd_socket: None,
            stats_dir: StatsDir::Off,
            stats_keep: false,
            syslog: Syslog::Off,
            mistakes: Mistakes::default(),
            is_masked: false,
        }
    }
}

/// One setting: its name, what it takes, and what it does. The table of these is what is understood
/// and what `docs/user/settings.md` prints.
pub struct Setting {
    /// Its name in `openssl.cnf`; in the environment in upper case behind `LOCKSTEP_`.
    pub name: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// The values that it takes, in words.
    pub values: &'static str,
    /// What it does, in Markdown.
    pub meaning: &'static str,
    set: fn(&mut Config, &Given<'_>, &str) -> Result<(), ConfigError>,
}

/// A setting with the value that somebody gives it, which is a path in any bytes or else text.
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
            name: "rsa_schedule",
            default: "auto",
            values: "`auto`, `beside`, `after` or `after-turns`",
            meaning: "In which order `avx512ifma` lanes do the work of RSA-1024 and RSA-2048. CPUs differ in which \
                      is the fastest; with `auto` the first batch of a size tries them for 0.3 ms and the process \
                      keeps the fastest.",
            set: |config, setting, value| {
                config.rsa_schedule = match (value, Schedule::from_name(value)) {
                    ("auto", _) => None,
                    (_, Some(schedule)) => Some(schedule),
                    (_, None) => {
                        return Err(setting.refuses(value, "auto, beside, after or after-turns"));
                    }
                };
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
            name: "max_lost",
            default: "16384",
            values: "0 to 1048576",
            meaning: "How many async jobs the process may lose before it pauses no more of them. A job is lost \
                      when its connection ends while the job is paused; OpenSSL never frees the 32 KiB of \
                      its stack, so the default allows for about 0.5 GiB. Beyond this number a job blocks \
                      its thread until it is served.",
            set: |config, setting, value| {
                config.max_lost = setting.number(value, 0, 1 << 20)?;
                Ok(())
            },
        },
        Setting {
            name: "batch",
            default: "rsa",
            values: "`rsa` or `all`",
            meaning: "Which operations wait for others, to share a batch: async jobs pause for \
                      them, and threads gather. All others are computed at once, alone, because in \
                      a server the wait costs clients more time than a batch saves. `all` is for \
                      programs that sign, verify or agree in bulk. A server loses a job if a \
                      client closes the connection while the job is paused.",
            set: |config, setting, value| {
                config.batch = match value {
                    "rsa" => Batch::Rsa,
                    "all" => Batch::All,
                    _ => return Err(setting.refuses(value, "rsa or all")),
                };
                Ok(())
            },
        },
        Setting {
            name: "jobs_lead",
            default: "auto",
            values: "`auto`, `yes` or `no`",
            meaning: "Which threads serve the requests for which async jobs pause. `auto`: the \
                      event loop's own thread serves all of them, and workers help with full \
                      passes of RSA. `yes`: it serves all of them alone. `no`: workers serve all \
                      of them. Workers always serve jobs for which the program has set a \
                      callback.",
            set: |config, setting, value| {
                config.jobs_lead = match value {
                    "auto" => JobsLead::Auto,
                    "yes" => JobsLead::Yes,
                    "no" => JobsLead::No,
                    _ => return Err(setting.refuses(value, "auto, yes or no")),
                };
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
            name: "gather",
            default: "16",
            values: "0 to 1000",
            meaning: "How often a leader that has reason to expect company yields its CPU before it starts \
                      a batch; 0 turns it off.",
            set: |config, setting, value| {
                config.gather = setting.number(value, 0, 1000)?;
                Ok(())
            },
        },
        Setting {
            name: "key_pool",
            default: "16",
            values: "0 to 64, or `no`",
            meaning: "How many key pairs of a kind (X25519, P-256, P-384, ML-KEM and its \
                      hybrids) are made at a time, the rest kept for later callers; 0 or `no` \
                      makes every pair for its caller.",
            set: |config, setting, value| {
                config.key_pool = match value {
                    "no" => 0,
                    _ => setting.number(value, 0, 64)?,
                };
                Ok(())
            },
        },
        Setting {
            name: "check_every",
            default: "64",
            values: "1 to 1048576",
            meaning: "On average one in every N passes of ECDSA or Ed25519 signatures is verified before it is \
                      returned; 1 verifies all of them. Signatures of RSA and ML-DSA are always \
                      verified, all of them.",
            set: |config, setting, value| {
                config.check_every = setting.number(value, 1, 1 << 20)?;
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

    /// The settings as a table in Markdown.
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

    fn names() -> Vec<&'static str> {
        Setting::ALL.iter().map(|setting| setting.name).collect()
    }

    fn called(name: &str) -> Option<&'static Setting> {
        Setting::ALL.iter().find(|setting| setting.name == name)
    }

    /// Its name in the environment.
    pub fn variable(&self) -> String {
        format!("LOCKSTEP_{}", self.name.to_uppercase())
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

    /// The path of a socket; an error names the other values, too.
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
    /// The lanes that compute on this CPU, if any do.
    pub(crate) fn lanes(&self) -> Option<Backend> {
        let backend = self.backend.resolve()?;
        let schedule = self.rsa_schedule;
        Some(schedule.map_or(backend, |schedule| backend.pinned(schedule)))
    }

    /// How many requests of this shape OpenSSL's own implementation serves in a process before
    /// anything is made for the lanes. If there are any, the first one with each RSA key is such a
    /// request, too.
    pub fn leaves_first(&self, shape: Shape) -> u32 {
        let is_usual = match self.backend {
            BackendChoice::Auto => true,
            BackendChoice::Named(backend) => {
                backend != Backend::PORTABLE && !policy::lanes_bring_nothing(backend, shape)
            }
            BackendChoice::None => false,
        };
        // Other settings say themselves who serves a request that is alone, and the key daemon is
        // asked for the first one, too.
        let is_daemons = shape.is_rsa() && self.keys != Keys::Process;
        match is_usual && self.lone == Lone::Auto && !is_daemons {
            true => policy::left_first(shape),
            false => 0,
        }
    }

    /// Counts the CPUs that this process may use, if that is the number of slots. It takes some
    /// twenty system calls, so the module does it when it is loaded.
    pub fn with_cpus(mut self) -> Config {
        if self.slots == 0 {
            self.slots = thread::available_parallelism().map_or(1, NonZero::get);
        }
        self
    }

    /// What a program gets that loads the module: the default, with counters published in the
    /// default place, changed by settings as text. What cannot be used has no effect, and is among
    /// the [`mistakes`](Self::mistakes).
    pub fn from_pairs<V: AsRef<OsStr>>(pairs: impl IntoIterator<Item = (String, V)>) -> Config {
        let mut config = Config {
            stats_dir: StatsDir::Auto,
            syslog: Syslog::On,
            ..Config::default()
        };
        for (key, value) in pairs {
            if let Err(mistake) = config.set(&key, value.as_ref()) {
                config.mistakes.add(mistake);
            }
        }
        config
    }

    /// This configuration, changed by the environment: `LOCKSTEP_BACKEND`, `LOCKSTEP_SLOTS` and so
    /// on, and [`OPENSSL_ia32cap`](Self::masked). Empty variables of the first kind count as unset.
    /// What cannot be used has no effect, and is among the [`mistakes`](Self::mistakes); a variable
    /// that is nearly a setting, too.
    pub fn with_env(mut self) -> Config {
        for setting in Setting::ALL {
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

    /// This configuration, [`masked`](Self::masked) by the environment's `OPENSSL_ia32cap`. Only
    /// this variable holds in programs with raised privileges too, as OpenSSL's own code reads it
    /// there: it only takes instructions away.
    pub fn masked_by_env(self) -> Config {
        match std::env::var_os(ia32cap::VARIABLE) {
            Some(value) => self.masked(&value.to_string_lossy()),
            None => self,
        }
    }

    /// This configuration, without the instructions that this value of `OPENSSL_ia32cap` hides from
    /// OpenSSL: the best lanes compute that need none of these.
    pub fn masked(mut self, value: &str) -> Config {
        let hidden = Hidden::by(value);
        self.aes_gcm &= hidden.leaves_aes_gcm();
        let chosen = self.backend.resolve();
        if chosen.is_some_and(|backend| !hidden.leaves(backend)) {
            let mut others = Backend::available().into_iter();
            let best = others.find(|&other| other != Backend::PORTABLE && hidden.leaves(other));
            self.backend = best.map_or(BackendChoice::None, BackendChoice::Named);
            self.is_masked = true;
        }
        self
    }

    /// This configuration, or its first mistake: for those who ask before anything depends on it.
    pub fn strict(self) -> Result<Config, ConfigError> {
        match self.mistakes.first() {
            None => Ok(self),
            Some(mistake) => Err(mistake.clone()),
        }
    }

    /// Variables of the environment that look like settings but are not, in alphabetical order: a
    /// misspelt one would change nothing.
    pub fn unknown_environment() -> Vec<String> {
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        // What tests tell their programs.
        const TESTS: [&str; 4] = [
            "LOCKSTEP_DIST",
            "LOCKSTEP_FAULT_DIST",
            "LOCKSTEP_FAULT",
            "LOCKSTEP_PLANT",
        ];
        let mut unknown: Vec<String> = names
            .filter(|name| name.starts_with("LOCKSTEP_") && !TESTS.contains(&name.as_str()))
            .filter(|name| {
                Setting::ALL
                    .iter()
                    .all(|setting| setting.variable() != *name)
            })
            .collect();
        unknown.sort();
        unknown
    }

    fn set(&mut self, key: &str, value: &OsStr) -> Result<(), ConfigError> {
        match Setting::called(key) {
            Some(setting) => {
                let name = setting.name;
                (setting.set)(self, &Given { name, value }, &value.to_string_lossy())
            }
            None => Err(ConfigError::unknown(key, &Setting::names())),
        }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn config(key: &str, value: &str) -> Result<Config, String> {
        let config = Config::from_pairs([(key.to_owned(), value.to_owned())]);
        config.strict().map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_understood() {
        assert_eq!(config("slots", "3").unwrap().slots, 3);
        assert_eq!(config("max_async", "0").unwrap().max_async, 0);
        assert_eq!(config("max_lost", "7").unwrap().max_lost, 7);
        assert_eq!(config("jobs_lead", "no").unwrap().jobs_lead, JobsLead::No);
        assert_eq!(config("batch", "all").unwrap().batch, Batch::All);
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
            StatsDir::At("/run/x".into())
        );
        assert_eq!(config("stats_dir", "no").unwrap().stats_dir, StatsDir::Off);
        assert_eq!(config("lone", "auto").unwrap().stats_dir, StatsDir::Auto);
        assert!(config("stats_keep", "yes").unwrap().stats_keep);
        assert_eq!(config("syslog", "no").unwrap().syslog, Syslog::Off);
        assert_eq!(config("keys", "daemon").unwrap().keys, Keys::Daemon);
        assert!(config("references", "yes").unwrap().references);
        let socket = Some("/run/k.sock".into());
        assert_eq!(
            config("keyd_socket", "/run/k.sock").unwrap().keyd_socket,
            socket
        );
        let log = Syslog::At("/run/log".into());
        assert_eq!(config("syslog", "/run/log").unwrap().syslog, log);
        assert_eq!(config("lone", "auto").unwrap().syslog, Syslog::On);
        let portable = BackendChoice::Named(Backend::PORTABLE);
        assert_eq!(config("backend", "portable").unwrap().backend, portable);
    }

    #[test]
    fn lanes_do_without_instructions_that_are_hidden_from_openssl() {
        let names = |value: &str| {
            let masked = |choice| {
                let config = Config {
                    backend: choice,
                    ..Config::default()
                };
                let config = config.masked(value);
                let name = config.lanes().map_or("none", Backend::name);
                (name, config.is_masked, config.aes_gcm)
            };
            let all = Backend::available().into_iter().map(BackendChoice::Named);
            all.chain([BackendChoice::Auto, BackendChoice::None])
                .map(masked)
                .collect::<Vec<_>>()
        };
        let has_avx2 = Backend::from_name("avx2").is_some();
        for (name, is_masked, _) in names(":~0x200000") {
            assert!(!name.starts_with("avx512"), "{name}");
            assert!(!is_masked || (name == "avx2") == has_avx2, "{name}");
        }
        for (name, _, enciphers) in names(":~0x20") {
            assert!(["none", "portable"].contains(&name) && !enciphers, "{name}");
        }
        let all: Vec<_> = names(":~0").into_iter().map(|(name, ..)| name).collect();
        assert_eq!(
            all,
            names("::")
                .iter()
                .map(|(name, ..)| *name)
                .collect::<Vec<_>>()
        );
        assert!(
            names(":~0")
                .iter()
                .all(|(_, is_masked, aes)| !is_masked && *aes)
        );
        assert!(all.contains(&"portable"));
    }

    #[test]
    fn the_automatic_choice_is_never_the_portable_backend() {
        assert_ne!(BackendChoice::Auto.resolve(), Some(Backend::PORTABLE));
    }

    #[test]
    fn errors_name_the_setting_and_what_it_takes() {
        let error = |key, value| config(key, value).unwrap_err();
        assert_eq!(error("slot", "3"), "slot is not a setting; is slots meant?");
        assert!(error("threads", "3").contains("; there are backend, rsa_schedule,"));
        assert!(error("stats_dir", "here").contains("auto, no or an absolute path"));
        assert_eq!(
            error("slots", "0"),
            "slots is '0', but must be a number from 1 to 4096"
        );
        assert_eq!(
            error("lone", "maybe"),
            "lone is 'maybe', but must be auto, lanes or stock"
        );
        assert!(error("rsa_schedule", "before").contains("'before', but must be auto, beside"));
        assert!(error("backend", "mmx").contains("'mmx', but must be auto, none or one that this"));
        assert!(error("max_async", "-1").contains("'-1'"));
        assert!(error("key_pool", "65").contains("from 0 to 64"));
        assert!(error("check_every", "0").contains("from 1 to"));
        let long = "/x".repeat(54);
        assert!(error("keys", "yes").contains("process or daemon"));
        assert!(error("references", "1").contains("'1', but must be yes or no"));
        assert!(error("keyd_socket", "k.sock").contains("auto or an absolute path"));
        assert!(error("syslog", &long).contains("at most 107 bytes"));
        assert!(error("syslog", "log").contains("yes, no or an absolute path"));
    }

    #[test]
    fn every_default_that_is_a_value_is_the_default() {
        for setting in Setting::ALL {
            let Ok(config) = config(setting.name, setting.default) else {
                assert_eq!(
                    setting.name, "slots",
                    "its default is a matter of the machine"
                );
                continue;
            };
            let default = Config::from_pairs::<&str>([]);
            assert_eq!(config, default, "{}", setting.name);
        }
    }

    #[test]
    fn the_key_daemon_is_asked_for_the_first_request_with_a_key_too() {
        let [rsa, p256] = ["rsa2048", "p256-sign"].map(|name| {
            let mut all = Shape::ALL.into_iter();
            all.find(|shape| shape.name() == name).unwrap()
        });
        let first = |config: &Config| [rsa, p256].map(|shape| config.leaves_first(shape));
        let usual = first(&Config::default());
        assert!(usual[0] > 0 && usual[1] > 0, "{usual:?}");
        assert_eq!(first(&config("keys", "daemon").unwrap()), [0, usual[1]]);
        assert_eq!(first(&config("lone", "lanes").unwrap()), [0, 0]);
    }

    #[test]
    fn the_document_prints_this_table() {
        let document = include_str!("../../docs/user/settings.md");
        let expected = Setting::reference();
        assert!(
            document.contains(&expected),
            "docs/user/settings.md must hold this table:\n{expected}"
        );
    }
}
