//! A value that lives while it has owners, in one word of memory.
//!
//! The count and the pointer share one word, so the last owner removes the value in the same atomic
//! step that drops the count to zero, and a later owner makes a new value. No owner waits for
//! another, so a forked child finds no lock held.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value with owners, made when one of them first asks for it.
pub struct Counted<T>(AtomicPtr<T>);

/// Number of bits of an address. The owners are counted in the bits above: Linux gives a program
/// longer addresses only on request.
const ADDRESS_BITS: u32 = 48;
/// Maximum number of owners.
const MOST: usize = usize::MAX >> ADDRESS_BITS;

/// Content of the word.
#[derive(Clone, Copy)]
struct State<T> {
    value: *mut T,
    owners: usize,
}

impl<T> State<T> {
    fn read(word: *mut T) -> State<T> {
        State {
            value: word.map_addr(|address| address & !(MOST << ADDRESS_BITS)),
            owners: word.addr() >> ADDRESS_BITS,
        }
    }

    fn word(self) -> *mut T {
        self.value
            .map_addr(|address| address | self.owners << ADDRESS_BITS)
    }
}

impl<T> Counted<T> {
    /// Makes a word without an owner or a value.
    pub const fn new() -> Counted<T> {
        Counted(AtomicPtr::new(null_mut()))
    }

    /// Counts one owner more; false if there are too many.
    pub fn enter(&self) -> bool {
        let entered = self.update(|state| {
            let owners = state.owners + 1;
            (owners <= MOST).then_some(State { owners, ..state })
        });
        entered.is_some()
    }

    /// Counts one owner less. Returns the value to the last owner, if the value was made.
    pub fn leave(&self) -> Option<Box<T>> {
        let before = self.update(|state| match state.owners {
            0 => None,
            1 => Some(State {
                value: null_mut(),
                owners: 0,
            }),
            owners => Some(State {
                owners: owners - 1,
                ..state
            }),
        })?;
        let last = before.owners == 1 && !before.value.is_null();
        // SAFETY: made by `put` from a box. It is not in the word any more, and every thread that
        // found it there was an owner and has left.
        last.then(|| unsafe { Box::from_raw(before.value) })
    }

    /// Returns an owner's access to the value.
    ///
    /// # Safety
    /// At least one owner is counted as long as the result or the value from it is used.
    pub unsafe fn owner(&self) -> Owner<'_, T> {
        Owner(self)
    }

    /// Returns the address of the value, or NULL.
    pub fn address(&self) -> *const T {
        State::read(self.0.load(Ordering::Acquire)).value
    }

    /// Takes the value out, and never frees it, since other threads may use it. The owners stay
    /// owners, and make a new value.
    pub fn forget(&self) -> Option<&'static T>
    where
        T: 'static,
    {
        // Without a value nothing is written: in a forked child, a write would copy the page.
        let before = self.update(|state| {
            let value = null_mut();
            (!state.value.is_null()).then_some(State { value, ..state })
        })?;
        // SAFETY: NULL, or made by `put`; only a thread that finds it in the word frees it.
        unsafe { before.value.as_ref() }
    }

    /// Stores a value in the word, unless another owner was faster.
    fn put(&self, value: T) {
        let made = Box::into_raw(Box::new(value));
        assert!(made.addr() >> ADDRESS_BITS == 0, "an address of Linux");
        let put = self.update(|state| {
            state.value.is_null().then_some(State {
                value: made,
                ..state
            })
        });
        if put.is_none() {
            // SAFETY: the box was shared with nobody.
            drop(unsafe { Box::from_raw(made) });
        }
    }

    /// Changes the state in one step; returns the state before, or None if `change` wants none.
    fn update(&self, change: impl Fn(State<T>) -> Option<State<T>>) -> Option<State<T>> {
        let changed = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                Some(change(State::read(word))?.word())
            });
        changed.ok().map(State::read)
    }
}

/// Access to the value for an owner.
pub struct Owner<'a, T>(&'a Counted<T>);

