//! `lockstep install` and `lockstep uninstall`: files that have a packaged server load the module.
//!
//! Each file is one that the server or systemd reads beside its own, so nothing of theirs changes.
//! A file counts as ours if it is, to the letter, one that `install` writes; any other is left
//! alone, and then nothing else is done either.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lockstep_common::{Configuration, Failure, Outcome, beside, out, outln};

use crate::places::{Place, hidden};

const HELP: &str = "\
Has a server of the distribution load the module, by files that the server or systemd reads beside the
server's own.

Usage: lockstep install --server NAME [OPTIONS]
       lockstep uninstall --server NAME [OPTIONS]

Both print what they are about to do. They write and remove only files of their own, and restart
nothing: they print the command that brings the change into effect.

Options:
  --server NAME  haproxy, apache, nginx or stunnel
  --dry-run      print what would be done, and do nothing
  --conf FILE    the openssl.cnf to load (default: the one beside this program)
  --root DIR     do it under this directory instead of /
  --worker-threads
                 haproxy: also print how its processes may start lockstep's worker threads, and which
                 protection that removes (without them HAProxy's own threads compute)
";

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Task {
    Install,
    Uninstall,
}

/// A server, and what it reads.
struct Server {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// What brings the change into effect.
    then: &'static str,
    /// What no file of Lockstep's can do.
    also: Option<&'static str>,
    /// What lets worker threads start where the server does not.
    threads: Option<&'static str>,
}

/// Where the path of the configuration goes.
const CONF: &str = "@CONF@";

const UNIT: &str = "[Service]\nEnvironment=OPENSSL_CONF=@CONF@\n";

const SERVERS: &[Server] = &[
    Server {
        name: "haproxy",
        files: &[("etc/systemd/system/haproxy.service.d/lockstep.conf", UNIT)],
        then: "systemctl daemon-reload && systemctl restart haproxy",
        also: Some(
            "haproxy.cfg needs two lines in its section `global`: ssl-mode-async, and maxpipes with half the number \
             of maxconn, which reserves a file descriptor for each connection",
        ),
        threads: Some(
            "haproxy.cfg needs the line insecure-fork-wanted there too, so that its processes may start \
             lockstep's worker threads. HAProxy then no longer stops code that has taken over one of its \
             processes from starting programs. The gain is a few percent with RSA keys, and none \
             with others",
        ),
    },
    Server {
        name: "apache",
        files: &[("etc/systemd/system/apache2.service.d/lockstep.conf", UNIT)],
        then: "systemctl daemon-reload && systemctl restart apache2",
        also: None,
        threads: None,
    },
    Server {
        name: "nginx",
        files: &[
            ("etc/systemd/system/nginx.service.d/lockstep.conf", UNIT),
            (
                "etc/nginx/modules-enabled/99-lockstep.conf",
                "env OPENSSL_CONF;\n",
            ),
        ],
        then: "systemctl daemon-reload && systemctl restart nginx",
        also: None,
        threads: None,
    },
    Server {
        name: "stunnel",
        files: &[
            ("etc/systemd/system/stunnel@.service.d/lockstep.conf", UNIT),
            ("etc/systemd/system/stunnel4.service.d/lockstep.conf", UNIT),
        ],
        then: "systemctl daemon-reload && systemctl restart 'stunnel*'",
        also: None,
        threads: None,
    },
];

/// What the command line asks for.
struct Options {
    server: &'static Server,
    dry_run: bool,
    conf: Option<PathBuf>,
    root: PathBuf,
    threads: bool,
}

impl Options {
    /// `None` if help is wanted.
    fn parse(mut arguments: lexopt::Parser) -> Result<Option<Options>, lexopt::Error> {
        use lexopt::prelude::*;
        let mut server = None;
        let mut dry_run = false;
        let mut conf = None;
        let mut root = PathBuf::from("/");
        let mut threads = false;
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("server") => server = Some(called(&arguments.value()?.string()?)?),
                Long("dry-run") => dry_run = true,
                Long("conf") => conf = Some(PathBuf::from(arguments.value()?)),
                Long("worker-threads") => threads = true,
                Long("root") => root = arguments.value()?.into(),
                Short('h') | Long("help") => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        let server = server.ok_or("which server? name it with --server")?;
        if threads && server.threads.is_none() {
            let name = server.name;
            return Err(format!(
                "--worker-threads is for haproxy: {name} needs nothing for them to start"
            )
            .into());
        }
        Ok(Some(Options {
            server,
            dry_run,
            conf,
            root,
            threads,
        }))
    }
}

/// Runs the command with the arguments behind its name.
pub fn main(task: Task, arguments: lexopt::Parser) -> Outcome {
    let Some(options) = Options::parse(arguments).map_err(Failure::usage)? else {
        out!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let Options {
        server,
        dry_run,
        conf,
        root,
        threads,
    } = options;
    let changes = match task {
        Task::Install => plan_install(server, &root, &usable(conf)?)?,
        Task::Uninstall => plan_uninstall(server, &root)?,
    };
    for change in &changes {
        out!("{}", change.announcement());
    }
    if changes.iter().all(Change::is_nothing) {
        outln!("nothing to do");
        return Ok(ExitCode::SUCCESS);
    }
    if !dry_run {
        for change in &changes {
            change.make().map_err(|error| {
                Failure::new(format!("cannot {}: {error}", change.words()))
                    .remedy("run this as root, or look at --root")
            })?;
        }
    }
    outln!("to bring this into effect: {}", server.then);
    let threads = server.threads.filter(|_| threads);
    for also in server.also.into_iter().chain(threads) {
        if task == Task::Install {
            outln!("also needed: {also}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn called(name: &str) -> Result<&'static Server, String> {
    SERVERS
        .iter()
        .find(|server| server.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
            format!("no server `{name}`: there are {}", names.join(", "))
        })
}

/// One step. The path is the one to use, under the root.
enum Change {
    Write { path: PathBuf, text: String },
    Unchanged { path: PathBuf },
    Remove { path: PathBuf },
    Absent { path: PathBuf },
}

impl Change {
    fn is_nothing(&self) -> bool {
        matches!(self, Change::Unchanged { .. } | Change::Absent { .. })
    }

    fn words(&self) -> String {
        match self {
            Change::Write { path, .. } => format!("write {}", path.display()),
            Change::Unchanged { path } => format!("keep {}, as it is", path.display()),
            Change::Remove { path } => format!("remove {}", path.display()),
            Change::Absent { path } => format!("leave {}, which is not there", path.display()),
        }
    }

    fn announcement(&self) -> String {
        let mut lines = format!("{}\n", self.words());
        if let Change::Write { text, .. } = self {
            lines.extend(text.lines().map(|line| format!("    {line}\n")));
        }
        lines
    }

    fn make(&self) -> io::Result<()> {
        match self {
            Change::Unchanged { .. } | Change::Absent { .. } => Ok(()),
            Change::Write { path, text } => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                fs::create_dir_all(directory)?;
                // In one step: a server that reads it meanwhile must not find half a file.
                let fresh = path.with_extension("lockstep-new");
                fs::write(&fresh, text)?;
                fs::rename(&fresh, path)
            }
            Change::Remove { path } => {
                fs::remove_file(path)?;
                // A directory of drop-ins goes with the last of them; others are not empty.
                if let Some(directory) = path.parent().filter(|d| is_of_drop_ins(d)) {
                    let _ = fs::remove_dir(directory);
                }
                Ok(())
            }
        }
    }
}

fn is_of_drop_ins(directory: &Path) -> bool {
    directory.to_string_lossy().ends_with(".service.d")
}

fn plan_install(server: &Server, root: &Path, conf: &str) -> Result<Vec<Change>, Failure> {
    let plan = |(file, template): &(&str, &str)| {
        let path = root.join(file);
        let text = text(server, template, conf);
        Ok(match ours(server, &path, template)? {
            Some(there) if there == text => Change::Unchanged { path },
            _ => Change::Write { path, text },
        })
    };
    server.files.iter().map(plan).collect()
}

fn plan_uninstall(server: &Server, root: &Path) -> Result<Vec<Change>, Failure> {
    let plan = |(file, template): &(&str, &str)| {
        let path = root.join(file);
        Ok(match ours(server, &path, template)? {
            Some(_) => Change::Remove { path },
            None => Change::Absent { path },
        })
    };
    server.files.iter().map(plan).collect()
}

/// What `install` writes.
fn text(server: &Server, template: &str, conf: &str) -> String {
    let name = server.name;
    format!(
        "# Written by `lockstep install`; `lockstep uninstall --server {name}` removes it.\n{}",
        template.replace(CONF, conf)
    )
}

/// The text of a file that `install` has written, for whatever configuration; None if there is no
/// file.
fn ours(server: &Server, path: &Path, template: &str) -> Result<Option<String>, Failure> {
    let foreign = || {
        Failure::new(format!(
            "{} is not as `lockstep install` writes it; nothing was done",
            path.display()
        ))
        .remedy("look at it, and move it away if it is not needed")
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(about) if about.is_file() => {}
        _ => return Err(foreign()),
    }
    let there = fs::read_to_string(path).map_err(|_| foreign())?;
    let pattern = text(server, template, CONF);
    let conf = match pattern.split_once(CONF) {
        Some((before, after)) => there
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .filter(|conf| is_plain(conf)),
        None => (there == pattern).then_some(""),
    };
    conf.map(|_| Some(there.clone())).ok_or_else(foreign)
}

/// Whether systemd takes this path as it stands.
fn is_plain(path: &str) -> bool {
    path.chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._+-".contains(c))
}

/// The absolute path of a configuration that a service can be trusted with.
fn usable(conf: Option<PathBuf>) -> Result<String, Failure> {
    let path = conf
        .or_else(|| beside("openssl.cnf"))
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            Failure::new("there is no openssl.cnf that could be installed")
                .remedy("name one with --conf, or make one: cargo xtask dist --out /opt/lockstep")
        })?;
    let shown = path.display().to_string();
    if !is_plain(&shown) {
        return Err(Failure::new(format!(
            "systemd reads the path {shown} differently than it is written"
        ))
        .remedy("keep it where the path has only letters, digits and . _ + - /"));
    }
    let configuration = Configuration::at(&path, false)?;
    if let Some(refusal) = configuration.effective.refusal() {
        return Err(refusal);
    }
    let module = configuration.module()?;
    let real = module
        .canonicalize()
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", module.display())))?;
    // Who can change a link on the way chooses the module.
    if module != real {
        let (shown, real) = (module.display(), real.display());
        return Err(
            Failure::new(format!("{shown} leads through links or is not absolute"))
                .remedy(format!("name {real} in the configuration")),
        );
    }
    match hidden([path.as_path(), &module]) {
        None => {}
        Some((path, place @ Place::Temporary)) => {
            return Err(Failure::new(format!(
                "{} lies in a directory for temporary files: {}",
                path.display(),
                place.consequence()
            ))
            .remedy("keep it elsewhere: cargo xtask dist --out /opt/lockstep"));
        }
        Some((path, place @ Place::Home)) => {
            eprintln!(
                "warning: {} lies in a home directory: {}; /opt/lockstep is a better place",
                path.display(),
                place.consequence()
            );
        }
    }
    // Who can change these files, or put others in their place, is as good as the server's master
    // process.
    for part in path.ancestors().chain(module.ancestors()) {
        let about = fs::metadata(part)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", part.display())))?;
        let user = rustix::process::geteuid().as_raw();
        let others_write = about.mode() & 0o022 != 0;
        // In a directory like /tmp others may make files, but not replace those of root.
        let sticky = about.is_dir() && about.mode() & 0o1000 != 0;
        if (about.uid() != 0 && about.uid() != user) || (others_write && !sticky) {
            return Err(Failure::new(format!(
                "others can change {}, and with it what the server runs",
                part.display()
            ))
            .remedy("keep it as root only can change it: cargo xtask dist --out /opt/lockstep"));
        }
    }
    Ok(shown)
}
