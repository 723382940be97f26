//! Places that a service may see differently than an administrator.

use std::fs;
use std::path::{Path, PathBuf};

/// A place that services with the usual protections see differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// With `PrivateTmp` a service has an empty directory of its own there.
    Temporary,
    /// With `ProtectHome` a service sees nothing there.
    Home,
}

const PLACES: [(&str, Place); 5] = [
    ("/tmp", Place::Temporary),
    ("/var/tmp", Place::Temporary),
    ("/root", Place::Home),
    ("/home", Place::Home),
    ("/run/user", Place::Home),
];

/// The place that a path lies in by its text alone: links are not resolved.
pub fn place_of(path: &Path) -> Option<Place> {
    let mut places = PLACES.iter();
    let (_, place) = places.find(|(place, _)| path.starts_with(place))?;
    Some(*place)
}

/// The first of these paths that lies in such a place, links resolved, and the place.
pub fn hidden<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Option<(PathBuf, Place)> {
    let resolved = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut found = paths.into_iter().map(resolved).filter_map(|path| {
        let lies_in =
            |place: &str| path.starts_with(place) || path.starts_with(resolved(Path::new(place)));
        let (_, place) = PLACES.iter().find(|(place, _)| lies_in(place))?;
        Some((path, *place))
    });
    found.next()
}

impl Place {
    /// Describes the consequence for a file there.
    pub fn consequence(self) -> &'static str {
        match self {
            Place::Temporary => {
                "a service with PrivateTmp has another directory in that place, and runs without lockstep"
            }
            Place::Home => "a service with ProtectHome cannot see it, and runs without lockstep",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_judged_by_where_they_lead() {
        let place = |path: &str| hidden([Path::new(path)]).map(|(_, place)| place);
        assert_eq!(place("/tmp/x"), Some(Place::Temporary));
        assert_eq!(place("/var/tmp/x/y"), Some(Place::Temporary));
        assert_eq!(place("/root"), Some(Place::Home));
        assert_eq!(place("/home/x"), Some(Place::Home));
        assert_eq!(place("/tmpx"), None);
        assert_eq!(place("/opt/lockstep/tmp"), None);
        let link = Path::new("/dev/shm").join(format!("lockstep-link-{}", std::process::id()));
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert_eq!(place(link.to_str().unwrap()), Some(Place::Temporary));
        fs::remove_file(link).unwrap();
        let paths = [Path::new("/opt/a"), Path::new("/home/b")];
        assert_eq!(hidden(paths), Some((PathBuf::from("/home/b"), Place::Home)));
    }
}
