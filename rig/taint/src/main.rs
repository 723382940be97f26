//! Follows secrets through every private operation of the kernels, and through the keys of ML-KEM:
//! `cargo xtask nightly taint`.
//!
//! Secrets are marked as uninitialised, and MemorySanitizer writes a report for every jump, address
//! and division that depends on one. This program says on stderr which operation is on; `nightly`
//! reads that and the reports between. Every result must still be marked at the end, or the mark
//! was lost on the way, and the operation was not followed.
//!
//! `lockstep-taint BACKEND LARGEST` runs RSA up to that many bits.

#[cfg(not(ct_msan))]
compile_error!("build this by `cargo xtask nightly taint`");

mod curves;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::fmt;
use std::hint::black_box;
use std::io::Write;
use std::mem::MaybeUninit;

use lockstep_kernels::aes_gcm::{self, Lanes};
use lockstep_kernels::backend::Backend;
use lockstep_kernels::fault::planted;
use lockstep_kernels::hmac::{Hash, Keyed, TAG_BYTES};
use lockstep_kernels::mldsa;
use lockstep_kernels::mlkem::{self, ParameterSet};
use lockstep_kernels::rsa::{Blinding, Components, PrivateJob, PrivateKey, Scratch, Size};
use lockstep_kernels::{InOut, rsa, wipe};
use lockstep_ops::{Kem, KemKey, Keypair, Secret};

unsafe extern "C" {
    fn __msan_poison(address: *const c_void, size: usize);
    fn __msan_unpoison(address: *const c_void, size: usize);
    fn __msan_test_shadow(address: *const c_void, size: usize) -> isize;
}

/// The system's allocator, whose memory is not marked when it comes, even if another allocation had
/// it before.
struct Unmarked;

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Unmarked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises; the new memory is ours to mark.
        unsafe {
            let memory = System.alloc(layout);
            if !memory.is_null() {
                __msan_unpoison(memory.cast(), layout.size());
            }
            memory
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Unmarked = Unmarked;

/// Marks a secret.
fn secret(bytes: &mut [u8]) {
    // SAFETY: the function marks these bytes and does not write them.
    unsafe { __msan_poison(bytes.as_ptr().cast(), bytes.len()) }
}

/// Takes the mark from a value that the caller may know.
fn public<T: ?Sized>(value: &T) {
    // SAFETY: the function marks the bytes of the value and does not write them.
    unsafe { __msan_unpoison((&raw const *value).cast(), size_of_val(value)) }
}

/// Whether any of these bytes is marked.
fn is_marked(bytes: &[u8]) -> bool {
    // SAFETY: the function reads the marks of these bytes.
    unsafe { __msan_test_shadow(bytes.as_ptr().cast(), bytes.len()) >= 0 }
}

/// Takes the marks from the stack that is free. Where a secret has lain the standard library, which
/// does not take marks, will put things that our functions read.
#[inline(never)]
fn unmark_free_stack() {
    let free = black_box(MaybeUninit::<[u8; 1 << 20]>::uninit());
    public(&free);
}

/// A text, which the standard library writes to memory without taking marks from it.
fn text(arguments: fmt::Arguments<'_>) -> String {
    unmark_free_stack();
    let text = arguments.to_string();
    public(&text);
    public(text.as_str());
    text
}

/// A line for `nightly`.
fn print(start: &str, line: &str) {
    let mut bytes = Vec::with_capacity(start.len() + line.len() + 1);
    bytes.extend_from_slice(start.as_bytes());
    bytes.extend_from_slice(line.as_bytes());
    bytes.push(b'\n');
    std::io::stderr().write_all(&bytes).expect("stderr is open");
}

/// Prints the current operation.
fn begin(operation: &str) {
    print("@ ", operation);
}

/// Prints a line if the result of an operation does not depend on its secret.
fn check_mark(what: &str, bytes: &[u8]) {
    if !is_marked(bytes) {
        print("! the secret was lost on the way, it is not marked: ", what);
    }
}

/// The same for a result that is public from here on.
fn expect_marked(bytes: &[u8]) {
    check_mark("the result", bytes);
    public(bytes);
}

/// xorshift64*: repeatable.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        std::array::from_fn(|_| (self.word() >> 32) as u8)
    }

    /// Marked ones.
    fn secret<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut bytes = self.bytes();
        secret(&mut bytes);
        bytes
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, backend, largest] = &arguments[..] else {
        panic!("lockstep-taint BACKEND LARGEST");
    };
    let Some(backend) = Backend::from_name(backend) else {
        println!("this machine has no {backend}");
        return;
    };
    let largest: usize = largest.parse().expect("bits");
    plant();
    // Tables are made at their first use, from public numbers; before any secret is there.
    curves::curves(backend, &[1], false);
    curves::curves(backend, &[1, 3, 2 * backend.lanes() + 1], true);
    authentication(backend);
    authenticated_encryption(backend);
    for set in ParameterSet::ALL {
        for requests in [1, 3, 9] {
            key_encapsulation(backend, set, requests);
        }
    }
    for set in mldsa::ParameterSet::ALL {
        ml_dsa(backend, set);
    }
    private_keys();
    for size in Size::ALL.into_iter().filter(|size| size.bits() <= largest) {
        for backend in backend.each_schedule() {
            rsa_private(backend, size);
        }
    }
    begin("end");
}

