//! Files that are safe for a service: the service sees them, and only root can change them.

use std::fs;
use std::path::Path;

use lockstep_common::{Configuration, Failure, others_can_change};

use crate::sandbox::{Place, hidden};
use crate::trial::settings_accepted;

/// Places for the module.
pub const PLACES: &str =
    "the package has a place for it; from the sources: cargo xtask dist --out /opt/lockstep";

/// Whether systemd reads this path as it is written.
pub fn is_plain(path: &str) -> bool {
    path.chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._+-@".contains(c))
}

/// Returns the absolute path of a configuration that is safe for a service.
pub fn usable(path: &Path) -> Result<String, Failure> {
    let path = path.canonicalize().map_err(|error| {
        Failure::new(format!("cannot read {}: {error}", path.display()))
            .remedy("leave --conf out: then install makes a configuration from the system's")
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
    settings_accepted(&shown, &configuration)?;
    let module = configuration.module()?;
    let real = module
        .canonicalize()
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", module.display())))?;
    // A user who can change a link on the way chooses the module.
    if module != real {
        let (shown, real) = (module.display(), real.display());
        return Err(
            Failure::new(format!("{shown} leads through links or is not absolute"))
                .remedy(format!("name {real} in the configuration")),
        );
    }
    trusted([path.as_path(), &module])?;
    Ok(shown)
}

/// Fails if others can change these files, or if services with `PrivateTmp` do not see them. Warns
/// of files that services with `ProtectHome` do not see.
pub fn trusted<'a>(paths: impl IntoIterator<Item = &'a Path> + Clone) -> Result<(), Failure> {
    match hidden(paths.clone()) {
        None => {}
        Some((path, place @ Place::Temporary)) => {
            return Err(Failure::new(format!(
                "{} lies in a directory for temporary files: {}",
                path.display(),
                place.consequence()
            ))
            .remedy(format!("keep it elsewhere: {PLACES}")));
        }
        Some((path, place @ Place::Home)) => {
            eprintln!(
                "warning: {} lies in a home directory: {}; /opt/lockstep is a better place",
                path.display(),
                place.consequence()
            );
        }
    }
    // A user who can change or replace these files has the rights of the server's master process.
    for path in paths {
        let changed = fs::metadata(path).and_then(|_| others_can_change(path));
        let changed = changed
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
        if let Some(part) = changed {
            return Err(Failure::new(format!(
                "others can change {}, and with it what the server runs",
                part.display()
            ))
            .remedy(format!(
                "chown root, chmod go-w, or keep it elsewhere: {PLACES}"
            )));
        }
    }
    Ok(())
}
