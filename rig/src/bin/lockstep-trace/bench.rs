//! Runs of an operation with different secrets, and the differences between them.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockstep_rig::trace::{self, Allowed, Failed, Look, Program, Ran, Secret, Translations};
use lockstep_rig::translate::LOG_SIZE;

use crate::operations::{Lanes, Operation, What};
use crate::settings::Settings;

/// Leading zero bytes of plaintexts.
const ZEROS: [usize; 7] = [0, 1, 2, 8, 9, 16, 100];

/// The difference that may show where defects are planted.
const fn planted(what: trace::What) -> [Allowed; 1] {
    [Allowed {
        caller: "rounds+",
        callee: "measure+",
        what,
        reason: "it stands for the check of a round",
    }]
}

/// The comparison of an operation.
pub struct Compared {
    /// Instructions of the first run.
    pub steps: usize,
    pub compared: u64,
    pub different: u64,
    /// Calls in which two runs differ, and may.
    pub allowed: usize,
}

/// The compiled program, and key material for it.
pub struct Bench {
    program: PathBuf,
    directory: PathBuf,
    log: PathBuf,
    translations: Translations,
    /// For programs that need ML-DSA.
    libraries: Option<PathBuf>,
    /// Keys by the arguments that make them.
    keys: HashMap<(String, usize), Vec<u8>>,
    random: u64,
    /// The functions that all operations came through so far.
    pub executed: BTreeSet<String>,
}

/// The configuration that the program loads, in the directory.
const CONFIGURATION: &str = "openssl.cnf";

