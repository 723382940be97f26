//! A service's libraries, the module and libcrypto, and their meaning for it.

use super::mapped::Mapped;
use crate::doctor::finding::{Answer, Verdict};

/// Whether it runs the module that is on the disk. `restart` is what has it load that one.
pub fn loaded(modules: &[Mapped], restart: &str) -> Answer {
    match modules.iter().find(|module| module.is_deleted) {
        Some(module) => (
            Verdict::Warning,
            format!(
                "it runs a module whose file {} was replaced or removed since",
                module.path.display()
            ),
            Some(format!("to use the one that is there now: {restart}")),
        ),
        None => {
            let files: Vec<String> = modules.iter().map(Mapped::shown).collect();
            (
                Verdict::Good,
                format!("it has loaded {}", files.join(" and ")),
                None,
            )
        }
    }
}

/// Whether it has the one libcrypto that is on the disk. `verdict` is that on several, `inside` the
/// OpenSSL that its program has in itself.
pub fn libcrypto(
    libraries: &[Mapped],
    inside: Option<&str>,
    verdict: Verdict,
    restart: &str,
) -> Answer {
    match (libraries, inside) {
        ([], Some(version)) => (
            Verdict::Failed,
            format!(
                "{version} is inside of its program, and the module is not loaded. A module needs \
                 functions of OpenSSL that such a program does not export, unless it was built to. \
                 The program says nothing of that, and OpenSSL's own code computes everything"
            ),
            Some(
                "use a build of it that is linked to the system's libcrypto (`ldd` of its program \
                 names it)"
                    .to_owned(),
            ),
        ),
        ([], None) => (
            Verdict::Failed,
            "it has loaded no libcrypto: an OpenSSL inside of its program does not load modules, or \
             it uses another library for TLS"
                .to_owned(),
            Some("use a build of it that is linked to the system's OpenSSL".to_owned()),
        ),
        ([library], _) if library.is_deleted => (
            Verdict::Warning,
            format!("it runs {}", library.shown()),
            Some(format!("to use the one that is there now: {restart}")),
        ),
        ([library], _) => (Verdict::Good, format!("it uses {}", library.shown()), None),
        (several, _) => {
            let files: Vec<String> = several.iter().map(Mapped::shown).collect();
            (
                verdict,
                format!(
                    "it has loaded {} libcryptos: {}. The module works with the one that loads it \
                     first; what the program does with another one is not accelerated",
                    several.len(),
                    files.join(" and ")
                ),
                Some(
                    "have all of its libraries use one OpenSSL: look at LD_LIBRARY_PATH and \
                     LD_PRELOAD in its unit, and at `ldd` of its program and modules"
                        .to_owned(),
                ),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapped::mapped;
    use super::*;

    #[test]
    fn files_that_were_replaced_and_second_libraries_are_named() {
        let maps = "1-2 r-xp 0 fe:00 9 /a/libcrypto.so.3 (deleted)\n\
                    2-3 r-xp 0 fe:00 8 /b/libcrypto.so.3\n3-4 r-xp 0 fe:00 7 /c/lockstep.so\n\
                    4-5 r-xp 0 fe:00 6 /c/lockstep.so (deleted)\n";
        let files = mapped(maps);
        let answer = |files: &[Mapped]| libcrypto(files, None, Verdict::Failed, "restart it");
        assert_eq!(answer(&[]).0, Verdict::Failed);
        let inside = Some("OpenSSL 3.0.17 1 Jul 2025");
        let (verdict, what, _) = libcrypto(&[], inside, Verdict::Failed, "x");
        assert_eq!(verdict, Verdict::Failed);
        assert!(
            what.contains("1 Jul 2025 is inside of its program"),
            "{what}"
        );
        let (verdict, what, remedy) = answer(&files[..1]);
        assert_eq!(verdict, Verdict::Warning);
        assert!(what.contains("/a/libcrypto.so.3 (replaced"), "{what}");
        assert!(remedy.unwrap().ends_with("restart it"));
        assert_eq!(answer(&files[1..2]).0, Verdict::Good);
        let (verdict, what, _) = answer(&files[..2]);
        assert_eq!(verdict, Verdict::Failed);
        assert!(
            what.contains("2 libcryptos: /a/") && what.contains(" and /b/"),
            "{what}"
        );
        assert_eq!(loaded(&files[2..3], "x").0, Verdict::Good);
        assert_eq!(loaded(&files[2..], "x").0, Verdict::Warning);
    }
}
