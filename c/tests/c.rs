//! The header, and programs in C that use it.
#![allow(unsafe_code, reason = "calls as C makes them")]

use std::ffi::c_char;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, ptr};

use lockstep_c::{
    Column, Keys, LOCKSTEP_DER, Output, PrivateKey, PrivateKeys, Status, lockstep_agree_many,
    lockstep_decapsulate_many, lockstep_encapsulate_many, lockstep_generate_many,
    lockstep_private_key_free, lockstep_private_key_from_raw, lockstep_private_key_public,
    lockstep_public_key_free, lockstep_public_key_from_raw, lockstep_reason_text,
    lockstep_sign_many, lockstep_verify_many, lockstep_workers_free, lockstep_workers_new,
};
use lockstep_testkit::{Random, TempDir};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_what_cbindgen_makes() {
    let configuration = cbindgen::Config::from_file(here().join("cbindgen.toml"));
    let made = cbindgen::Builder::new()
        .with_crate(here())
        .with_config(configuration.expect("a configuration"))
        .generate()
        .expect("a header");
    let mut text = Vec::new();
    made.write(&mut text);
    let path = here().join("lockstep.h");
    if env::var_os("LOCKSTEP_HEADER").is_some_and(|value| value == "write") {
        fs::write(&path, &text).expect("a file");
    }
    let noted = fs::read(&path).unwrap_or_default();
    assert!(
        noted == text,
        "c/lockstep.h is out of date; remedy: LOCKSTEP_HEADER=write cargo test -p lockstep-c"
    );
}

/// The shared library, as cargo has built it for this test.
fn library() -> PathBuf {
    let test = env::current_exe().expect("a test");
    let library = test.with_file_name("liblockstep_c.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

/// A release changes the version of the packages alone.
#[test]
fn pkg_config_knows_the_version() {
    let text = fs::read_to_string(here().join("lockstep.pc")).expect("a file");
    let version = concat!("Version: ", env!("CARGO_PKG_VERSION"));
    assert!(
        text.lines().any(|line| line == version),
        "c/lockstep.pc: no `{version}`"
    );
}

/// Compiles a program that uses the library, installed in a directory.
fn compiled(compiler: &str, source: &Path, options: &[&str], place: &TempDir) -> PathBuf {
    for name in ["liblockstep.so", "liblockstep.so.0"] {
        let _ = std::os::unix::fs::symlink(library(), place.join(name));
    }
    let program = place.join("program");
    let directory = place.join("");
    let directory = directory.display();
    let mut compile = Command::new(compiler);
    compile
        .args(options)
        .args(["-Wall", "-Wextra", "-Werror", "-I"]);
    compile.arg(here()).arg(source).arg("-o").arg(&program);
    compile.args([format!("-L{directory}"), format!("-Wl,-rpath,{directory}")]);
    let made = compile.arg("-llockstep").output().expect("a compiler");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    program
}

#[test]
fn the_example_finds_the_signature_that_was_changed() {
    let place = TempDir::new("example");
    let source = here().join("examples/verify.c");
    for (compiler, options) in [("cc", &["-std=c99"][..]), ("cc", &["-std=c17", "-O2"])] {
        let program = compiled(compiler, &source, options, &place);
        let run = Command::new(program).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stdout);
        let expected = "item 7: the signature does not belong to the key and the message\n\
                        999 of 1000 signatures are good\n";
        assert_eq!(said, expected);
        assert!(run.status.success());
    }
}

#[test]
fn the_header_is_cpp_too() {
    let place = TempDir::new("cpp");
    let source = place.join("empty.cpp");
    let text = "#include \"lockstep.h\"\n\
                int main() { lockstep_workers_free(lockstep_workers_new(1)); }\n";
    fs::write(&source, text).expect("a file");
    let program = compiled("c++", &source, &[], &place);
    assert!(Command::new(program).status().expect("it starts").success());
}

/// The library has the functions of its header, and no other names that could meet those of a
/// program.
#[test]
fn no_other_name_is_exported() {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=just-symbols"]);
    let listed = nm.arg(library()).output().expect("nm");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let header = fs::read_to_string(here().join("lockstep.h")).expect("a header");
    let names: Vec<_> = listed.lines().collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(
            header.contains(&format!("{name}(")),
            "{name} is not in the header"
        );
    }
}

