//! The rule by which jobs with short operations pause: only on a thread that is in company.
//!
//! A thread is in company while its jobs pause for RSA, or while the last batch of the operation
//! was at least half full. To find the latter out, one job pauses on trial now and then.
//!
//! The rule reads no clock and takes no lock. Threads beyond [`THREADS`] share notes. Then a job
//! may pause where it need not, or compute alone where it need not; its answer is the same.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::caller::ThreadId;

/// Number of threads that have notes of their own.
const THREADS: usize = 16;

/// Number of short requests that may pause for each RSA request that has. A handshake has at most
/// two: an agreement and a decapsulation.
const SHORT_FOR_ONE: u32 = 2;
/// Maximum number of short requests that may pause before the next RSA request.
const MOST_SHORT: u32 = 128;

/// Number of requests before the first trial. Twice as many pass after each trial in vain.
const FIRST_TRIAL: u32 = 16;
/// Maximum number of times that the number doubles.
const MOST_DOUBLINGS: u32 = 8;

/// Maximum of [`Note::since`].
const MOST_SINCE: u32 = (FIRST_TRIAL << MOST_DOUBLINGS) + 1;

/// The notes of all threads.
pub(crate) struct Company {
    lines: Box<[Line]>,
    /// Number of lines for each thread.
    each: usize,
}

/// Words on a cache line of their own, and of the one that is fetched with it.
#[repr(align(128))]
struct Line([AtomicU32; 32]);

/// The words of a thread.
#[derive(Clone, Copy)]
struct Notes<'a>(&'a [Line]);

impl<'a> Notes<'a> {
    fn word(self, number: usize) -> &'a AtomicU32 {
        &self.0[number / 32].0[number % 32]
    }

    /// Number of short requests that may pause since RSA requests have.
    fn credit(self) -> &'a AtomicU32 {
        self.word(0)
    }

    /// The [`Note`] of a shape.
    fn of(self, shape: usize) -> &'a AtomicU32 {
        self.word(1 + shape)
    }
}

impl Company {
    pub(crate) fn new(shapes: usize) -> Company {
        let each = (1 + shapes).div_ceil(32);
        let line = |_| Line([const { AtomicU32::new(0) }; 32]);
        Company {
            lines: (0..THREADS * each).map(line).collect(),
            each,
        }
    }

    fn of(&self, thread: ThreadId) -> Notes<'_> {
        // The addresses of two threads' memory differ in the middle.
        let mixed = thread.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = mixed as usize % THREADS * self.each;
        Notes(&self.lines[first..first + self.each])
    }

    /// Returns whether a job with a short request pauses, and notes the request.
    pub(crate) fn is_certain(&self, thread: ThreadId, shape: usize) -> bool {
        let notes = self.of(thread);
        let left = notes.credit().load(Ordering::Relaxed);
        if let Some(less) = left.checked_sub(1) {
            notes.credit().store(less, Ordering::Relaxed);
        }
        let asked = update(notes.of(shape), Note::asked);
        left > 0 || asked.pauses()
    }

    /// Notes that a job of this thread has paused for RSA.
    pub(crate) fn paused_long(&self, thread: ThreadId) {
        let credit = self.of(thread).credit();
        let more = credit.load(Ordering::Relaxed) + SHORT_FOR_ONE;
        credit.store(more.min(MOST_SHORT), Ordering::Relaxed);
    }

    /// Notes that the thread has taken a batch of posted requests, which was large or not.
    pub(crate) fn met(&self, thread: ThreadId, shape: usize, is_large: bool) {
        update(self.of(thread).of(shape), |note| note.met(is_large));
    }
}

/// Changes a note, and returns the new one.
fn update(note: &AtomicU32, change: impl FnOnce(Note) -> Note) -> Note {
    let changed = change(Note::of(note.load(Ordering::Relaxed)));
    note.store(changed.bits(), Ordering::Relaxed);
    changed
}

