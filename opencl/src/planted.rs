//! Planted failures of calls of OpenCL: for tests only, which make each call fail in turn.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

/// Number that no call has.
const NEVER: usize = usize::MAX;

/// The failures that are planted in one device.
pub struct Plan {
    /// Number of calls so far.
    calls: AtomicUsize,
    /// Number of the call that fails, and whether all after it fail, too.
    fails: AtomicUsize,
    for_good: AtomicBool,
    /// Whether no work ends.
    hangs: AtomicBool,
    /// Whether results are wrong.
    lies: AtomicBool,
    /// Whether results are zeros.
    blanks: AtomicBool,
    /// The function that failed.
    failed: Mutex<Option<&'static str>>,
    /// Whether each platform is listed twice.
    doubles: AtomicBool,
    /// Number of objects of OpenCL that are not released.
    objects: AtomicIsize,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            calls: AtomicUsize::new(0),
            fails: AtomicUsize::new(NEVER),
            for_good: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            lies: AtomicBool::new(false),
            blanks: AtomicBool::new(false),
            failed: Mutex::new(None),
            doubles: AtomicBool::new(false),
            objects: AtomicIsize::new(0),
        }
    }
}

impl Plan {
    /// Plants a failure in the call of this number, counted from now. With `for_good`, all later
    /// calls fail, too.
    pub fn fail(&self, number: usize, for_good: bool) {
        self.for_good.store(for_good, Ordering::SeqCst);
        self.calls.store(0, Ordering::SeqCst);
        *self.failed.lock().expect("nobody panics with it") = None;
        self.fails.store(number, Ordering::SeqCst);
    }

    /// Lets no work end, or lets it end again.
    pub fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    /// Makes a bit of each word of the results wrong, or right again.
    pub fn lie(&self, lies: bool) {
        self.lies.store(lies, Ordering::SeqCst);
    }

    /// Makes all results zeros.
    pub fn blank(&self) {
        self.blanks.store(true, Ordering::SeqCst);
    }

    /// Lists each platform twice.
    pub fn double(&self) {
        self.doubles.store(true, Ordering::SeqCst);
    }

    /// Returns the number of objects of OpenCL that are not released.
    pub fn objects(&self) -> isize {
        self.objects.load(Ordering::SeqCst)
    }

    /// Returns the number of calls since the last failure was planted.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns the function that the planted failure hit, once it did.
    pub fn failed(&self) -> Option<&'static str> {
        *self.failed.lock().expect("nobody panics with it")
    }

    /// Counts a call; returns whether it fails.
    pub(crate) fn fails(&self, function: &'static str) -> bool {
        let (number, planted) = (
            self.calls.fetch_add(1, Ordering::SeqCst),
            self.fails.load(Ordering::SeqCst),
        );
        let fails = number == planted || number > planted && self.for_good.load(Ordering::SeqCst);
        if fails {
            let mut failed = self.failed.lock().expect("nobody panics with it");
            failed.get_or_insert(function);
        }
        fails
    }

    pub(crate) fn count_object(&self, change: isize) {
        self.objects.fetch_add(change, Ordering::SeqCst);
    }

    pub(crate) fn doubles(&self) -> bool {
        self.doubles.load(Ordering::SeqCst)
    }

    pub(crate) fn hangs(&self) -> bool {
        self.hangs.load(Ordering::SeqCst)
    }

    pub(crate) fn blanks(&self) -> bool {
        self.blanks.load(Ordering::SeqCst)
    }

    pub(crate) fn lies(&self) -> bool {
        self.lies.load(Ordering::SeqCst)
    }
}
