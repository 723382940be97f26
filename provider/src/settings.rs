//! Our settings in `openssl.cnf`.
//!
//! The core answers for a key of the provider's section that one asks for, and does not list the
//! section's keys. So the values come from the core, which holds also for programs that load a file
//! of their own, and the names from a second reading of the default file, by OpenSSL's own parser.
//! The section there is ours if it names the same module and the same values.

use std::ffi::{c_char, c_long};
use std::ptr::null_mut;

use lockstep_engine::{Config, ConfigError, Setting};

use crate::ffi::{self, Conf, ConfValue, Stack};
use crate::loader::{Core, text};

/// Reads the settings in the provider's section of the configuration.
pub fn read(core: &Core) -> Result<Config, ConfigError> {
    let told = |key: &'static str| Some((key.to_owned(), core.param(key)?));
    let settings: Vec<_> = Setting::ALL.iter().filter_map(|s| told(s.name)).collect();
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
    // Two sections may look alike; without knowing which is meant, the benefit of the doubt.
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
struct File(*mut Conf);

impl File {
    fn default() -> Option<File> {
        // SAFETY: constructors, and a load that reads a C string of the module to free; parsing
        // runs no modules. The errors are taken off the queue, which is the program's.
        unsafe {
            let path = ffi::CONF_get1_default_config_file();
            if path.is_null() {
                return None;
            }
            ffi::ERR_set_mark();
            let file = File(ffi::NCONF_new(null_mut()));
            let mut line: c_long = 0;
            let loaded = !file.0.is_null() && ffi::NCONF_load(file.0, path, &mut line) == 1;
            ffi::ERR_pop_to_mark();
            ffi::CRYPTO_free(path.cast(), c"".as_ptr(), 0);
            loaded.then_some(file)
        }
    }

    /// Its sections, each with its lines.
    fn sections(&self) -> Vec<Vec<Line>> {
        // SAFETY: a list of names that belong to the file; the list itself is ours.
        let (names, owned) = unsafe {
            let names = ffi::NCONF_get_section_names(self.0);
            (elements(names), names)
        };
        let lines = |section: *mut c_char| {
            // SAFETY: one of the file's own names; what is found belongs to the file.
            let values = unsafe { elements(ffi::NCONF_get_section(self.0, section)) };
            let line = |value: *mut ConfValue| {
                // SAFETY: a line of the file has a name and a value.
                unsafe { (text((*value).name), text((*value).value)) }
            };
            values.into_iter().map(line).collect()
        };
        let sections = names.into_iter().map(lines).collect();
        // SAFETY: NULL, or the list from above.
        unsafe { ffi::OPENSSL_sk_free(owned) };
        sections
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: NULL, or ours; nothing of it is in use any more.
        unsafe { ffi::NCONF_free(self.0) };
    }
}

/// # Safety
/// `stack` is NULL or a stack of `T`.
unsafe fn elements<T>(stack: *const Stack) -> Vec<*mut T> {
    if stack.is_null() {
        return Vec::new();
    }
    // SAFETY: by contract, and with indices that it has.
    unsafe {
        let count = ffi::OPENSSL_sk_num(stack);
        (0..count)
            .map(|index| ffi::OPENSSL_sk_value(stack, index).cast())
            .collect()
    }
}
