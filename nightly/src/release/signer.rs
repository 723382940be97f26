//! Signatures of gpg.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::command::{Failure, Outcome, on, quietly};

/// A key of gpg's, which stays with gpg.
pub struct Signer {
    pub fingerprint: String,
    /// A keyring other than the user's own.
    home: Option<PathBuf>,
}

impl Signer {
    /// The one secret key of this name, or fingerprint.
    pub fn of(key: &str, home: Option<PathBuf>) -> Outcome<Signer> {
        let mut signer = Signer {
            fingerprint: String::new(),
            home,
        };
        let listed = signer.gpg(&["--with-colons", "--list-secret-keys", "--", key])?;
        let mut prints = listed.lines().filter(|line| line.starts_with("fpr:"));
        let print = prints.next().and_then(|line| line.split(':').nth(9));
        let is_one = listed
            .lines()
            .filter(|line| line.starts_with("sec:"))
            .count()
            == 1;
        signer.fingerprint = print.filter(|_| is_one).map(str::to_owned).ok_or_else(|| {
            Failure::new(format!(
                "{key} is not the name of one secret key: give its fingerprint"
            ))
        })?;
        Ok(signer)
    }

    pub fn gpg(&self, arguments: &[&str]) -> Outcome<String> {
        let mut gpg = Command::new("gpg");
        gpg.args(["--batch", "--quiet", "--yes"]);
        if !self.fingerprint.is_empty() {
            gpg.arg("--local-user").arg(&self.fingerprint);
        }
        quietly(self.at_home(&mut gpg).args(arguments))
    }

    /// Signs a file, by this kind of signature of gpg's.
    pub fn sign(&self, kind: &str, file: &Path, signature: &Path) -> Outcome {
        let [file, signature] = [file, signature].map(|path| path.display().to_string());
        self.gpg(&["--armor", "--output", &signature, kind, &file])
            .map(drop)
    }

    /// The text of a file that this key has signed: the text that was checked, whatever the file
    /// has by now.
    pub fn signed_text(&self, file: &Path, signature: &Path) -> Outcome<String> {
        let text = fs::read(file).map_err(on(file, "read"))?;
        let mut gpg = Command::new("gpg");
        gpg.args(["--batch", "--status-fd", "1", "--verify"])
            .arg(signature)
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spoken = self.at_home(&mut gpg).spawn().and_then(|mut gpg| {
            let given = gpg.stdin.take().map(|mut input| input.write_all(&text));
            let told = gpg.wait_with_output()?;
            // Without a signature it does not read on, and says so.
            given.filter(|_| told.status.success()).transpose()?;
            Ok(told)
        });
        let told = spoken.map_err(on(Path::new("gpg"), "run"))?;
        let shown = file.display();
        if !told.status.success() {
            let told = String::from_utf8_lossy(&told.stderr);
            return Err(Failure::new(format!("{shown} is not as signed:\n{told}")));
        }
        // Its last word is the main key, whichever of its keys has signed.
        let told = String::from_utf8_lossy(&told.stdout);
        let mut signers = told.lines().filter(|line| line.contains(" VALIDSIG "));
        match signers.any(|line| line.ends_with(&format!(" {}", self.fingerprint))) {
            true => Ok(String::from_utf8_lossy(&text).into_owned()),
            false => Err(Failure::new(format!("another key has signed {shown}"))),
        }
    }

    pub fn at_home<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match &self.home {
            Some(home) => command.env("GNUPGHOME", home),
            None => command,
        }
    }
}
