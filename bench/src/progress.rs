//! Signs of life while something takes its time.

use std::io::{IsTerminal as _, Write as _};

/// What is going on, on standard error: one line that changes on a terminal, else one line each.
pub struct Progress<'a> {
    name: &'a str,
    terminal: bool,
}

impl Progress<'_> {
    pub fn new(name: &str) -> Progress<'_> {
        let terminal = std::io::stderr().is_terminal();
        if !terminal {
            eprintln!("measuring {name} …");
        }
        Progress { name, terminal }
    }

    pub fn show(&mut self, what: &str) {
        if self.terminal {
            eprint!("\r\x1b[K{}: {what}", self.name);
            // Progress that cannot be shown is no reason to stop.
            let _ = std::io::stderr().flush();
        }
    }

    pub fn finish(self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
