//! Our settings in `openssl.cnf`.
//!
//! The core returns the value of a key of the provider's section, and does not list the section's
//! keys. So the values come from the core, which holds also for programs that load a file of their
//! own, and the names from a second reading of the default file, by OpenSSL's own parser. The
//! section there is ours if it names the same module and the same values.

use std::ffi::{c_char, c_void};

use lockstep_engine::{Config, ConfigError, Setting};

use crate::ffi::{self, Conf, ConfValue, Owned, Stack, Text};
use crate::loader::Core;

/// Reads the settings in the provider's section of the configuration.
pub fn read(core: &Core) -> Result<Config, ConfigError> {
    let line = |key: &'static str| Some((key.to_owned(), core.param(key)?));
    let settings: Vec<_> = Setting::ALL.iter().filter_map(|s| line(s.name)).collect();
    let module = core.param("module");
    if let Some(key) = module.and_then(|module| unknown_key(&module, &settings)) {
        return Err(ConfigError::unknown(&key));
    }
    Config::from_pairs(settings)
}

/// A key of the section with this module and these settings that is not a setting; None also if
/// there is no such section in the default file.
fn unknown_key(module: &str, settings: &[Line]) -> Option<String> {
    let sections = File::default()?.sections();
    let is_ours = |section: &&Vec<Line>| {
        let has = |line: &Line| section.contains(line);
        let count = section.iter().filter(|(key, _)| is_setting(key)).count();
        has(&("module".to_owned(), module.to_owned()))
            && settings.iter().all(has)
            && count == settings.len()
    };
    let unknown = |section: &Vec<Line>| {
        let mut keys = section.iter().map(|(key, _)| key);
        keys.find(|key| !is_setting(key) && !is_openssls(key))
            .cloned()
    };
    // Two sections may look alike. Which one is meant is unknown, so a key is reported only if each
    // has a wrong one.
    let ours: Vec<_> = sections.iter().filter(is_ours).map(unknown).collect();
    ours.into_iter().collect::<Option<Vec<_>>>()?.pop()
}

fn is_setting(key: &str) -> bool {
    Setting::ALL.iter().any(|setting| setting.name == key)
}

/// Whether libcrypto itself takes this key in a provider's section (config(5)). What stands before
/// a dot serves to repeat a name.
fn is_openssls(key: &str) -> bool {
    let name = key.split_once('.').map_or(key, |(_, name)| name);
    ["identity", "soft_load", "module", "activate"].contains(&name)
}

/// A name and its value.
type Line = (String, String);

/// The configuration file that programs load by default.
struct File(Owned<Conf>);

impl File {
    fn default() -> Option<File> {
        // SAFETY: NULL, or a C string to free. Parsing it runs no modules. The errors are
        // taken off the queue, which is the program's.
        unsafe {
            let path = ffi::CONF_get1_default_config_file();
            if path.is_null() {
                return None;
            }
            ffi::ERR_set_mark();
            let file = ffi::NCONF_new(None).and_then(|mut file| {
                let loaded = ffi::NCONF_load(&mut file, path, &mut 0) == 1;
                loaded.then_some(File(file))
            });
            ffi::ERR_pop_to_mark();
            ffi::CRYPTO_free(path.cast(), c"".as_ptr(), 0);
            file
        }
    }

    /// Its sections, each with its lines.
    fn sections(&self) -> Vec<Vec<Line>> {
        let names = ffi::NCONF_get_section_names(&self.0);
        let names = names.as_deref().map(elements).into_iter().flatten();
        names.map(|name| self.lines(name.cast())).collect()
    }

    fn lines(&self, section: *mut c_char) -> Vec<Line> {
        let text = |text: Option<Text<'_>>| text.map(Text::to_text).unwrap_or_default();
        // SAFETY: one of the file's own names, a C string. What is found belongs to the file.
        unsafe {
            let lines = ffi::NCONF_get_section(&self.0, section).map(elements);
            let lines = lines.into_iter().flatten();
            lines
                .map(|line| &*line.cast::<ConfValue>())
                .map(|line| (text(line.name), text(line.value)))
                .collect()
        }
    }
}

/// The elements of a stack.
fn elements(stack: &Stack) -> impl Iterator<Item = *mut c_void> {
    (0..ffi::OPENSSL_sk_num(stack)).map(|index| ffi::OPENSSL_sk_value(stack, index))
}
