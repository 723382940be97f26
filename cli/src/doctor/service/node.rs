//! Node.js reads another line of a configuration of OpenSSL than other programs do.

use lockstep_common::Configuration;

use super::subject::Subject;
use crate::process::{Environment, Process};

/// Names of the program.
const NAMES: [&str; 2] = ["node", "nodejs"];
/// Line that it reads in place of `openssl_conf`.
const LINE: &str = "nodejs_conf";
/// Option with which it reads `openssl_conf`.
const OPTION: &str = "--openssl-shared-config";

/// Finds the reason why Node.js ignores its configuration, and the remedy; `None` for other
/// programs, and where nothing is wrong.
pub fn why_not(
    subject: &Subject,
    environment: &Environment,
    configuration: &Configuration,
) -> Option<(String, String)> {
    let main = subject.main()?;
    let is_node = name(main).is_some_and(|name| NAMES.contains(&name.as_str()));
    let options = environment.get("NODE_OPTIONS").unwrap_or_default();
    let words = options.split_whitespace();
    let is_shared = main.arguments().iter().any(|word| word == OPTION)
        || words.into_iter().any(|word| word == OPTION);
    let file = configuration.effective.file();
    let has_line = file.value("default", LINE).is_some();
    (is_node && !is_shared && !has_line).then(|| {
        let path = configuration.path().display();
        let what = format!(
            "Node.js reads the line {LINE} of a configuration of OpenSSL, where other programs \
             read openssl_conf. {path} has no such line, so {} runs without lockstep",
            subject.shown()
        );
        let remedy = format!("start it with NODE_OPTIONS={OPTION}, or with that option");
        (what, remedy)
    })
}

/// The name of the file of its program.
fn name(process: &Process) -> Option<String> {
    let program = process.program()?;
    Some(program.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::subject::Wanted;
    use super::*;
    use crate::process::Processes;

    #[test]
    fn node_is_told_which_line_it_reads() {
        let place = lockstep_testkit::TempDir::new("node");
        let about = place.join("7");
        fs::create_dir_all(&about).unwrap();
        let status = "Name:\tMainThread\nPid:\t7\nPPid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n";
        fs::write(about.join("status"), status).unwrap();
        let conf = place.join("openssl.cnf");
        let found = |program: &str, words: &str, environment: &str, text: &str| {
            let _ = fs::remove_file(about.join("exe"));
            std::os::unix::fs::symlink(program, about.join("exe")).unwrap();
            fs::write(about.join("cmdline"), words).unwrap();
            fs::write(about.join("environ"), environment).unwrap();
            fs::write(&conf, text).unwrap();
            let directory = place.to_path_buf();
            let subject = Wanted::Process(7)
                .find_all(&Processes { directory }, &place)
                .unwrap()
                .remove(0);
            let environment = subject.main().unwrap().environment().unwrap();
            let configuration = Configuration::at(&conf, true).unwrap();
            why_not(&subject, &environment, &configuration)
        };
        let usual = "openssl_conf = i\n[i]\n";
        let (what, remedy) = found("/usr/bin/node", "node\0a.js\0", "A=b\0", usual).unwrap();
        assert!(what.contains("reads the line nodejs_conf"), "{what}");
        assert!(
            remedy.contains("NODE_OPTIONS=--openssl-shared-config"),
            "{remedy}"
        );
        for (program, words, environment, text) in [
            ("/usr/bin/python3", "python3\0", "A=b\0", usual),
            (
                "/usr/bin/node",
                "node\0--openssl-shared-config\0",
                "A=b\0",
                usual,
            ),
            (
                "/usr/bin/node",
                "node\0",
                "NODE_OPTIONS=-x --openssl-shared-config\0",
                usual,
            ),
            ("/usr/bin/node", "node\0", "A=b\0", "nodejs_conf = i\n[i]\n"),
        ] {
            assert_eq!(found(program, words, environment, text), None);
        }
    }
}
