//! The lanes of this CPU, and the choice of lanes for a batch.

use core::fmt;

use crate::schedule::Schedule;
#[cfg(vectors)]
use crate::simd::avx2::Avx2;
#[cfg(vectors)]
use crate::simd::avx512ifma::Avx512Ifma;
#[cfg(vectors)]
use crate::simd::avx512ifma256::Avx512Ifma256;
use crate::simd::portable::Portable;

/// A set of lanes that this CPU has. A value proves that the lanes can be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend(Kind);

/// The lanes behind a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Eight lanes, and four for small batches and remainders. `schedule` is RSA's order of work;
    /// if it is `None`, a race chooses it.
    #[cfg(vectors)]
    Avx512Ifma {
        wide: Avx512Ifma,
        narrow: Avx512Ifma256,
        schedule: Option<Schedule>,
    },
    /// Four lanes; ML-KEM and ML-DSA use eight.
    #[cfg(vectors)]
    Avx512Ifma256 {
        wide: Avx512Ifma,
        narrow: Avx512Ifma256,
        schedule: Option<Schedule>,
    },
    /// Eight lanes, for small batches too. A batch of one then runs the code for many requests, so
    /// that checks that send one request reach this code.
    #[cfg(vectors)]
    Avx512Ifma512 {
        wide: Avx512Ifma,
        narrow: Avx512Ifma256,
        schedule: Option<Schedule>,
    },
    /// Four lanes, for X25519 and Ed25519; RSA runs on words, one request after the other.
    #[cfg(vectors)]
    Avx2(Avx2),
    /// Four lanes in plain Rust. With eight lanes a lone request would take twice the time, and
    /// most checks send lone requests.
    Portable(Portable<4>),
}

impl Backend {
    /// The portable backend: slow, and available on every CPU.
    pub const PORTABLE: Backend = Backend(Kind::Portable(Portable));

    /// Returns all backends that this CPU can use, the fastest first and the portable one last.
    ///
    /// # Examples
    ///
    /// ```
    /// use lockstep_kernels::backend::Backend;
    ///
    /// let fastest = Backend::available()[0];
    /// assert_eq!(Backend::from_name(fastest.name()), Some(fastest));
    /// assert_eq!(Backend::available().last(), Some(&Backend::PORTABLE));
    /// ```
    pub fn available() -> Vec<Backend> {
        let mut backends = Vec::new();
        #[cfg(vectors)]
        if let (Some(wide), Some(narrow)) = (Avx512Ifma::detect(), Avx512Ifma256::detect()) {
            let schedule = None;
            backends.push(Backend(Kind::Avx512Ifma {
                wide,
                narrow,
                schedule,
            }));
            backends.push(Backend(Kind::Avx512Ifma256 {
                wide,
                narrow,
                schedule,
            }));
            backends.push(Backend(Kind::Avx512Ifma512 {
                wide,
                narrow,
                schedule,
            }));
        }
        #[cfg(vectors)]
        if let Some(lanes) = Avx2::detect() {
            backends.push(Backend(Kind::Avx2(lanes)));
        }
        backends.push(Backend::PORTABLE);
        backends
    }

    /// Returns the fastest backend with vector instructions, if there is one.
    pub fn best_hardware() -> Option<Backend> {
        Self::available()
            .into_iter()
            .find(|&backend| backend != Backend::PORTABLE)
    }

    /// Returns the backend called `name`, if this CPU can use it.
    pub fn from_name(name: &str) -> Option<Backend> {
        Self::available()
            .into_iter()
            .find(|backend| backend.name() == name)
    }

    /// All names that [`from_name`](Self::from_name) knows, on every CPU.
    pub const NAMES: [&str; 5] = [
        "avx512ifma",
        "avx512ifma256",
        "avx512ifma512",
        "avx2",
        "portable",
    ];

