//! The requests of one operation in a batch: what its kernel needs of each, and where the answers
//! go.

use std::marker::PhantomData;

use lockstep_kernels::rsa::BATCH;
use smallvec::SmallVec;

use crate::declined::Declined;
use crate::request::Response;

/// The answer to a request.
pub(super) type Answer = Result<Response, Declined>;

/// Requests of one operation, as inputs `I` of its kernel with outputs `O`.
pub(super) struct Group<'a, I, O> {
    pub inputs: Vec<I>,
    /// In the order of the inputs.
    pub answers: Answers<'a, O>,
}

/// Where the answers to the requests of a group go.
pub(super) struct Answers<'a, O> {
    /// An RSA batch needs no memory for them: what the allocator returns can depend on what
    /// libcrypto has freed while it prepared a key.
    places: SmallVec<[&'a mut Option<Answer>; BATCH]>,
    output: PhantomData<fn(O)>,
}

impl<I, O> Default for Group<'_, I, O> {
    fn default() -> Self {
        Group {
            inputs: Vec::new(),
            answers: Answers {
                places: SmallVec::new(),
                output: PhantomData,
            },
        }
    }
}

impl<'a, I, O: Into<Response>> Group<'a, I, O> {
    /// Adds a request, one of `most` at most. If it cannot be read, `input` is its answer, and
    /// it is not among the inputs.
    pub(super) fn push(
        &mut self,
        input: Result<I, Result<O, Declined>>,
        answer: &'a mut Option<Answer>,
        most: usize,
    ) {
        match input {
            Ok(input) => {
                if self.inputs.is_empty() {
                    self.inputs.reserve_exact(most);
                    self.answers.places.reserve_exact(most);
                }
                self.inputs.push(input);
                self.answers.places.push(answer);
            }
            Err(early) => *answer = Some(early.map(O::into)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }
}

impl<O: Into<Response>> Answers<'_, O> {
    /// Answers the requests, in the order of the inputs.
    pub(super) fn give(self, answers: impl IntoIterator<Item = Result<O, Declined>>) {
        for (place, answer) in self.places.into_iter().zip(answers) {
            *place = Some(answer.map(O::into));
        }
    }
}
