//! A multithreaded libcrypto program: this test executable, started again as a child.
//!
//! It reads jobs from a file, does them on many threads at once, and writes their results. Whether
//! lanes or OpenSSL compute is up to the configuration it is started with.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lockstep_testkit::{hex, to_hex};
use openssl::bn::BigNum;
use openssl::derive::Deriver;
use openssl::encrypt::Decrypter;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{Id, PKey, Private, Public};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, RsaPrivateKeyBuilder};
use openssl::sign::{RsaPssSaltlen, Signer, Verifier};

use crate::common::{Finished, Place, Process};
use crate::keys::Parts;

/// An operation with a private key, or its public half. A job's input is the message, the
/// ciphertext, or the peer's public key (as SubjectPublicKeyInfo).
#[derive(Clone, Debug)]
pub enum Operation {
    /// Signature of a message by the usual way of the key, as for `Verify`.
    Sign {
        digest: String,
    },
    /// input^d mod n.
    Raw,
    /// Agreement with the peer whose key is the input.
    Derive,
    DecryptPkcs1,
    DecryptOaep {
        digest: String,
        mgf: String,
        label: Vec<u8>,
    },
    /// By the usual way of the key: PKCS#1 v1.5, ECDSA, or Ed25519 (where the digest is "none").
    Verify {
        digest: String,
        signature: Vec<u8>,
    },
    VerifyPss {
        digest: String,
        mgf: String,
        salt: i32,
        signature: Vec<u8>,
    },
}

/// One job: an operation with a key (an index) on an input.
#[derive(Clone, Debug)]
pub struct Job {
    pub key: usize,
    pub operation: Operation,
    pub input: Vec<u8>,
}

impl Job {
    pub fn is_pkcs1_decryption(&self) -> bool {
        matches!(self.operation, Operation::DecryptPkcs1)
    }
}

/// The result of a job; None stands for an error. A verification gives one byte, 0 or 1.
pub type Answer = Option<Vec<u8>>;

/// The jobs of a run, with their keys as DER or PEM, private or public.
#[derive(Default)]
pub struct Jobs {
    pub keys: Vec<Vec<u8>>,
    /// Keys by n, e and d alone; their indices follow.
    pub without_crt: Vec<Parts>,
    pub jobs: Vec<Job>,
    /// The order in which to do them; empty for the given one. A job may occur again and again.
    pub order: Vec<usize>,
}

impl Jobs {
    /// Adds a key from a PEM file; returns its index.
    pub fn add_key(&mut self, pem: &Path) -> usize {
        let key = PKey::private_key_from_pem(&fs::read(pem).expect("a key")).expect("a key");
        self.keys.push(key.private_key_to_der().expect("DER"));
        self.keys.len() - 1
    }

    /// Adds a PKCS#1 v1.5 signature with SHA-256.
    pub fn sign(&mut self, key: usize, message: &[u8]) {
        let operation = Operation::Sign {
            digest: "sha256".into(),
        };
        self.jobs.push(Job {
            key,
            operation,
            input: message.to_vec(),
        });
    }

