//! Sections that `install` writes into the key daemon's configuration, beside the administrator's
//! sections. A section belongs to `install`, which may remove it, only if its text is exactly as
//! `install` writes it.

use std::path::PathBuf;

use crate::servers::drop_in::REFERENCES;

/// Texts before and after the name of a server.
const HEADER: (&str, &str) = (
    "# Written by `lockstep install --server ",
    " --keyd`; `lockstep uninstall` removes it.",
);

/// Beginning of a new file.
const INTRODUCTION: &str = "\
# The keys that lockstep-keyd holds. The settings are described in keyd.md, which packages have in
# /usr/share/doc/lockstep, and the sources in docs/user. Those of the daemon stand above all keys.
";

/// A section of `install`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub server: String,
    pub name: String,
    pub file: PathBuf,
    pub user: String,
}

impl Section {
    fn text(&self) -> String {
        let (before, after) = HEADER;
        format!(
            "\n{before}{}{after}\n[key {}]\nfile = {}\nreferences = {}\nusers = {}\nuses = sign\n",
            self.server,
            self.name,
            self.file.display(),
            self.references().display(),
            self.user
        )
    }

    /// Directory in which the daemon keeps the references.
    pub fn references(&self) -> PathBuf {
        [REFERENCES, &self.server, &self.name].iter().collect()
    }

    /// Parses the section at the beginning of a text. Returns it with the rest of the text.
    fn parse(text: &str) -> Option<(Section, &str)> {
        let mut lines = text.strip_prefix('\n')?.lines();
        let mut part = |before: &str, after: &str| {
            let line = lines.next()?.strip_prefix(before)?;
            Some(line.strip_suffix(after)?.to_owned())
        };
        let section = Section {
            server: part(HEADER.0, HEADER.1)?,
            name: part("[key ", "]")?,
            file: part("file = ", "")?.into(),
            user: {
                part("references = ", "")?;
                part("users = ", "")?
            },
        };
        let rest = text.strip_prefix(&section.text())?;
        // A section with one more line belongs to somebody else.
        let ends = rest.is_empty() || rest.starts_with(['\n', '#', '[']);
        ends.then_some((section, rest))
    }
}

/// The text of a configuration, in parts.
pub struct Sections(Vec<Part>);

enum Part {
    Own(Section),
    /// A line that the administrator has written.
    Other(String),
}

impl Sections {
    /// Reads a text; `None` stands for a new file.
    pub fn parse(text: Option<&str>) -> Sections {
        let mut parts = Vec::new();
        let mut rest = text.unwrap_or(INTRODUCTION);
        while !rest.is_empty() {
            if let Some((section, after)) = Section::parse(rest) {
                parts.push(Part::Own(section));
                rest = after;
            } else {
                // The administrator's last line may have had no line break.
                let is_section = |at: usize| Section::parse(&rest[at..]).is_some();
                let end = rest.find('\n');
                let end = end.map_or(rest.len(), |at| at + usize::from(!is_section(at)));
                parts.push(Part::Other(rest[..end].to_owned()));
                rest = &rest[end..];
            }
        }
        Sections(parts)
    }

    /// Removes the sections of a server that are not wanted.
    pub fn retain(&mut self, server: &str, wanted: &[Section]) {
        self.0.retain(|part| match part {
            Part::Own(section) => section.server != server || wanted.contains(section),
            Part::Other(_) => true,
        });
    }

    /// The sections of a server.
    pub fn of<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a Section> {
        let own = self.0.iter().filter_map(|part| match part {
            Part::Own(section) => Some(section),
            Part::Other(_) => None,
        });
        own.filter(move |section| section.server == server)
    }

    /// Text that the administrator has written, without the sections of any server.
    pub fn of_administrator(&self) -> String {
        let lines = self.0.iter().filter_map(|part| match part {
            Part::Own(_) => None,
            Part::Other(line) => Some(line.as_str()),
        });
        lines.collect()
    }

    /// Adds a section, unless it is there.
    pub fn add(&mut self, section: &Section) {
        let is_it = |part: &Part| matches!(part, Part::Own(own) if own == section);
        if !self.0.iter().any(is_it) {
            self.0.push(Part::Own(section.clone()));
        }
    }

    /// Returns the text; `None` if it is only the beginning of a new file.
    pub fn text(&self) -> Option<String> {
        let parts = self.0.iter().map(|part| match part {
            Part::Own(section) => section.text(),
            Part::Other(line) => line.clone(),
        });
        let text: String = parts.collect();
        (text != INTRODUCTION).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(server: &str, name: &str) -> Section {
        Section {
            server: server.to_owned(),
            name: name.to_owned(),
            file: PathBuf::from("/etc/ssl/private/www.pem"),
            user: "www-data".to_owned(),
        }
    }

    fn with(text: Option<&str>, sections: &[Section]) -> String {
        let mut all = Sections::parse(text);
        sections.iter().for_each(|section| all.add(section));
        all.text().unwrap()
    }

    fn without(text: &str, server: &str) -> Option<String> {
        let mut all = Sections::parse(Some(text));
        all.retain(server, &[]);
        all.text()
    }

    #[test]
    fn sections_go_as_they_came() {
        let [a, b, c] =
            [("nginx", "a"), ("haproxy", "b"), ("nginx", "c")].map(|(s, n)| section(s, n));
        let own = "rate = 5\n[key mine]\nfile = /mine\nusers = me\nuses = sign\n";
        let all = with(Some(own), &[a.clone(), b.clone(), c.clone()]);
        assert_eq!(
            with(Some(&all), std::slice::from_ref(&a)),
            all,
            "there already"
        );
        let parsed = lockstep_keyd::keyd_conf::Configuration::parse(&all);
        let names: Vec<&str> = parsed.keys.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(names, ["mine", "a", "b", "c"]);
        let nginx = without(&all, "haproxy").unwrap();
        assert_eq!(nginx, with(Some(own), &[a.clone(), c]));
        assert_eq!(without(&nginx, "nginx").as_deref(), Some(own));
        let fresh = with(None, std::slice::from_ref(&a));
        assert!(fresh.starts_with("# The keys"), "{fresh}");
        assert_eq!(without(&fresh, "nginx"), None);
        let without_end = own.trim_end();
        let more = with(
            Some(without_end),
            &[section("nginx", "a"), section("haproxy", "b")],
        );
        let more = without(&more, "nginx").unwrap();
        assert_eq!(without(&more, "haproxy").as_deref(), Some(without_end));
        // A section that is still wanted stays.
        let mut some = Sections::parse(Some(&all));
        some.retain("nginx", std::slice::from_ref(&a));
        assert_eq!(some.text().unwrap(), with(Some(own), &[a, b]));
    }

    #[test]
    fn what_somebody_has_changed_is_theirs() {
        let fresh = with(None, &[section("nginx", "a")]);
        for (from, to) in [
            ("uses = sign\n", "uses = sign decrypt\n"),
            ("uses = sign\n", "uses = sign\ngroups = keys\n"),
            ("users = ", "users  = "),
        ] {
            let changed = fresh.replace(from, to);
            assert_eq!(without(&changed, "nginx"), Some(changed.clone()));
        }
        let more = fresh.clone() + "[key b]\n";
        assert!(without(&more, "nginx").unwrap().ends_with("[key b]\n"));
    }
}