const NO_COLUMN: Column = Column {
    data: ptr::null(),
    width: 0,
    stride: 0,
    offsets: ptr::null(),
};

fn column(bytes: &[u8], width: usize) -> Column {
    Column {
        data: bytes.as_ptr(),
        width,
        stride: width,
        offsets: ptr::null(),
    }
}

fn output(bytes: &mut [u8], stride: usize) -> Output {
    Output {
        data: bytes.as_mut_ptr(),
        stride,
        lengths: ptr::null_mut(),
        reasons: ptr::null_mut(),
    }
}

fn name(text: &'static std::ffi::CStr) -> *const c_char {
    text.as_ptr()
}

/// Columns with offsets, keys as bytes, an index, DER.
#[test]
fn columns_of_each_form_are_read() {
    let workers = lockstep_workers_new(2);
    let (mut secrets, mut publics) = ([0; 2 * 32], [0; 2 * 65]);
    // SAFETY: all pointers are to places of the lengths that are given.
    unsafe {
        let [own, other] = [output(&mut secrets, 32), output(&mut publics, 65)];
        let made = lockstep_generate_many(workers, name(c"P-256"), 2, &own, &other);
        assert_eq!(made, Status::Ok);
        let mut keys = [ptr::null_mut(); 2];
        for (key, secret) in keys.iter_mut().zip(secrets.chunks(32)) {
            let read = lockstep_private_key_from_raw(name(c"P-256"), secret.as_ptr(), 32, key);
            assert_eq!(read, Status::Ok);
        }
        let texts = b"onetwothree";
        let offsets = [0, 3, 6, 6, 11];
        let messages = Column {
            offsets: offsets.as_ptr(),
            ..column(texts, 0)
        };
        let index = [0, 1, 0, 1];
        let signers = PrivateKeys {
            objects: keys.as_ptr().cast(),
            count: 2,
            index: index.as_ptr(),
        };
        let (mut signatures, mut lengths, mut reasons) = ([9; 4 * 80], [0; 4], [9; 4]);
        let signed = Output {
            lengths: lengths.as_mut_ptr(),
            reasons: reasons.as_mut_ptr(),
            ..output(&mut signatures, 80)
        };
        let scheme = name(c"ES256");
        let status = lockstep_sign_many(
            workers,
            scheme,
            LOCKSTEP_DER,
            4,
            &signers,
            &messages,
            &signed,
        );
        assert_eq!((status, reasons), (Status::Ok, [0; 4]));
        assert!(
            lengths.iter().all(|length| (68..=72).contains(length)),
            "{lengths:?}"
        );
        assert!(signatures.chunks(80).all(|row| row[72..] == [9; 8]));

        let packed: Vec<u8> = signatures
            .chunks(80)
            .zip(lengths)
            .flat_map(|(row, length)| row[..length as usize].to_vec())
            .collect();
        let mut ends = vec![0];
        ends.extend(lengths.iter().scan(0, |end, length| {
            *end += u64::from(*length);
            Some(*end)
        }));
        let column_of_der = Column {
            offsets: ends.as_ptr(),
            ..column(&packed, 0)
        };
        let points: Vec<u8> = [0, 1, 0, 1]
            .iter()
            .flat_map(|key| publics[65 * key..][..65].to_vec())
            .collect();
        let raw = Keys {
            objects: ptr::null(),
            count: 0,
            index: ptr::null(),
            raw: column(&points, 65),
        };
        let verify = |keys: &Keys| {
            let mut reasons = [9; 4];
            let status = lockstep_verify_many(
                workers,
                scheme,
                LOCKSTEP_DER,
                4,
                keys,
                &messages,
                &column_of_der,
                reasons.as_mut_ptr(),
            );
            assert_eq!(status, Status::Ok);
            reasons
        };
        assert_eq!(verify(&raw), [0; 4]);
        // One row for all items.
        let repeated = Keys {
            raw: Column {
                stride: 0,
                ..column(&publics[..65], 65)
            },
            ..raw
        };
        assert_eq!(verify(&repeated), [0, 1, 0, 1]);
        let compressed: Vec<u8> = points
            .chunks(65)
            .flat_map(|point| [&[2 + point[64] % 2], &point[1..33]].concat())
            .collect();
        let of_x = Keys {
            raw: column(&compressed, 33),
            ..raw
        };
        assert_eq!(verify(&of_x), [0; 4]);
        let mut public = ptr::null_mut();
        let point = compressed.as_ptr();
        let read = lockstep_public_key_from_raw(name(c"P-256"), point, 33, &mut public);
        assert_eq!(read, Status::Ok);
        let object = public.cast_const();
        let single = Keys {
            objects: &object,
            count: 1,
            ..raw
        };
        assert_eq!(verify(&single), [0, 1, 0, 1]);
        lockstep_public_key_free(public);
        keys.into_iter()
            .for_each(|key| lockstep_private_key_free(key));
        lockstep_workers_free(workers);
    }
}

