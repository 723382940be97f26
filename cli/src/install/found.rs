//! Files as they are before `install` or `uninstall` changes them: each is read once, and plans are
//! made from these texts.

use std::fs;
use std::io::{self, ErrorKind::NotFound};
use std::path::PathBuf;

use lockstep_common::Failure;

use super::change::{Change, foreign};

/// A file that may be changed.
pub struct Found {
    pub path: PathBuf,
    /// Whether it is a file and no link; `None` if nothing has this name.
    is_file: Option<bool>,
    text: io::Result<String>,
}

impl Found {
    /// Reads a file.
    pub fn at(path: PathBuf) -> Found {
        let kind = fs::symlink_metadata(&path).map(|about| about.file_type());
        let text = match &kind {
            // A pipe or a device may never answer.
            Ok(kind) if !kind.is_file() && !kind.is_symlink() => {
                Err(io::Error::other("it is not a file"))
            }
            _ => fs::read_to_string(&path),
        };
        let is_file = match kind {
            Err(error) if error.kind() == NotFound => None,
            kind => Some(kind.is_ok_and(|kind| kind.is_file())),
        };
        #[rustfmt::skip]
        return Found { path, is_file, text };
    }

    /// Whether there is a file at the path, links followed.
    pub fn exists(&self) -> bool {
        !matches!(&self.text, Err(error) if error.kind() == NotFound)
    }

    /// Returns the text; `None` if there is no file.
    pub fn text(&self) -> Result<Option<&str>, Failure> {
        match &self.text {
            Ok(text) => Ok(Some(text)),
            Err(_) if !self.exists() => Ok(None),
            Err(error) => Err(Failure::new(format!(
                "cannot read {}: {error}",
                self.path.display()
            ))
            .remedy("run this as root")),
        }
    }

    /// Returns the change that gives the file this text.
    pub fn to(&self, text: String) -> Change {
        let path = self.path.clone();
        match self.text.as_ref().is_ok_and(|there| *there == text) {
            true => Change::Unchanged { path },
            false => Change::Write { path, text },
        }
    }

    /// Returns the change that gives a file of `install` this text, or removes it. Fails where
    /// somebody else has written the file, or changed it.
    pub fn own(
        &self,
        is_own: impl Fn(&str) -> bool,
        text: Option<String>,
    ) -> Result<Change, Failure> {
        let is_own = || self.text.as_ref().is_ok_and(|there| is_own(there));
        if self.is_file.is_some() && !(self.is_file == Some(true) && is_own()) {
            return Err(foreign(&self.path));
        }
        let path = self.path.clone();
        Ok(match text {
            Some(text) => self.to(text),
            None if self.is_file.is_some() => Change::Remove { path },
            None => Change::Leave { path },
        })
    }
}

#[cfg(test)]
impl Found {
    /// A file with this text; `None` for none.
    pub fn with(path: &str, text: Option<&str>) -> Found {
        Found {
            path: path.into(),
            is_file: text.map(|_| true),
            text: text.map(str::to_owned).ok_or(NotFound.into()),
        }
    }
}
