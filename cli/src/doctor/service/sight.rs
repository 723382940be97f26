//! Questions about the files of a process, and the answers. A separate program looks at the files
//! as the process's user: see [`look`](super::look).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::groups::GroupList;
use super::identity::Identity;
use crate::doctor::finding::Told;

/// A question, with the identity and the place for looking.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// The identity; `None` for the user who asks.
    pub identity: Option<Identity>,
    /// The working directory of the process.
    pub directory: Option<PathBuf>,
    /// The directory that the answering program makes its root (`chroot`).
    pub root: Option<PathBuf>,
    /// The directory below which the files are, if the root directory does not change.
    pub below: PathBuf,
    pub task: Task,
}

impl Question {
    /// Makes a question that needs no directory.
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
    /// Which files are there? Answered by [`Seen`].
    Files(Wanted),
    /// For which uses does the daemon at a socket offer the key of a reference? Answered by the
    /// uses, or by the reason why there are none.
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
    /// Whether the configuration is read only if root alone can change it.
    pub only_roots: bool,
    /// Whether doctor finds the configuration at the same path as the process.
    pub is_here: bool,
    /// Words of the command line, which may name files of the server's own configuration.
    pub words: Vec<String>,
    /// The directories of the server's own configuration.
    pub directories: Vec<PathBuf>,
    /// The references of `lockstep install`, each with the file that it covers.
    pub covered: Vec<(PathBuf, PathBuf)>,
}

/// The facts about the files.
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
    Unreadable(Told),
    Read {
        sections: Sections,
        module: Option<Module>,
        /// Message if lockstep would make another configuration now, or none; with the remedy.
        outdated: Option<Told>,
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

/// A key that the service sees although its unit covers the key's file with a reference.
#[derive(Debug, Serialize, Deserialize)]
pub struct Uncovered {
    pub key: String,
    /// The file of the reference, if it is not there.
    pub missing: Option<PathBuf>,
}