/// Secrets that are sent to keys as bytes and as objects.
#[test]
fn secrets_that_are_sent_are_received() {
    const COUNT: usize = 3;
    let workers = lockstep_workers_new(1);
    for kem in lockstep::Kem::ALL {
        let algorithm = lockstep::Algorithm::Kem(kem);
        let (secret, public) = algorithm.key_bytes().expect("lengths");
        let text = std::ffi::CString::new(algorithm.name()).expect("a name");
        let text = text.as_ptr();
        let sent = kem.ciphertext_bytes();
        let shared = kem.shared_bytes();
        let (mut own, mut publics) = (vec![0; COUNT * secret], vec![0; COUNT * public]);
        let mut ciphertexts = vec![0; COUNT * sent];
        let (mut first, mut second) = (vec![0; COUNT * shared], vec![0; COUNT * shared]);
        let mut reasons = [9; COUNT];
        // SAFETY: all pointers are to places of the lengths that are given.
        unsafe {
            let made = [output(&mut own, secret), output(&mut publics, public)];
            let status = lockstep_generate_many(workers, text, COUNT, &made[0], &made[1]);
            assert_eq!(status, Status::Ok);
            let mut keys = [ptr::null_mut(); COUNT];
            for (key, bytes) in keys.iter_mut().zip(own.chunks(secret)) {
                let read = lockstep_private_key_from_raw(text, bytes.as_ptr(), secret, key);
                assert_eq!(read, Status::Ok);
            }
            let objects = keys.map(|key| lockstep_private_key_public(key).cast_const());
            let raw = Keys {
                objects: ptr::null(),
                count: 0,
                index: ptr::null(),
                raw: column(&publics, public),
            };
            let by_object = Keys {
                objects: objects.as_ptr(),
                count: COUNT,
                ..raw
            };
            for peers in [&raw, &by_object] {
                let to = [output(&mut ciphertexts, sent), output(&mut first, shared)];
                let status = lockstep_encapsulate_many(workers, text, COUNT, peers, &to[0], &to[1]);
                assert_eq!(status, Status::Ok);
                let owners = PrivateKeys {
                    objects: keys.as_ptr().cast(),
                    count: COUNT,
                    index: ptr::null(),
                };
                let received = Output {
                    reasons: reasons.as_mut_ptr(),
                    ..output(&mut second, shared)
                };
                let rows = column(&ciphertexts, sent);
                let status =
                    lockstep_decapsulate_many(workers, text, COUNT, &owners, &rows, &received);
                assert_eq!((status, reasons), (Status::Ok, [0; COUNT]));
                assert!(first == second && first[..shared] != first[shared..][..shared]);
                // A ciphertext that is too short is its item's reason.
                let short = column(&ciphertexts, sent - 1);
                lockstep_decapsulate_many(workers, text, COUNT, &owners, &short, &received);
                assert_eq!(reasons, [lockstep::Reason::MalformedInput as u8; COUNT]);
            }
            let objects = objects.into_iter().map(<*const _>::cast_mut);
            objects.for_each(|key| lockstep_public_key_free(key));
            keys.into_iter()
                .for_each(|key| lockstep_private_key_free(key));
        }
    }
    // SAFETY: nobody uses them any more.
    unsafe { lockstep_workers_free(workers) };
}