impl Bench {
    pub fn new(settings: &Settings) -> Result<Bench, String> {
        let directory = settings.directory.clone();
        std::fs::create_dir_all(&directory)
            .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
        let directory = directory
            .canonicalize()
            .map_err(|error| error.to_string())?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/trace.c");
        let program = directory.join("trace");
        let compiled = Command::new("cc")
            .args(["-O1", "-g", "-fPIE", "-pie", "-o"])
            .arg(&program)
            .arg(&source)
            .arg("-lcrypto")
            .status()
            .map_err(|error| format!("cannot run cc: {error}"))?;
        if !compiled.success() {
            return Err(format!("cannot compile {}", source.display()));
        }
        // The keys of ML-KEM that are compared share a public half, so they are no pairs.
        let configuration = std::fs::read_to_string(settings.dist.join("openssl.cnf"))
            .map(|text| text + "\n[lockstep_default]\nml-kem.import_pct_type = none\n")
            .and_then(|text| std::fs::write(directory.join(CONFIGURATION), text));
        configuration.map_err(|error| format!("cannot copy the configuration: {error}"))?;
        // Compared are runs of one process, so the name may hold its number.
        let shared = Path::new("/dev/shm");
        let place = if shared.is_dir() { shared } else { &directory };
        let log = place.join(format!("lockstep-trace-{}", std::process::id()));
        let made = File::create(&log).and_then(|file| file.set_len(LOG_SIZE));
        made.map_err(|error| format!("cannot create {}: {error}", log.display()))?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Bench {
            program,
            directory,
            log,
            translations: Translations::default(),
            libraries: settings.libraries.clone(),
            keys: HashMap::new(),
            random: now.map_or(1, |now| now.as_nanos() as u64),
            executed: BTreeSet::new(),
        })
    }

    /// Fails unless a branch and an index on a secret are found, in calls whose answer may show and
    /// behind what follows from it, too; and no difference where there is none.
    pub fn find_planted(&mut self) -> Result<(), String> {
        let [none, answer] = [&[][..], &planted(trace::What::Answer(&["next_round+"]))];
        let last = &planted(trace::What::LastAnswer("next_round+"));
        let cases = [
            ("branch", answer, true),
            ("index", answer, true),
            ("nothing", answer, false),
            ("round", answer, false),
            ("round", none, true),
            ("round", last, true),
            ("measure", answer, true),
            ("late", answer, true),
        ];
        for (what, allowed, must_differ) in cases {
            let program = self.traced(&["planted", what], ("none", "auto"));
            let secret = |bytes: u8| Secret {
                input: vec![bytes; 16],
                seed: 1,
            };
            let reference = self
                .trace(&program, &secret(2), Look::Survey)
                .map_err(describe)?;
            let other = self
                .trace(&program, &secret(3), Look::Record)
                .map_err(describe)?;
            let other = self
                .translations
                .compare(&reference.trace, &other.trace, allowed);
            match (other, must_differ) {
                (Err(Failed::Differs(_)), true) | (Ok(_), false) => {}
                (Err(Failed::Broken(what)), _) => return Err(what),
                (Ok(_), true) => return Err(format!("the planted {what} was not found")),
                (Err(Failed::Differs(how)), false) => {
                    return Err(format!("a difference where there is none: {}", how.what));
                }
            }
        }
        Ok(())
    }

    pub fn compare(
        &mut self,
        operation: &Operation,
        lanes: Lanes,
        settings: &Settings,
    ) -> Result<Compared, String> {
        let arguments = self.arguments(operation)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let program = self.traced(&arguments, lanes);
        let first = match settings.again {
            true => self.kept("reference")?,
            false => self.secret(operation, &program, 0)?,
        };
        let reference = self
            .trace(&program, &first, Look::Survey)
            .map_err(describe)?;
        if !reference
            .functions
            .iter()
            .any(|name| name.contains(operation.through))
        {
            return Err("it did not run on these lanes".to_owned());
        }
        self.executed.extend(reference.functions);
        let (mut compared, mut different, mut allowed) = (0, 0, 0);
        for pair in 1..=settings.pairs {
            let secret = match settings.again {
                true => self.kept("other")?,
                false => self.secret(operation, &program, pair)?,
            };
            compared += 1;
            let other = self.trace(&program, &secret, Look::Record);
            let elsewhere = other.and_then(|other| {
                let traces = (&reference.trace, &other.trace);
                self.translations
                    .compare(traces.0, traces.1, operation.allowed())
            });
            match elsewhere {
                Ok(elsewhere) => allowed += elsewhere,
                Err(Failed::Differs(difference)) => {
                    different += 1;
                    println!(
                        "  after {} equal instructions: {}",
                        difference.after, difference.what
                    );
                    difference
                        .within
                        .iter()
                        .for_each(|name| println!("    in {name}"));
                    self.keep("reference", &first)?;
                    self.keep("other", &secret)?;
                }
                Err(Failed::Broken(what)) => return Err(what),
            }
            if different > 0 && !settings.keep_going {
                break;
            }
        }
        Ok(Compared {
            steps: reference.steps,
            compared,
            different,
            allowed,
        })
    }

    /// Keeps a secret of the last two that made a difference: the next run makes others.
    fn keep(&self, name: &str, secret: &Secret) -> Result<(), String> {
        let path = self.directory.join(name);
        let bytes = [&secret.seed.to_le_bytes(), &secret.input[..]].concat();
        std::fs::write(&path, bytes)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Returns the secret that [`Bench::keep`] has kept.
    fn kept(&self, name: &str) -> Result<Secret, String> {
        let path = self.directory.join(name);
        let failed = |error: String| format!("cannot read {}: {error}", path.display());
        let bytes = std::fs::read(&path).map_err(|error| failed(error.to_string()))?;
        let (seed, input) = bytes
            .split_first_chunk()
            .ok_or_else(|| failed("it is too short".to_owned()))?;
        Ok(Secret {
            input: input.to_vec(),
            seed: u64::from_le_bytes(*seed),
        })
    }

    fn trace(&mut self, program: &Program, secret: &Secret, look: Look) -> Result<Ran, Failed> {
        trace::run(program, secret, look, &mut self.translations)
    }

    /// The program under the tracer.
    fn traced(&self, arguments: &[&str], (backend, schedule): Lanes) -> Program {
        let environment = [
            (
                "OPENSSL_CONF",
                self.directory.join(CONFIGURATION).display().to_string(),
            ),
            // Random instructions would answer differently each time.
            ("OPENSSL_ia32cap", "~0x4000000000000000:~0x40000".to_owned()),
            ("LOCKSTEP_LONE", "lanes".to_owned()),
            ("LOCKSTEP_STATS_DIR", "no".to_owned()),
            ("LOCKSTEP_KEY_POOL", "0".to_owned()),
            ("LOCKSTEP_CHECK_EVERY", "1".to_owned()),
            ("LOCKSTEP_BACKEND", backend.to_owned()),
            // A race would not go twice the same way.
            ("LOCKSTEP_RSA_SCHEDULE", schedule.to_owned()),
        ];
        let (path, arguments) = self.loaded(arguments);
        Program {
            path,
            arguments,
            environment: environment
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            log: self.log.clone(),
        }
    }

    /// The program, as it is started: the loader, and its arguments. It loads the program where it
    /// loads libraries: near the cache of translations.
    fn loaded(&self, arguments: &[&str]) -> (PathBuf, Vec<String>) {
        let needs_ml_dsa = arguments.iter().any(|word| word.starts_with("ML-DSA"));
        let libraries = self.libraries.as_ref().filter(|_| needs_ml_dsa);
        let place = libraries.map_or(Path::new("/lib64"), PathBuf::as_path);
        let path =
            libraries.map(|place| ["--library-path".to_owned(), place.display().to_string()]);
        let words = std::iter::once(self.program.display().to_string())
            .chain(arguments.iter().map(|&word| word.to_owned()));
        (
            place.join("ld-linux-x86-64.so.2"),
            path.into_iter().flatten().chain(words).collect(),
        )
    }

    fn arguments(&mut self, operation: &Operation) -> Result<Vec<String>, String> {
        let first = if operation.first() { "first" } else { "again" }.to_owned();
        Ok(match operation.what {
            What::Decrypt(padding, bits) => {
                let path = self.key_file(bits)?;
                vec![
                    "rsa-decrypt".to_owned(),
                    padding.to_owned(),
                    path.display().to_string(),
                ]
            }
            What::RsaSign(bits) => vec!["rsa-sign".to_owned(), bits.to_string(), first],
            What::Ecdsa(curve) => vec!["ecdsa".to_owned(), curve.to_owned(), first],
            What::Ecdh(curve) => vec!["ecdh".to_owned(), curve.to_owned(), first],
            What::X25519 => vec!["x25519".to_owned(), first],
            What::Ed25519 => vec!["ed25519".to_owned(), first],
            What::Generate(algorithm, curve) => {
                vec![
                    "generate".to_owned(),
                    algorithm.to_owned(),
                    curve.to_owned(),
                ]
            }
            What::Encapsulate(algorithm) => {
                vec!["seal".to_owned(), algorithm.to_owned(), first]
            }
            What::Decapsulate(algorithm) => {
                vec!["unseal".to_owned(), algorithm.to_owned(), first]
            }
            What::Keep(algorithm) => vec!["keep".to_owned(), algorithm.to_owned()],
            What::Encipher(algorithm) => vec!["encrypt".to_owned(), algorithm.to_owned()],
            What::Decipher(algorithm) => vec!["decrypt".to_owned(), algorithm.to_owned()],
            What::MlDsa(algorithm, _) => vec!["mldsa".to_owned(), algorithm.to_owned(), first],
            What::Derive(mode) => vec!["derive".to_owned(), mode.to_owned()],
        })
    }

    /// The secret of one run. Between two in turn the keys differ, or only the randomness.
    fn secret(
        &mut self,
        operation: &Operation,
        program: &Program,
        number: usize,
    ) -> Result<Secret, String> {
        let (key, seed) = (number.div_ceil(2), 1 + (number / 2) as u64);
        let mut keys = |make: &str, with: &str| -> Result<Vec<u8>, String> {
            let mut both = self.key(make, with, 0)?;
            both.extend(self.key(make, with, 1 + key)?);
            Ok(both)
        };
        let input = match operation.what {
            What::Decrypt(_, bits) => {
                return Ok(Secret {
                    input: self.ciphertext(bits, number)?,
                    seed: 1,
                });
            }
            // Other keys leave other blocks to malloc: they are compared from their first use on.
            What::RsaSign(bits) if operation.first() => {
                return self.rsa_signer(program, bits, key, seed);
            }
            What::RsaSign(bits) => {
                let mut both = self.key("make-rsa", &bits.to_string(), 0)?;
                both.extend(self.key("make-rsa", &bits.to_string(), 1)?);
                return Ok(Secret {
                    input: both,
                    seed: 1 + number as u64,
                });
            }
            What::Ecdsa(curve) => return self.ecdsa_signer(program, curve, number),
            What::Ecdh(curve) => keys("make-ec", curve)?,
            What::X25519 | What::Ed25519 => {
                let mut both = vec![7; 32];
                both.extend(self.bytes(32));
                both
            }
            What::Generate(..) => {
                return Ok(Secret {
                    input: Vec::new(),
                    seed: 1 + number as u64,
                });
            }
            // The right key, or others with the same matrix, which is public and sampled in a time
            // that depends on it. They open nothing: their result is rejected.
            What::Encapsulate(algorithm) | What::Decapsulate(algorithm) | What::Keep(algorithm) => {
                let right = self.kem_key(algorithm, 0)?;
                let mut input = self.kem_key(algorithm, number % 2 * number)?;
                let public = public_part(algorithm);
                input[public.clone()].copy_from_slice(&right[public]);
                input.push(number as u8);
                return Ok(Secret {
                    input,
                    seed: 1 + number as u64,
                });
            }
            What::MlDsa(algorithm, round) => {
                let mut both = self.ml_dsa_key(algorithm, round, 0)?;
                both.extend(self.ml_dsa_key(algorithm, round, 1 + number)?);
                both
            }
            What::Encipher(_) | What::Decipher(_) => self.bytes(32 + 700),
            What::Derive(_) => self.bytes(96),
        };
        Ok(Secret { input, seed })
    }

    /// A key whose signature does not begin with a zero byte: libcrypto skips these where it reads
    /// the signature, which is public.
    fn rsa_signer(
        &mut self,
        program: &Program,
        bits: usize,
        key: usize,
        seed: u64,
    ) -> Result<Secret, String> {
        let bits = bits.to_string();
        let mut number = 1 + key;
        loop {
            let mut input = self.key("make-rsa", &bits, 0)?;
            input.extend(self.key("make-rsa", &bits, number)?);
            let secret = Secret { input, seed };
            let ran = self.trace(program, &secret, Look::Away).map_err(describe)?;
            if ran.output.first() != Some(&0) {
                return Ok(secret);
            }
            // No other secret has this number.
            number += 1 << 16;
        }
    }

    /// A key and a nonce whose signature has both numbers in full length: lengths of signatures
    /// are public.
    fn ecdsa_signer(
        &mut self,
        program: &Program,
        curve: &str,
        number: usize,
    ) -> Result<Secret, String> {
        let size = if curve == "P-256" { 32 } else { 48 };
        let mut input = self.key("make-ec", curve, 0)?;
        input.extend(self.key("make-ec", curve, 1 + number.div_ceil(2))?);
        loop {
            let secret = Secret {
                input: input.clone(),
                seed: self.word(),
            };
            let ran = self.trace(program, &secret, Look::Away).map_err(describe)?;
            // SEQUENCE, length, INTEGER, length of r, r, INTEGER, length of s.
            let lengths = (ran.output.get(3), ran.output.get(5 + size));
            // A zero in front stands for a number that is shorter by a byte.
            let first = (ran.output.get(4), ran.output.get(6 + size));
            let full = first.0 != Some(&0) && first.1 != Some(&0);
            if full && lengths == (Some(&(size as u8)), Some(&(size as u8))) {
                return Ok(secret);
            }
        }
    }

    /// A ciphertext of a plaintext that begins with zero bytes, or not. The ciphertext and the
    /// modulus are public, and libcrypto compares them from their first bytes on: these decide it.
    fn ciphertext(&mut self, bits: usize, number: usize) -> Result<Vec<u8>, String> {
        let path = self.key_file(bits)?.display().to_string();
        let modulus = self.key("make-rsa", &bits.to_string(), 0)?[0];
        loop {
            let mut block = self.bytes(bits / 8);
            let zeros = ZEROS[number % ZEROS.len()];
            block[..zeros].fill(0);
            block[zeros] = block[zeros] & 0x7f | 1;
            let sealed = self.helper(&["rsa-encrypt", &path], &block)?;
            if (1..modulus).contains(&sealed[0]) {
                return Ok(sealed);
            }
        }
    }

    /// The file with an RSA key and a ciphertext to warm up with.
    fn key_file(&mut self, bits: usize) -> Result<PathBuf, String> {
        let path = self.directory.join(format!("rsa-{bits}"));
        if self.keys.contains_key(&("file".to_owned(), bits)) {
            return Ok(path);
        }
        let mut bytes = self.key("make-rsa", &bits.to_string(), 0)?;
        let mut block = self.bytes(bits / 8);
        block[0] = 0x11;
        let on = |error| format!("cannot write {}: {error}", path.display());
        std::fs::write(&path, &bytes).map_err(on)?;
        let sealed = self.helper(&["rsa-encrypt", &path.display().to_string()], &block)?;
        bytes.extend(sealed);
        std::fs::write(&path, &bytes).map_err(on)?;
        self.keys.insert(("file".to_owned(), bits), Vec::new());
        Ok(path)
    }

    /// A private key for key encapsulation, made once by the module: OpenSSL may have none.
    fn kem_key(&mut self, algorithm: &str, number: usize) -> Result<Vec<u8>, String> {
        let name = (format!("make-kem {algorithm}"), number);
        if let Some(key) = self.keys.get(&name) {
            return Ok(key.clone());
        }
        let program = self.traced(&["make-kem", algorithm], ("portable", "auto"));
        let secret = Secret {
            input: Vec::new(),
            seed: self.word(),
        };
        let made = self
            .trace(&program, &secret, Look::Away)
            .map_err(describe)?;
        self.keys.insert(name, made.output.clone());
        Ok(made.output)
    }

    /// A private key of ML-DSA, and randomness with which its signature takes so many rounds, which
    /// may show.
    fn ml_dsa_key(
        &mut self,
        algorithm: &str,
        round: usize,
        number: usize,
    ) -> Result<Vec<u8>, String> {
        let name = (format!("make-mldsa {algorithm} {round}"), number);
        if let Some(key) = self.keys.get(&name) {
            return Ok(key.clone());
        }
        let seed = self.bytes(32);
        let key = self.helper(&["make-mldsa", algorithm, &round.to_string()], &seed)?;
        self.keys.insert(name, key.clone());
        Ok(key)
    }

    /// Key material, made once.
    fn key(&mut self, make: &str, with: &str, number: usize) -> Result<Vec<u8>, String> {
        let name = (format!("{make} {with}"), number);
        if let Some(key) = self.keys.get(&name) {
            return Ok(key.clone());
        }
        let key = self.helper(&[make, with], &[])?;
        self.keys.insert(name, key.clone());
        Ok(key)
    }

    /// Runs the program without the module and without the tracer.
    fn helper(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, String> {
        use std::io::Write as _;
        let (loader, words) = self.loaded(arguments);
        let failed = |error| format!("cannot run {}: {error}", loader.display());
        let mut child = Command::new(&loader)
            .args(words)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin
                .write_all(&input.len().to_le_bytes())
                .map_err(failed)?;
            stdin.write_all(input).map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(format!("trace {arguments:?} failed")),
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.word() as u8).collect()
    }

    /// A number for tests (splitmix64): never a key.
    fn word(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Where a private key of ML-KEM or a hybrid with it holds the public key and its hash.
fn public_part(algorithm: &str) -> Range<usize> {
    let first = |of: &[(&str, usize)]| {
        let found = of.iter().find(|(part, _)| algorithm.contains(part));
        found.map_or(0, |(_, bytes)| *bytes)
    };
    // After the scalar of a NIST curve, if there is one, and the secret vector.
    let vector = first(&[("512", 768), ("768", 1152), ("1024", 1536)]);
    let at = first(&[("P256", 32), ("P384", 48)]) + vector;
    at..at + vector + 32 + 32
}

fn describe(failed: Failed) -> String {
    match failed {
        Failed::Broken(what) => what,
        Failed::Differs(difference) => difference.what,
    }
}
