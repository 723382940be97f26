//! Which lanes there are and which a batch gets.

use core::fmt;

use crate::schedule::Schedule;
#[cfg(vectors)]
use crate::simd::avx2::Avx2;
#[cfg(vectors)]
use crate::simd::avx512ifma::Avx512Ifma;
#[cfg(vectors)]
use crate::simd::avx512ifma256::Avx512Ifma256;
use crate::simd::portable::Portable;

/// A set of lanes that this CPU has. A value is the proof that it may be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend(Kind);

/// The lanes behind a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Eight lanes, and four for small batches and remainders; the schedule of RSA, if a race is
    /// not to choose it.
    #[cfg(vectors)]
    Avx512Ifma {
        wide: Avx512Ifma,
        narrow: Avx512Ifma256,
        schedule: Option<Schedule>,
    },
    /// Four lanes, but for ML-KEM.
    #[cfg(vectors)]
    Avx512Ifma256 {
        wide: Avx512Ifma,
        narrow: Avx512Ifma256,
        schedule: Option<Schedule>,
    },
    /// Eight lanes, for small batches too. A batch of one then runs what is meant for many, so that
    /// checks which follow one request reach it.
    #[cfg(vectors)]
    Avx512Ifma512 {
        wide: Avx512Ifma,
        narrow: Avx512Ifma256,
        schedule: Option<Schedule>,
    },
    /// Four lanes, for X25519 and Ed25519; RSA runs on words, one request after the other.
    #[cfg(vectors)]
    Avx2(Avx2),
    /// Four lanes in plain Rust. A request alone, which is what checks mostly send, would take
    /// twice the time with eight.
    Portable(Portable<4>),
}

impl Backend {
    /// The portable backend: slow, and always there.
    pub const PORTABLE: Backend = Backend(Kind::Portable(Portable));

    /// All that this CPU can use, the fastest first, the portable one last.
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

    /// The fastest one with vector instructions, if there is one.
    pub fn best_hardware() -> Option<Backend> {
        Self::available()
            .into_iter()
            .find(|&backend| backend != Backend::PORTABLE)
    }

    /// The one called `name`, if this CPU can use it.
    pub fn from_name(name: &str) -> Option<Backend> {
        Self::available()
            .into_iter()
            .find(|backend| backend.name() == name)
    }

    /// All names that [`from_name`](Self::from_name) knows, on whatever CPU.
    pub const NAMES: [&str; 5] = [
        "avx512ifma",
        "avx512ifma256",
        "avx512ifma512",
        "avx2",
        "portable",
    ];

    /// Its name.
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

    /// These lanes with the schedule of RSA as given, where a race would choose one of several.
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

    /// The schedule that RSA is [pinned](Self::pinned) to.
    pub fn schedule(self) -> Option<Schedule> {
        match self.0 {
            #[cfg(vectors)]
            Kind::Avx512Ifma { schedule, .. }
            | Kind::Avx512Ifma256 { schedule, .. }
            | Kind::Avx512Ifma512 { schedule, .. } => schedule,
            _ => None,
        }
    }

    /// These lanes, pinned to each schedule in turn; themselves if they have one only.
    pub fn each_schedule(self) -> Vec<Backend> {
        let mut pinned: Vec<_> = Schedule::ALL.map(|schedule| self.pinned(schedule)).into();
        pinned.dedup();
        pinned
    }

    /// Whether these are AVX2 lanes, which have no multiply for long limbs.
    pub fn is_avx2(self) -> bool {
        match self.0 {
            #[cfg(vectors)]
            Kind::Avx2(_) => true,
            _ => false,
        }
    }

    /// Whether RSA runs on words in place of lanes, one request after the other. Portable lanes are
    /// the oracle of the others on x86-64; on other CPUs there is nothing to compare them with.
    pub fn computes_rsa_on_words(self) -> bool {
        self.is_avx2() || self == Backend::PORTABLE && !cfg!(target_arch = "x86_64")
    }

    /// Whether there are kernels of the NIST curves on these lanes. Where there are none, the
    /// functions of those curves work one request at a time, without vectors. X25519 and Ed25519
    /// run on all lanes.
    pub fn has_nist_curves(self) -> bool {
        !self.is_avx2()
    }

    /// Lanes of a full pass. An RSA request takes two.
    pub fn lanes(self) -> usize {
        match self.0 {
            #[cfg(vectors)]
            Kind::Avx512Ifma { .. } | Kind::Avx512Ifma512 { .. } => 8,
            _ => 4,
        }
    }

    /// The lanes for a batch of `requests` RSA requests.
    ///
    /// Four lanes take less time than eight: half on AMD's Zen 4, which runs a 512-bit instruction
    /// as two halves, and 8 to 23 % less on an Intel core with two full multipliers
    /// (`docs/lab/curves.md`). So up to two requests are better off with them, and so is
    /// the remainder of a larger batch (`narrow`).
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

/// Calls `function` with the lanes of a backend, in the state in which no instruction takes a time
/// that depends on its operands. A request takes one lane, half of what an RSA request takes.
macro_rules! dispatch {
    ($backend:expr, $jobs:expr, $function:expr) => {{
        let _steady = $crate::simd::steady::Steady::new();
        match $backend.kind($jobs.len().div_ceil(2)) {
            #[cfg(vectors)]
            $crate::backend::Kind::Avx512Ifma { wide, .. }
            | $crate::backend::Kind::Avx512Ifma512 { wide, .. } => $function(wide, $jobs),
            #[cfg(vectors)]
            $crate::backend::Kind::Avx512Ifma256 { narrow, .. } => $function(narrow, $jobs),
            // AVX2 lanes have no curves but those of `dispatch_25519`. Without vectors, lanes side
            // by side gain nothing and make the code eight times as long.
            _ => $function($crate::simd::portable::Portable::<1>, $jobs),
        }
    }};
}
pub(crate) use dispatch;

/// [`dispatch`], for functions that there are on AVX2 lanes too.
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

/// Calls a function of tests with each kind of lanes of this CPU.
#[cfg(test)]
macro_rules! on_all_lanes {
    ($check:ident) => {
        for backend in $crate::backend::Backend::available() {
            match backend.kind(usize::MAX) {
                #[cfg(vectors)]
                $crate::backend::Kind::Avx512Ifma { wide, .. } => $check(wide),
                // The same ones again.
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
    /// Where a build with fault points was made on another CPU, it may lack lanes of this one.
    #[test]
    #[cfg(vectors)]
    fn no_lanes_of_this_cpu_are_left_out() {
        assert!(
            cfg!(avx512) || !is_x86_feature_detected!("avx512f"),
            "remedy: cargo clean --package lockstep-kernels"
        );
    }
}
