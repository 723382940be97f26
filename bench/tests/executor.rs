//! A second executor: threads that compute with OpenSSL. It shows that the engine's queue, its
//! counters and its ways to answer need nothing of the lanes.

use std::collections::HashMap;
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use lockstep_engine::executor::{Executor, Member};
use lockstep_engine::{
    Config, Declined, Ed25519VerifyInput, Engine, Failed, Fallback, KeyKind, LanesRequest, Outcome,
    Request, Response, RsaInput, RsaKey, Secret, Shape, Thread, X25519Input,
};
use lockstep_testkit::RsaParts;
use openssl::bn::{BigNum, BigNumContext};
use openssl::derive::Deriver;
use openssl::pkey::{Id, PKey, Private};
use openssl::rsa::{Padding, Rsa, RsaPrivateKeyBuilder};
use openssl::sign::{Signer, Verifier};

#[path = "../../ops/testdata/keys.rs"]
mod keys;

/// How many threads compute.
const THREADS: usize = 2;

type Task = Box<dyn FnOnce() + Send>;

/// Threads that compute with OpenSSL, and the keys that they have.
struct Pool {
    tasks: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
    /// By their lengths in bytes.
    keys: HashMap<usize, Rsa<Private>>,
    /// Whether it computes wrong results of RSA.
    errs: Arc<AtomicBool>,
    process: u32,
}

impl Pool {
    fn new(keys: HashMap<usize, Rsa<Private>>) -> Pool {
        let (tasks, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..THREADS).map(|_| {
            let receiver = Arc::clone(&receiver);
            thread::spawn(move || {
                while let Some(task) = next(&receiver) {
                    task();
                }
            })
        });
        Pool {
            tasks: Some(tasks),
            threads: threads.collect(),
            keys,
            errs: Arc::default(),
            process: std::process::id(),
        }
    }

    /// What a thread has to do for a request; None for one that this executor does not serve.
    fn work(
        &self,
        request: &LanesRequest,
    ) -> Option<Box<dyn FnOnce() -> Result<Response, Failed> + Send>> {
        match &request.request {
            Request::RsaPrivate(RsaInput { key, input }) => {
                let own = self.keys.get(&key.modulus_bytes())?.clone();
                let (key, input) = (Arc::clone(key), input.to_vec());
                let (check, errs) = (request.check_input.to_vec(), Arc::clone(&self.errs));
                Some(Box::new(move || {
                    let mut output = vec![0; input.len()];
                    let done = own.private_decrypt(&input, &mut output, Padding::NONE);
                    done.map_err(|_| Failed::Internal)?;
                    output[7] ^= u8::from(errs.load(Ordering::Relaxed));
                    key.verified(&check, output).map(Response::Rsa)
                }))
            }
            Request::X25519(X25519Input { secret, peer }) => {
                let own = PKey::private_key_from_raw_bytes(secret.as_bytes(), Id::X25519).ok()?;
                let peer = PKey::public_key_from_raw_bytes(peer, Id::X25519).ok()?;
                Some(Box::new(move || {
                    let agree = || {
                        let mut deriver = Deriver::new(&own)?;
                        deriver.set_peer(&peer)?;
                        deriver.derive_to_vec()
                    };
                    let shared = agree().map_err(|_| Failed::BadPoint)?;
                    Ok(Response::Secret(Secret::new(&shared)))
                }))
            }
            Request::Ed25519Verify(Ed25519VerifyInput {
                public,
                message,
                signature,
            }) => {
                let key = PKey::public_key_from_raw_bytes(public, Id::ED25519).ok()?;
                let (message, signature) = (message.to_vec(), signature.clone());
                Some(Box::new(move || {
                    let verifier = Verifier::new_without_digest(&key);
                    let is_right =
                        verifier.and_then(|mut own| own.verify_oneshot(&signature, &message));
                    Ok(Response::Verified(is_right.unwrap_or(false)))
                }))
            }
            _ => None,
        }
    }
}

fn next(receiver: &Mutex<Receiver<Task>>) -> Option<Task> {
    receiver.lock().expect("no panic").recv().ok()
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic");
        }
    }
}

impl Executor for Pool {
    type Shape = Shape;
    type Request = LanesRequest;
    type Response = Response;
    type Memory = ();

    const SHAPES: &'static [Shape] = &Shape::ALL;

    fn index(shape: Shape) -> usize {
        shape.index()
    }

    fn pass(&self, _: Shape) -> usize {
        THREADS
    }

    fn batch(&self, _: Shape) -> usize {
        4 * THREADS
    }

    fn declines_lone(&self, _: Shape) -> bool {
        false
    }

    fn shares_batches(&self, _: Shape) -> bool {
        true
    }

    fn wants_help(&self, _: Shape) -> bool {
        false
    }

    fn declines_all(&self, shape: Shape) -> Option<Declined> {
        let is_served = shape.is_rsa() || matches!(shape, Shape::X25519 | Shape::Ed25519Verify);
        (!is_served).then_some(Declined::NoKernel)
    }

    fn is_left(&self) -> bool {
        std::process::id() != self.process
    }

    fn memory(&self) {}

    fn execute(&self, _: Shape, (): &mut (), jobs: &mut [Member<Pool>]) -> usize {
        let (done, answers) = channel();
        for (number, job) in jobs.iter().enumerate() {
            let Some(work) = self.work(&job.request) else {
                continue;
            };
            let done = done.clone();
            let task = move || drop(done.send((number, work())));
            let tasks = self.tasks.as_ref().expect("it lives");
            tasks.send(Box::new(task)).expect("threads wait");
        }
        drop(done);
        let mut served = 0;
        for (number, answer) in answers {
            jobs[number].answer = Some(answer);
            served += 1;
        }
        served
    }
}

