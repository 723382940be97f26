use base64ct::Encoding as _;
use lockstep_engine::Config;
use lockstep_remote::is_ml_dsa;
use lockstep_testkit::{RsaParts, TempDir, command, hex};

use super::*;

fn read(text: &str) -> Result<Key, String> {
    let engine = crate::engine(Config::default());
    Key::from_pem(text.as_bytes(), &engine).map_err(|error| error.to_string())
}

const ED25519: &str = "-----BEGIN PRIVATE KEY-----\n\
                       MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                       -----END PRIVATE KEY-----\n";

/// RFC 8410, section 10.
#[test]
fn the_public_half_is_the_one_that_belongs_to_the_private_one() {
    let key = read(ED25519).expect("a key");
    let public = hex(
        "302a300506032b657003210019bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1",
    );
    assert_eq!(key.public, public);
    // Beside a certificate, as in the files of servers.
    let both = format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{ED25519}");
    assert_eq!(read(&both).expect("a key").public, public);
}

/// Returns a file that the `openssl` command has written.
fn made(directory: &TempDir, name: &str, words: &str) -> std::path::PathBuf {
    let file = directory.join(name);
    let mut words = words.split(' ');
    let mut openssl = command("openssl", &[words.next().expect("a command"), "-out"]);
    openssl.arg(&file).args(words).current_dir(&**directory);
    let made = openssl.output().expect("openssl");
    assert!(made.status.success(), "{openssl:?}: {made:?}");
    file
}

#[test]
fn keys_are_read_in_every_form_that_openssl_writes() {
    let directory = TempDir::new("forms");
    let engine = crate::engine(Config::default());
    for (kind, algorithm, label) in [
        ("RSA-2048", "RSA -pkeyopt rsa_keygen_bits:2048", "RSA "),
        ("P-256", "EC -pkeyopt ec_paramgen_curve:P-256", "EC "),
        ("P-384", "EC -pkeyopt ec_paramgen_curve:P-384", "EC "),
    ] {
        let first = made(
            &directory,
            "key",
            &format!("genpkey -algorithm {algorithm}"),
        );
        let older = made(&directory, "older", "pkey -in key -traditional");
        let public = made(&directory, "public", "pkey -in key -pubout -outform DER");
        let public = std::fs::read(public).expect("a file");
        for (file, label) in [(first, ""), (older, label)] {
            let text = String::from_utf8(text(&file).expect("a file").to_vec());
            let begin = format!("-----BEGIN {label}PRIVATE KEY-----");
            assert!(text.is_ok_and(|text| text.starts_with(&begin)), "{begin}");
            let key = Key::read(&file, &engine).expect(kind);
            assert_eq!(format!("{key:?}"), format!("Key({kind})"));
            assert_eq!(key.can_decrypt(), kind.starts_with("RSA"));
            assert_eq!((key.kind(), key.public), (kind.to_owned(), public.clone()));
        }
    }
    // With parameters before the key.
    let file = made(&directory, "key", "ecparam -name prime256v1 -genkey");
    assert_eq!(Key::read(&file, &engine).expect("a key").kind(), "P-256");
}

#[test]
fn keys_that_the_daemon_does_not_serve_are_named() {
    let directory = TempDir::new("unserved");
    let engine = crate::engine(Config::default());
    made(
        &directory,
        "p256",
        "ecparam -name prime256v1 -genkey -noout",
    );
    made(&directory, "rsa", "genrsa 2048");
    for (words, expected) in [
        ("ec -in p256 -no_public", "has no public half"),
        ("ec -in p256 -conv_form compressed", "or a short one"),
        ("ec -in p256 -aes128 -passout pass:word", "is encrypted"),
        ("pkcs8 -in rsa -topk8 -passout pass:word", "is encrypted"),
        (
            "rsa -in rsa -traditional -aes128 -passout pass:word",
            "is encrypted",
        ),
        ("ecparam -name secp521r1 -genkey", "serves P-256 and P-384"),
        (
            "ec -in p256 -param_enc explicit",
            "the numbers of its curve",
        ),
        (
            "pkey -in p256 -ec_param_enc explicit",
            "the numbers of its curve",
        ),
        ("genrsa -primes 3 2048", "more than two primes"),
        ("genpkey -algorithm X25519", "serves keys of RSA"),
        ("genpkey -algorithm ED448", "serves keys of RSA"),
        ("pkey -in rsa -pubout", "there is no private key"),
    ] {
        let file = made(&directory, "key", words);
        let key = Key::read(&file, &engine).map(|key| key.kind());
        let error = key.expect_err(words).to_string();
        assert!(error.contains(expected), "{words}: {error}");
        // The remedy works.
        if let Some((_, remedy)) = error.split_once("`openssl ec ") {
            let remedy = remedy
                .trim_end_matches('`')
                .replace("FILE -out NEWFILE", "key");
            let file = made(&directory, "new", &format!("ec {remedy}"));
            assert_eq!(Key::read(&file, &engine).expect(words).kind(), "P-256");
        }
    }
    // Version 1 of PKCS#8 has a public half.
    let file = made(&directory, "key", "pkey -in rsa");
    let text = text_of_any(&file);
    let mut bytes = block(&text).expect("a key").decoded().expect("base64");
    bytes[6] = 1;
    let text = der::pem::encode_string(PRIVATE, der::pem::LineEnding::LF, &bytes);
    let error = read(&text.expect("PEM"))
        .map(drop)
        .expect_err("no public half");
    assert_eq!(error, "the private key does not parse");
}

