//! The threads of a call.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use lockstep_ops::{Backend, Lanes, Memory};

use crate::device::{Device, DeviceError, DeviceState, Kind};
use crate::error::Error;
use crate::rates::{Measured, locked};

/// Size of a thread's stack. Lanes need [`lockstep_ops::ROOM_BYTES`], and builds without
/// optimisation more besides.
pub(crate) const STACK: usize = 2 << 20;

/// Average number of passes for each one that is checked, where not all results are checked.
const CHECK_EVERY: u32 = 64;

/// Number of items that share inversions and hash in lanes. Pieces are multiples of this number.
pub(crate) const PIECE: usize = 64;
/// Maximum number of items that a thread takes at a time.
const LONGEST_PIECE: usize = 512;

/// Number of items of slow operations that a thread takes at a time.
const LONG_PIECE: usize = 8;

/// Number of threads that have work for a device: while it computes for one of them, the other
/// prepares inputs and checks results.
const THREADS_OF_DEVICE: usize = 2;

/// Maximum number of threads.
const MOST_THREADS: usize = 4096;

/// Time that an operation takes.
#[derive(Clone, Copy)]
pub(crate) enum Effort {
    /// Some microseconds in lanes.
    Short,
    /// More: private operations of RSA, and new keys of ML-DSA, which have no lanes here.
    Long,
}

/// Interval at which a watch is called.
const WATCH: Duration = Duration::from_millis(50);

/// A function that is told how many items are done, and may stop a call.
type Watch = dyn Fn(usize) -> ControlFlow<()> + Send + Sync;

/// Returns the lanes that the environment chooses, or the fastest ones.
pub(crate) fn chosen() -> Result<Backend, Error> {
    match std::env::var_os("LOCKSTEP_LANES") {
        None => Ok(Backend::available()[0]),
        Some(name) => {
            let known = name.to_str().and_then(Backend::from_name);
            known.ok_or(Error::Lanes)
        }
    }
}

/// Lanes and threads that compute calls. Each call starts its threads and ends them, so that a
/// forked child can use its parent's workers. Several threads may call at once.
///
/// # Examples
///
/// ```
/// use lockstep::Workers;
///
/// let workers = Workers::new().with_threads(1);
/// assert_eq!(workers.threads(), 1);
/// println!("computed by {}", workers.lanes());
/// ```
#[derive(Clone)]
pub struct Workers {
    lanes: Arc<Lanes>,
    threads: usize,
    pub(crate) devices: Vec<Arc<Device>>,
    /// Number of items from which devices get work, in place of the measured number.
    pub(crate) device_threshold: Option<usize>,
    watch: Option<Arc<Watch>>,
}

impl Workers {
    /// Makes workers with the lanes that `LOCKSTEP_LANES` names, or else the fastest of this CPU,
    /// and with one thread for each CPU that affinity and control group let the process use.
    pub fn try_new() -> Result<Workers, Error> {
        Ok(Workers {
            lanes: Arc::new(Lanes::new(chosen()?, CHECK_EVERY, 0)),
            threads: thread::available_parallelism().map_or(1, usize::from),
            devices: Vec::new(),
            device_threshold: None,
            watch: None,
        })
    }

