//! The command line of a program, and the man pages and completions that are made from its
//! definition.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Command, Parser};
use clap_complete::Shell;

use crate::failure::{Failure, Outcome};
use crate::output::write;

/// Reads this program's command line. Prints the help or the version and returns `None` if the
/// command line asks for one.
pub fn arguments<A: Parser>() -> Result<Option<A>, Failure> {
    let error = match A::try_parse() {
        Ok(arguments) => return Ok(Some(arguments)),
        Err(error) => error,
    };
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::DisplayVersion => {
            write(format_args!("{text}"));
            Ok(None)
        }
        _ => {
            // The text after the first paragraph repeats the usage.
            let what = text.split("\n\n").next().unwrap_or_default();
            let what = what.strip_prefix("error: ").unwrap_or(what);
            let program = A::command();
            let remedy = format!("{} help, or --help behind a command", program.get_name());
            Err(Failure::usage(what).remedy(remedy))
        }
    }
}

/// Writes the man pages and the completions of this program, for a package.
#[derive(Args)]
pub struct Documents {
    /// The directory to write them to
    directory: PathBuf,
}

impl Documents {
    /// Name of the hidden command of both programs.
    pub const COMMAND: &str = "documents";

    /// Writes the completions, and the man pages: one for the program and one for each command.
    pub fn write<A: Parser>(&self) -> Outcome {
        let write = || {
            fs::create_dir_all(&self.directory)?;
            let mut program = visible(&A::command());
            let name = program.get_name().to_owned();
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut program, &name, &self.directory)?;
            }
            clap_mangen::generate_to(program, &self.directory)?;
            for entry in fs::read_dir(&self.directory)? {
                let path = entry?.path();
                if path.extension().is_some_and(|end| end == "1") {
                    fs::write(&path, sectioned(&fs::read_to_string(&path)?))?;
                }
            }
            Ok::<_, std::io::Error>(())
        };
        write().map_err(|error| {
            let directory = self.directory.display();
            Failure::new(format!("cannot write to {directory}: {error}"))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes a man page with the notes in sections of their own: clap_mangen puts all of them into one
/// section.
fn sectioned(page: &str) -> String {
    let Some((before, notes)) = page.split_once(".SH EXTRA\n") else {
        return page.to_owned();
    };
    let mut out = before.to_owned();
    let mut open = "";
    for paragraph in notes.trim_end().split("\n\n") {
        let listed = [("Examples:\n", "EXAMPLES"), ("Files:\n", "FILES")];
        let listed = listed
            .into_iter()
            .find_map(|(start, name)| Some((name, paragraph.strip_prefix(start)?)));
        out += &match listed {
            Some((name, lines)) => format!(".SH {name}\n.nf\n{lines}\n.fi\n"),
            None if open == "NOTES" => format!(".PP\n{paragraph}\n"),
            None => format!(".SH NOTES\n{paragraph}\n"),
        };
        open = listed.map_or("NOTES", |(name, _)| name);
    }
    out
}

/// Returns this program without its hidden commands, which completions would offer, and without
/// `help`, which would get a page for each command.
fn visible(program: &Command) -> Command {
    let shown = program.get_subcommands().filter(|it| !it.is_hide_set());
    Command::new(program.get_name().to_owned())
        .version(program.get_version().unwrap_or_default().to_owned())
        .about(program.get_about().cloned().unwrap_or_default())
        .after_help(program.get_after_help().cloned().unwrap_or_default())
        .subcommands(shown.cloned())
        .subcommand_required(true)
        .disable_help_subcommand(true)
}