/// Encodes an element of ASN.1.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let length = match bytes.len() {
        short @ ..0x80 => vec![short as u8],
        long => [&[0x82][..], &(long as u16).to_be_bytes()].concat(),
    };
    [&[tag][..], &length, bytes].concat()
}

/// Returns PKCS#8 with this choice of RFC 9881. The system's OpenSSL may have no ML-DSA.
fn ml_dsa_pkcs8(set: u8, choice: &[u8]) -> Vec<u8> {
    let named = hex("300b0609608648016503040300");
    let (named, _) = named.split_at(named.len() - 1);
    let body = [&[2, 1, 0], named, &[set], &field(4, choice)].concat();
    field(0x30, &body)
}

/// Returns the encoded public and private key of a seed, by an independent crate.
#[allow(deprecated, reason = "the format that this tests")]
fn ml_dsa_pair<P: ml_dsa::MlDsaParams>(seed: &[u8; 32]) -> (Vec<u8>, Vec<u8>) {
    let key = ml_dsa::SigningKey::<P>::from_seed(&(*seed).into());
    let key = key.expanded_key();
    let public = key.verifying_key().encode();
    (public.to_vec(), key.to_expanded().to_vec())
}

#[test]
fn keys_of_ml_dsa_are_read_in_the_forms_of_the_standard() {
    let engine = crate::engine(Config::default());
    let of = |bytes: &[u8]| pkcs8(&PrivateKeyInfo::from_der(bytes).expect("PKCS#8"), &engine);
    for (number, set, kind) in [
        (17, MlDsa::MlDsa44, "ML-DSA-44"),
        (18, MlDsa::MlDsa65, "ML-DSA-65"),
        (19, MlDsa::MlDsa87, "ML-DSA-87"),
    ] {
        let seed = [0x2a; 32];
        let expected = MlDsaKey::from_seed(set, &seed).expect("a key");
        let (public, expanded) = match set {
            MlDsa::MlDsa44 => ml_dsa_pair::<ml_dsa::MlDsa44>(&seed),
            MlDsa::MlDsa65 => ml_dsa_pair::<ml_dsa::MlDsa65>(&seed),
            MlDsa::MlDsa87 => ml_dsa_pair::<ml_dsa::MlDsa87>(&seed),
        };
        assert_eq!(expected.public(), public, "{kind}");
        let octets = |bytes: &[u8]| field(4, bytes);
        let both = |seed: &[u8], expanded: &[u8]| {
            field(0x30, &[&[4, 32][..], seed, &octets(expanded)].concat())
        };
        let read = |choice: &[u8]| {
            let key = of(&ml_dsa_pkcs8(number, choice))?;
            key.try_out(&engine).map(|()| key)
        };
        for choice in [
            [&[0x80, 32][..], &seed].concat(),
            octets(&expanded),
            both(&seed, &expanded),
        ] {
            let key = read(&choice).expect(kind);
            assert_eq!((key.kind().as_str(), key.can_decrypt()), (kind, false));
            assert!(
                is_ml_dsa(&key.public) && key.public.ends_with(&public),
                "{kind}"
            );
        }
        let mut changed = expanded.clone();
        changed[40] ^= 1;
        for (choice, why) in [
            (both(&[0x2b; 32], &expanded), "another private key"),
            (both(&seed, &changed), "another private key"),
            (both(&seed, &expanded[1..]), "another private key"),
            (octets(&expanded[1..]), "form of OpenSSL's own"),
            (
                octets(&[&expanded[..], &public].concat()),
                "form of OpenSSL's own",
            ),
            ([&[0x80, 31][..], &seed[1..]].concat(), "wrong length"),
            // The third field is the hash of the public key.
            (
                octets(&[&expanded[..64], &[7; 64], &expanded[128..]].concat()),
                "damaged",
            ),
            (vec![0x80, 33, 0], "form of OpenSSL's own"),
            (vec![2, 1, 0], "form of OpenSSL's own"),
            (
                [&octets(&expanded)[..], &[0]].concat(),
                "form of OpenSSL's own",
            ),
        ] {
            let error = read(&choice).map(|key| key.kind()).expect_err(why);
            assert!(error.to_string().contains(why), "{kind}: {error}");
        }
    }
    // SLH-DSA.
    let error = of(&ml_dsa_pkcs8(20, &[4, 1, 0])).map(|key| key.kind());
    assert!(error.is_err_and(|why| why.to_string().contains("serves keys of RSA")));
}