impl<'a, T> Owner<'a, T> {
    /// Returns the value, if it was made.
    pub fn current(&self) -> Option<&'a T> {
        // SAFETY: NULL, or made by `put`. The value is freed when the last owner leaves, and an
        // owner is counted until 'a ends.
        unsafe { self.0.address().as_ref() }
    }

    /// Returns the value, and makes it first if needed.
    pub fn get(&self, make: impl Fn() -> T) -> &'a T {
        loop {
            if let Some(value) = self.current() {
                return value;
            }
            self.0.put(make());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Returns the value. The thread must be an owner as long as it uses the value.
    fn get<T>(counted: &Counted<T>, make: impl Fn() -> T) -> &T {
        // SAFETY: the tests use the value while an owner is counted, or after `forget`.
        unsafe { counted.owner() }.get(make)
    }

    #[test]
    fn the_last_owner_gets_the_value() {
        let counted = Counted::new();
        assert!(counted.leave().is_none(), "nobody is there");
        assert!(counted.enter() && counted.enter());
        assert_eq!(*get(&counted, || 7), 7);
        assert_eq!(*get(&counted, || 8), 7);
        assert!(counted.leave().is_none());
        assert_eq!(counted.leave(), Some(Box::new(7)));
        assert!(counted.address().is_null());
        // The next owner makes a new one.
        assert!(counted.enter());
        assert_eq!(*get(&counted, || 9), 9);
        assert_eq!(counted.leave(), Some(Box::new(9)));
    }

    #[test]
    fn what_is_forgotten_is_made_anew() {
        let counted = Counted::new();
        assert!(counted.enter() && counted.enter());
        let parents = get(&counted, || 1);
        let forgotten = counted.forget().expect("the value");
        assert!(std::ptr::eq(forgotten, parents));
        assert_eq!(*get(&counted, || 2), 2);
        assert!(counted.leave().is_none());
        assert_eq!(counted.leave(), Some(Box::new(2)));
        assert_eq!(*parents, 1, "it is never freed");
    }

    #[test]
    fn owners_are_counted_to_the_last_bit() {
        let counted = Counted::<u8>::new();
        assert!((0..MOST).all(|_| counted.enter()));
        assert!(!counted.enter());
        assert_eq!(*get(&counted, || 5), 5);
        assert!((1..MOST).all(|_| counted.leave().is_none()));
        assert_eq!(counted.leave(), Some(Box::new(5)));
    }

    /// Calls `own` in four threads, at most `times` times. `own` becomes an owner for a moment, and
    /// returns whether it used a value that was gone. Ends early, with true, once one did.
    fn race(times: usize, own: impl Fn() -> bool + Sync) -> bool {
        let (left, found) = (AtomicUsize::new(times), AtomicBool::new(false));
        let less = |left: usize| left.checked_sub(1);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !found.load(Ordering::Relaxed)
                        && left
                            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                            .is_ok()
                    {
                        found.fetch_or(own(), Ordering::Relaxed);
                    }
                });
            }
        });
        found.into_inner()
    }

    #[test]
    fn nobody_uses_a_value_that_is_gone() {
        /// A value whose memory shows that it was dropped. That memory is free by then.
        struct Value(AtomicBool);
        impl Drop for Value {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let counted = Counted::new();
        let found = race(2_000_000, || {
            assert!(counted.enter());
            let value = get(&counted, || Value(AtomicBool::new(false)));
            let gone = black_box(value).0.load(Ordering::SeqCst);
            drop(counted.leave());
            gone
        });
        assert!(!found);
        assert!(counted.address().is_null(), "the last owner takes it out");
    }

    /// The planted defect: owners in one word and the value in another. The same race must find it.
    #[test]
    fn with_two_words_a_value_that_is_gone_is_used() {
        let (owners, there) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // The number of the newest value, and of the newest that is gone.
        let (made, gone) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let end = Instant::now() + Duration::from_secs(30);
        let own = || {
            owners.fetch_add(1, Ordering::AcqRel);
            let mut value = there.load(Ordering::Acquire);
            if value == 0 {
                value = made.fetch_add(1, Ordering::AcqRel) + 1;
                let put = there.compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire);
                value = put.map_or_else(|other| other, |_| value);
            }
            let used_when_gone = gone.load(Ordering::SeqCst) >= value;
            if owners.fetch_sub(1, Ordering::AcqRel) == 1 {
                gone.fetch_max(there.swap(0, Ordering::AcqRel), Ordering::SeqCst);
            }
            used_when_gone
        };
        while !race(100_000, own) {
            assert!(Instant::now() < end, "the race finds nothing");
        }
    }
}