    /// Makes workers as [`try_new`](Self::try_new) does.
    ///
    /// # Panics
    ///
    /// If `LOCKSTEP_LANES` names lanes that this CPU does not have.
    pub fn new() -> Workers {
        Workers::try_new().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns these workers with another number of threads, from 1 to 4096.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Workers {
        let threads = threads.clamp(1, MOST_THREADS);
        Workers { threads, ..self }
    }

    /// Returns workers with the lanes of this name: `avx512ifma`, `avx2` or `portable`. `None` if
    /// this CPU does not have them.
    pub fn with_lanes(self, name: &str) -> Option<Workers> {
        let lanes = Lanes::new(Backend::from_name(name)?, CHECK_EVERY, 0);
        let lanes = Arc::new(lanes);
        Some(Workers { lanes, ..self })
    }

    /// Returns these workers with a watch: the thread that makes a call tells the watch about
    /// twenty times a second how many items are done. If the watch returns [`ControlFlow::Break`],
    /// the call ends with [`Error::Stopped`] once the threads are through with the items that they
    /// have begun.
    #[must_use]
    pub fn watched(self, watch: impl Fn(usize) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        let watch: Arc<Watch> = Arc::new(watch);
        Workers {
            watch: Some(watch),
            ..self
        }
    }

    /// Returns these workers without a watch.
    pub(crate) fn unwatched(&self) -> Workers {
        Workers {
            watch: None,
            ..self.clone()
        }
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the name of the lanes.
    pub fn lanes(&self) -> &'static str {
        self.lanes.backend().name()
    }

    /// Has threads work on the items `0..count`, piece after piece, and devices on larger pieces,
    /// if they have the operation `on` and it pays. `whole` is the place of all results; `work`
    /// fills the place of a piece. Threads compute the items that a device gives back. If the work
    /// on a piece panics, its missing results stay as they were.
    pub(crate) fn run<P: Place>(
        &self,
        count: usize,
        effort: Effort,
        on: Option<Kind>,
        whole: P,
        work: impl Fn(&mut Thread<'_>, Range<usize>, &mut P) + Sync,
    ) -> Result<(), Error> {
        let length = self.piece(count, effort);
        let queue = Queue::new(count, whole);
        let (done, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let by_threads = Mutex::new((0, Duration::ZERO));
        let caller = thread::current();
        let serve = |device: Option<&Share<'_>>| {
            let new = || Thread::new(&self.lanes, device.map(|share| share.device));
            let mut own = new();
            while let Some((items, mut place)) = queue.take(length, device) {
                let number = items.len();
                // Read before the time begins, since this waits while another thread compiles.
                let programs = device.map(|share| share.device.programs());
                let start = Instant::now();
                let attempt = || work(&mut own, items.clone(), &mut place);
                let has_panicked = catch_unwind(AssertUnwindSafe(attempt)).is_err();
                let time = start.elapsed();
                let gives_back = own.gives_back || has_panicked && device.is_some();
                let blocks = std::mem::take(&mut own.blocks);
                if has_panicked || gives_back {
                    own = new();
                }
                let Some(share) = device else {
                    let mut all = locked(&by_threads);
                    *all = (all.0 + number, all.1 + time);
                    done.fetch_add(number, Ordering::Relaxed);
                    continue;
                };
                if gives_back {
                    queue.leave_device(vec![(items, place)]);
                    break;
                }
                let back: usize = blocks.iter().map(Range::len).sum();
                queue.leave_device(parts((items, place), blocks));
                done.fetch_add(number - back, Ordering::Relaxed);
                // The time in which a driver compiles tells nothing, nor that of refused items.
                if back == 0 && programs == Some(share.device.programs()) {
                    share.note(number, time);
                }
            }
            ended.fetch_add(1, Ordering::Release);
            caller.unpark();
        };
        let threads = self.threads.min(count.div_ceil(length));
        let shares = self.devices.iter().filter_map(|device| {
            // A forked child must not wait for a lock that its parent held.
            let kind = on.filter(|_| device.is_usable())?;
            let measured = || device.rates.pays_from(kind, self.threads);
            let pays_from = self.device_threshold.unwrap_or_else(measured).max(2);
            let share = || Share {
                device,
                pays_from,
                most: device.chunk(kind),
                measured: Mutex::new(None),
            };
            (count >= pays_from).then(share)
        });
        let shares: Vec<_> = shares.collect();
        thread::scope(|scope| {
            let start = |device| {
                let thread = Builder::new().name("lockstep".to_owned()).stack_size(STACK);
                thread.spawn_scoped(scope, move || serve(device)).is_ok()
            };
            // Devices first: a thread without work waits for items that devices give back.
            let on_devices = shares.iter().flat_map(|share| [share; THREADS_OF_DEVICE]);
            let on_devices = on_devices.filter(|share| start(Some(*share))).count();
            let on_threads = (0..threads).take_while(|_| start(None)).count();
            // The caller's own stack may be small, so it works only where no thread can start.
            if on_threads == 0 {
                serve(None);
            }
            let started = on_devices + on_threads;
            let Some(watch) = &self.watch else {
                return;
            };
            while ended.load(Ordering::Acquire) < started {
                thread::park_timeout(WATCH);
                // Results that are complete are not stopped.
                let has_ended = ended.load(Ordering::Acquire) == started;
                if !has_ended
                    && !queue.is_stopped()
                    && watch(done.load(Ordering::Relaxed)).is_break()
                {
                    queue.stop();
                }
            }
        });
        let (items, time) = *locked(&by_threads);
        for share in shares {
            let measured = *locked(&share.measured);
            if let (Some((shortest, device)), Some(kind), 1..) = (measured, on, items) {
                let thread = rate(items, time);
                let measured = Measured {
                    shortest,
                    device,
                    thread,
                };
                share.device.rates.keep(kind, measured);
            }
        }
        match queue.is_stopped() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }

    /// Returns the number of items in a piece: about four pieces for each thread, so that all
    /// threads end at nearly the same time.
    fn piece(&self, count: usize, effort: Effort) -> usize {
        let (least, most) = match effort {
            Effort::Short => (PIECE, LONGEST_PIECE),
            Effort::Long => (LONG_PIECE, LONG_PIECE),
        };
        let even = count.div_ceil(4 * self.threads);
        even.next_multiple_of(least).clamp(least, most)
    }
}

impl Workers {
    /// Returns these workers with devices of OpenCL, such as GPUs, in place of any earlier devices:
    /// `opencl:0`, `opencl:1` and so on. Devices compute RSA, X25519, checks of Ed25519, and
    /// ECDSA on P-256, beside the threads. The first call with an operation measures from how many
    /// items on a device pays.
    ///
    /// A device gets private keys where it computes with them, and constant time is a weaker
    /// promise there than on the CPU. Threads compute all that a device does not compute. A device
    /// that fails badly gets no more work in this process; opening it here again gives it work.
    ///
    /// # Errors
    ///
    /// Says in one line why a device cannot be used.
    ///
    /// # Examples
    ///
    /// ```
    /// use lockstep::Workers;
    ///
    /// match Workers::new().with_devices(&["opencl:0"]) {
    ///     Ok(workers) => println!("beside the threads: {:?}", workers.devices()),
    ///     Err(error) => println!("on threads alone: {error}"),
    /// }
    /// ```
    pub fn with_devices(self, names: &[&str]) -> Result<Workers, DeviceError> {
        let open = |name: &&str| Device::open(name, self.lanes());
        let devices = names.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Workers { devices, ..self })
    }

    /// Returns these workers with another number of items from which devices get work: 2 or more.
    /// Without it, the number is measured.
    #[must_use]
    pub fn with_device_threshold(self, items: usize) -> Workers {
        let device_threshold = Some(items);
        Workers {
            device_threshold,
            ..self
        }
    }

    /// Returns the devices, as they are now.
    pub fn devices(&self) -> Vec<DeviceState> {
        let state = |device: &Arc<Device>| DeviceState {
            description: device.description().clone(),
            items: device.items(),
            failure: device.failure(),
            rates: device.rates.all(self.threads),
        };
        self.devices.iter().map(state).collect()
    }
}

impl Default for Workers {
    fn default() -> Workers {
        Workers::new()
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lanes, threads) = (self.lanes(), self.threads);
        write!(f, "Workers({lanes}, {threads} threads)")
    }
}

