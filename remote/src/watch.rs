//! Requests that no thread waits for: one thread watches for all of their answers.
//!
//! An asynchronous job pauses while the daemon computes, and its thread continues with other jobs.
//! The watching thread sleeps on the ring's board of answers, and gives each result to its
//! [`Asker`]. It owns the tickets of the requests, so a job that is never resumed loses no slot:
//! the slot is free again once the daemon has answered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockstep_ring::{Call, Client, Patience, Refused, Sent};
use zeroize::Zeroizing;

use crate::failure::{Failure, Wait, outcome, over};
use crate::protocol::Operation;
use crate::room::{LOOK_EVERY, Room};

/// First pause before a request is repeated, since the client had exceeded its rate. Each further
/// pause is twice as long, up to the longest one.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// Pause before the thread looks again for a free slot.
const ROOM: Duration = Duration::from_micros(100);
/// Maximum sleep without requests.
const IDLE: Duration = Duration::from_secs(60);
/// Time without another attempt after a thread could not be started.
const REFUSED: Duration = Duration::from_secs(1);

/// The owner of a posted request.
pub trait Asker: Send {
    /// Returns whether the result is still wanted.
    fn is_waiting(&self) -> bool;

    /// Takes the result, on the watching thread. It must not block for long.
    fn answer(self: Box<Self>, result: Result<Zeroizing<Vec<u8>>, Failure>);
}

/// A request, and its state so far.
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) key: u64,
    pub(crate) input: Zeroizing<Vec<u8>>,
    pub(crate) length: usize,
    pub(crate) asker: Box<dyn Asker>,
    pub(crate) deadline: Instant,
    /// Pause before it is posted again.
    pub(crate) pause: Duration,
    pub(crate) wait: Wait,
}

/// State shared by the watching thread and the posting ones.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    pub(crate) room: Room,
}

#[derive(Default)]
struct State {
    is_watched: bool,
    /// Time at which a thread could not be started.
    refused: Option<Instant>,
    /// Requests in the ring, by slot.
    posted: BTreeMap<usize, (Sent, Request)>,
    /// Requests to post later, with the times: the ring had no free slot, or the client had
    /// exceeded its rate.
    delayed: Vec<(Instant, Request)>,
}

/// A request that has ended, and its result.
type Ended = (Request, Result<Zeroizing<Vec<u8>>, Failure>);

impl Watch {
    /// Returns whether there is a watching thread. If not, calls `start`, which returns whether it
    /// has started one.
    pub(crate) fn is_watched(&self, start: impl FnOnce() -> bool) -> bool {
        let mut state = self.lock();
        let is_vain = state.refused.is_some_and(|at| at.elapsed() < REFUSED);
        if !state.is_watched && !is_vain {
            state.is_watched = start();
            state.refused = (!state.is_watched).then(Instant::now);
        }
        state.is_watched
    }

    /// Posts a request; returns an error if it can never be answered.
    pub(crate) fn post(&self, client: &Client, request: Request) -> Result<(), Failure> {
        let mut state = self.lock();
        let was_idle = state.is_idle();
        let delayed = state.delayed.len();
        if let Some((_, failure)) = state.submit(client, request) {
            return Err(failure);
        }
        // The watching thread may sleep too long for this request.
        let wakes = was_idle || state.delayed.len() > delayed;
        drop(state);
        if wakes {
            client.wake();
        }
        Ok(())
    }