/// Rows that are too short are refused before anything is computed: no place is written.
#[test]
fn short_rows_are_refused_before_work_begins() {
    let workers = lockstep_workers_new(1);
    let (mut enough, mut short) = ([9; 1200], [9; 1200]);
    let (scalar, message) = ([7; 32], [0; 1088]);
    // SAFETY: all pointers are to places of the lengths that are given.
    unsafe {
        let both = |enough: &mut [u8], width, short: &mut [u8], less| {
            [output(enough, width), output(short, less)]
        };
        let refused = Status::BadArgument;
        let [secrets, publics] = both(&mut enough, 32, &mut short, 64);
        let made = lockstep_generate_many(workers, name(c"P-256"), 1, &secrets, &publics);
        assert_eq!(made, refused);
        let made = lockstep_generate_many(workers, name(c"P-256"), 1, &secrets, ptr::null());
        assert_eq!(made, refused);
        let mut key: *mut PrivateKey = ptr::null_mut();
        let read = lockstep_private_key_from_raw(name(c"P-256"), scalar.as_ptr(), 32, &mut key);
        assert_eq!(read, Status::Ok);
        let keys = PrivateKeys {
            objects: (&raw const key).cast(),
            count: 1,
            index: ptr::null(),
        };
        let text = column(&message, 1088);
        for (options, less) in [(0, 63), (LOCKSTEP_DER, 71)] {
            let output = output(&mut short, less);
            let scheme = name(c"ES256");
            let signed = lockstep_sign_many(workers, scheme, options, 1, &keys, &text, &output);
            assert_eq!(signed, refused);
        }
        let output = output(&mut short, 31);
        let agreed = lockstep_agree_many(workers, name(c"P-256"), 1, &keys, &text, &output);
        assert_eq!(agreed, refused);
        let kem = name(c"ML-KEM-768");
        let public = Keys {
            objects: ptr::null(),
            count: 0,
            index: ptr::null(),
            raw: column(&message, 1088),
        };
        let [ciphertexts, secrets] = both(&mut enough, 1088, &mut short, 31);
        let sent = lockstep_encapsulate_many(workers, kem, 1, &public, &ciphertexts, &secrets);
        assert_eq!(sent, refused);
        let found = lockstep_decapsulate_many(workers, kem, 1, &keys, &text, &secrets);
        assert_eq!(found, refused);
        let none = lockstep_decapsulate_many(workers, name(c"P-256"), 1, &keys, &text, &secrets);
        assert_eq!(none, Status::Unsupported);
        lockstep_private_key_free(key);
        lockstep_workers_free(workers);
    }
    assert!(enough == [9; 1200] && short == [9; 1200]);
}

