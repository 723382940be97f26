use der::Encode as _;
use der::asn1::{BitStringRef, OctetStringRef, UintRef};
use lockstep_testkit::{Random, TempDir, command, run};
use rustix::fs::inotify;

use super::*;

fn reference() -> Reference {
    Reference {
        name: "www".to_owned(),
        socket: None,
        public: vec![0x30, 0],
    }
}

fn of(text: &str) -> Result<String, String> {
    make_from(text.as_bytes(), &reference())
}

pub(crate) fn block(label: &str, bytes: &[u8]) -> String {
    der::pem::encode_string(label, LineEnding::LF, bytes).unwrap()
}

pub(crate) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    AnyRef::new(Tag::Sequence, &parts.concat())
        .unwrap()
        .to_der()
        .unwrap()
}

fn number(bytes: &[u8]) -> Vec<u8> {
    UintRef::new(bytes).unwrap().to_der().unwrap()
}

/// Returns bytes with the length and structure of a certificate.
fn certificate(seed: u8) -> Vec<u8> {
    let signed = OctetStringRef::new(&[seed; 300]).unwrap().to_der().unwrap();
    let signature = BitStringRef::from_bytes(&[seed; 64])
        .unwrap()
        .to_der()
        .unwrap();
    sequence(&[sequence(&[signed]), sequence(&[]), signature])
}

/// A key of ML-DSA may have the same first bytes as a certificate with the serial number 0 whose
/// issuer has a key of the same set. These bytes are not secret.
#[test]
fn what_all_keys_of_a_kind_begin_with_is_no_part_of_a_key() {
    let head = [
        &[2, 1, 0, 0x30, 11, 6, 9][..],
        &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 17],
    ];
    let head = head.concat();
    let secret: Vec<u8> = (0..34).map(|at| at ^ 0x80).collect();
    let field = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8], bytes].concat();
    let pkcs8 = field(0x30, &[&head[..], &field(4, &secret)].concat());
    let certificate = |serial: &[u8]| {
        let signature = sequence(&[number(b"algorithm")]);
        let body = field(0x30, serial);
        field(
            0x30,
            &[&body[..], &signature, &field(3, b"\0signature")].concat(),
        )
    };
    let made = |serial: &[u8]| {
        of(&(block("PRIVATE KEY", &pkcs8) + &block(CERTIFICATE, &certificate(serial))))
    };
    assert!(made(&head).is_ok());
    // A text with more of the key's own bytes is a leak.
    for (from, is_taken) in [(1, true), (2, true), (5, false), (20, false), (36, false)] {
        let leak = made(&pkcs8[from..from + 16]);
        assert_eq!(leak.is_ok(), is_taken, "{from}");
    }
}

#[test]
fn the_key_goes_and_the_certificates_stay() {
    let own = reference().to_file().unwrap();
    let [first, second] = [1, 2].map(|seed| block(CERTIFICATE, &certificate(seed)));
    let key = block("EC PRIVATE KEY", b"secret");
    let about = block(ABOUT_A_KEY, &[6, 1, 8]);
    let dh = block(DH_PARAMETERS, &sequence(&[number(&[7; 40]), number(&[2])]));
    let text = format!("# mine\n{first}{about}Key:\n{key}{second}{dh}---- end ----\n");
    assert_eq!(of(&text).unwrap(), format!("{own}{first}{second}{dh}"));
    // With other line ends and breaks, and without the last line end.
    let foreign = format!("{first}{key}").replace('\n', "\r\n");
    assert_eq!(of(foreign.trim_end()).unwrap(), format!("{own}{first}"));
    let body = first.lines().filter(|line| !line.starts_with('-'));
    let broken: String = body
        .map(|line| format!("{}\n{} \n", &line[..5], &line[5..]))
        .collect();
    let broken =
        format!("-----BEGIN X509 CERTIFICATE-----\n{broken}-----END X509 CERTIFICATE-----\n");
    assert_eq!(
        of(&format!("{broken}{key}")).unwrap(),
        format!("{own}{first}")
    );
    // Without its trusted purposes.
    let trusted = [certificate(1), sequence(&[number(&[1; 30])])].concat();
    let trusted = block("TRUSTED CERTIFICATE", &trusted);
    assert_eq!(
        of(&format!("{trusted}{key}")).unwrap(),
        format!("{own}{first}")
    );
}