    /// The process that will do these jobs. Give it an environment, run it, then see
    /// [`Jobs::answers`].
    pub fn process<'a>(&self, place: &'a Place, threads: usize) -> Process<'a> {
        let mut text = String::new();
        for key in &self.keys {
            let _ = writeln!(text, "key {}", to_hex(key));
        }
        for Parts { n, e, d, .. } in &self.without_crt {
            let [n, e, d] = [n, e, d].map(|part| to_hex(&part.to_vec()));
            let _ = writeln!(text, "without-crt {n} {e} {d}");
        }
        let order: Vec<usize> = match self.order.is_empty() {
            true => (0..self.jobs.len()).collect(),
            false => self.order.clone(),
        };
        for index in order {
            let Job {
                key,
                operation,
                input,
            } = &self.jobs[index];
            let _ = write!(text, "job {key} {} ", to_hex(input));
            let _ = match operation {
                Operation::Sign { digest } => writeln!(text, "sign {digest}"),
                Operation::Raw => writeln!(text, "raw"),
                Operation::Derive => writeln!(text, "derive"),
                Operation::DecryptPkcs1 => writeln!(text, "decrypt-pkcs1"),
                Operation::DecryptOaep { digest, mgf, label } => {
                    writeln!(text, "decrypt-oaep {digest} {mgf} {}", to_hex(label))
                }
                Operation::Verify { digest, signature } => {
                    writeln!(text, "verify {digest} {}", to_hex(signature))
                }
                Operation::VerifyPss {
                    digest,
                    mgf,
                    salt,
                    signature,
                } => {
                    writeln!(
                        text,
                        "verify-pss {digest} {mgf} {salt} {}",
                        to_hex(signature)
                    )
                }
            };
        }
        place.write("jobs", text.as_bytes());
        place.remove("answers");
        let this = std::env::current_exe().expect("the path of this program");
        place
            .program(this, "--exact worker::program --ignored --nocapture")
            .env("WORKER_DIRECTORY", place.path(""))
            .env("WORKER_THREADS", threads.to_string())
    }

    /// Does the jobs and returns their answers in the order in which they were given.
    pub fn answer_all(
        &self,
        place: &Place,
        threads: usize,
        on_lanes: bool,
    ) -> (Finished, Vec<Answer>) {
        let process = self.process(place, threads).limit(120);
        let process = match on_lanes {
            true if self.has_rsa_alone() => process.with_lockstep().on_vectors(),
            true => process.with_lockstep(),
            false => process,
        };
        let finished = process.succeed();
        (finished, self.answers(place))
    }

    fn has_rsa_alone(&self) -> bool {
        let mut keys = self.keys.iter().map(|key| Key::decode(key));
        keys.all(|key| match key {
            Key::Private(key) => key.id() == Id::RSA,
            Key::Public(key) => key.id() == Id::RSA,
            Key::Refused => true,
        })
    }

    /// The answers that the last process has left.
    pub fn answers(&self, place: &Place) -> Vec<Answer> {
        let text = String::from_utf8(place.read("answers")).expect("text");
        text.lines()
            .map(|line| (line != "error").then(|| hex(line)))
            .collect()
    }
}

/// The child. Only runs as such.
#[test]
#[ignore = "the program that other tests start"]
fn program() {
    let Some(directory) = std::env::var_os("WORKER_DIRECTORY") else {
        return;
    };
    let threads = std::env::var("WORKER_THREADS")
        .expect("set")
        .parse()
        .expect("a number");
    openssl::init();
    work(Path::new(&directory), threads);
}

fn work(directory: &Path, threads: usize) {
    let text = fs::read_to_string(directory.join("jobs")).expect("jobs");
    let mut keys = Vec::new();
    let mut jobs = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["key", encoded] => keys.push(Key::decode(&hex(encoded))),
            ["without-crt", n, e, d] => keys.push(Key::without_crt(n, e, d)),
            ["job", key, input, operation @ ..] => {
                let key: usize = key.parse().expect("a number");
                jobs.push((key, hex(input), operation.to_vec()));
            }
            _ => panic!("not a job: {line}"),
        }
    }
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![None; jobs.len()]);
    let take_turns = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((key, input, operation)) = jobs.get(index) else {
                break;
            };
            let answer = keys[*key].perform(input, operation).ok();
            answers.lock().expect("answers")[index] = answer;
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(take_turns);
        }
    });
    let mut text = String::new();
    for answer in answers.into_inner().expect("answers") {
        let _ = writeln!(text, "{}", answer.as_deref().map_or("error".into(), to_hex));
    }
    fs::write(directory.join("answers"), text).expect("answers");
}

/// A key, as far as OpenSSL took it.
enum Key {
    Private(PKey<Private>),
    Public(PKey<Public>),
    Refused,
}

impl Key {
    fn decode(encoded: &[u8]) -> Key {
        if let Ok(key) = PKey::private_key_from_der(encoded) {
            return Key::Private(key);
        }
        if let Ok(key) = PKey::private_key_from_pem(encoded) {
            return Key::Private(key);
        }
        let public = PKey::public_key_from_der(encoded);
        public
            .or_else(|_| PKey::public_key_from_pem(encoded))
            .map_or(Key::Refused, Key::Public)
    }