#[test]
fn arguments_that_cannot_be_are_refused() {
    let workers = lockstep_workers_new(1);
    let bytes = [7; 64];
    let keys = Keys {
        objects: ptr::null(),
        count: 0,
        index: ptr::null(),
        raw: column(&bytes, 32),
    };
    let texts = column(&bytes, 8);
    let signatures = Column {
        stride: 0,
        ..column(&bytes, 64)
    };
    let falling = [0_u64, 5, 3];
    let endless = [0_u64, 5, u64::MAX];
    let with_offsets = |offsets: &[u64; 3]| Column {
        offsets: offsets.as_ptr(),
        ..column(&bytes, 0)
    };
    let huge = Column {
        stride: usize::MAX / 2,
        ..texts
    };
    let nothing = Column {
        width: 8,
        ..NO_COLUMN
    };
    // SAFETY: each pointer is null or to a place of the length that is given; columns that are
    // refused are not read.
    unsafe {
        let verify = |scheme, options, count, keys: *const Keys, texts: *const Column| {
            let mut reasons = [0; 2];
            let status = lockstep_verify_many(
                workers,
                scheme,
                options,
                count,
                keys,
                texts,
                &signatures,
                reasons.as_mut_ptr(),
            );
            assert_eq!(reasons.map(|code| code > 0), [count > 0; 2]);
            status
        };
        let scheme = name(c"Ed25519");
        assert_eq!(verify(scheme, 0, 2, &keys, &texts), Status::Ok);
        assert_eq!(verify(scheme, 0, 0, &keys, &NO_COLUMN), Status::Ok);
        let refused = Status::BadArgument;
        assert_eq!(verify(ptr::null(), 0, 2, &keys, &texts), refused);
        assert_eq!(verify(scheme, 4, 2, &keys, &texts), refused);
        assert_eq!(verify(scheme, 0, 2, ptr::null(), &texts), refused);
        assert_eq!(verify(scheme, 0, 2, &keys, ptr::null()), refused);
        for texts in [
            huge,
            nothing,
            with_offsets(&falling),
            with_offsets(&endless),
        ] {
            assert_eq!(verify(scheme, 0, 2, &keys, &texts), refused);
        }
        assert_eq!(
            verify(name(c"none"), 0, 2, &keys, &texts),
            Status::Unsupported
        );
        let mut row = [0; 31];
        let short = output(&mut row, 31);
        let made = lockstep_generate_many(workers, name(c"X25519"), 1, &short, &short);
        assert_eq!(made, refused);
        let mut key: *mut PrivateKey = ptr::null_mut();
        let read = lockstep_private_key_from_raw(name(c"P-256"), bytes.as_ptr(), 31, &mut key);
        assert_eq!((read, key.is_null()), (Status::BadKey, true));
        lockstep_private_key_free(key);
        // What lies at the place before is never taken for a key.
        key = ptr::dangling_mut();
        let read = lockstep_private_key_from_raw(name(c"P-521"), bytes.as_ptr(), 32, &mut key);
        assert_eq!((read, key.is_null()), (Status::Unsupported, true));
        lockstep_workers_free(workers);
        lockstep_workers_free(ptr::null_mut());
    }
    // SAFETY: the library's texts end with a zero.
    let text = |code| unsafe { std::ffi::CStr::from_ptr(lockstep_reason_text(code)) };
    for reason in lockstep::Reason::ALL {
        assert_eq!(text(reason as u8).to_str(), Ok(reason.text()));
    }
    assert!(text(0).is_empty() && text(255).is_empty());
}

/// A column, and whether the library must take it.
struct Shape {
    column: Column,
    /// Its offsets, which stay where they are.
    _offsets: Vec<u64>,
    is_good: bool,
}

fn below(random: &mut Random, limit: usize) -> usize {
    (random.word() >> 1) as usize % limit
}

