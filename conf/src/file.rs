//! A configuration file as libcrypto's parser sees it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_long};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;

use crate::error::Error;
use crate::ffi::{Conf, ConfValue, Libcrypto, Stack, libcrypto, text};
use crate::queue;

/// A setting of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Text before the equals sign.
    pub name: String,
    /// Text after it, without quotes and with its variables expanded.
    pub value: String,
}

/// All sections of a file and of the files that it includes.
#[derive(Clone, Debug, Default)]
pub struct File {
    sections: BTreeMap<String, Vec<Line>>,
}

impl File {
    /// Reads a file and its included files.
    ///
    /// # Errors
    /// The file cannot be read, or is not a configuration. A missing included file is no error
    /// (config(5)).
    pub fn read(path: &Path) -> Result<File, Error> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::new("the path holds a zero byte"))?;
        // For a file that cannot be opened, the system's message is better than libcrypto's.
        if let Err(error) = std::fs::File::open(path) {
            return Err(Error::new(error.to_string()));
        }
        let parsed = Parsed::read(&name)?;
        Ok(File {
            sections: parsed.sections(),
        })
    }

    /// Makes a file from sections that another process has read.
    pub fn of(sections: BTreeMap<String, Vec<Line>>) -> File {
        File { sections }
    }

    /// All sections, by their names.
    pub fn sections(&self) -> &BTreeMap<String, Vec<Line>> {
        &self.sections
    }

    /// Returns the lines of a section in the order of libcrypto; `None` if there is no such
    /// section. Lines before the first section are in `default`.
    pub fn section(&self, name: &str) -> Option<&[Line]> {
        self.sections.get(name).map(Vec::as_slice)
    }

    /// Returns the value of a name in a section, the last of several.
    pub fn value(&self, section: &str, name: &str) -> Option<&str> {
        let lines = self.section(section)?;
        let line = lines.iter().rev().find(|line| line.name == name)?;
        Some(&line.value)
    }
}

/// libcrypto's own form of a file.
struct Parsed {
    libcrypto: &'static Libcrypto,
    conf: *mut Conf,
}

impl Parsed {
    fn read(path: &CStr) -> Result<Parsed, Error> {
        let libcrypto = libcrypto()?;
        let mut line: c_long = 0;
        // SAFETY: NULL asks for the default method.
        let conf = unsafe { libcrypto.NCONF_new(null_mut()) };
        if conf.is_null() {
            return Err(queue::take(libcrypto));
        }
        let parsed = Parsed { libcrypto, conf };
        // SAFETY: a fresh configuration, a C string, and a number to write to.
        match unsafe { libcrypto.NCONF_load(conf, path.as_ptr(), &raw mut line) } {
            1 => {
                // Errors that the parser tolerates stay on the queue.
                // SAFETY: the function takes no arguments.
                unsafe { libcrypto.ERR_clear_error() };
                Ok(parsed)
            }
            _ => {
                let mut error = queue::take(libcrypto);
                if line > 0
                    && !error
                        .messages
                        .iter()
                        .any(|message| message.contains("line "))
                {
                    error.messages.push(format!("in line {line}"));
                }
                Err(error)
            }
        }
    }

    fn sections(&self) -> BTreeMap<String, Vec<Line>> {
        // SAFETY: a loaded configuration. The names belong to it, the list of names to us.
        let (names, list) = unsafe {
            let list = self.libcrypto.NCONF_get_section_names(self.conf);
            (self.elements::<c_char>(list), list)
        };
        let sections = names.into_iter().map(|name| {
            // SAFETY: one of the configuration's own names.
            let (lines, name) = unsafe {
                let lines = self.libcrypto.NCONF_get_section(self.conf, name);
                (lines, text(name).unwrap_or_default())
            };
            // SAFETY: NULL, or a stack of lines that belongs to the configuration.
            let lines = unsafe { self.elements::<ConfValue>(lines) };
            let line = |line: *mut ConfValue| {
                // SAFETY: each line of a section has a name and a value.
                let (name, value) = unsafe { (text((*line).name), text((*line).value)) };
                Line {
                    name: name.unwrap_or_default(),
                    value: value.unwrap_or_default(),
                }
            };
            (name, lines.into_iter().map(line).collect())
        });
        let sections = sections.collect();
        // SAFETY: NULL, or the list of names; its elements stay.
        unsafe { self.libcrypto.OPENSSL_sk_free(list) };
        sections
    }

    /// # Safety
    /// `stack` is NULL or a stack of `T`.
    unsafe fn elements<T>(&self, stack: *const Stack) -> Vec<*mut T> {
        if stack.is_null() {
            return Vec::new();
        }
        // SAFETY: a stack by contract, and indices that it has.
        unsafe {
            let count = self.libcrypto.OPENSSL_sk_num(stack);
            (0..count)
                .map(|index| self.libcrypto.OPENSSL_sk_value(stack, index).cast())
                .collect()
        }
    }
}

impl Drop for Parsed {
    fn drop(&mut self) {
        // SAFETY: a configuration that nothing refers to any more.
        unsafe { self.libcrypto.NCONF_free(self.conf) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use lockstep_testkit::TempDir;

    #[test]
    fn included_files_and_variables_are_part_of_it() {
        let place = TempDir::new("conf");
        fs::create_dir_all(place.join("more")).unwrap();
        fs::write(place.join("more/a.cnf"), "[p]\nlater = $first/x\n").unwrap();
        fs::write(place.join("more/b.txt"), "[p]\nfirst = not read\n").unwrap();
        let text = format!(
            "openssl_conf = i # comment\n[ i ]\nproviders = p\n[p]\nfirst=1\nfirst = \"two \"\n.include = {}\n\
             .include = {}/none\n[i]\nq = a\\#b\n",
            place.join("more").display(),
            place.display()
        );
        fs::write(place.join("main.cnf"), text).unwrap();
        let file = File::read(&place.join("main.cnf")).unwrap();
        assert_eq!(file.value("default", "openssl_conf"), Some("i"));
        let line = |name: &str, value: &str| Line {
            name: name.into(),
            value: value.into(),
        };
        assert_eq!(
            file.section("i").unwrap(),
            [line("providers", "p"), line("q", "a#b")]
        );
        assert_eq!(
            file.section("p").unwrap(),
            [line("first", "two "), line("later", "two /x")]
        );
        assert_eq!(file.section("none"), None);
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let place = TempDir::new("conf");
        let path = place.join("main.cnf");
        fs::write(&path, "a = b\n\n[open\n").unwrap();
        let error = File::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
        let error = File::read(&place.join("none")).unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }
}