    /// Runs the watching thread. It ends with the connection; all requests get their failures then.
    ///
    /// `is_connected` returns whether the daemon is still there. It holds the connection only
    /// during the call, so that a forked child, which has no such thread, can close its copy.
    pub(crate) fn run(&self, client: &Client, is_connected: impl Fn() -> bool) {
        let mut slots = Vec::new();
        let mut looked = Instant::now();
        loop {
            let sleep = Patience::new(Duration::ZERO, self.lock().sleep());
            let mut is_there = client.answered(sleep, |slot| slots.push(slot)).is_ok();
            let now = Instant::now();
            let looks = now.duration_since(looked) >= LOOK_EVERY;
            if looks {
                looked = now;
                is_there &= is_connected();
            }
            if !is_there {
                client.poison();
            }
            let mut state = self.lock();
            let mut ended = self.collect(&mut state, slots.drain(..), now);
            if looks || !is_there {
                // Includes answers without a notification, and late requests.
                let all: Vec<usize> = state.posted.keys().copied().collect();
                ended.extend(self.collect(&mut state, all.into_iter(), now));
            }
            ended.extend(match is_there {
                true => state.submit_delayed(client, now),
                false => state.end(),
            });
            drop(state);
            // The askers may post again at once.
            for (request, result) in ended {
                let result = result.map_err(|failure| over(client, failure));
                request.asker.answer(result);
            }
            if !is_there {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the answers in these slots that are there.
    fn collect(
        &self,
        state: &mut State,
        slots: impl Iterator<Item = usize>,
        now: Instant,
    ) -> Vec<Ended> {
        let mut ended = Vec::new();
        for slot in slots {
            let Some((mut ticket, mut request)) = state.posted.remove(&slot) else {
                continue;
            };
            let is_late = now >= request.deadline;
            let polled = ticket.poll();
            if matches!(polled, Ok(Some(_))) {
                self.room.note_answer();
            }
            let result = match polled {
                Ok(Some(answer)) => match outcome(answer, request.length) {
                    // A late request ends when it would be posted again.
                    None => {
                        request.wait.is_refused = true;
                        let when = now + request.pause;
                        request.pause = (2 * request.pause).min(LONGEST_PAUSE);
                        state.delayed.push((when, request));
                        continue;
                    }
                    Some(result) => result,
                },
                // The ticket keeps the slot until the daemon has answered.
                Ok(None) if is_late => Err(request.wait.failure(self.room.answers())),
                Ok(None) => {
                    state.posted.insert(slot, (ticket, request));
                    continue;
                }
                Err(lost) => Err(lost.into()),
            };
            ended.push((request, result));
        }
        ended
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.posted.is_empty() && self.delayed.is_empty()
    }

    /// Returns the maximum time that the thread may sleep.
    fn sleep(&self) -> Duration {
        if self.is_idle() {
            return IDLE;
        }
        let next = self.delayed.iter().map(|(when, _)| *when).min();
        let time = next.map(|next| next.saturating_duration_since(Instant::now()));
        time.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
    }

    /// Puts a request into the ring, or delays it if there is no free slot. Returns it with a
    /// failure if it can never be answered.
    fn submit(&mut self, client: &Client, request: Request) -> Option<(Request, Failure)> {
        let call = Call {
            operation: request.operation as u16,
            key: request.key,
            input: &request.input,
            notify: true,
        };
        match client.submit(&call) {
            Ok(ticket) => {
                self.posted.insert(ticket.slot(), (ticket, request));
                None
            }
            Err(Refused::Full) => {
                self.delayed.push((Instant::now() + ROOM, request));
                None
            }
            Err(refused) => Some((request, refused.into())),
        }
    }

    /// Posts the requests that are due and still wanted.
    fn submit_delayed(&mut self, client: &Client, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        for (when, request) in std::mem::take(&mut self.delayed) {
            if !request.asker.is_waiting() {
                continue;
            }
            if now >= request.deadline {
                let failure = match request.wait.is_refused {
                    true => Failure::Busy,
                    false => Failure::Full,
                };
                ended.push((request, Err(failure)));
            } else if now < when {
                self.delayed.push((when, request));
            } else if let Some((request, failure)) = self.submit(client, request) {
                ended.push((request, Err(failure)));
            }
        }
        ended
    }

    /// Ends all remaining requests, and the watch.
    fn end(&mut self) -> Vec<Ended> {
        self.is_watched = false;
        let posted = std::mem::take(&mut self.posted);
        let posted = posted.into_values().map(|(_, request)| request);
        let posted = posted.map(|request| (request, Err(Failure::Lost)));
        let delayed = std::mem::take(&mut self.delayed).into_iter();
        let delayed = delayed.map(|(_, request)| (request, Err(Failure::Gone)));
        posted.chain(delayed).collect()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lockstep_ring::Server;

    use super::*;
    use crate::protocol::status::BUSY;

    struct Nobody;

    impl Asker for Nobody {
        fn is_waiting(&self) -> bool {
            true
        }

        fn answer(self: Box<Self>, _: Result<Zeroizing<Vec<u8>>, Failure>) {}
    }

    fn request(now: Instant) -> Request {
        Request {
            operation: Operation::EcdsaSign,
            key: 0,
            input: Zeroizing::new(vec![1]),
            length: 1,
            asker: Box::new(Nobody),
            deadline: now + IDLE,
            pause: SHORTEST_PAUSE,
            wait: Wait::since(0),
        }
    }

    /// No request is repeated before its time, and the thread sleeps until then.
    #[test]
    fn what_is_delayed_waits() {
        let (server, descriptor) = Server::create(1).expect("a ring");
        let client = Client::attach(descriptor).expect("a ring");
        let watch = Watch::default();
        let mut state = watch.lock();
        assert!(state.is_idle() && state.sleep() == IDLE);
        let now = Instant::now();
        assert!(state.submit(&client, request(now)).is_none());
        assert!(!state.is_idle() && state.sleep() == LOOK_EVERY);
        // There is no slot for a second one.
        assert!(state.submit(&client, request(now)).is_none());
        let (when, second) = state.delayed.pop().expect("it waits");
        assert!(when >= now + ROOM && state.delayed.is_empty());
        // The first one has exceeded the client's rate.
        server.take(|request| request.answer(BUSY, &[]));
        assert!(watch.collect(&mut state, [0].into_iter(), now).is_empty());
        let [(when, first)] = &state.delayed[..] else {
            panic!("it waits");
        };
        let (when, pause) = (*when, first.pause);
        assert_eq!((when, pause), (now + SHORTEST_PAUSE, 2 * SHORTEST_PAUSE));
        assert!(!state.is_idle() && state.sleep() <= SHORTEST_PAUSE);
        let early = when - Duration::from_nanos(1);
        assert!(state.submit_delayed(&client, early).is_empty());
        assert_eq!((state.posted.len(), state.delayed.len()), (0, 1));
        assert!(state.submit_delayed(&client, when).is_empty());
        assert_eq!((state.posted.len(), state.delayed.len()), (1, 0));
        drop(second);
    }
}