/// Returns a column of `count` rows in a memory, or one that cannot be and whose rows nobody may
/// read.
fn shape(random: &mut Random, memory: &[u8], count: usize) -> Shape {
    let width = [0, 1, 8, 32, 64, 65][below(random, 6)];
    let strided = |data: *const u8, stride| Column {
        data,
        width,
        stride,
        offsets: ptr::null(),
    };
    let plain = |column, is_good| Shape {
        column,
        _offsets: Vec::new(),
        is_good: is_good || count == 0,
    };
    let offsets = |data: *const u8, offsets: Vec<u64>, is_good: bool| Shape {
        column: Column {
            offsets: offsets.as_ptr(),
            ..strided(data, 0)
        },
        _offsets: offsets,
        is_good: is_good || count == 0,
    };
    let mut sorted: Vec<u64> = (0..=count)
        .map(|_| below(random, memory.len() + 1) as u64)
        .collect();
    sorted.sort_unstable();
    let start = memory.as_ptr();
    match below(random, 9) {
        // Rows side by side, apart, over each other, and one for all items.
        0..=2 => {
            let most = (memory.len() - width) / count.max(2).saturating_sub(1);
            plain(strided(start, below(random, most + 1)), true)
        }
        3 => plain(strided(ptr::null(), width), width == 0),
        4 => plain(strided(start, usize::MAX - below(random, 1000)), false),
        5 => offsets(start, sorted, true),
        6 => {
            sorted.reverse();
            let is_sorted = sorted.is_sorted();
            offsets(start, sorted, is_sorted)
        }
        7 => {
            let impossible = u64::MAX - below(random, 1 << 62) as u64;
            sorted[count] = impossible;
            offsets(start, sorted, false)
        }
        _ => {
            let nothing = below(random, 2) == 0;
            let own = if nothing { vec![0; count + 1] } else { sorted };
            let is_empty = own[count] == 0;
            offsets(ptr::null(), own, is_empty)
        }
    }
}

