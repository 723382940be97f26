//! Which lanes there are and which a batch gets.

use core::fmt;

#[cfg(target_arch = "x86_64")]
use crate::simd::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use crate::simd::avx512ifma::Avx512Ifma;
#[cfg(target_arch = "x86_64")]
use crate::simd::avx512ifma256::Avx512Ifma256;
use crate::simd::portable::Portable;

/// A set of lanes that this CPU has. A value is the proof that it may be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend(Kind);

/// The lanes behind a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Eight lanes, and four for small batches where that is faster.
    #[cfg(target_arch = "x86_64")]
    Avx512Ifma {
        wide: Avx512Ifma,
        narrow: Option<Avx512Ifma256>,
    },
    /// Four lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512Ifma256(Avx512Ifma256),
    /// Four lanes of 26-bit limbs.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// Eight lanes in plain Rust.
    Portable(Portable<8>),
}

impl Backend {
    /// The portable backend: slow, and always there.
    pub const PORTABLE: Backend = Backend(Kind::Portable(Portable));

    /// All that this CPU can use, the fastest first, the portable one last.
    pub fn available() -> Vec<Backend> {
        let mut backends = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if let (Some(wide), Some(narrow)) = (Avx512Ifma::detect(), Avx512Ifma256::detect()) {
            let narrow_too = halves_wide_instructions().then_some(narrow);
            backends.push(Backend(Kind::Avx512Ifma {
                wide,
                narrow: narrow_too,
            }));
            backends.push(Backend(Kind::Avx512Ifma256(narrow)));
        }
        #[cfg(target_arch = "x86_64")]
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
    pub const NAMES: [&str; 4] = ["avx512ifma", "avx512ifma256", "avx2", "portable"];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Ifma { .. } => "avx512ifma",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Ifma256(_) => "avx512ifma256",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            Kind::Portable(_) => "portable",
        }
    }

    /// Whether these are AVX2 lanes, which have no multiply for long limbs.
    pub fn is_avx2(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => true,
            _ => false,
        }
    }

    /// Lanes of a full pass. An RSA request takes two.
    pub fn lanes(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Ifma256(_) | Kind::Avx2(_) => 4,
            _ => 8,
        }
    }

    /// The lanes for a batch of `requests` RSA requests.
    ///
    /// Where a 512-bit instruction runs as two halves, four lanes take half the time of eight: up to two
    /// requests are better off with them, and so is the remainder of a larger batch (`narrow`).
    pub(crate) fn kind(self, requests: usize) -> Kind {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Ifma {
                narrow: Some(narrow),
                ..
            } if requests <= 2 => Kind::Avx512Ifma256(narrow),
            kind => {
                let _ = requests;
                kind
            }
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.name())
    }
}

/// AMD family 19h (Zen 4) runs 512-bit instructions in two halves. Intel's cores and family 1Ah (Zen 5)
/// have full-width units: there four lanes cost what eight do.
#[cfg(target_arch = "x86_64")]
fn halves_wide_instructions() -> bool {
    use core::arch::x86_64::__cpuid;
    let vendor = __cpuid(0);
    let amd = [vendor.ebx, vendor.edx, vendor.ecx]
        .map(u32::to_le_bytes)
        .concat()
        == b"AuthenticAMD";
    let version = __cpuid(1).eax;
    let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
    amd && family == 0x19
}
