//! One side of the comparison.

use std::ops::Range;

use lockstep::Reason;
use lockstep_common::Failure;

use super::checker::Checker;
use super::data::{DAMAGED, Data};

/// The result of an item: nothing where a signature was verified, else bytes; or why there is none.
pub type Answer<'a> = Result<&'a [u8], &'static str>;

/// Computes items, and calls the function with the answer of each.
type Work<'a> = Box<dyn Fn(Range<usize>, &mut dyn FnMut(usize, Answer<'_>)) + Send + Sync + 'a>;

/// The answer to a signature that is refused.
pub const REFUSED: &str = "the signature is refused";

/// Number of items that a check computes.
const SAMPLE: usize = 64;

/// A library with keys and messages.
pub struct Candidate<'a> {
    pub name: &'static str,
    /// Whether it gets all items in one call and has threads of its own.
    pub is_whole: bool,
    work: Work<'a>,
}

/// What a check found.
#[derive(Debug, PartialEq)]
pub enum Checked {
    Right,
    /// The library does not have this operation yet.
    Skipped(&'static str),
}

impl<'a> Candidate<'a> {
    pub fn new(
        name: &'static str,
        work: impl Fn(Range<usize>, &mut dyn FnMut(usize, Answer<'_>)) + Send + Sync + 'a,
    ) -> Candidate<'a> {
        Candidate {
            name,
            is_whole: false,
            work: Box::new(work),
        }
    }

    /// A library that verifies the signature of one item.
    pub fn verifying(
        name: &'static str,
        verify: impl Fn(usize) -> bool + Send + Sync + 'a,
    ) -> Candidate<'a> {
        Candidate::new(name, move |items, take| {
            for item in items {
                take(item, verify(item).then_some(&[][..]).ok_or(REFUSED));
            }
        })
    }

    /// A library that makes the bytes of one item.
    pub fn making<T: AsRef<[u8]>>(
        name: &'static str,
        make: impl Fn(usize) -> Option<T> + Send + Sync + 'a,
    ) -> Candidate<'a> {
        Candidate::new(name, move |items, take| {
            for item in items {
                let made = make(item);
                let made = made.as_ref().map(AsRef::as_ref);
                take(item, made.ok_or("the library fails"));
            }
        })
    }

    /// The same, which gets all items in one call and has threads of its own.
    pub fn whole(self) -> Candidate<'a> {
        Candidate {
            is_whole: true,
            ..self
        }
    }

    /// Computes items. `take` gets the answer of each.
    pub fn run(&self, items: Range<usize>, take: &mut dyn FnMut(usize, Answer<'_>)) {
        (self.work)(items, take);
    }

    /// Computes items on this thread; returns how many, or why one has failed.
    pub fn count(&self, items: Range<usize>) -> Result<u64, Failure> {
        let (mut done, mut failed) = (0, None);
        self.run(items, &mut |item, answer| {
            done += 1;
            if let Err(why) = answer {
                failed = Some((item, why));
            }
        });
        match failed {
            None => Ok(done),
            Some((item, why)) => Err(self.wrong(item, why)),
        }
    }

    /// Whether its answers are right. `on_damaged` is the same library with a message that was
    /// changed after it was signed.
    pub fn check(&self, on_damaged: &Candidate<'_>, data: &Data) -> Result<Checked, Failure> {
        let number = match self.is_whole {
            true => data.count(),
            false => data.count().min(SAMPLE),
        };
        let checker = Checker::new(data)?;
        let mut states = vec![None; number];
        let step = number.div_ceil(SAMPLE);
        self.run(0..number, &mut |item, answer| {
            states[item] = Some(match answer {
                Ok(bytes) if item % step == 0 => checker.accepts(item, bytes),
                answer => answer.map(drop),
            });
        });
        let is_absent =
            |state: &Option<Result<(), &str>>| *state == Some(Err(Reason::Internal.text()));
        if states.iter().all(is_absent) {
            return Ok(Checked::Skipped(Reason::Internal.text()));
        }
        for (item, state) in states.into_iter().enumerate() {
            state
                .unwrap_or(Err("there is no answer"))
                .map_err(|why| self.wrong(item, why))?;
        }
        if data.operation.verifies() {
            let mut refused = Vec::new();
            // One item alone: a batch may be refused as a whole.
            for item in [DAMAGED - 1, DAMAGED, DAMAGED + 1] {
                on_damaged.run(item..item + 1, &mut |item, answer| {
                    refused.extend(answer.is_err().then_some(item));
                });
            }
            if refused != [DAMAGED] {
                return Err(self.wrong(
                    DAMAGED,
                    "it does not tell a wrong signature from right ones",
                ));
            }
        }
        Ok(Checked::Right)
    }

    fn wrong(&self, item: usize, why: &str) -> Failure {
        Failure::new(format!("{}, item {item}: {why}", self.name))
            .remedy("please report this: no figure is worth having")
    }
}
