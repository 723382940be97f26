//! The interface for the key daemon, whose threads serve the requests of other processes.

use lockstep_ops::{Ed25519Key, Failed, GuardedRequest, Request, Response, Shape};

use crate::declined::Declined;
use crate::engine::Engine;
use crate::executor::Executor as _;
use crate::queue::fair::Account;
use crate::queue::reply::Reply;
use crate::queue::service::{Look, Source};
use crate::sync::Mutex;

impl Engine {
    /// Returns the number of requests of a shape that fill a pass.
    pub fn pass(&self, shape: Shape) -> usize {
        self.queue().executor.pass(shape)
    }

    /// Returns the number of threads that [serve](Self::serve_from) at a time. While long batches
    /// run, one more thread serves.
    pub fn slots(&self) -> usize {
        self.queue().slots()
    }

    /// Serves the requests of a source, on the calling thread, until the service
    /// [ends](Self::end_service). After each batch it calls `served`, which must end the wait at
    /// the source. The engine was made [for a service](Self::for_service), and the thread needs
    /// [`ROOM_BYTES`](crate::ROOM_BYTES) of stack.
    pub fn serve_from(&self, source: &Mutex<impl Source>, served: &dyn Fn(Shape)) {
        self.queue().serve_from(source, served);
    }

    /// Ends the threads in [`serve_from`](Self::serve_from) once they have served all requests of
    /// the source. The caller ends the wait at the source.
    pub fn end_service(&self) {
        self.queue().end_service();
    }

    /// Begins a round: the source looks for requests once at each of its places. The number of
    /// requests of an account that may enter in a round is limited.
    pub fn begin_round(&self) {
        self.queue().begin_round();
    }

    /// Returns the number of requests of an account that may [enter](Self::enter) now.
    pub fn room(&self, account: Account) -> usize {
        self.queue().room(account)
    }

    /// Returns the accounts whose next request may enter only after an earlier one is served.
    pub fn full_accounts(&self) -> Vec<Account> {
        self.queue().full_accounts()
    }

    /// Adds the requests of an account that the source has found in one look. A request on a curve
    /// for which the lanes have no kernels is computed without vectors, as the caller has no other
    /// implementation.
    pub fn enter(&self, account: Account, requests: Vec<(Request, Box<dyn Reply>)>, look: Look) {
        let executor = &self.queue().executor;
        let mut served = Vec::with_capacity(requests.len());
        for (request, reply) in requests {
            let shape = request.shape();
            match executor.refuses(shape) {
                Some(reason) => reply.answer(Err(self.declined(reason()))),
                None => served.push((shape, GuardedRequest::from(request), reply)),
            }
        }
        self.queue().enter(account, served, look);
    }

    /// Drops the requests whose answers nobody would read.
    pub fn forget_gone(&self) {
        self.queue().forget_gone();
    }