#[test]
fn the_first_key_in_a_file_is_the_one_that_openssl_takes() {
    let directory = TempDir::new("order");
    let engine = crate::engine(Config::default());
    let make = |name: &str, words: &str| {
        fs::read_to_string(made(&directory, name, words)).expect("a file")
    };
    let pkcs8 = make("pkcs8", "genpkey -algorithm ed25519");
    let sec1 = make("sec1", "ecparam -name prime256v1 -genkey");
    make("rsa", "genrsa 2048");
    let pkcs1 = make("pkcs1", "rsa -in rsa -traditional");
    let certificate = make("certificate", "req -x509 -new -key rsa -subj /CN=x");
    let forms = [&pkcs8, &sec1, &pkcs1];
    let pairs = forms
        .iter()
        .flat_map(|first| forms.map(|second| format!("{first}{second}")));
    let others = [
        // A line that only resembles the first line of a block, and an indented one.
        format!("# -----BEGIN PRIVATE KEY-----\n{pkcs1}"),
        format!(" -----BEGIN PRIVATE KEY-----\n{sec1}{pkcs1}"),
        format!("{certificate}{pkcs1}{pkcs8}"),
        format!("Key: {pkcs8}{sec1}"),
    ];
    for text in pairs.chain(others) {
        let file = directory.join("both");
        fs::write(&file, &text).expect("a file");
        let theirs = made(&directory, "public", "pkey -in both -pubout -outform DER");
        let theirs = fs::read(theirs).expect("a file");
        let ours = Key::read(&file, &engine).expect(&text);
        assert_eq!(ours.public, theirs, "{text}");
    }
    // The first key counts even if it cannot be served.
    let encrypted = make("encrypted", "pkcs8 -in rsa -topk8 -passout pass:word");
    assert!(read(&format!("{encrypted}{pkcs8}")).is_err_and(|why| why.contains("encrypted")));
}

