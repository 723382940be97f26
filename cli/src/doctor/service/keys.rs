//! Files with keys, certificates or references that a service's configuration names.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lockstep_keyd::public_blocks::blocks;
use lockstep_keyd::reference_file::contents;
use lockstep_remote::reference::LABEL;
use lockstep_remote::{CERTIFICATE_LABELS, certificate_key};

use super::sight::{Reference, Seen, Uncovered};
use crate::files::{beginning, entries};

/// Maximum number of files that are looked at.
const MOST_FILES: usize = 1024;
/// Maximum number of bytes that are read of a file.
const MOST_BYTES: u64 = 256 << 10;

/// Looks at the files that a configuration names, and at the keys that references cover. `covered`
/// has pairs of a reference and the path of the key that it covers. All files are below the
/// directory `below`, the root of the service.
pub fn look(
    configuration: &[PathBuf],
    covered: &[(PathBuf, PathBuf)],
    below: &Path,
    seen: &mut Seen,
) {
    let at = |path: &Path| below.join(path.strip_prefix("/").unwrap_or(path));
    let called = |path: &Path| match path.strip_prefix(below) {
        Ok(inside) => Path::new("/").join(inside),
        Err(_) => path.to_owned(),
    };
    let covered: Vec<(&PathBuf, PathBuf)> = covered
        .iter()
        .map(|(reference, key)| (reference, at(key)))
        .collect();
    let mut paths: Vec<PathBuf> = covered.iter().map(|(_, key)| key.clone()).collect();
    paths.extend(covered.iter().flat_map(|(_, key)| entries(key)));
    for file in configuration {
        let above = file.parent().unwrap_or(Path::new("/"));
        paths.extend(named(&beginning(file, MOST_BYTES), above, &at));
    }
    // A file may have several names.
    let mut known = HashSet::new();
    let is_new = |path: &PathBuf| {
        let about = fs::metadata(path).ok().filter(|about| about.is_file());
        about.is_some_and(|about| known.insert((about.dev(), about.ino())))
    };
    for path in paths.into_iter().take(MOST_FILES).filter(is_new) {
        let contents = contents(&path);
        if contents.certificate {
            let blocks = blocks(&path, &CERTIFICATE_LABELS);
            let keys = blocks.iter().filter_map(|block| certificate_key(block));
            seen.certificates.extend(keys);
        }
        let shown = called(&path).display().to_string();
        if contents.reference {
            seen.references.push(Reference {
                path: shown,
                text: blocks(&path, &[LABEL]).concat(),
            });
        } else if contents.key
            && let Some((reference, _)) = covered.iter().find(|(_, key)| path.starts_with(key))
        {
            seen.uncovered.push(Uncovered {
                key: shown,
                missing: (!at(reference).exists()).then(|| reference.to_path_buf()),
            });
        }
    }
}

/// Returns the files that the words of a configuration name; `above` is the directory of the
/// configuration. HAProxy also names directories of files, and base directories.
fn named(text: &str, above: &Path, at: &dyn Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let is_edge = |c: char| c.is_whitespace() || ";={}\"'".contains(c);
    let words: Vec<&str> = text
        .split(is_edge)
        .filter(|word| !word.is_empty())
        .collect();
    let behind = |keyword: &'static str| {
        let pairs = words.windows(2).filter(move |pair| pair[0] == keyword);
        pairs.map(|pair| at(Path::new(pair[1])))
    };
    let bases: Vec<PathBuf> = behind("crt-base").chain([above.to_owned()]).collect();
    let in_bases = |word: &str| match word.starts_with('/') {
        true => vec![at(Path::new(word))],
        false => bases.iter().map(|base| base.join(word)).collect(),
    };
    let is_path = |word: &&&str| word.contains(['/', '.']);
    let paths = words.iter().filter(is_path).flat_map(|word| in_bases(word));
    let in_directories = behind("crt").flat_map(|directory| entries(&directory));
    let all = paths.chain(in_directories);
    all.filter(|path| path.is_file()).take(MOST_FILES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_the_words_of_a_configuration() {
        let place = lockstep_testkit::TempDir::new("references");
        for file in ["etc/a.key", "ssl/b.pem", "all/1.pem", "c.pem", "d"] {
            let path = place.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let at = |path: &Path| place.join(path.strip_prefix("/").unwrap_or(path));
        let text = "key \"a.key\"; crt-base /ssl\nbind :443 crt b.pem crt /all crt=/c.pem d\n";
        let mut found = named(text, &place.join("etc"), &at);
        found.sort();
        found.dedup();
        let expected = ["all/1.pem", "c.pem", "etc/a.key", "ssl/b.pem"];
        assert_eq!(found, expected.map(|name| place.join(name)));
    }
}