/// A place of results that can be split.
pub(crate) trait Place: Send + Sized {
    /// Splits it into the place of the first `count` results and that of the others.
    fn split(self, count: usize) -> (Self, Self);
}

impl Place for () {
    fn split(self, _: usize) -> ((), ()) {
        ((), ())
    }
}

impl<T: Send> Place for &mut [T] {
    fn split(self, count: usize) -> (Self, Self) {
        self.split_at_mut(count)
    }
}

impl<P: Place, Q: Place> Place for (P, Q) {
    fn split(self, count: usize) -> (Self, Self) {
        let (one, one_behind) = self.0.split(count);
        let (other, other_behind) = self.1.split(count);
        ((one, other), (one_behind, other_behind))
    }
}

/// Items, and the place of their results.
type Piece<P> = (Range<usize>, P);

/// Splits a piece after this number of items.
fn split<P: Place>((items, place): Piece<P>, count: usize) -> (Piece<P>, Piece<P>) {
    let (own, behind) = place.split(count);
    let middle = items.start + count;
    ((items.start..middle, own), (middle..items.end, behind))
}

/// Returns the parts of a piece that are `blocks`, which are in ascending order.
fn parts<P: Place>(mut piece: Piece<P>, blocks: Vec<Range<usize>>) -> Vec<Piece<P>> {
    let (first, mut parts) = (piece.0.start, Vec::with_capacity(blocks.len()));
    for block in blocks {
        let before = first + block.start - piece.0.start;
        let behind = split(piece, before).1;
        let (part, behind) = split(behind, block.len());
        parts.push(part);
        piece = behind;
    }
    parts
}

/// The part of a device in a call.
struct Share<'a> {
    device: &'a Device,
    /// Number of remaining items from which the device pays.
    pays_from: usize,
    /// Maximum number of items that the device takes at a time.
    most: usize,
    /// The shortest time of a piece, and the most items in a second.
    measured: Mutex<Option<(Duration, f64)>>,
}

impl Share<'_> {
    /// Notes the time of a piece.
    fn note(&self, items: usize, time: Duration) {
        let rate = rate(items, time);
        let mut measured = locked(&self.measured);
        let (shortest, highest) = measured.unwrap_or((time, rate));
        *measured = Some((shortest.min(time), highest.max(rate)));
    }
}

/// Returns the number of items in a second. A coarse clock may measure no time.
fn rate(items: usize, time: Duration) -> f64 {
    items as f64 / time.max(Duration::from_nanos(1)).as_secs_f64()
}

/// The items of a call that nobody has taken, with the places of their results.
struct Queue<P> {
    state: Mutex<State<P>>,
    /// Notified when a device is through with a piece.
    left: Condvar,
    is_stopped: AtomicBool,
}