/// Each form of PEM is accepted or rejected as by OpenSSL.
#[test]
fn what_openssl_reads_is_read_and_nothing_else() {
    let directory = TempDir::new("pem");
    let engine = crate::engine(Config::default());
    let bytes = |name: &str, words: &str| {
        made(&directory, name, words);
        let words = match name {
            "pkcs8" => "pkcs8 -topk8 -nocrypt -in pkcs8 -outform DER",
            "sec1" => "ec -in sec1 -outform DER",
            _ => "rsa -traditional -in pkcs1 -outform DER",
        };
        fs::read(made(&directory, "der", words)).expect("a file")
    };
    let pkcs8 = bytes("pkcs8", "genrsa 2048");
    let pkcs1 = bytes("pkcs1", "genrsa 2048");
    let sec1 = bytes("sec1", "ecparam -name prime256v1 -genkey -noout");
    let block = |label: &str, bytes: &[u8], width: usize, eol: &str, before: &str| {
        let text = base64ct::Base64::encode_string(bytes);
        let lines = text.as_bytes().chunks(width);
        let lines = lines.map(|line| format!("{}{eol}", String::from_utf8_lossy(line)));
        let lines: String = lines.collect();
        format!("-----BEGIN {label}-----{eol}{before}{lines}-----END {label}-----{eol}")
    };
    let plain = block(PRIVATE, &pkcs8, 64, "\n", "");
    let latin = |text: &str| text.chars().map(|letter| letter as u8).collect::<Vec<u8>>();
    // Length of lines, empty line in front, and whether OpenSSL accepts the file.
    let mut cases: Vec<(Vec<u8>, bool)> = Vec::new();
    for width in [1, 2, 4, 63, 64, 65, 76, 128, 253, 254, 255, 300, 100_000] {
        for bytes in [&pkcs8, &pkcs1, &sec1] {
            cases.push((block(PRIVATE, bytes, width, "\n", "").into(), true));
        }
        cases.push((
            block(PRIVATE, &pkcs8, width, "\n", "\n").into(),
            width == 64,
        ));
    }
    for (label, bytes, is_read) in [
        (RSA_LABEL, &pkcs8, true),
        (EC_LABEL, &pkcs8, true),
        ("DSA PRIVATE KEY", &pkcs8, true),
        (RSA_LABEL, &pkcs1, true),
        (EC_LABEL, &pkcs1, false),
        ("DSA PRIVATE KEY", &pkcs1, false),
        (EC_LABEL, &sec1, true),
        (RSA_LABEL, &sec1, false),
        ("ANY PRIVATE KEY", &pkcs8, false),
        ("OPENSSH PRIVATE KEY", &pkcs8, false),
        ("private key", &pkcs8, false),
    ] {
        cases.push((block(label, bytes, 64, "\n", "").into(), is_read));
    }
    for (eol, is_read) in [
        ("\r\n", true),
        (" \t \n", true),
        ("\x0c\n", true),
        ("\r", false),
    ] {
        cases.push((block(PRIVATE, &pkcs8, 64, eol, "").into(), is_read));
    }
    cases.push((latin(&block(PRIVATE, &pkcs8, 64, "\u{a0}\n", "")), true));
    for (before, is_read) in [
        ("\n\n", false),
        ("X: y\n\n", true),
        ("X: a name\n\n", true),
        ("X: a name!\n\n", false),
        ("X: y\n", false),
        ("Comment: the key of www.example.org\n\n", false),
    ] {
        cases.push((block(PRIVATE, &pkcs8, 64, "\n", before).into(), is_read));
    }
    let more = [
        (format!("\u{feff}{plain}"), true),
        (format!("\u{feff}www\n{plain}"), true),
        (format!("www\n\u{feff}{plain}"), false),
        (plain.trim_end().to_owned(), true),
        (format!("{} x", plain.trim_end()), false),
        (format!(" {plain}"), false),
        (plain.replace("-----END", " -----END"), false),
        (plain.replace("-----END", "\n-----END"), false),
        (plain.replace("-----END", "----\n-----END"), true),
        (plain.replace("\nMII", "\n M\tI I"), true),
        (plain.replace('=', ""), !plain.contains('=')),
        (
            block(PRIVATE, &[&pkcs8[..], &[0; 3]].concat(), 64, "\n", ""),
            true,
        ),
        (
            block(RSA_LABEL, &[&pkcs1[..], &[0; 3]].concat(), 64, "\n", ""),
            true,
        ),
    ];
    cases.extend(more.map(|(text, is_read)| (text.into_bytes(), is_read)));
    cases.push((latin(&format!("caf\u{e9}\n{plain}")), true));
    for (text, is_read) in cases {
        let file = directory.join("case");
        fs::write(&file, &text).expect("a file");
        let words = ["pkey", "-in", "case", "-pubout", "-outform", "DER"];
        let mut theirs = command("openssl", &words);
        let theirs = theirs.current_dir(&*directory).output().expect("openssl");
        let shown = String::from_utf8_lossy(&text);
        assert_eq!(theirs.status.success(), is_read, "OpenSSL: {shown}");
        let own = Key::read(&file, &engine).map(|key| key.public);
        assert_eq!(own.is_ok(), is_read, "{:?}: {shown}", own.err());
        assert!(own.is_err() || own.is_ok_and(|own| own == theirs.stdout));
    }
}

