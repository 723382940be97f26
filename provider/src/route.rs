//! The route of an operation: the key daemon, the lanes, or OpenSSL's own functions.
//!
//! A key type says by a [`Route`] where a private key is, once for each operation, and
//! [`Route::take`] goes there. [`serve`] is the entry to the lanes, also for operations that need
//! no private key. It decides in this order:
//!
//! 1. While memory is scarce, no request begins ([`admit`]). A request checks memory again only in
//!    [`serve_in_any_case`], and after it waited for the key daemon's answer in vain.
//! 2. The first requests of a process go to OpenSSL, as long as there is no engine. A server soon
//!    recovers the cost of an engine, of memory for keys and of the tables of a curve. A process
//!    that signs once never does: a child that PostgreSQL forks for one connection, `curl`, `sshd`.
//!    So the first requests of each shape are left to OpenSSL, and so is the first one with each
//!    RSA key, which would have to be prepared. Their number was measured
//!    ([`Config::leaves_first`](lockstep_engine::Config::leaves_first)).
//! 3. An async job may pause, any other caller is a thread that blocks. The engine decides about
//!    both (`engine/src/serve.rs`).
//!
//! If a request is declined here or by the engine, OpenSSL's own function computes with the same
//! object.

use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_engine::operation::{Keygen, Operation};
use lockstep_engine::{
    Caller, Declined, Engine, Failed, Fallback, Kem, KemKey, KeyKind, Keypair, Outcome, Shape,
    ThreadId,
};

use crate::ffi;
use crate::host::{c_library, memory, priority, stack};
use crate::jobs::async_job::AsyncJob;
use crate::jobs::wait_ctx::WaitCtx;
use crate::process;

/// The route of operations with a private key.
#[derive(Clone, Default)]
pub enum Route<L, D> {
    /// OpenSSL's own functions compute.
    #[default]
    Stock,
    /// The lanes compute with this key; OpenSSL's own functions, if they decline.
    Lanes(L),
    /// The key daemon computes with this key. It is a reference, and nobody else has its private
    /// half.
    Daemon(D),
}

impl<L, D> Route<L, D> {
    /// Computes an operation: by the key daemon, by the lanes, or by OpenSSL's own function.
    pub fn take<R>(
        &self,
        daemon: impl FnOnce(&D) -> R,
        lanes: impl FnOnce(&L) -> Outcome<R>,
        stock: impl FnOnce() -> R,
    ) -> R {
        match self {
            Route::Daemon(key) => daemon(key),
            Route::Lanes(key) => lanes(key).or_else(stock),
            Route::Stock => stock(),
        }
    }
}

/// Has the engine serve an operation with the input that `input` makes: a job pauses meanwhile,
/// another caller blocks.
pub fn serve<O: Operation>(
    operation: O,
    input: impl FnOnce() -> Option<O::Input>,
) -> Outcome<O::Output> {
    if let Err(declined) = admit() {
        return Outcome::Declined(declined);
    }
    let Some(engine) = engine_for(operation.shape()) else {
        return Outcome::Declined(Declined::First);
    };
    with_job(|wait| engine.serve(operation, input, &Host { engine, wait }))
}

/// Admits a request. While memory is scarce, none begins and no engine is made; that is counted.
pub fn admit() -> Result<(), Declined> {
    #[cfg(feature = "fault-injection")]
    crate::fault::race();
    if memory::is_scarce() {
        process::count(Fallback::NoMemory);
        return Err(Declined::Failed(Failed::NoMemory));
    }
    Ok(())
}

/// Serves an operation that OpenSSL may lack. If the engine declines, the calling thread computes
/// on the lanes by itself. Time has passed by then, so memory is checked again.
pub fn serve_in_any_case<O: Operation + Copy>(
    operation: O,
    input: impl Fn() -> Option<O::Input>,
) -> Outcome<O::Output> {
    match serve(operation, &input) {
        Outcome::Declined(_) if !memory::is_scarce() => {
            let engine = process::engine();
            engine.serve_at_once(operation, input, &Host { engine, wait: None })
        }
        outcome => outcome,
    }
}