/// The note of a thread's jobs with requests of one shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Note {
    /// Whether a job has paused on trial, and no batch was taken since. Jobs that come meanwhile
    /// pause, too: the batch shows how many there are.
    is_tried: bool,
    /// Whether the last batch was large.
    was_large: bool,
    /// Number of trials in vain, in a row.
    in_vain: u32,
    /// Number of requests since the last batch.
    since: u32,
}

impl Note {
    fn of(bits: u32) -> Note {
        Note {
            is_tried: bits & 1 != 0,
            was_large: bits & 2 != 0,
            in_vain: bits >> 2 & 0xf,
            since: bits >> 6,
        }
    }

    fn bits(self) -> u32 {
        u32::from(self.is_tried)
            | u32::from(self.was_large) << 1
            | self.in_vain << 2
            | self.since << 6
    }

    /// Returns the note after one more request.
    fn asked(self) -> Note {
        let since = (self.since + 1).min(MOST_SINCE);
        match !self.was_large && since > FIRST_TRIAL << self.in_vain {
            true => Note {
                is_tried: true,
                ..self
            },
            false => Note { since, ..self },
        }
    }

    /// Returns whether the request that was noted last pauses.
    fn pauses(self) -> bool {
        self.was_large || self.is_tried
    }

    /// Returns the note after a batch.
    fn met(self, is_large: bool) -> Note {
        let in_vain = match (is_large, self.is_tried) {
            (true, _) => 0,
            (false, true) => (self.in_vain + 1).min(MOST_DOUBLINGS),
            (false, false) => self.in_vain,
        };
        Note {
            is_tried: false,
            was_large: is_large,
            in_vain,
            since: 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const THREAD: ThreadId = ThreadId(1);

    /// Asks for requests until one pauses; returns the number of those before it.
    fn before_trial(company: &Company) -> u32 {
        (0..).find(|_| company.is_certain(THREAD, 0)).unwrap()
    }

    #[test]
    fn a_thread_without_company_tries_less_and_less() {
        let company = Company::new(1);
        let mut expected = FIRST_TRIAL;
        for doubling in 0..12 {
            assert_eq!(before_trial(&company), expected, "{doubling}");
            assert!(company.is_certain(THREAD, 0), "all join a trial");
            company.met(THREAD, 0, false);
            expected = FIRST_TRIAL << (doubling + 1).min(MOST_DOUBLINGS);
        }
    }

    #[test]
    fn company_lasts_as_long_as_batches_are_large() {
        let company = Company::new(2);
        before_trial(&company);
        for _ in 0..3 {
            company.met(THREAD, 0, true);
            assert!((0..1000).all(|_| company.is_certain(THREAD, 0)));
        }
        assert!(!company.is_certain(THREAD, 1), "of another shape");
        company.met(THREAD, 0, false);
        assert_eq!(before_trial(&company), FIRST_TRIAL, "as at first");
    }

    #[test]
    fn two_short_requests_pause_for_each_of_rsa() {
        let company = Company::new(1);
        company.paused_long(THREAD);
        let other = (2..).map(ThreadId).find(|&other| {
            let places = [THREAD, other].map(|thread| company.of(thread).0.as_ptr());
            places[0] != places[1]
        });
        assert!(!company.is_certain(other.unwrap(), 0), "on another thread");
        let asked = [(); 3].map(|()| company.is_certain(THREAD, 0));
        assert_eq!(asked, [true, true, false]);
        (0..1000).for_each(|_| company.paused_long(THREAD));
        for asked in 0..2 * MOST_SHORT {
            company.met(THREAD, 0, false);
            assert_eq!(company.is_certain(THREAD, 0), asked < MOST_SHORT);
        }
    }

    #[test]
    fn a_note_is_kept_in_a_word() {
        for in_vain in 0..=MOST_DOUBLINGS {
            let since = FIRST_TRIAL << in_vain;
            for (is_tried, was_large) in [(false, true), (true, false)] {
                let note = Note {
                    is_tried,
                    was_large,
                    in_vain,
                    since,
                };
                assert_eq!(Note::of(note.bits()), note);
            }
        }
    }
}
