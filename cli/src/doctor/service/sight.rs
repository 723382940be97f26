//! Questions about the files of a process, and the answers. A program of its own looks at them, in
//! the name of the process: see [`look`](super::look).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::groups::GroupList;
use super::identity::Identity;
use crate::doctor::finding::Answer;

/// A question, and in whose name and place it is asked.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// In whose name; `None` for that of the user who asks.
    pub identity: Option<Identity>,
    /// The working directory of the process.
    pub directory: Option<PathBuf>,
    /// The directory that is to be the root.
    pub root: Option<PathBuf>,
    /// The directory below which the files are, where the root stays.
    pub below: PathBuf,
    pub task: Task,
}

impl Question {
    /// One about no files.
    pub fn of(identity: Option<Identity>, task: Task) -> Question {
        Question {
            identity,
            directory: None,
            root: None,
            below: PathBuf::from("/"),
            task,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// What there is to see of files: answered by [`Seen`].
    Files(Wanted),
    /// How the key may be used that a reference means, by the daemon at a socket: answered by the
    /// uses, or why there is none.
    Uses {
        socket: PathBuf,
        name: String,
        public: Vec<u8>,
    },
}

/// The files to look at. All paths are the process's.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// The configuration of OpenSSL.
    pub configuration: Option<PathBuf>,
    /// Whether only files are to be read that no one but root can change.
    pub only_roots: bool,
    /// Whether the configuration is the same file for a program that is started here.
    pub is_here: bool,
    /// Words of the command line, which may name files of the server's own configuration.
    pub words: Vec<String>,
    /// The directories of the server's own configuration.
    pub directories: Vec<PathBuf>,
    /// The references of `lockstep install`, each with the file that it covers.
    pub covered: Vec<(PathBuf, PathBuf)>,
}

/// What there is to see.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    pub configuration: Option<Configured>,
    /// The lists of groups in the server's own configuration.
    pub lists: Vec<GroupList>,
    pub references: Vec<Reference>,
    /// The public keys of certificates that the configuration names, as SubjectPublicKeyInfo.
    pub certificates: Vec<Vec<u8>>,
    pub uncovered: Vec<Uncovered>,
    /// Whether HAProxy's configuration has lines that exclude each other.
    pub excludes_async: bool,
}

/// A configuration of OpenSSL.
#[derive(Debug, Serialize, Deserialize)]
pub enum Configured {
    Absent,
    /// What is wrong with it, and the remedy.
    Unreadable(String, Option<String>),
    Read {
        sections: Sections,
        module: Option<Module>,
        outdated: Option<Answer>,
    },
}

/// The sections of a configuration, each with its lines.
pub type Sections = BTreeMap<String, Vec<(String, String)>>;

/// The module that a configuration names.
#[derive(Debug, Serialize, Deserialize)]
pub struct Module {
    pub path: PathBuf,
    pub is_there: bool,
    pub damage: Option<String>,
}

/// A file that should be a reference.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reference {
    pub path: String,
    pub text: String,
}

/// A key that the service sees although its unit has a reference in its place.
#[derive(Debug, Serialize, Deserialize)]
pub struct Uncovered {
    pub key: String,
    /// The file of the reference, if it is not there.
    pub missing: Option<PathBuf>,
}
