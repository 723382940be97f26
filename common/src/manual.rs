//! The manual: pages for users, as messages name them.

use std::path::Path;

/// Directory of the pages in packages.
const PACKAGED: &str = "/usr/share/doc/lockstep";

/// A page of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manual {
    /// The key daemon.
    Keyd,
    /// Settings of the module, and its system calls.
    Settings,
    /// Meaning of counters and logs in case of a problem.
    Troubleshooting,
}

impl Manual {
    /// Returns the name of the page for messages: the file that a package has installed, or else
    /// its place in the sources. Archives and images without documentation have no such file.
    pub fn name(self) -> String {
        self.name_in(Path::new(PACKAGED))
    }

    fn name_in(self, packaged: &Path) -> String {
        let file = self.file();
        let installed = packaged.join(file);
        match installed.exists() {
            true => installed.display().to_string(),
            false => format!("docs/user/{file} in the sources of Lockstep"),
        }
    }

    fn file(self) -> &'static str {
        match self {
            Manual::Keyd => "keyd.md",
            Manual::Settings => "settings.md",
            Manual::Troubleshooting => "troubleshooting.md",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lockstep_testkit::TempDir;

    use super::*;

    #[test]
    fn a_page_is_named_where_it_is() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/user");
        for page in [Manual::Keyd, Manual::Settings, Manual::Troubleshooting] {
            let file = page.file();
            assert!(sources.join(file).exists(), "{file}");
            let packaged = TempDir::new("pages");
            let name = page.name_in(&packaged);
            assert_eq!(name, format!("docs/user/{file} in the sources of Lockstep"));
            fs::write(packaged.join(file), "").expect("a file");
            let installed = packaged.join(file).display().to_string();
            assert_eq!(page.name_in(&packaged), installed);
        }
    }
}
