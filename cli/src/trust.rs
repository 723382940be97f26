//! Which files a service can be trusted with: it must see them, and only root may be able to change
//! them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use lockstep_common::{Configuration, Failure};

use crate::sandbox::{Place, hidden};
use crate::trial::settings_accepted;

/// Where the module is well kept.
pub const PLACES: &str =
    "the package has a place for it; from the sources: cargo xtask dist --out /opt/lockstep";

/// Whether systemd takes this path as it stands.
pub fn is_plain(path: &str) -> bool {
    path.chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._+-@".contains(c))
}

/// The absolute path of a configuration that a service can be trusted with.
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
    // Who can change a link on the way chooses the module.
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

/// Whether services see these files, and only root can change them.
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
    // Who can change these files, or put others in their place, is as good as the server's master
    // process.
    for part in paths.into_iter().flat_map(Path::ancestors) {
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
            .remedy(format!(
                "chown root, chmod go-w, or keep it elsewhere: {PLACES}"
            )));
        }
    }
    Ok(())
}
