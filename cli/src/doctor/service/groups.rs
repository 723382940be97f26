//! Lists of groups for the key exchange, and whether OpenSSL knows every name in them: because of
//! one unknown name, it refuses the whole list.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use lockstep_common::{Configuration, Effective, Scratch};
use serde::{Deserialize, Serialize};

use super::handshake::{Offer, configuration, module_of_this_program};
use crate::command::{openssl, start};
use crate::files::beginning;
use crate::servers::named::files_in;

/// A list of groups, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupList {
    pub list: String,
    pub place: String,
}

/// Keywords of servers' configurations that precede a list of groups.
#[rustfmt::skip]
const KEYWORDS: [&str; 6] = [
    "curves", "ssl-default-bind-curves", "ssl_ecdh_curve", "Curves", "Groups", "curve",
];

/// Maximum number of bytes of a server's configuration that are searched.
const MOST_BYTES: u64 = 1 << 20;
/// Maximum number of files of a server's configuration.
const MOST_FILES: usize = 256;
/// Maximum number of lists, and of bytes in one list.
const MOST_LISTS: usize = 32;
const LONGEST_LIST: usize = 1024;
/// Maximum time for the `openssl` command to read a list.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names of providers that bring no groups, or only groups that the `openssl` command knows here,
/// too.
const USUAL: [&str; 5] = ["default", "base", "legacy", "null", "lockstep"];

/// The lists that a configuration of OpenSSL sets for all programs.
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
        // The file may have been replaced meanwhile.
        in_text(&beginning(file, MOST_BYTES))
            .into_iter()
            .map(|(word, list)| GroupList {
                list,
                place: format!("`{word}` in {}", file.display()),
            })
            .collect::<Vec<_>>()
    });
    lists.take(MOST_LISTS).collect()
}

/// The files of a server's configuration: files that its command line names, and files in its
/// directories.
pub fn files_of_server(words: Vec<PathBuf>, directories: Vec<PathBuf>) -> Vec<PathBuf> {
    let files = words.into_iter().filter(|path| path.is_file());
    let mut files = files_in(files.chain(directories), MOST_FILES);
    let mut known = BTreeSet::new();
    files.retain(|path| known.insert(path.clone()));
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

/// Returns the first unknown group of a list, if OpenSSL refuses the list. The `openssl` command is
/// asked with a configuration of this program, never with the service's, which may name any code.
/// If the service has other providers, their groups are not known here.
pub fn unknown(list: &str, of: Option<&Configuration>) -> Option<String> {
    // nginx takes this for OpenSSL's own list.
    if list == "auto" || list.len() > LONGEST_LIST {
        return None;
    }
    let providers = of.map(|of| of.effective.providers()).unwrap_or_default();
    if !providers.iter().all(|provider| {
        USUAL.contains(&provider.name.as_str()) || provider.is_lockstep() || !provider.active
    }) {
        return None;
    }
    let scratch = Scratch::new("doctor-groups").ok()?;
    // The module brings groups that OpenSSL may lack.
    let module = module_of_this_program().ok();
    let text = configuration(Offer::default(), module.as_deref());
    let path = scratch.write("openssl.cnf", &text).ok()?;
    let is_refused = |list: &str| {
        let mut command = openssl(&path);
        // No server listens at port 0, so the command ends without a connection.
        command.args(["s_client", "-groups", list, "-connect", "127.0.0.1:0"]);
        command.env("LOCKSTEP_STATS_DIR", "no");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("SSL_CONF_cmd(-groups");
        let started = start(&mut command, b"", MOST_BYTES).ok();
        let ended = started.and_then(|started| started.finish(PATIENCE));
        ended.is_some_and(|ended| said(&ended.errors) || said(&ended.out))
    };
    // Without the module, nothing is known of the groups that it brings.
    let is_known = |name: &str| module.is_some() || !name.contains("MLKEM");
    if is_known(list) && !is_refused(list) {
        return None;
    }
    let names = names(list);
    let mut names = names.into_iter().filter(|name| is_known(name));
    let unknown = names.find(|name| is_refused(name));
    let unknown = unknown.or_else(|| is_known(list).then_some(list));
    unknown.map(str::to_owned)
}

/// The names in a list, without the marks of OpenSSL 3.5.
fn names(list: &str) -> Vec<&str> {
    let names = list.split([':', '/', ',']);
    names
        .map(|name| name.trim_start_matches(['?', '*', '-']))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let found = |list: &str| unknown(list, None);
        assert_eq!(found("X25519:P-256"), None);
        assert_eq!(found("auto"), None);
        assert_eq!(found("X25519:nonesuch:P-256").as_deref(), Some("nonesuch"));
        let hybrid = found("X25519:nonesuch:X25519MLKEM768");
        assert_eq!(hybrid.as_deref(), Some("nonesuch"));
        assert_eq!(found(&"nonesuch:".repeat(200)), None);
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
        let mut found = files_of_server(words.to_vec(), vec![place.join("etc")]);
        found.sort();
        let expected = ["etc/a.conf", "etc/sites/b.conf", "haproxy.cfg"];
        assert_eq!(found, expected.map(|name| place.join(name)));
        assert_eq!(names("?X25519/*P-256:-x"), ["X25519", "P-256", "x"]);
    }
}
