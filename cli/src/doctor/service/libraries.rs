//! A service's libraries, the module and libcrypto, and their meaning for it.

use lockstep_common::Failure;

use crate::doctor::finding::{Finding, Verdict, failed, good, note, warning};
use crate::process::mapped::Mapped;
use crate::words::joined;

/// Whether the service runs the module that is on the disk. `serve_old` says whether a serving
/// process runs another one, `reload` is the command to load the one on the disk.
pub fn loaded(modules: &[Mapped], serve_old: bool, reload: &str) -> Finding {
    let shown = |is_deleted| {
        let files = modules
            .iter()
            .filter(|module| module.is_deleted == is_deleted);
        joined(files.map(|file| file.path.display()), " and ")
    };
    let (old, new) = (shown(true), shown(false));
    match (old.is_empty(), serve_old) {
        (true, _) => good("loaded", format!("it has loaded {new}")),
        (false, true) => warning(
            "loaded",
            format!("it runs a module whose file was replaced or removed since: {old}"),
            format!("to use the one that is there now: {reload}"),
        ),
        (false, false) => note(
            "loaded",
            format!(
                "it has loaded {new}; processes from before a reload still run the module whose \
                 file was replaced or removed since ({old}), and end with their connections"
            ),
        ),
    }
}

/// Whether the service has loaded one libcrypto, and its file is still on the disk. `verdict` is
/// the verdict if there are several. `reload` is the command that loads the file on the disk.
pub fn libcrypto(libraries: &[Mapped], verdict: Verdict, reload: &str) -> Finding {
    const CHECK: &str = "libcrypto";
    match libraries {
        [] => failed(
            CHECK,
            "it has loaded no libcrypto: it uses another library for TLS, or an OpenSSL inside of \
             its program, which does not export the functions that a module needs",
            "use a build of it that is linked to the system's libcrypto (`ldd` of its program \
             names it)",
        ),
        [library] if library.is_deleted => warning(
            CHECK,
            format!("it runs {}", library.shown()),
            format!("to use the one that is there now: {reload}"),
        ),
        [library] => good(CHECK, format!("it uses {}", library.shown())),
        several => {
            let what = format!(
                "it has loaded {} libcryptos: {}. The module works with the one that loads it \
                 first; what the program does with another one is not accelerated",
                several.len(),
                joined(several.iter().map(Mapped::shown), " and ")
            );
            let remedy = "have all of its libraries use one OpenSSL: look at LD_LIBRARY_PATH and \
                          LD_PRELOAD in its unit, and at `ldd` of its program and modules";
            Finding::of(CHECK, verdict, Failure::new(what).remedy(remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::mapped::mapped;

    #[test]
    fn files_that_were_replaced_and_second_libraries_are_named() {
        let maps = "1-2 r-xp 0 fe:00 9 /a/libcrypto.so.3 (deleted)\n\
                    2-3 r-xp 0 fe:00 8 /b/libcrypto.so.3\n3-4 r-xp 0 fe:00 7 /c/lockstep.so\n\
                    4-5 r-xp 0 fe:00 6 /c/lockstep.so (deleted)\n";
        let files = mapped(maps.as_bytes());
        let answer = |files: &[Mapped]| libcrypto(files, Verdict::Failed, "restart it");
        assert_eq!(answer(&[]).verdict, Verdict::Failed);
        let Finding {
            verdict,
            what,
            remedy,
            ..
        } = answer(&files[..1]);
        assert_eq!(verdict, Verdict::Warning);
        assert!(what.contains("/a/libcrypto.so.3 (replaced"), "{what}");
        assert!(remedy.unwrap().ends_with("restart it"));
        assert_eq!(answer(&files[1..2]).verdict, Verdict::Good);
        let Finding { verdict, what, .. } = answer(&files[..2]);
        assert_eq!(verdict, Verdict::Failed);
        assert!(
            what.contains("2 libcryptos: /a/") && what.contains(" and /b/"),
            "{what}"
        );
        for (modules, serve_old, verdict) in [
            (&files[2..3], false, Verdict::Good),
            (&files[2..], true, Verdict::Warning),
            // The worker of HAProxy from before a reload.
            (&files[2..], false, Verdict::Note),
        ] {
            assert_eq!(loaded(modules, serve_old, "x").verdict, verdict);
        }
    }
}
