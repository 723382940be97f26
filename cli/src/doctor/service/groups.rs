//! Lists of groups for the key exchange, and whether OpenSSL knows all that they name: with one
//! unknown name OpenSSL refuses the whole list.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockstep_common::Effective;

/// A list of groups, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct GroupList {
    pub list: String,
    pub place: String,
}

/// The words of servers' configurations that a list follows.
const KEYWORDS: [&str; 6] = [
    "curves",
    "ssl-default-bind-curves",
    "ssl_ecdh_curve",
    "Curves",
    "Groups",
    "curve",
];

/// The most bytes of a server's configuration that are looked at.
const MOST_BYTES: u64 = 1 << 20;
/// The most files of a server's configuration.
const MOST_FILES: usize = 256;

/// The list that a configuration of OpenSSL sets for all programs.
pub fn of_policy(effective: &Effective) -> Vec<GroupList> {
    let lines = effective.tls_policy().into_iter();
    let lists = lines.filter(|line| ["Groups", "Curves"].contains(&line.name.as_str()));
    lists
        .map(|line| GroupList {
            list: line.value.clone(),
            place: format!("`{}` in {}", line.name, effective.path.display()),
        })
        .collect()
}

/// The lists in a server's own configuration.
pub fn of_server(files: &[PathBuf]) -> Vec<GroupList> {
    let lists = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        in_text(&text)
            .into_iter()
            .map(|(word, list)| GroupList {
                list,
                place: format!("`{word}` in {}", file.display()),
            })
            .collect::<Vec<_>>()
    });
    lists.collect()
}

/// The files of a server's configuration: those among the words of its command line, and those in
/// its directories.
pub fn files_of_server(words: &[PathBuf], mut directories: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_small = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() < MOST_BYTES)
    };
    let mut files: Vec<PathBuf> = words
        .iter()
        .filter(|path| is_small(path))
        .cloned()
        .collect();
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
        {
            if files.len() + directories.len() >= MOST_FILES {
                return files;
            }
            match path.is_dir() && !path.is_symlink() {
                true => directories.push(path),
                false if is_small(&path) && !files.contains(&path) => files.push(path),
                false => {}
            }
        }
    }
    files
}

/// The keywords of a text with the lists that follow them.
fn in_text(text: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with(';'))
    {
        let line = line.split('#').next().unwrap_or_default();
        let separators = |c: char| c.is_whitespace() || c == ';' || c == '=' || c == '"';
        let words: Vec<&str> = line
            .split(separators)
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let keyword = KEYWORDS.into_iter().find(|keyword| *keyword == pair[0]);
            found.extend(keyword.map(|keyword| (keyword, pair[1].to_owned())));
        }
    }
    found
}

/// The first group of a list that OpenSSL does not know with this configuration, if it refuses the
/// list.
pub fn unknown(list: &str, configuration: &Path) -> Option<String> {
    // nginx takes this for OpenSSL's own list.
    if list == "auto" || !is_refused(list, configuration) {
        return None;
    }
    let names = names(list);
    let unknown = names.iter().find(|name| is_refused(name, configuration));
    Some(unknown.unwrap_or(&list).to_string())
}

/// The names in a list, without the marks of OpenSSL 3.5.
fn names(list: &str) -> Vec<&str> {
    let names = list.split([':', '/', ',']);
    names
        .map(|name| name.trim_start_matches(['?', '*', '-']))
        .collect()
}

fn is_refused(list: &str, configuration: &Path) -> bool {
    // Port 0 is nowhere, so that the command ends without a connection.
    let output = Command::new("openssl")
        .args(["s_client", "-groups", list, "-connect", "127.0.0.1:0"])
        .env("OPENSSL_CONF", configuration)
        .stdin(std::process::Stdio::null())
        .output();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("SSL_CONF_cmd(-groups");
    output.is_ok_and(|output| said(&output.stderr) || said(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_found_in_the_configurations_of_servers() {
        let text = "ssl-default-bind-curves X25519:P-256 # curves x\n\
                    bind :443 ssl crt a.pem curves P-384\nssl_ecdh_curve   X448:auto;\n\
                    SSLOpenSSLConfCmd Groups \"P-521\"\ncurve = prime256v1\n# curves none\n";
        let lists: Vec<String> = in_text(text).into_iter().map(|(_, list)| list).collect();
        assert_eq!(
            lists,
            ["X25519:P-256", "P-384", "X448:auto", "P-521", "prime256v1"]
        );
    }

    #[test]
    fn the_unknown_name_is_found() {
        let none = Path::new("/dev/null");
        assert_eq!(unknown("X25519:P-256", none), None);
        assert_eq!(unknown("auto", none), None);
        assert_eq!(
            unknown("X25519:nonesuch:P-256", none).as_deref(),
            Some("nonesuch")
        );
    }

    #[test]
    fn the_policy_for_all_programs_is_read() {
        let place = lockstep_testkit::TempDir::new("groups");
        let path = place.join("openssl.cnf");
        let text = "openssl_conf = i\n[i]\nssl_conf = s\n[s]\nother = o\nsystem_default = d\n\
                    [o]\nGroups = P-384\n[d]\nMinProtocol = TLSv1.2\nGroups = X25519:x\n";
        fs::write(&path, text).unwrap();
        let lists = of_policy(&Effective::read(&path).unwrap());
        assert_eq!(lists.len(), 1);
        assert_eq!(lists[0].list, "X25519:x");
        assert!(lists[0].place.starts_with("`Groups` in /"), "{lists:?}");
    }

    #[test]
    fn the_files_of_a_server_are_those_it_names_and_those_in_its_directory() {
        let place = lockstep_testkit::TempDir::new("files");
        fs::create_dir_all(place.join("etc/sites")).unwrap();
        for name in ["haproxy.cfg", "etc/a.conf", "etc/sites/b.conf"] {
            fs::write(place.join(name), "").unwrap();
        }
        let words = [place.join("haproxy.cfg"), place.join("-f")];
        let mut found = files_of_server(&words, vec![place.join("etc")]);
        found.sort();
        let expected = ["etc/a.conf", "etc/sites/b.conf", "haproxy.cfg"];
        assert_eq!(found, expected.map(|name| place.join(name)));
        assert_eq!(names("?X25519/*P-256:-x"), ["X25519", "P-256", "x"]);
    }
}
