//! Names for addresses in a process, by the symbol tables of the files that it has mapped.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// The functions of all objects that a process has mapped.
pub struct Symbols {
    objects: Vec<Object>,
}

struct Object {
    path: String,
    base: u64,
    end: u64,
    /// Name by offset.
    functions: Arc<BTreeMap<u64, String>>,
}

impl Symbols {
    /// Reads the objects that a process has mapped now.
    pub fn of(pid: i32) -> Result<Symbols, String> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
            .map_err(|error| format!("cannot read the mappings of process {pid}: {error}"))?;
        let mut objects: Vec<Object> = Vec::new();
        for line in maps.lines() {
            let Some((range, path)) = line.split_once(' ').and_then(|(range, rest)| {
                let path = &rest[rest.find('/')?..];
                Some((range, path))
            }) else {
                continue;
            };
            let Some((start, end)) = range.split_once('-').and_then(|(start, end)| {
                Some((
                    u64::from_str_radix(start, 16).ok()?,
                    u64::from_str_radix(end, 16).ok()?,
                ))
            }) else {
                continue;
            };
            match objects.iter_mut().find(|object| object.path == path) {
                Some(object) => object.end = object.end.max(end),
                None => objects.push(Object {
                    path: path.to_owned(),
                    base: start,
                    end,
                    functions: functions(path),
                }),
            }
        }
        Ok(Symbols { objects })
    }

    /// The function at an address, and how far into it the address is.
    pub fn name(&self, address: u64) -> String {
        let Some(object) = self.object(address) else {
            return format!("{address:#x} in no file");
        };
        let short = object.path.rsplit('/').next().unwrap_or(&object.path);
        let offset = address - object.base;
        match object.functions.range(..=offset).next_back() {
            Some((start, name)) => format!("{name}+{:#x} ({short}+{offset:#x})", offset - start),
            None => format!("{short}+{offset:#x}"),
        }
    }

    /// The name of the function at an address, without the object's.
    pub fn function(&self, address: u64) -> Option<&str> {
        let object = self.object(address)?;
        let (_, name) = object
            .functions
            .range(..=address - object.base)
            .next_back()?;
        Some(name)
    }

    fn object(&self, address: u64) -> Option<&Object> {
        self.objects
            .iter()
            .find(|object| (object.base..object.end).contains(&address))
    }
}

/// The functions of a file, by `nm`; none if it cannot be read or has none. They are read once.
fn functions(path: &str) -> Arc<BTreeMap<u64, String>> {
    static READ: Mutex<BTreeMap<String, Arc<BTreeMap<u64, String>>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(
        read.entry(path.to_owned())
            .or_insert_with(|| Arc::new(listed(path))),
    )
}

fn listed(path: &str) -> BTreeMap<u64, String> {
    let list = |arguments: &[&str]| {
        Command::new("nm")
            .args(arguments)
            .arg(path)
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    };
    let mut found = parse(&list(&["-C", "--defined-only"]));
    // Libraries of the distribution keep only their exported symbols.
    for (offset, name) in parse(&list(&["-D", "--defined-only"])) {
        found.entry(offset).or_insert(name);
    }
    found
}

fn parse(listing: &str) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for line in listing.lines() {
        let mut parts = line.splitn(3, ' ');
        let (Some(address), Some(kind), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if let (Ok(address), true) = (
            u64::from_str_radix(address, 16),
            matches!(kind, "T" | "t" | "W" | "w" | "i"),
        ) {
            found.insert(address, name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_and_data_is_not() {
        let found = parse(
            "0000000000001000 T one\n0000000000001010 t a::b::<c, d>\n0000000000002000 D data\n",
        );
        let names: Vec<&str> = found.values().map(String::as_str).collect();
        assert_eq!(names, ["one", "a::b::<c, d>"]);
    }
}