/// The defects that must be found.
fn plant() {
    let mut random = Random(1);
    let word = |random: &mut Random| u64::from_ne_bytes(random.secret());
    begin("planted branch_on_bit");
    public(&planted::branch_on_bit(word(&mut random)));
    begin("planted index_by_secret");
    public(&planted::index_by_secret(&[3; 16], word(&mut random)));
    begin("planted divide_by_secret");
    public(&planted::divide_by_secret(word(&mut random)));
    begin("planted compare_secret");
    let (a, b) = (random.secret::<200>(), [1; 200]);
    let equal = planted::compare_secret(&a, &b);
    public(&equal);
}

/// The states of a secret key, and tags of one message and of several.
fn authentication(backend: Backend) {
    let mut random = Random(9);
    for hash in [Hash::Sha256, Hash::Sha384] {
        let about = |what: &str| {
            begin(&text(format_args!(
                "{} HMAC {hash:?} {what}",
                backend.name()
            )));
        };
        about("key");
        let key = random.secret::<TAG_BYTES>();
        let mut keyed = Keyed::default();
        hash.key(backend, &key[..hash.tag_bytes()], &mut keyed);
        about("one message");
        let mut tags = [[0; TAG_BYTES]];
        hash.authenticate(backend, &keyed, [b"message"], &mut tags);
        expect_marked(tags.as_flattened());
        about("several messages");
        let secret = random.secret::<200>();
        let mut tags = [[0; TAG_BYTES]; 3];
        hash.authenticate(backend, &keyed, [&secret; 3], &mut tags);
        expect_marked(tags.as_flattened());
        wipe(keyed.as_flattened_mut());
    }
}

/// AES-GCM with secret keys and plaintexts, in pieces; ciphertexts and tags are public.
fn authenticated_encryption(backend: Backend) {
    let name = match backend.name() {
        "avx512ifma" => "vaes512",
        "avx512ifma256" | "avx2" => "vaes256",
        _ => "portable",
    };
    let Some(lanes) = Lanes::from_name(name) else {
        return;
    };
    let mut random = Random(38);
    for bytes in [16, 24, 32] {
        let about = |what: &str| {
            begin(&text(format_args!("{name} AES-{}-GCM {what}", 8 * bytes)));
        };
        about("key");
        let secret_key = random.secret::<32>();
        let mut key = aes_gcm::Key::new(lanes);
        key.set(&secret_key[..bytes]).expect("a length of AES");
        for iv in [12, 20] {
            about("encryption");
            let iv = &random.bytes::<32>()[..iv];
            let mut data = random.secret::<1500>();
            let mut message = aes_gcm::Message::default();
            message.begin(&key, iv);
            message
                .authenticate(&key, b"additional data")
                .expect("short");
            let (first, second) = data.split_at_mut(77);
            for part in [first, second] {
                message.encrypt(&key, InOut::in_place(part)).expect("short");
            }
            data.iter().for_each(|byte| expect_marked(&[*byte]));
            public(&data);
            let mut tag = message.tag(&key);
            expect_marked(&tag);
            about("decryption");
            message.begin(&key, iv);
            message
                .authenticate(&key, b"additional data")
                .expect("short");
            let (first, second) = data.split_at_mut(1200);
            for part in [first, second] {
                message.decrypt(&key, InOut::in_place(part)).expect("short");
            }
            let found = message.tag(&key);
            check_mark("the tag", &found);
            assert!(aes_gcm::tags_are_equal(&found, &tag));
            tag[15] ^= 1;
            assert!(!aes_gcm::tags_are_equal(&found, &tag));
            check_mark("the plaintext", &data);
        }
    }
}

