//! Programs that carry an OpenSSL of their own: the module works with it, or leaves them alone.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockstep_engine::read_stats;

use crate::common::{Finished, Place, dist};

/// Links a program with the static libcrypto; None, with a line, where there is none.
fn statically_linked(place: &Place, output: &str, options: &[&str]) -> Option<PathBuf> {
    let found = Command::new("cc")
        .arg("-print-file-name=libcrypto.a")
        .output()
        .expect("the C compiler `cc` runs");
    let library = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    if !Path::new(&library).is_absolute() {
        println!("skipped: there is no libcrypto.a");
        return None;
    }
    let mut all = options.to_vec();
    all.extend(["-Wl,--whole-archive", &library, "-Wl,--no-whole-archive"]);
    all.extend(["-ldl", "-lpthread"]);
    Some(place.compile_with("own_openssl", output, &all))
}

/// Runs the program with the module in its configuration.
fn execute(place: &Place, program: &Path) -> Finished {
    execute_with(place, program, "rsa2048")
}

fn execute_with(place: &Place, program: &Path, key: &str) -> Finished {
    let key = place.key(key);
    let arguments = format!("{key} {}", dist().display());
    place.program(program, &arguments).with_lockstep().succeed()
}

/// The module is not in the program, and its error queue says why.
#[track_caller]
fn assert_refused(finished: &Finished, expected: &[&str]) {
    let text = finished.text();
    assert!(!text.contains("loaded"), "loaded: {finished}");
    let reason = text.lines().find(|line| line.contains("lockstep: "));
    let reason = reason.unwrap_or_else(|| panic!("no reason: {finished}"));
    for part in expected {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    assert!(!finished.stderr.contains("lockstep"), "{finished}");
    assert!(finished.try_counters().is_none(), "{finished}");
}

#[test]
fn a_program_with_its_own_openssl_keeps_it() {
    let place = Place::new();
    // Without symbols for others, as Python wheels are, and with a few of them, as node has.
    let few = "-Wl,--export-dynamic-symbol=OSSL_*,--export-dynamic-symbol=EVP_*";
    for (name, options) in [("closed", &[][..]), ("half_open", &[few][..])] {
        let Some(program) = statically_linked(&place, name, options) else {
            return;
        };
        let finished = execute(&place, &program);
        let program = program.canonicalize().expect("the program is there");
        let program = program.to_str().expect("a path in UTF-8");
        let first = if name == "closed" {
            "OSSL_LIB_CTX_new"
        } else {
            "ERR_new"
        };
        assert_refused(&finished, &[program, first]);
    }
}

#[test]
fn a_program_whose_own_openssl_is_all_there_is_works_on_lanes() {
    let place = Place::new();
    // All symbols for others: then the module is linked to the program's.
    let Some(program) = statically_linked(&place, "open", &["-rdynamic"]) else {
        return;
    };
    let shared = place.compile_with("own_openssl", "shared", &["-lcrypto"]);
    // A program at a fixed address that takes a function's address stands in for that function.
    let options = ["-fno-pie", "-no-pie", "-DTAKE_ADDRESS", "-lcrypto"];
    let fixed = place.compile_with("own_openssl", "fixed", &options);
    for program in [program, shared, fixed] {
        let finished = execute(&place, &program);
        assert!(!finished.text().contains("refused"), "{finished}");
        assert!(finished.counters().of("rsa2048") > 0, "{finished}");
    }
}

#[test]
fn what_an_openssl_does_not_export_switches_off_its_operation() {
    let place = Place::new();
    place.write("map", b"{ local: RSA_meth_dup; };");
    let map = format!("-Wl,--version-script={}", place.path("map").display());
    let Some(program) = statically_linked(&place, "without", &["-rdynamic", &map]) else {
        return;
    };
    let finished = execute_with(&place, &program, "rsa2048");
    let named = "unaccelerated: RSA: this OpenSSL does not export the function RSA_meth_dup\n";
    assert!(finished.text().contains(named), "{finished}");
    assert!(finished.try_counters().is_none(), "{finished}");
    let finished = execute_with(&place, &program, "p256");
    assert!(finished.text().contains(named), "{finished}");
    assert!(finished.counters().of("p256-sign") > 0, "{finished}");
}

#[test]
fn the_first_of_two_libcryptos_has_the_module() {
    let place = Place::new();
    let program = place.compile_with("two_libcryptos", "two_libcryptos", &["-ldl"]);
    let Some(library) = libcrypto(&place) else {
        println!("skipped: the libcrypto of this system is not found");
        return;
    };
    // Another name inside and out: the dynamic linker takes it for another library.
    let other = place.path("libcrypto.so.9");
    let mut bytes = fs::read(&library).expect("libcrypto");
    let name = b"libcrypto.so.3\0";
    let at = bytes.windows(name.len()).position(|part| part == name);
    bytes[at.expect("its own name") + name.len() - 2] = b'9';
    fs::write(&other, bytes).expect("a library");
    let run = |libraries: &[&Path]| {
        let mut arguments = dist().display().to_string();
        for library in libraries {
            arguments += &format!(" {}", library.display());
        }
        let process = place.program(&program, &arguments).with_counters();
        process.succeed()
    };
    for library in [&library, &other] {
        let finished = run(&[library, library]);
        assert_eq!(finished.text(), "loaded\nloaded\n", "{finished}");
    }
    for (first, second) in [(&library, &other), (&other, &library)] {
        let finished = run(&[first, second]);
        let text = finished.text();
        let reason = format!("that is the one in {}", first.display());
        assert!(text.starts_with("loaded\nrefused\n"), "{finished}");
        assert!(text.contains(&reason), "{finished}");
    }
}

/// The directories of libcrypto and of the counters may have names that are no text.
#[test]
fn a_directory_has_any_bytes_for_a_name() {
    let place = Place::with_settings(&[("stats_dir", "DIRECTORY")]);
    let Some(library) = libcrypto(&place) else {
        println!("skipped: the libcrypto of this system is not found");
        return;
    };
    let directory = place.path("").join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&directory).expect("a directory");
    fs::copy(&library, directory.join("libcrypto.so.3")).expect("a library");
    let text = String::from_utf8(place.read("lockstep.cnf")).expect("text");
    let (before, after) = text.split_once("DIRECTORY").expect("the setting");
    let name = directory.as_os_str().as_bytes();
    let text = [before.as_bytes(), name, after.as_bytes()].concat();
    place.write("lockstep.cnf", &text);
    place.write("data", b"data");
    let sign = format!("dgst -sha256 -sign {} data", place.key("rsa1024"));
    let process = place.lockstep(&sign).env("LD_LIBRARY_PATH", &directory);
    let finished = process.env("LOCKSTEP_STATS_DIR", "").succeed();
    let found = read_stats(&directory).expect("a directory");
    let [counted] = &found[..] else {
        panic!("{found:?}: {finished}");
    };
    assert_eq!(
        (counted.pid, counted.snapshot.operations()),
        (finished.pid, 1)
    );
    assert_eq!(counted.snapshot.mistakes, "");
    // By a variable, too.
    let process = place.lockstep(&sign).env("LOCKSTEP_STATS_DIR", &directory);
    process.succeed();
    assert_eq!(read_stats(&directory).expect("a directory").len(), 2);
}

/// The libcrypto that programs of this system are linked to.
fn libcrypto(place: &Place) -> Option<PathBuf> {
    let program = place.compile_with("own_openssl", "linked", &["-lcrypto"]);
    let output = Command::new("ldd").arg(program).output();
    let output = String::from_utf8(output.ok()?.stdout).ok()?;
    let line = output
        .lines()
        .find(|line| line.contains("libcrypto.so.3"))?;
    let path = line.split("=>").nth(1)?.split_whitespace().next()?;
    fs::canonicalize(path).ok()
}
