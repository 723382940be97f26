//! Reports about a keyring.

use std::fmt;
use std::path::PathBuf;

use crate::keys::files::in_a_line;
use crate::keys::keyring::{Keyring, UNANSWERED};

/// A key that is not served, or a file that is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeftOut {
    /// Name of the key in references.
    pub name: String,
    /// The reason.
    pub why: String,
    /// Whether the previous key of the file is served.
    pub is_kept: bool,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut { name, why, is_kept } = self;
        match is_kept {
            true => write!(f, "the key {name} is served as it was before: {why}"),
            false => write!(f, "the key {name} is left out: {why}"),
        }
    }
}

/// A file with a key that can be served.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Name of the key in references.
    pub name: String,
    /// Kind of the key, for messages.
    pub kind: String,
    /// Its public half.
    pub public: Vec<u8>,
    /// The file.
    pub file: PathBuf,
    /// The mode of the file, if not only its owner can read it.
    pub open_mode: Option<u32>,
}

impl Keyring {
    /// Returns the files with keys, in the order of their sections.
    pub fn loaded(&self) -> Vec<Loaded> {
        let files = self.files.iter().filter_map(|((section, path), known)| {
            let public = known.public.as_ref()?;
            let mut entries = self.entries.iter();
            let own =
                entries.find(|own| own.section == *section && own.served.key.public == *public)?;
            Some(Loaded {
                name: own.served.name.clone(),
                kind: own.served.key.kind(),
                public: public.clone(),
                file: path.clone(),
                open_mode: known.open_mode,
            })
        });
        files.collect()
    }

    /// Returns everything that cannot be served, in the order of the sections.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        for (number, section) in self.sections.iter().enumerate() {
            let mut note = |why, is_kept| {
                let name = section.name.clone();
                #[rustfmt::skip]
                left_out.push(LeftOut { name, why, is_kept });
            };
            let path = section.pattern.path().display();
            if let Err(why) = &section.access {
                note(why.clone(), false);
                continue;
            }
            let start = (number, PathBuf::new());
            let files = self.files.range(start..);
            let mut files = files.take_while(|((own, _), _)| *own == number).peekable();
            if files.peek().is_none() && section.held_up.is_none() {
                let why = "No such file with a private key";
                note(format!("{path}: {why}"), false);
            }
            let (mut has_key, mut is_kept) = (false, false);
            for ((_, path), known) in files {
                has_key |= known.public.is_some();
                // A key is kept if its file is below the path that holds up the search. A section
                // that is held up before its first search has no key.
                let at = section.held_up.as_deref();
                let is_there = at.is_some_and(|at| path.starts_with(at));
                is_kept |= known.public.is_some() && is_there;
                if let Some(why) = &known.why {
                    let path = in_a_line(&path.to_string_lossy());
                    note(format!("{path}: {why}"), known.public.is_some());
                }
            }
            if section.is_full {
                let why = "it has more than 6000 files or 20000 names, and some are not looked at";
                note(format!("{path}: {why}"), has_key);
            }
            if let Some(at) = &section.held_up {
                let at = in_a_line(&at.to_string_lossy());
                let why = "; files of the section that come after it wait for it";
                note(format!("{at}: {UNANSWERED}{why}"), is_kept);
            }
        }
        left_out
    }

    /// Returns the paths whose file systems do not answer.
    pub fn unanswered(&self) -> Vec<PathBuf> {
        let sections = self.sections.iter();
        let sections = sections.filter_map(|section| section.held_up.clone());
        let files = self.late.keys().map(|(_, path)| path.clone());
        sections.chain(files).collect()
    }

    /// Returns messages about unknown accounts in the sections that are served.
    pub fn unknown(&self) -> Vec<String> {
        let usable = self.sections.iter().filter(|own| own.access.is_ok());
        let unknown = usable.flat_map(|own| own.unknown.iter().map(|what| (&own.name, what)));
        let lines = unknown.map(|(name, what)| format!("the key {name} is served, but {what}"));
        lines.collect()
    }
}