    fn without_crt(n: &str, e: &str, d: &str) -> Key {
        let part = |text| BigNum::from_slice(&hex(text)).expect("a number");
        let key = RsaPrivateKeyBuilder::new(part(n), part(e), part(d))
            .expect("a key")
            .build();
        Key::Private(PKey::from_rsa(key).expect("a key"))
    }

    fn perform(&self, input: &[u8], operation: &[&str]) -> Result<Vec<u8>, ErrorStack> {
        match self {
            Key::Private(key) => private(key, input, operation),
            // The caller gets an error, and the verification of a missing signature is false.
            Key::Refused => Err(ErrorStack::get()),
            Key::Public(key) => public(key, input, operation),
        }
    }
}

fn private(key: &PKey<Private>, input: &[u8], operation: &[&str]) -> Result<Vec<u8>, ErrorStack> {
    match operation {
        ["sign", digest] => {
            let mut signer = match *digest {
                "none" => Signer::new_without_digest(key)?,
                digest => Signer::new(named(digest), key)?,
            };
            signer.sign_oneshot_to_vec(input)
        }
        ["derive"] => {
            let peer = PKey::public_key_from_der(input)?;
            let mut deriver = Deriver::new(key)?;
            deriver.set_peer(&peer)?;
            deriver.derive_to_vec()
        }
        ["raw"] => {
            let mut context = PkeyCtx::new(key)?;
            context.sign_init()?;
            context.set_rsa_padding(Padding::NONE)?;
            let mut output = Vec::new();
            context.sign_to_vec(input, &mut output)?;
            Ok(output)
        }
        ["decrypt-pkcs1"] => decrypt(key, input, |decrypter| {
            decrypter.set_rsa_padding(Padding::PKCS1)
        }),
        ["decrypt-oaep", digest, mgf, label @ ..] => decrypt(key, input, |decrypter| {
            decrypter.set_rsa_padding(Padding::PKCS1_OAEP)?;
            decrypter.set_rsa_oaep_md(named(digest))?;
            decrypter.set_rsa_mgf1_md(named(mgf))?;
            match label.first() {
                Some(label) if !label.is_empty() => decrypter.set_rsa_oaep_label(&hex(label)),
                _ => Ok(()),
            }
        }),
        _ => panic!("not an operation with a private key: {operation:?}"),
    }
}

fn public(key: &PKey<Public>, input: &[u8], operation: &[&str]) -> Result<Vec<u8>, ErrorStack> {
    match operation {
        ["verify", digest, signature] => {
            let mut verifier = match *digest {
                "none" => Verifier::new_without_digest(key)?,
                digest => Verifier::new(named(digest), key)?,
            };
            verify(&mut verifier, input, signature)
        }
        ["verify-pss", digest, mgf, salt, signature] => {
            let mut verifier = Verifier::new(named(digest), key)?;
            verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
            verifier.set_rsa_mgf1_md(named(mgf))?;
            let salt = salt.parse().expect("a number");
            verifier.set_rsa_pss_saltlen(RsaPssSaltlen::custom(salt))?;
            verify(&mut verifier, input, signature)
        }
        _ => panic!("not an operation with a public key: {operation:?}"),
    }
}

fn decrypt(
    key: &PKey<Private>,
    input: &[u8],
    set_up: impl FnOnce(&mut Decrypter) -> Result<(), ErrorStack>,
) -> Result<Vec<u8>, ErrorStack> {
    let mut decrypter = Decrypter::new(key)?;
    set_up(&mut decrypter)?;
    let mut output = vec![0; decrypter.decrypt_len(input)?];
    let length = decrypter.decrypt(input, &mut output)?;
    output.truncate(length);
    Ok(output)
}

/// One byte: whether the signature is right. A malformed one may also be an error; it is as wrong.
fn verify(verifier: &mut Verifier, input: &[u8], signature: &str) -> Result<Vec<u8>, ErrorStack> {
    let valid = verifier
        .verify_oneshot(&hex(signature), input)
        .unwrap_or(false);
    Ok(vec![u8::from(valid)])
}

fn named(digest: &str) -> MessageDigest {
    MessageDigest::from_name(digest).unwrap_or_else(|| panic!("no digest {digest}"))
}