/// A key as OpenSSL has it.
fn openssl_key(parts: &RsaParts) -> Rsa<Private> {
    let [n, e, p, q, dp, dq, qinv] = parts
        .parts
        .each_ref()
        .map(|part| BigNum::from_slice(part).expect("memory"));
    let mut context = BigNumContext::new().expect("memory");
    let one = BigNum::from_u32(1).expect("memory");
    let mut order = BigNum::new().expect("memory");
    order
        .checked_mul(&(&p - &one), &(&q - &one), &mut context)
        .expect("memory");
    let mut d = BigNum::new().expect("memory");
    d.mod_inverse(&e, &order, &mut context)
        .expect("e has an inverse");
    let builder = RsaPrivateKeyBuilder::new(n, e, d).expect("a key");
    let builder = builder.set_factors(p, q).expect("a key");
    builder.set_crt_params(dp, dq, qinv).expect("a key").build()
}

fn engine() -> (Engine<Pool>, Arc<RsaKey>, Arc<AtomicBool>) {
    let parts = RsaParts::ordinary(2048);
    let key = Arc::new(keys::rsa(2048));
    let pool = Pool::new(HashMap::from([(256, openssl_key(&parts))]));
    let errs = Arc::clone(&pool.errs);
    let config = Config {
        slots: 1,
        ..Config::default()
    };
    (Engine::with_executor(pool, "openssl", config), key, errs)
}

fn request(key: &Arc<RsaKey>, number: u8) -> Request {
    let mut input = vec![0; key.modulus_bytes()];
    input[9] = number;
    Request::RsaPrivate(RsaInput {
        key: Arc::clone(key),
        input: input.into(),
    })
}

fn ask(engine: &Engine<Pool>, request: Request) -> Result<Response, Declined> {
    match engine.serve(request.shape(), || Some(request), &Thread) {
        Outcome::Done(response) => Ok(response),
        Outcome::Declined(declined) => Err(declined),
        Outcome::NotAsked => panic!("it was asked"),
    }
}

fn is_late(answer: &Result<Response, Declined>) -> bool {
    matches!(answer, Err(Declined::Late))
}

/// The same by the lanes of this machine.
fn by_lanes(request: Request) -> Response {
    let engine = Engine::new(Config::default());
    let answer = lockstep_engine::measure::batch(&engine, vec![request]).remove(0);
    answer.expect("the lanes serve it")
}

fn bytes(response: Response) -> Vec<u8> {
    match response {
        Response::Rsa(result) => result.into_bytes(),
        Response::Secret(secret) => secret.as_bytes().to_vec(),
        other => panic!("no bytes: {other:?}"),
    }
}

#[test]
fn threads_share_the_batches_of_another_executor() {
    let (engine, key, _) = engine();
    thread::scope(|scope| {
        for first in 0..8 {
            let (engine, key) = (&engine, &key);
            scope.spawn(move || {
                for number in 0..16 {
                    let number = 16 * first + number;
                    // On a busy machine some requests wait for longer than OpenSSL takes.
                    let answers = iter::repeat_with(|| ask(engine, request(key, number)));
                    let answers = answers.take(100);
                    let mut served = answers.skip_while(is_late);
                    let answer = served.next().expect("an answer").expect("it is served");
                    assert_eq!(bytes(answer), bytes(by_lanes(request(key, number))));
                }
            });
        }
    });
    let counters = engine.metrics();
    let late = counters.fallbacks_for(Fallback::Late);
    let batches = counters.batches;
    assert!(
        (16..=128 + late).contains(&batches),
        "{batches}, {late} late"
    );
    assert_eq!(counters.fallbacks(), late);
    let computed = counters.by_shape[key.shape().index()];
    assert!(
        (128..=128 + late).contains(&computed),
        "{computed}, {late} late"
    );
}

#[test]
fn secrets_and_verdicts_are_those_of_the_lanes() {
    let (engine, ..) = engine();
    let own = PKey::generate_x25519().expect("OpenSSL has it");
    let agree = || {
        Request::X25519(X25519Input {
            secret: Secret::new(&own.raw_private_key().expect("it has one")),
            peer: [9; 32].to_vec().into(),
        })
    };
    let answer = ask(&engine, agree()).expect("it is served");
    assert_eq!(bytes(answer), bytes(by_lanes(agree())));
    let signer = PKey::generate_ed25519().expect("OpenSSL has it");
    let mut own = Signer::new_without_digest(&signer).expect("memory");
    let signature = own.sign_oneshot_to_vec(b"a message").expect("memory");
    for (message, is_right) in [(b"a message", true), (b"another!!", false)] {
        let verify = Request::Ed25519Verify(Ed25519VerifyInput {
            public: signer.raw_public_key().expect("it has one"),
            message: message.to_vec().into(),
            signature: signature.clone(),
        });
        let answer = ask(&engine, verify).expect("it is served");
        assert!(matches!(answer, Response::Verified(verdict) if verdict == is_right));
    }
    let pair = ask(&engine, Request::Keypair(KeyKind::X25519));
    assert!(matches!(pair, Err(Declined::NoKernel)));
}

/// A device may err, and a wrong result of RSA would tell the key.
#[test]
fn a_wrong_result_of_another_executor_does_not_leave() {
    let (engine, key, errs) = engine();
    errs.store(true, Ordering::Relaxed);
    let answer = ask(&engine, request(&key, 3));
    assert!(
        matches!(answer, Err(Declined::Failed(Failed::CheckFailed))),
        "{answer:?}"
    );
    errs.store(false, Ordering::Relaxed);
    assert!(ask(&engine, request(&key, 3)).is_ok());
    let counters = engine.metrics();
    assert_eq!(counters.fallbacks_for(Fallback::CheckFailed), 1);
}