#[test]
fn what_may_not_stand_beside_a_reference_is_refused() {
    let certificate = block(CERTIFICATE, &certificate(1));
    let rsa = sequence(&vec![number(&[0x7F; 32]); 9]);
    let octets = OctetStringRef::new(&[4; 32]).unwrap().to_der().unwrap();
    let pkcs8 = sequence(&[number(&[0]), sequence(&[]), octets]);
    let key = block("PRIVATE KEY", &pkcs8);
    let long = sequence(&[number(&[7; 40]), number(&[2]), number(&[7; 40])]);
    let cases = [
        (certificate.clone(), "no private key"),
        (format!("{key}{key}"), "more than one"),
        (
            format!("{key}{}", block("OPENSSH KEY", b"x")),
            "neither a certificate",
        ),
        (
            format!("{key}{}", block("PKCS7", b"x")),
            "neither a certificate",
        ),
        (
            format!("{key}{}", block(CERTIFICATE, &pkcs8)),
            "holds no certificate",
        ),
        (
            format!("{key}{}", block(CERTIFICATE, &rsa)),
            "holds no certificate",
        ),
        (
            format!("{key}{}", block(DH_PARAMETERS, &rsa)),
            "holds no set of DH parameters",
        ),
        (
            format!("{key}{}", block(DH_PARAMETERS, &long)),
            "holds no set of DH parameters",
        ),
        // Lines that belong to no block, and a wrong last line.
        (format!("{certificate}{key}x-----BEGIN\n"), "line 14 begins"),
        (format!("{key}{certificate}x-----END\n"), "line 14 begins"),
        (
            key.clone() + &certificate.replace("END CERTIFICATE", "END CERTIFICATES"),
            "begins in line 4 has no end",
        ),
        (
            "-----BEGIN X-----\n".to_owned(),
            "begins in line 1 has no end",
        ),
        // Two files of real systems: without END, and without a line break.
        (
            certificate.replace("-----END CERTIFICATE-----\n", "") + &key,
            "line ",
        ),
        (format!("{}{key}", certificate.trim_end()), "line "),
        (format!("{certificate}{}", &key[..key.len() - 20]), "line "),
        (
            certificate.clone() + &key.replace("-----END PRIVATE KEY-----\n", ""),
            "no end",
        ),
        (
            key.replace("-----BEGIN", " -----BEGIN") + &certificate,
            "line ",
        ),
        (format!("{certificate}{key}").replace('\n', "\r"), "line "),
        (
            certificate.replacen("\n", "\nProc-Type: 4,ENCRYPTED\n\n", 1) + &key,
            "is damaged",
        ),
    ];
    for (text, expected) in cases {
        let error = of(&text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{error}: {text}");
        // No message has bytes of the file.
        let lines = text
            .lines()
            .filter(|line| line.len() >= 16 && !line.contains(' '));
        for line in lines.map(|line| line.trim_matches('-')) {
            assert!(!error.contains(line), "{error}: {text}");
        }
    }
    assert!(!is_public(&key) && is_public(&certificate));
}

/// Bundles of all kinds, mangled in all ways: no output has a part of the key.
#[test]
fn no_mangled_bundle_gives_bytes_of_its_key_away() {
    let mut random = Random(39);
    let mut made = [0_u32; 2];
    for _ in 0..6_000 {
        let mut below = |bound: usize| random.word() as usize % bound;
        let secret: Vec<u8> = (0..96).map(|_| below(256) as u8).collect();
        let octets = OctetStringRef::new(&secret).unwrap().to_der().unwrap();
        let secret = sequence(&[number(&[0]), sequence(&[]), octets]);
        let key = block(["PRIVATE KEY", "RSA PRIVATE KEY"][below(2)], &secret);
        let parts = [
            block(CERTIFICATE, &certificate(1)),
            key.clone(),
            block("TRUSTED CERTIFICATE", &certificate(2)),
            "some text of the administrator\n".to_owned(),
            block(DH_PARAMETERS, &sequence(&[number(&[7; 40]), number(&[2])])),
        ];
        let mut text: String = (0..below(4)).map(|_| parts[below(5)].as_str()).collect();
        text = [text, key.clone(), parts[below(5)].clone()].concat();
        let labels = [
            CERTIFICATE,
            "PRIVATE KEY",
            DH_PARAMETERS,
            "TRUSTED CERTIFICATE",
        ];
        for _ in 0..below(5) {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = below(lines.len());
            match below(11) {
                // Lines get lost, are joined, doubled, swapped and cut.
                0 => drop(lines.remove(at)),
                1 if at > 0 => {
                    let line = lines.remove(at);
                    lines[at - 1] += &line;
                }
                2 => lines.insert(at, lines[at].clone()),
                3 => {
                    let other = below(lines.len());
                    lines.swap(at, other);
                }
                4 => {
                    let end = below(lines[at].len() + 1);
                    lines[at].truncate(end);
                }
                // Labels change, blocks begin inside others, text and headers appear.
                5 | 6 => {
                    let (from, to) = (labels[below(4)], labels[below(4)]);
                    lines[at] = lines[at].replace(from, to);
                }
                7 => {
                    let word = ["BEGIN", "END"][below(2)];
                    lines.insert(at, format!("-----{word} {}-----", labels[below(4)]));
                }
                8 => lines.insert(
                    at,
                    ["Proc-Type: 4,ENCRYPTED", "", "-----"][below(3)].to_owned(),
                ),
                // A part of a line overwrites a part of another.
                9 => {
                    let from = lines[below(lines.len())].clone();
                    let length = below(from.len().min(lines[at].len()) + 1);
                    let (start, to) = (
                        below(from.len() - length + 1),
                        below(lines[at].len() - length + 1),
                    );
                    let piece = &from[start..start + length];
                    lines[at].replace_range(to..to + length, piece);
                }
                // The file is truncated.
                _ => lines.truncate(at + 1),
            }
            text = lines.join(["\n", "\r\n"][below(2)]);
            if text.is_empty() {
                text.push('\n');
            }
        }
        let made_of = of(&text);
        made[usize::from(made_of.is_ok())] += 1;
        let Ok(output) = made_of else { continue };
        assert!(is_public(&output) && !output.contains("PRIVATE"), "{text}");
        // The key is searched for in its base64, across lines, and then in the decoded bytes.
        let joined: String = output.lines().collect();
        let body: String = key.lines().filter(|line| !line.starts_with('-')).collect();
        let windows = body.as_bytes().windows(24).skip(16);
        for window in windows {
            let window = str::from_utf8(window).unwrap();
            assert!(!joined.contains(window), "{window} of {text} in {output}");
        }
        for block in blocks(output.as_bytes()).unwrap() {
            let bytes = block.decoded().unwrap();
            let leaks = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
            assert!(
                !secret[16..].windows(16).any(leaks),
                "{text} gives {output}"
            );
        }
    }
    assert!(made.iter().all(|&count| count > 200), "{made:?}");
}

#[test]
fn what_is_in_a_file_is_told_by_its_labels() {
    let place = TempDir::new("contents");
    let path = place.join("file");
    let own = reference().to_file().unwrap();
    let nothing = Contents::default();
    for (text, expected) in [
        ("", nothing),
        (&block("PKCS7", b"x"), nothing),
        (
            &block("PRIVATE KEY", b"x"),
            Contents {
                key: true,
                ..nothing
            },
        ),
        (
            &block("ENCRYPTED PRIVATE KEY", b"x"),
            Contents {
                key: true,
                ..nothing
            },
        ),
        (
            &own,
            Contents {
                reference: true,
                ..nothing
            },
        ),
        (
            &block(CERTIFICATE, b"x").repeat(2),
            Contents {
                certificate: true,
                ..nothing
            },
        ),
        (
            &block("TRUSTED CERTIFICATE", b"x").replace('\n', "\r\n"),
            Contents {
                certificate: true,
                ..nothing
            },
        ),
        (
            &[
                &own,
                &block(CERTIFICATE, b"x"),
                &block("EC PRIVATE KEY", b"x"),
                &block("PKCS7", b"x"),
            ]
            .map(String::as_str)
            .concat(),
            Contents {
                key: true,
                reference: true,
                certificate: true,
            },
        ),
        (" -----BEGIN PRIVATE KEY-----\n", nothing),
        ("-----BEGIN PRIVATE KEY\n", nothing),
    ] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(contents(&path), expected, "{text}");
    }
    assert_eq!(contents(&place.join("none")), nothing);
    // A pipe without a writer, which would block. Neither it nor a device is opened.
    let pipe = place.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let told = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&told, &pipe, inotify::WatchFlags::OPEN).unwrap();
    assert_eq!(contents(&pipe), nothing);
    assert!(
        rustix::io::read(&told, &mut [0; 64]).is_err(),
        "it was opened"
    );
}