/// Random columns, keys, places and outputs: a status for each, and no byte beside the outputs.
#[test]
fn random_shapes_are_computed_or_refused() {
    const CANARY: u8 = 0xa5;
    let (mut random, workers) = (Random(7), lockstep_workers_new(2));
    let memory = random.vec(8192);
    let mut keys = [ptr::null_mut(); 3];
    for (key, algorithm) in keys.iter_mut().zip([c"Ed25519", c"Ed25519", c"P-256"]) {
        // SAFETY: the memory has these bytes, and the key has a place.
        let read =
            unsafe { lockstep_private_key_from_raw(name(algorithm), memory.as_ptr(), 32, key) };
        assert_eq!(read, Status::Ok);
    }
    let with_null = [keys[0], ptr::null_mut()];
    let (mut good, mut refused) = (0, 0);
    let mut count_status = |status: Status, is_good: bool, what: &str| {
        let expected = match is_good {
            true => Status::Ok,
            false => Status::BadArgument,
        };
        assert_eq!(status, expected, "{what}");
        match is_good {
            true => good += 1,
            false => refused += 1,
        }
    };
    for round in 0..2000 {
        let count = [0, 1, 2, 63, 64, 65, 100][below(&mut random, 7)];
        let [raw, messages, signatures] = [(); 3].map(|()| shape(&mut random, &memory, count));
        let mut reasons = vec![CANARY; count + 8];
        let place = match below(&mut random, 8) {
            0 => ptr::null_mut(),
            _ => reasons.as_mut_ptr(),
        };
        let is_good = [&raw, &messages, &signatures]
            .iter()
            .all(|shape| shape.is_good)
            && (count == 0 || !place.is_null());
        let raw = Keys {
            objects: ptr::null(),
            count: 0,
            index: ptr::null(),
            raw: raw.column,
        };
        let scheme = name([c"Ed25519", c"ES256", c"ML-DSA-44"][below(&mut random, 3)]);
        // SAFETY: columns that must be taken lie in the memory, and the others are not read.
        let status = unsafe {
            let [messages, signatures] = [&messages.column, &signatures.column];
            lockstep_verify_many(workers, scheme, 0, count, &raw, messages, signatures, place)
        };
        count_status(status, is_good, &format!("round {round}: verify"));
        assert!(reasons[count..].iter().all(|byte| *byte == CANARY));

        let known = [&keys[..], &keys[..1], &with_null, &[]][below(&mut random, 4)];
        let most = if below(&mut random, 4) == 0 {
            5
        } else {
            known.len().max(1)
        };
        let index: Vec<u32> = (0..count)
            .map(|_| below(&mut random, most) as u32)
            .collect();
        let has_index = below(&mut random, 2) == 0;
        let signers = PrivateKeys {
            objects: match known.is_empty() {
                true => ptr::null(),
                false => known.as_ptr().cast(),
            },
            count: known.len(),
            index: match has_index {
                true => index.as_ptr(),
                false => ptr::null(),
            },
        };
        let are_keys = match (known.is_empty(), has_index) {
            (true, _) => count == 0,
            (false, true) => index.iter().all(|place| (*place as usize) < known.len()),
            (false, false) => known.len() == 1 || known.len() == count,
        } && known.iter().all(|key| !key.is_null());
        let stride = [0, 63, 64, 65, 200][below(&mut random, 5)];
        let mut bytes = vec![CANARY; stride * count + 8];
        let mut lengths = vec![7; count];
        let output = Output {
            lengths: match below(&mut random, 2) {
                0 => ptr::null_mut(),
                _ => lengths.as_mut_ptr(),
            },
            ..output(&mut bytes, stride)
        };
        let is_good = messages.is_good && are_keys && stride >= 64;
        // SAFETY: as above, and the output has a row for each item.
        let status = unsafe {
            let (scheme, messages) = (name(c"Ed25519"), &messages.column);
            lockstep_sign_many(workers, scheme, 0, count, &signers, messages, &output)
        };
        count_status(status, is_good, &format!("round {round}: sign"));
        assert!(bytes[stride * count..].iter().all(|byte| *byte == CANARY));
    }
    assert!(
        good > 200 && refused > 200,
        "{good} good, {refused} refused"
    );

    // Numbers of items that no memory has.
    let repeated = Column {
        stride: 0,
        ..column(&memory, 32)
    };
    let offsets = [0];
    let with_offsets = Column {
        offsets: offsets.as_ptr(),
        ..repeated
    };
    let raw = Keys {
        objects: ptr::null(),
        count: 0,
        index: ptr::null(),
        raw: repeated,
    };
    let index = [0];
    let signers = PrivateKeys {
        objects: keys.as_ptr().cast(),
        count: 1,
        index: index.as_ptr(),
    };
    let (mut reasons, mut row) = ([0], [0; 64]);
    let row = output(&mut row, 64);
    for count in [usize::MAX, usize::MAX - 1, usize::MAX / 2 + 1] {
        // SAFETY: what cannot be is not read.
        unsafe {
            let verify = |texts: &Column, keys: &Keys, reasons: *mut u8| {
                let scheme = name(c"Ed25519");
                lockstep_verify_many(workers, scheme, 0, count, keys, texts, &repeated, reasons)
            };
            let objects = Keys {
                objects: keys.as_ptr().cast(),
                count,
                ..raw
            };
            for status in [
                verify(&repeated, &raw, reasons.as_mut_ptr()),
                verify(&with_offsets, &raw, reasons.as_mut_ptr()),
                verify(&repeated, &objects, reasons.as_mut_ptr()),
                lockstep_sign_many(
                    workers,
                    name(c"Ed25519"),
                    0,
                    count,
                    &signers,
                    &repeated,
                    &row,
                ),
            ] {
                assert_eq!(status, Status::BadArgument);
            }
            let status = lockstep_generate_many(workers, name(c"Ed25519"), count, &row, &row);
            assert_eq!(status, Status::BadArgument);
            let mut key: *mut PrivateKey = ptr::null_mut();
            let algorithm = name(c"Ed25519");
            let status = lockstep_private_key_from_raw(algorithm, memory.as_ptr(), count, &mut key);
            assert_eq!(status, Status::BadArgument);
        }
    }
    // SAFETY: nobody uses them any more.
    unsafe {
        keys.into_iter()
            .for_each(|key| lockstep_private_key_free(key));
        lockstep_workers_free(workers);
    }
}