/// ML-KEM from the seeds of keys to both sides' secrets, one of which is a rejection.
fn key_encapsulation(backend: Backend, set: ParameterSet, requests: usize) {
    let mut random = Random(203);
    let about = |what: &str| {
        begin(&text(format_args!(
            "{} {set:?} {what}, {requests} at once",
            backend.name()
        )));
    };
    let mut scratch = mlkem::Scratch::try_new(set).expect("memory");

    about("keys");
    let seeds: Vec<_> = (0..requests)
        .map(|_| mlkem::Seed::from_bytes(&random.secret()))
        .collect();
    let mut public_keys = vec![vec![0; set.public_key_bytes()]; requests];
    let mut secret_keys = vec![vec![0; set.secret_key_bytes()]; requests];
    let keys = seeds.iter().zip(&mut public_keys).zip(&mut secret_keys);
    let mut jobs: Vec<_> = keys
        .map(|((seed, public_key), secret_key)| mlkem::GenerateJob {
            seed,
            public_key,
            secret_key: mlkem::SecretKey::from_mut(secret_key),
        })
        .collect();
    mlkem::generate(backend, &mut scratch, &mut jobs);
    public_keys.iter().for_each(|key| expect_marked(key));
    for key in &secret_keys {
        check_mark("the secret key", key);
    }

    about("encapsulation");
    let coins: Vec<_> = (0..requests)
        .map(|_| mlkem::Coins::from_bytes(&random.secret()))
        .collect();
    let mut ciphertexts = vec![vec![0; set.ciphertext_bytes()]; requests];
    let inputs = public_keys.iter().zip(&coins).zip(&mut ciphertexts);
    let mut jobs: Vec<_> = inputs
        .map(|((public_key, coins), ciphertext)| mlkem::EncapsulateJob {
            public_key,
            coins,
            ciphertext,
            result: None,
        })
        .collect();
    mlkem::encapsulate(backend, &mut scratch, &mut jobs);
    for job in &jobs {
        match &job.result {
            Some(Ok(secret)) => expect_marked(secret.as_bytes()),
            other => panic!("{:?}", other.as_ref().map(Result::is_ok)),
        }
    }
    drop(jobs);
    ciphertexts.iter().for_each(|sent| expect_marked(sent));

    about("decapsulation");
    ciphertexts[0][0] ^= 1;
    let inputs = secret_keys.iter().zip(&ciphertexts);
    let mut jobs: Vec<_> = inputs
        .map(|(secret_key, ciphertext)| mlkem::DecapsulateJob {
            secret_key: mlkem::SecretKey::from_ref(secret_key),
            ciphertext,
            result: None,
        })
        .collect();
    mlkem::decapsulate(backend, &mut scratch, &mut jobs);
    for job in &jobs {
        expect_marked(job.result.as_ref().expect("served").as_bytes());
    }
}

/// ML-DSA from the seeds of keys to signatures, which are public, as the number of rounds is that
/// each takes. Keys are read and signatures made alone, side by side, and in two groups.
fn ml_dsa(backend: Backend, set: mldsa::ParameterSet) {
    let mut random = Random(204);
    let about = |what: &str| begin(&text(format_args!("{} {set:?} {what}", backend.name())));
    about("keys");
    let keys: Vec<_> = (0..2)
        .map(|_| {
            let seed = mldsa::Seed::from_bytes(&random.secret());
            let mut public = vec![0; set.public_key_bytes()];
            let mut private = vec![0; set.private_key_bytes()];
            mldsa::generate(set, backend, &seed, &mut public, &mut private).expect("a key");
            // Behind the seed of the matrix, which is public.
            check_mark("the private key", &private[32..64]);
            check_mark("the private key", &private[128..]);
            mldsa::PrivateKey::new(set, backend, &private).expect("a key")
        })
        .collect();
    let mut scratch = mldsa::Scratch::try_new(set).expect("memory");
    for requests in [1, 3, 9] {
        about(&text(format_args!("signatures, {requests} at once")));
        let hedges: Vec<_> = (0..requests)
            .map(|_| mldsa::Randomness::from_bytes(&random.secret()))
            .collect();
        let mut jobs: Vec<_> = hedges
            .iter()
            .zip(keys.iter().cycle())
            .map(|(randomness, key)| mldsa::SignJob {
                key,
                message: mldsa::Message::Whole(&[3; 64]),
                randomness,
                result: None,
            })
            .collect();
        mldsa::sign(backend, &mut scratch, &mut jobs);
        assert!(jobs.iter().all(|job| matches!(job.result, Some(Ok(_)))));
    }
    about("a message in pieces");
    let mut mu = mldsa::Mu::pure(keys[0].public(), &[1; 3]).expect("a short context");
    mu.update(&random.secret::<300>());
    let mu = mu.finish();
    check_mark("what stands for the message", &mu);
    let mut job = [mldsa::SignJob {
        key: &keys[0],
        message: mldsa::Message::Representative(&mu),
        randomness: &mldsa::Randomness::from_bytes(&random.secret()),
        result: None,
    }];
    mldsa::sign(backend, &mut scratch, &mut job);
    about("a check by the public key");
    let encoding = keys[0].public().encoding();
    let public_key = mldsa::PublicKey::new(set, backend, encoding).expect("a public key");
    assert_eq!(mldsa::hash(encoding), *public_key.hash());
    let signature = job[0]
        .result
        .as_ref()
        .and_then(|result| result.as_ref().ok());
    let mut check = [mldsa::VerifyJob {
        key: &public_key,
        message: mldsa::Message::Representative(&mu),
        signature: signature.expect("a signature").as_bytes(),
        result: None,
    }];
    mldsa::verify(backend, &mut scratch, &mut check);
    assert_eq!(check[0].result, Some(true));
}