    /// Returns the backend's name.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(vectors)]
            Kind::Avx512Ifma { .. } => "avx512ifma",
            #[cfg(vectors)]
            Kind::Avx512Ifma256 { .. } => "avx512ifma256",
            #[cfg(vectors)]
            Kind::Avx512Ifma512 { .. } => "avx512ifma512",
            #[cfg(vectors)]
            Kind::Avx2(_) => "avx2",
            Kind::Portable(_) => "portable",
        }
    }

    /// Returns these lanes with a fixed schedule of RSA, which a race would choose otherwise. Lanes
    /// with only one schedule are unchanged.
    pub fn pinned(mut self, to: Schedule) -> Backend {
        match &mut self.0 {
            #[cfg(vectors)]
            Kind::Avx512Ifma { schedule, .. }
            | Kind::Avx512Ifma256 { schedule, .. }
            | Kind::Avx512Ifma512 { schedule, .. } => *schedule = Some(to),
            _ => {
                let _ = to;
            }
        }
        self
    }

    /// Returns the schedule that RSA is [pinned](Self::pinned) to.
    fn schedule(self) -> Option<Schedule> {
        match self.0 {
            #[cfg(vectors)]
            Kind::Avx512Ifma { schedule, .. }
            | Kind::Avx512Ifma256 { schedule, .. }
            | Kind::Avx512Ifma512 { schedule, .. } => schedule,
            _ => None,
        }
    }

    /// Returns these lanes pinned to each of their schedules in turn, or unchanged if they have
    /// only one.
    pub fn each_schedule(self) -> Vec<Backend> {
        let mut pinned: Vec<_> = Schedule::ALL.map(|schedule| self.pinned(schedule)).into();
        pinned.dedup();
        pinned
    }

    /// Returns whether these are AVX2 lanes, which cannot multiply limbs of 52 bits.
    pub fn is_avx2(self) -> bool {
        match self.0 {
            #[cfg(vectors)]
            Kind::Avx2(_) => true,
            _ => false,
        }
    }

    /// Returns whether RSA runs on words instead of lanes, one request after the other. On x86-64
    /// the portable lanes compute RSA, as the oracle of the other lanes. On other CPUs there are no
    /// other lanes to compare with.
    pub fn computes_rsa_on_words(self) -> bool {
        self.is_avx2() || self == Backend::PORTABLE && !cfg!(target_arch = "x86_64")
    }

    /// Returns whether these lanes have kernels of the NIST curves. Otherwise the functions of
    /// those curves compute one request at a time, without vectors. X25519 and Ed25519 run on all
    /// lanes.
    pub fn has_nist_curves(self) -> bool {
        !self.is_avx2()
    }

    /// Returns the number of lanes in a full pass. An RSA request takes two of them.
    pub fn lanes(self) -> usize {
        match self.0 {
            #[cfg(vectors)]
            Kind::Avx512Ifma { .. } | Kind::Avx512Ifma512 { .. } => 8,
            _ => 4,
        }
    }

    /// Chooses the lanes for a batch of `requests` RSA requests.
    ///
    /// Four lanes take less time than eight: half on AMD's Zen 4, which runs a 512-bit instruction
    /// as two halves, and 8 to 23 % less on an Intel core with two full multipliers
    /// (`docs/lab/curves.md`). So up to two requests run on four lanes, and so does the remainder
    /// of a larger batch (`narrow`).
    pub(crate) fn kind(self, requests: usize) -> Kind {
        match self.0 {
            #[cfg(vectors)]
            Kind::Avx512Ifma {
                wide,
                narrow,
                schedule,
            } if requests <= 2 => Kind::Avx512Ifma256 {
                wide,
                narrow,
                schedule,
            },
            kind => {
                let _ = requests;
                kind
            }
        }
    }
}

/// Calls `function` with the lanes of a backend, in the CPU mode in which the time of an
/// instruction does not depend on its operands. A request takes one lane, half as many as an RSA
/// request.
macro_rules! dispatch {
    ($backend:expr, $jobs:expr, $function:expr) => {{
        let _steady = $crate::simd::steady::Steady::new();
        match $backend.kind($jobs.len().div_ceil(2)) {
            #[cfg(vectors)]
            $crate::backend::Kind::Avx512Ifma { wide, .. }
            | $crate::backend::Kind::Avx512Ifma512 { wide, .. } => $function(wide, $jobs),
            #[cfg(vectors)]
            $crate::backend::Kind::Avx512Ifma256 { narrow, .. } => $function(narrow, $jobs),
            // On AVX2 lanes only the curves of `dispatch_25519` exist. Without vector instructions,
            // several portable lanes gain no speed and make the code eight times as long.
            _ => $function($crate::simd::portable::Portable::<1>, $jobs),
        }
    }};
}
pub(crate) use dispatch;

/// [`dispatch`], for functions that exist on AVX2 lanes too.
macro_rules! dispatch_25519 {
    ($backend:expr, $jobs:expr, $function:expr) => {{
        let _steady = $crate::simd::steady::Steady::new();
        match $backend.kind($jobs.len().div_ceil(2)) {
            #[cfg(vectors)]
            $crate::backend::Kind::Avx2(lanes) => $function(lanes, $jobs),
            _ => $crate::backend::dispatch!($backend, $jobs, $function),
        }
    }};
}
pub(crate) use dispatch_25519;

/// Calls a function of tests with each type of lanes that this CPU has.
#[cfg(test)]
macro_rules! on_all_lanes {
    ($check:ident) => {
        for backend in $crate::backend::Backend::available() {
            match backend.kind(usize::MAX) {
                #[cfg(vectors)]
                $crate::backend::Kind::Avx512Ifma { wide, .. } => $check(wide),
                // `Avx512Ifma` has called `check` with these lanes.
                #[cfg(vectors)]
                $crate::backend::Kind::Avx512Ifma512 { .. } => {}
                #[cfg(vectors)]
                $crate::backend::Kind::Avx512Ifma256 { narrow, .. } => $check(narrow),
                #[cfg(vectors)]
                $crate::backend::Kind::Avx2(lanes) => $check(lanes),
                $crate::backend::Kind::Portable(lanes) => $check(lanes),
            }
        }
    };
}
#[cfg(test)]
pub(crate) use on_all_lanes;

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self.schedule() {
            Some(schedule) => write!(f, "Backend({name}, {})", schedule.name()),
            None => write!(f, "Backend({name})"),
        }
    }
}

#[cfg(test)]
mod tests {
    /// A build with fault points that was made on a CPU without AVX-512 lacks the lanes of AVX-512.
    #[test]
    #[cfg(vectors)]
    fn no_lanes_of_this_cpu_are_left_out() {
        assert!(
            cfg!(avx512) || !is_x86_feature_detected!("avx512f"),
            "remedy: cargo clean --package lockstep-kernels"
        );
    }
}
