//! The requests of one operation in a batch: inputs of its kernel, and places of the answers.

use std::iter::repeat_with;
use std::marker::PhantomData;

use lockstep_kernels::rsa::BATCH;
use smallvec::SmallVec;

use super::response::{Answer, Response};
use crate::failed::Failed;

/// Requests of one operation: inputs `I` of its kernel, whose outputs are `O`.
pub(super) struct Group<'a, I, O> {
    pub inputs: Vec<I>,
    /// In the order of the inputs.
    pub answers: Answers<'a, O>,
}

/// The places of the answers to the requests of a group.
pub(super) struct Answers<'a, O> {
    /// An RSA batch allocates no memory for them. The memory that the allocator returns can depend
    /// on buffers that libcrypto has freed while it prepared a key.
    places: SmallVec<[&'a mut Option<Answer>; BATCH]>,
    output: PhantomData<fn(O)>,
}

impl<'a, I, O: Into<Response>> Group<'a, I, O> {
    /// Collects the requests of a batch that can be computed; `None` if there are none. `read`
    /// returns the kernel's input of a request, its answer if it cannot be read, or nothing for a
    /// request of another operation.
    pub(super) fn gather<R: 'a>(
        jobs: impl Iterator<Item = (&'a R, &'a mut Option<Answer>)>,
        read: impl Fn(&'a R) -> Option<Result<I, Result<O, Failed>>>,
    ) -> Option<Self> {
        let most = jobs.size_hint().1.unwrap_or_default();
        let (mut inputs, mut places) = (Vec::new(), SmallVec::new());
        for (request, answer) in jobs {
            match read(request) {
                Some(Ok(input)) => {
                    if inputs.is_empty() {
                        inputs.reserve_exact(most);
                        places.reserve_exact(most);
                    }
                    inputs.push(input);
                    places.push(answer);
                }
                Some(Err(early)) => *answer = Some(early.map(O::into)),
                None => {}
            }
        }
        let answers = Answers {
            places,
            output: PhantomData,
        };
        (!inputs.is_empty()).then_some(Group { inputs, answers })
    }
}

impl<O: Into<Response>> Answers<'_, O> {
    /// Answers the requests, in the order of the inputs.
    pub(super) fn give(self, answers: impl IntoIterator<Item = Result<O, Failed>>) {
        for (place, answer) in self.places.into_iter().zip(answers) {
            *place = Some(answer.map(O::into));
        }
    }

    /// Answers all requests with the same reason.
    pub(super) fn fail(self, reason: Failed) {
        self.give(repeat_with(|| Err(reason)));
    }
}