/// The public half is in the key and in the certificate.
#[test]
fn bundles_of_openssls_keys_are_taken() {
    let directory = TempDir::new("bundles");
    let engine = crate::engine(lockstep_engine::Config::default());
    let make = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let (code, made, stderr) = run(command("openssl", &words).current_dir(&*directory));
        assert_eq!(code, 0, "{stderr}");
        made
    };
    for words in [
        "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048",
        "genrsa -traditional 2048",
        "ecparam -name prime256v1 -genkey",
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384",
        "genpkey -algorithm ED25519",
    ] {
        let path = directory.join("key");
        let key = make(words);
        std::fs::write(&path, &key).unwrap();
        let certificate = make("req -x509 -new -key key -subj /CN=localhost");
        let public = key::Key::read(&path, &engine).unwrap().public;
        let reference = Reference {
            public,
            ..reference()
        };
        let own = reference.to_file().unwrap();
        let text = format!("{key}{certificate}");
        std::fs::write(&path, text).unwrap();
        assert_eq!(super::make(&path, &reference).unwrap(), own + &certificate);
    }
}

#[test]
fn a_huge_file_of_many_blocks_is_read_in_time() {
    let key = block("PRIVATE KEY", b"secret");
    let text = block(CERTIFICATE, &certificate(1)).repeat(400) + &key;
    assert_eq!(of(&text).unwrap().matches("BEGIN CERTIFICATE").count(), 400);
    let begins = "-----BEGIN CERTIFICATE-----\n".repeat(9000) + &key;
    assert!(of(&begins).is_err() && of(&"-".repeat(200_000)).is_err());
}