/// Keys of ML-KEM, of a seed, of a pair that was generated, and of a private key.
fn private_keys() {
    let mut random = Random(77);
    begin("ML-KEM-768 key of a seed");
    let seed = random.secret::<{ Kem::SEED_BYTES }>();
    let made = KemKey::from_seed(Kem::MlKem768, &seed).expect("memory");
    expect_marked(made.public());
    check_mark("the secret key", made.private());
    begin("ML-KEM-768 key of a pair");
    let both = [made.private(), &seed].concat();
    let pair = Keypair {
        secret: Secret::new(&both),
        public: made.public().to_vec().into(),
    };
    let same = KemKey::of_pair(Kem::MlKem768, &pair).expect("the lengths are right");
    check_mark("the secret key", same.private());
    check_mark("the seed", same.seed().expect("it has one"));
    begin("ML-KEM-768 private key");
    let mut private = made.private().to_vec();
    // The public key and its hash lie between the secret vector and the secret of rejections.
    let end = private.len() - mlkem::SHARED_SECRET;
    let public_key = ParameterSet::MlKem768.public_key_bytes();
    public(&private[end - mlkem::SHARED_SECRET - public_key..end]);
    let again = KemKey::new(Kem::MlKem768, &private).expect("a good key");
    check_mark("the secret key", again.private());
    let is_same = again.has_private(made.private());
    public(&is_same);
    assert!(is_same);
}

/// The first key of a size: n, e, p, q, dp, dq, qinv.
fn parts(size: Size) -> [Vec<u8>; 7] {
    let line = include_str!("../../../testkit/src/rsa_keys.txt")
        .lines()
        .find(|line| line.starts_with(&text(format_args!("{} ", size.bits()))))
        .expect("a key of each size");
    let mut fields = line.split(' ').skip(2);
    std::array::from_fn(|_| {
        let text = fields.next().expect("seven parts");
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex"))
            .collect()
    })
}

/// Key preparation, blinding and the private operation.
fn rsa_private(backend: Backend, size: Size) {
    let about = |what: &str| {
        begin(&text(format_args!(
            "{backend:?} RSA-{} {what}",
            size.bits()
        )))
    };
    about("key preparation");
    let mut parts = parts(size);
    parts[2..].iter_mut().for_each(|part| secret(part));
    let [n, e, p, q, dp, dq, qinv] = &parts;
    let components = Components {
        n,
        e,
        p,
        q,
        dp,
        dq,
        qinv,
    };
    let key = PrivateKey::new(&components).expect("a good key");
    about("blinding");
    let mut random = Random(3);
    let mut bytes: Vec<u8> = (0..8 * Blinding::random_bytes(size))
        .map(|_| (random.word() >> 32) as u8)
        .collect();
    secret(&mut bytes);
    let mut pairs = Blinding::several(key.public(), &bytes, 8).expect("invertible");
    wipe(&mut bytes);
    let mut scratch = Scratch::new();
    for fill in [1, 2, 8] {
        about(&text(format_args!("private operation, {fill} at once")));
        let inputs: Vec<Vec<u8>> = (0..fill)
            .map(|_| {
                let mut input: Vec<u8> = (0..size.bytes()).map(|_| random.word() as u8).collect();
                input[0] = 0;
                input
            })
            .collect();
        let mut jobs: Vec<_> = inputs
            .iter()
            .zip(&mut pairs)
            .map(|(input, blinding)| PrivateJob {
                key: &key,
                input,
                check_input: input,
                blinding,
                result: None,
            })
            .collect();
        rsa::private_batch(backend, &mut scratch, &mut jobs);
        for job in jobs {
            match job.result {
                Some(Ok(signature)) => expect_marked(signature.as_bytes()),
                _ => panic!("the private operation failed"),
            }
        }
    }
}
