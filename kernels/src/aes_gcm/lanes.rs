//! The instructions that compute AES-GCM.

use core::fmt;

use crate::simd::blocks::portable::PortableBlocks;
#[cfg(vectors)]
use crate::simd::blocks::vaes256::Vaes256;
#[cfg(vectors)]
use crate::simd::blocks::vaes512::Vaes512;

/// A set of instructions. A value proves that this CPU has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lanes(pub(super) Kind);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    #[cfg(vectors)]
    Vaes512(Vaes512),
    #[cfg(vectors)]
    Vaes256(Vaes256),
    Portable(PortableBlocks),
}

impl Lanes {
    /// Plain Rust: slow, and available on every CPU.
    pub const PORTABLE: Lanes = Lanes(Kind::Portable(PortableBlocks));

    /// Returns all lanes that this CPU can use, the fastest first and the portable ones last.
    pub fn available() -> impl Iterator<Item = Lanes> {
        [
            #[cfg(vectors)]
            Vaes512::detect().map(Kind::Vaes512),
            #[cfg(vectors)]
            Vaes256::detect().map(Kind::Vaes256),
            Some(Kind::Portable(PortableBlocks)),
        ]
        .into_iter()
        .flatten()
        .map(Lanes)
    }

    /// Returns the fastest lanes with vector instructions. Without such instructions, OpenSSL's own
    /// code is faster.
    pub fn best_hardware() -> Option<Lanes> {
        Self::available().find(|&lanes| lanes != Self::PORTABLE)
    }

    /// Returns the lanes called `name`, if this CPU can use them.
    pub fn from_name(name: &str) -> Option<Lanes> {
        Self::available().find(|lanes| lanes.name() == name)
    }

    /// Returns the lanes' name.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(vectors)]
            Kind::Vaes512(_) => "vaes512",
            #[cfg(vectors)]
            Kind::Vaes256(_) => "vaes256",
            Kind::Portable(_) => "portable",
        }
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lanes({})", self.name())
    }
}