/// A new key pair, from the pool if it has one.
pub fn keypair(kind: KeyKind) -> Option<Keypair> {
    match serve(Keygen(kind), || Some(())) {
        Outcome::Done(pair) => Some(pair),
        _ => None,
    }
}

/// A new key for key encapsulation, from the pool if it has one.
pub fn kem_key(kem: Kem) -> Result<KemKey, Declined> {
    match serve_in_any_case(Keygen(KeyKind::Kem(kem)), || Some(())) {
        Outcome::Done(pair) => {
            KemKey::of_pair(kem, &pair).ok_or(Declined::Failed(Failed::Internal))
        }
        Outcome::Declined(declined) => Err(declined),
        Outcome::NotAsked => Err(Declined::Failed(Failed::Internal)),
    }
}

/// Calls `work` with the wait context of the job that the calling code runs in; with None outside
/// of jobs.
pub fn with_job<R>(work: impl FnOnce(Option<WaitCtx<'_>>) -> R) -> R {
    // SAFETY: NULL, or the job that runs this code. It has its context until it ends.
    let job = unsafe { ffi::ASYNC_get_current_job().as_ref() };
    let wait = job.and_then(|job| ffi::ASYNC_get_wait_ctx(job));
    work(wait.map(WaitCtx::new))
}

/// The calling thread, which may run a job.
struct Host<'a> {
    engine: &'static Engine,
    /// Wait context of the job, if one runs.
    wait: Option<WaitCtx<'a>>,
}

impl<'a> Caller for Host<'a> {
    type Job = AsyncJob<'a>;

    fn is_low(&self) -> bool {
        priority::is_low()
    }

    fn thread(&self) -> ThreadId {
        ThreadId(c_library::pthread_self())
    }

    fn job(&self) -> Option<AsyncJob<'a>> {
        self.wait.map(|wait| AsyncJob::new(wait, self.engine))
    }

    fn with_room<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        stack::with_room(work)
    }
}

/// Returns the engine for a request of this shape; None for a first request, which is counted.
fn engine_for(shape: Shape) -> Option<&'static Engine> {
    let engine = process::engine_if_any();
    if engine.is_some() || note(shape) > process::leaves_first(shape) {
        return engine.or_else(|| Some(process::engine()));
    }
    process::count(Fallback::First);
    None
}

/// Counts a request of this shape in a process without an engine; returns their number.
pub fn note(shape: Shape) -> u32 {
    static REQUESTS: [Requests; Shape::ALL.len()] = [const { Requests::new() }; _];
    REQUESTS[shape.index()].next()
}

/// A count of requests, which begins anew in a forked child.
#[derive(Default)]
pub struct Requests(AtomicU64);

impl Requests {
    const fn new() -> Requests {
        Requests(AtomicU64::new(0))
    }

    /// Counts one more; returns their number in this process.
    pub fn next(&self) -> u32 {
        self.next_of(process::generation())
    }

    /// Does the same for the process with this number of forks.
    fn next_of(&self, forks: u32) -> u32 {
        let next = |word: u64| match (word >> 32) as u32 == forks {
            true => (word as u32).saturating_add(1),
            false => 1,
        };
        let word = |word| Some(u64::from(forks) << 32 | u64::from(next(word)));
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, word);
        before.map_or(1, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_counts_anew() {
        let requests = Requests::default();
        assert_eq!([requests.next_of(0), requests.next_of(0)], [1, 2]);
        assert_eq!([requests.next_of(1), requests.next_of(1)], [1, 2]);
        requests.0.fetch_or(u64::from(u32::MAX), Ordering::Relaxed);
        assert_eq!(requests.next_of(1), u32::MAX);
    }
}
