//! Requests that the caller has gathered itself, as the key daemon does: they are served as they
//! are, past the queue, on the calling thread.

use crate::declined::Declined;
use crate::engine::Engine;
use crate::executor::Executor as _;
use crate::keys::Ed25519Key;
use crate::operation::{CpuRequest, Request, Response};
use crate::shape::Shape;

impl Engine {
    /// How many requests of a shape fill a pass.
    pub fn pass(&self, shape: Shape) -> usize {
        self.queue().executor.pass(shape)
    }

    /// Serves requests of one shape, in their order. Those of another shape are declined. Where the
    /// lanes have no kernels of a curve, it is computed without vectors: the caller has no other
    /// implementation. The thread needs [`ROOM_BYTES`](crate::ROOM_BYTES) of stack.
    pub fn serve_gathered(
        &self,
        shape: Shape,
        requests: Vec<Request>,
    ) -> Vec<Result<Response, Declined>> {
        let queue = self.queue();
        let refuses = queue.executor.refuses(shape);
        let is_misplaced = |request: &Request| request.shape() != shape;
        if refuses.is_some() || requests.iter().any(is_misplaced) {
            let reason = refuses.unwrap_or(|| Declined::Internal);
            let declined = |_| Err(self.declined(reason()));
            return requests.into_iter().map(declined).collect();
        }
        let most = queue.executor.batch(shape);
        let mut rest = requests.into_iter().map(CpuRequest::from);
        let mut answers = Vec::with_capacity(rest.len());
        while rest.len() > 0 {
            let batch: Vec<_> = rest.by_ref().take(most).collect();
            answers.extend(queue.execute_at_once(shape, batch));
        }
        answers
    }

    /// The public key that belongs to a key of Ed25519. The thread needs stack as above.
    pub fn ed25519_public(&self, key: &Ed25519Key) -> [u8; 32] {
        *self.queue().executor.lanes.prepared(key).public()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kinds::{Curve, KeyKind};
    use crate::operation::{EcdsaSignInput, Ed25519SignInput, Ed25519VerifyInput};
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
    fn a_pass_of_rsa_has_as_many_requests_as_pay() {
        let shape = Shape::ALL.into_iter().find(|shape| shape.is_rsa());
        for backend in Backend::available() {
            let engine = Engine::new(Config {
                backend: BackendChoice::Named(backend),
                ..Config::default()
            });
            // A request takes two lanes of AVX-512 IFMA: of eight, or of two times four. Portable
            // lanes are counted so, too, though they are four: nobody has measured what two would
            // change there. On words, requests are computed one by one.
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