struct State<P> {
    /// Items that nobody has taken. The next piece comes from the last element.
    rest: Vec<Piece<P>>,
    /// Pieces that devices have given back, for threads.
    back: Vec<Piece<P>>,
    /// Number of pieces that devices may give back.
    on_devices: usize,
}

impl<P: Place> Queue<P> {
    fn new(count: usize, whole: P) -> Queue<P> {
        let rest = match count {
            0 => Vec::new(),
            _ => vec![(0..count, whole)],
        };
        Queue {
            state: Mutex::new(State {
                rest,
                back: Vec::new(),
                on_devices: 0,
            }),
            left: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Takes at most `most` items for a thread; for a device at most half of the items that are
    /// there, since it is slow with a few, and none if they are too few for it. A thread waits
    /// while a device may give items back. `None` if there is no more work.
    fn take(&self, most: usize, device: Option<&Share<'_>>) -> Option<Piece<P>> {
        let mut state = locked(&self.state);
        loop {
            if self.is_stopped() {
                return None;
            }
            let pieces = match device.is_none() && !state.back.is_empty() {
                true => &mut state.back,
                false => &mut state.rest,
            };
            let left = pieces.last().map_or(0, |(items, _)| items.len());
            let most = match device {
                Some(share) if left < share.pays_from => return None,
                Some(share) => match left.div_ceil(2) {
                    half @ ..=PIECE => share.most.min(half),
                    half => share.most.min(half.next_multiple_of(PIECE)),
                },
                None => most,
            };
            if let Some(piece) = pieces.pop() {
                let number = most.min(left);
                let piece = match number == left {
                    true => piece,
                    false => {
                        let (piece, behind) = split(piece, number);
                        pieces.push(behind);
                        piece
                    }
                };
                state.on_devices += usize::from(device.is_some());
                return Some(piece);
            }
            if state.on_devices == 0 {
                return None;
            }
            let waited = self.left.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes that a device is through with a piece, of which it gives parts back.
    fn leave_device(&self, back: Vec<Piece<P>>) {
        let mut state = locked(&self.state);
        state.on_devices -= 1;
        state.back.extend(back);
        drop(state);
        self.left.notify_all();
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// A thread of a call.
pub(crate) struct Thread<'a> {
    pub(crate) lanes: &'a Lanes,
    pub(crate) memory: Memory,
    /// The device that computes for it.
    pub(crate) device: Option<&'a Device>,
    /// Whether other threads have to compute the piece, since the device failed.
    pub(crate) gives_back: bool,
    /// Parts of the piece that other threads have to compute.
    pub(crate) blocks: Vec<Range<usize>>,
}

impl<'a> Thread<'a> {
    fn new(lanes: &'a Lanes, device: Option<&'a Device>) -> Thread<'a> {
        Thread {
            lanes,
            memory: Memory::default(),
            device,
            gives_back: false,
            blocks: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_computed_once_by_any_number_of_threads() {
        for threads in [1, 2, 7] {
            let workers = Workers::new().with_threads(threads);
            for count in [0, 1, 63, 64, 65, 1000, 5000] {
                let mut done = vec![0_u8; count];
                workers
                    .run(
                        count,
                        Effort::Short,
                        None,
                        &mut done[..],
                        |_, items, place| {
                            assert_eq!(items.len(), place.len());
                            place.iter_mut().for_each(|times| *times += 1);
                        },
                    )
                    .expect("nobody stops it");
                assert!(done.iter().all(|times| *times == 1), "{threads}, {count}");
            }
        }
    }

    #[test]
    fn a_piece_that_panics_hurts_no_other() {
        let mut done = vec![false; 1000];
        Workers::new()
            .with_threads(2)
            .run(
                1000,
                Effort::Short,
                None,
                &mut done[..],
                |_, items, place| {
                    assert!(!items.contains(&500), "planted");
                    place.fill(true);
                },
            )
            .expect("nobody stops it");
        let lost = done.iter().filter(|done| !**done).count();
        assert!((1..=LONGEST_PIECE).contains(&lost), "{lost}");
        assert!(!done[500] && done[0] && done[999]);
    }

    #[test]
    fn a_watch_sees_how_many_are_done_and_stops_a_call() {
        let seen = Arc::new(AtomicUsize::new(0));
        let most = Arc::clone(&seen);
        let workers = Workers::new().with_threads(2).watched(move |done| {
            most.fetch_max(done, Ordering::Relaxed);
            match done {
                0..1000 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        let served = AtomicUsize::new(0);
        let stopped = workers.run(1_000_000, Effort::Short, None, (), |_, items, ()| {
            served.fetch_add(items.len(), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(1));
        });
        assert_eq!(stopped, Err(Error::Stopped));
        assert!(seen.load(Ordering::Relaxed) >= 1000);
        assert!(served.into_inner() < 1_000_000);
    }
}