    /// Returns the number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.queue().waiting()
    }

    /// Serves requests of one shape, in their order, outside the queue. Requests of another shape
    /// are declined. The thread needs [`ROOM_BYTES`](crate::ROOM_BYTES) of stack.
    pub fn serve_gathered(
        &self,
        shape: Shape,
        requests: Vec<Request>,
    ) -> Vec<Result<Response, Declined>> {
        let queue = self.queue();
        if requests.is_empty() {
            return Vec::new();
        }
        let refuses = queue.executor.refuses(shape);
        let is_misplaced = |request: &Request| request.shape() != shape;
        if refuses.is_some() || requests.iter().any(is_misplaced) {
            let reason = refuses.unwrap_or(|| Declined::Failed(Failed::Internal));
            let declined = |_| Err(self.declined(reason()));
            return requests.into_iter().map(declined).collect();
        }
        queue.execute_at_once(shape, requests.into_iter().map(GuardedRequest::from))
    }

    /// Returns the public key of an Ed25519 key. The thread needs
    /// [`ROOM_BYTES`](crate::ROOM_BYTES) of stack.
    pub fn ed25519_public(&self, key: &Ed25519Key) -> [u8; 32] {
        self.queue().executor.lanes.ed25519_public(key)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use lockstep_ops::{Curve, EcdsaSignInput, Ed25519SignInput, Ed25519VerifyInput, KeyKind};

    use super::*;
    use crate::{Backend, BackendChoice, Config, EcKey};

    fn engine() -> Engine {
        Engine::new(Config {
            backend: BackendChoice::Named(Backend::PORTABLE),
            ..Config::default()
        })
    }

    #[test]
    fn more_requests_than_a_batch_takes_are_answered_in_their_order() {
        let engine = engine();
        let key = Arc::new(Ed25519Key::new(&[7; 32]).expect("a key"));
        let public = engine.ed25519_public(&key);
        let sign = |number: usize| {
            let key = Arc::clone(&key);
            let message = number.to_le_bytes().to_vec().into();
            Request::Ed25519Sign(Ed25519SignInput { key, message })
        };
        let count = 200;
        let signed = engine.serve_gathered(Shape::Ed25519Sign, (0..count).map(sign).collect());
        assert_eq!(signed.len(), count);
        let verify = signed.into_iter().enumerate().map(|(number, answer)| {
            let Ok(Response::Signature(signature)) = answer else {
                panic!("no signature: {answer:?}");
            };
            Request::Ed25519Verify(Ed25519VerifyInput {
                public: public.to_vec(),
                message: number.to_le_bytes().to_vec().into(),
                signature: signature.to_vec(),
            })
        });
        let verdicts = engine.serve_gathered(Shape::Ed25519Verify, verify.collect());
        let right = |verdict: &_| matches!(verdict, Ok(Response::Verified(true)));
        assert!(verdicts.len() == count && verdicts.iter().all(right));
    }

    #[test]
    fn a_pass_of_rsa_has_four_requests_or_one_on_words() {
        let shape = Shape::ALL.into_iter().find(|shape| shape.is_rsa());
        for backend in Backend::available() {
            let engine = Engine::new(Config {
                backend: BackendChoice::Named(backend),
                ..Config::default()
            });
            // A request takes two lanes. AVX-512 IFMA has eight lanes, or twice four. The portable
            // backend has four lanes, and its passes have four requests too: passes of two were
            // not measured. On words, requests are computed one by one.
            let expected = match backend.computes_rsa_on_words() {
                true => 1,
                false => 4,
            };
            assert_eq!(
                engine.pass(shape.expect("RSA")),
                expected,
                "{}",
                backend.name()
            );
        }
    }

    /// AVX2 has no kernels of the NIST curves, so a server's requests go to OpenSSL there.
    #[test]
    fn a_curve_without_kernels_is_served_nevertheless() {
        for backend in Backend::available() {
            let engine = Engine::new(Config {
                backend: BackendChoice::Named(backend),
                ..Config::default()
            });
            for curve in [Curve::P256, Curve::P384] {
                let key = EcKey::new(curve, &vec![1; curve.bytes()], None).expect("a key");
                let request = Request::EcdsaSign(EcdsaSignInput {
                    key: Arc::new(key),
                    digest: vec![1; 32].into(),
                });
                let answers = engine.serve_gathered(request.shape(), vec![request]);
                assert!(matches!(&answers[..], [Ok(Response::Signature(_))]));
            }
        }
    }

    #[test]
    fn requests_of_another_shape_are_declined() {
        let engine = engine();
        let key = EcKey::new(Curve::P256, &[1; 32], None).expect("a key");
        let request = Request::EcdsaSign(EcdsaSignInput {
            key: Arc::new(key),
            digest: vec![1; 32].into(),
        });
        let requests = vec![Request::Keypair(KeyKind::X25519), request];
        let answers = engine.serve_gathered(Shape::Keypair(KeyKind::X25519), requests);
        assert!(answers.len() == 2 && answers.iter().all(Result::is_err));
        assert!(engine.serve_gathered(Shape::X25519, Vec::new()).is_empty());
    }
}
