//! The changes of a release in the sources: the version, the changelog, and the page for
//! administrators.

use xtask::command::{Failure, Outcome};

/// The placeholder on the page for administrators until the first release.
const NO_URL: &str = "https://packages.lockstep.example";
const NO_FINGERPRINT: &str = "FINGERPRINT-OF-THE-KEY";
const NO_RELEASE: &str = "\
There is no release yet, so these addresses lead nowhere: until then take
[a package](#from-a-package) of your own build.

";

pub const PAGE: &str = "docs/user/installation.md";

/// The workspace's manifest with a later version, or its own, which then has no tag yet.
pub fn with_version(manifest: &str, version: &str) -> Outcome<String> {
    let now = env!("CARGO_PKG_VERSION");
    let numbers = |version: &str| -> Option<Vec<u64>> {
        let parts = version.split('.').map(|part| part.parse().ok());
        parts
            .collect::<Option<Vec<u64>>>()
            .filter(|parts| parts.len() == 3)
    };
    if numbers(version) < numbers(now) {
        return Err(Failure::new(format!(
            "{version} is a version before {now}, or none"
        )));
    }
    let line = |version: &str| format!("\nversion = \"{version}\"\n");
    match manifest.matches(&line(now)).count() {
        1 => Ok(manifest.replace(&line(now), &line(version))),
        _ => Err(Failure::new(format!("Cargo.toml has no one version {now}"))),
    }
}

/// The changelog, with its unreleased part under a version.
pub fn with_section(changes: &str, version: &str, date: &str) -> Outcome<String> {
    const UNRELEASED: &str = "## [Unreleased]\n";
    let (before, after) = changes
        .split_once(UNRELEASED)
        .ok_or_else(|| Failure::new("CHANGELOG.md has no section Unreleased"))?;
    if after
        .split("\n## [")
        .next()
        .unwrap_or_default()
        .trim()
        .is_empty()
    {
        return Err(Failure::new("CHANGELOG.md has nothing that is unreleased"));
    }
    Ok(format!(
        "{before}{UNRELEASED}\n## [{version}] - {date}\n{after}"
    ))
}

/// The page for administrators, with the place of the repositories and the key.
pub fn with_place(page: &str, url: &str, fingerprint: &str) -> Outcome<String> {
    let page = page
        .replace(NO_URL, url)
        .replace(NO_FINGERPRINT, fingerprint)
        .replace(NO_RELEASE, "");
    for named in [url, fingerprint] {
        if !page.contains(named) {
            return Err(
                Failure::new(format!("{PAGE} does not name {named}")).remedy(
                    "a new place or key is a change that administrators must read: write it there, \
                 and into CHANGELOG.md",
                ),
            );
        }
    }
    Ok(page)
}

/// An address that packages would name and that nobody can write to or download from.
pub fn placeholder(authors: &str, url: &str) -> Option<Failure> {
    let failure = |what: &str| Failure::new(format!("{what} leads nowhere"));
    let host = url.strip_prefix("https://").unwrap_or_default();
    let host = host.split(['/', ':']).next().unwrap_or_default();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    // No name of this end is ever given to anybody (RFC 2606).
    if host.is_empty() || host == "example" || host.ends_with(".example") {
        return Some(failure(url).remedy("administrators take packages from https://PLACE"));
    }
    authors.ends_with(".example>").then(|| {
        failure(authors).remedy("give the maintainers an address: `authors` in Cargo.toml")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use xtask::command::root;

    use super::*;

    #[test]
    fn a_release_has_a_later_version() {
        let now = env!("CARGO_PKG_VERSION");
        let manifest = format!("[workspace.package]\nversion = \"{now}\"\nedition = \"2024\"\n");
        let later = with_version(&manifest, "99.1.0").unwrap();
        assert_eq!(later, manifest.replace(now, "99.1.0"));
        assert_eq!(with_version(&manifest, now).unwrap(), manifest);
        for other in ["0.0.9", "99.1", "99.1.0-rc1", "v99.1.0"] {
            assert!(with_version(&manifest, other).is_err(), "{other}");
        }
        assert!(with_version(&manifest.repeat(2), "99.1.0").is_err());
        let real = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(with_version(&real, "99.1.0").is_ok());
    }

    #[test]
    fn a_release_names_people_and_places_that_are_there() {
        let is_one = |authors: &str, url: &str| placeholder(authors, url).is_some();
        const US: &str = "Us <us@lockstep.test>";
        assert!(!is_one(US, "https://lockstep.test/example"));
        assert!(is_one(US, NO_URL));
        assert!(is_one("Us <us@lockstep.example>", "https://lockstep.test"));
        for host in ["a.example.", "a.example:443", "a.EXAMPLE", "example", ""] {
            assert!(is_one(US, &format!("https://{host}/l")), "{host}");
        }
        for url in ["http://lockstep.test", "lockstep.test", "file:///srv"] {
            assert!(is_one(US, url), "{url}");
        }
    }

    #[test]
    fn unreleased_changes_get_the_version() {
        let changes = "# C\n\n## [Unreleased]\n\n- a\n\n## [0.1.0] - 2026-11-23\n\n- b\n";
        let released = with_section(changes, "0.2.0", "2026-12-01").unwrap();
        assert_eq!(
            released,
            "# C\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n- a\n\n\
             ## [0.1.0] - 2026-11-23\n\n- b\n"
        );
        assert!(
            with_section(&released, "0.3.0", "2026-12-02").is_err(),
            "nothing is new"
        );
        assert!(with_section("# C\n", "0.3.0", "2026-12-02").is_err());
    }

    #[test]
    fn the_page_names_the_place_and_the_key_of_each_release() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        // All of it until the first release, and nothing after it.
        let is_there = [NO_URL, NO_FINGERPRINT, NO_RELEASE].map(|text| page.contains(text));
        assert!(is_there == [is_there[0]; 3], "{is_there:?}");
        assert_eq!(page.contains("no release yet"), is_there[0]);
        let page = format!("{NO_RELEASE}{NO_URL} {NO_FINGERPRINT}\n");
        let named = with_place(&page, "https://a.example/l", "AB12").unwrap();
        assert_eq!(named, "https://a.example/l AB12\n");
        assert_eq!(
            with_place(&named, "https://a.example/l", "AB12").unwrap(),
            named
        );
        assert!(with_place(&named, "https://b.example", "AB12").is_err());
        assert!(with_place(&named, "https://a.example/l", "CD34").is_err());
    }
}