#[test]
fn the_halves_of_a_key_belong_together() {
    let directory = TempDir::new("halves");
    let pem = |label: &str, bytes: &[u8]| {
        der::pem::encode_string(label, der::pem::LineEnding::LF, bytes).expect("PEM")
    };
    let make = |words: &str| fs::read(made(&directory, "key", words)).expect("a file");
    // The public half comes last.
    for (curve, length) in [("prime256v1", 65), ("secp384r1", 97)] {
        let words = format!("ecparam -name {curve} -genkey -noout -outform DER");
        let [mut one, other] = [(); 2].map(|()| make(&words));
        read(&pem("EC PRIVATE KEY", &one)).expect("a key");
        let at = one.len() - length;
        one[at..].copy_from_slice(&other[at..]);
        let why = read(&pem("EC PRIVATE KEY", &one)).expect_err("two halves");
        assert!(why.contains("does not belong to the private key"), "{why}");
    }
    made(&directory, "rsa", "genrsa 2048");
    let mut rsa = make("rsa -in rsa -traditional -outform DER");
    read(&pem("RSA PRIVATE KEY", &rsa)).expect("a key");
    // The coefficient comes last.
    *rsa.last_mut().expect("a key") ^= 2;
    read(&pem("RSA PRIVATE KEY", &rsa)).expect_err("a wrong coefficient");
}

/// The key of RFC 8410, section 10.3.
pub(crate) fn ed25519() -> Key {
    let engine = crate::engine(Config::default());
    let text = "-----BEGIN PRIVATE KEY-----\n\
                MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                -----END PRIVATE KEY-----\n";
    Key::from_pem(text.as_bytes(), &engine).expect("a key")
}

/// Returns the key of the seed of 32 bytes 7.
pub(crate) fn ml_dsa(set: MlDsa) -> Key {
    let private = MlDsaKey::from_seed(set, &[7; 32]).expect("a key");
    Key {
        private: Private::MlDsa(Arc::new(private)),
        public: Vec::new(),
    }
}

pub(crate) fn rsa2048() -> Key {
    let parts = RsaParts::ordinary(2048).parts;
    let [n, e, p, q, dp, dq, qinv] = parts.each_ref().map(Vec::as_slice);
    #[rustfmt::skip]
    let components = RsaComponents { n, e, p, q, dp, dq, qinv };
    let private = RsaKey::new(&components).expect("a key");
    Key {
        private: Private::Rsa(Arc::new(private)),
        public: Vec::new(),
    }
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let directory = TempDir::new("long");
    let file = directory.join("key");
    for (length, is_read) in [(LONGEST_FILE, true), (LONGEST_FILE + 1, false)] {
        let mut text = ED25519.as_bytes().to_vec();
        text.resize(length as usize, b'\n');
        fs::write(&file, text).expect("a file");
        let key = Key::read(&file, &crate::engine(Config::default()));
        assert_eq!(key.is_ok(), is_read, "{length}");
    }
}

#[test]
fn a_file_that_others_can_read_is_told_with_its_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = TempDir::new("readable");
    let file = directory.join("key");
    fs::write(&file, "key").expect("a file");
    for (mode, is_readable) in [
        (0o600, false),
        (0o711, false),
        (0o622, false),
        (0o640, true),
        (0o604, true),
        (0o755, true),
    ] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(&file, permissions).expect("its own");
        assert_eq!(readable_by_others(&file), is_readable.then_some(mode));
    }
    assert_eq!(readable_by_others(&directory.join("none")), None);
}

#[test]
fn the_text_of_a_key_is_never_moved_while_it_is_read() {
    let directory = TempDir::new("moved");
    let file = directory.join("key");
    for length in [1, 31, ED25519.len(), 5000] {
        fs::write(&file, vec![b'\n'; length]).expect("a file");
        let text = text(&file).expect("a file");
        // A vector that has grown has more capacity than its first one.
        assert_eq!((text.len(), text.capacity()), (length, length));
    }
}

#[test]
fn what_is_no_key_is_named() {
    for (text, expected) in [
        ("", "there is no private key"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n", "has no end"),
        (
            "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
            "is damaged",
        ),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "does not parse",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
            "does not parse",
        ),
        (
            "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
            "not parse",
        ),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n",
            "is encrypted",
        ),
        (
            &ED25519.replace("BQYDK2Vw", "BQYDK2Vx"),
            "serves keys of RSA",
        ),
    ] {
        let error = read(text).map(|key| key.kind()).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}
