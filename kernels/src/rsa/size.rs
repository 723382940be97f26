//! The lengths of moduli.

use crate::montgomery::check_slack;

/// The lengths of moduli that have kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// 1024 bits: legacy keys and benchmarks.
    Rsa1024,
    /// 2048 bits.
    Rsa2048,
    /// 3072 bits.
    Rsa3072,
    /// 4096 bits.
    Rsa4096,
}

impl Size {
    /// All sizes, smallest first.
    pub const ALL: [Size; 4] = [Size::Rsa1024, Size::Rsa2048, Size::Rsa3072, Size::Rsa4096];

    pub(crate) const LARGEST: Size = Size::ALL[Size::ALL.len() - 1];

    /// The reason why a modulus of another length has no kernels.
    pub(crate) const OTHERS: &str = "modulus is not of 1024, 2048, 3072 or 4096 bits";

    /// Returns the number of bits of the modulus.
    pub const fn bits(self) -> usize {
        match self {
            Size::Rsa1024 => 1024,
            Size::Rsa2048 => 2048,
            Size::Rsa3072 => 3072,
            Size::Rsa4096 => 4096,
        }
    }

    /// Returns the number of bytes of the modulus.
    pub const fn bytes(self) -> usize {
        self.bits() / 8
    }

    /// Returns the size of a modulus of `bits` bits.
    pub const fn from_bits(bits: usize) -> Option<Size> {
        let mut place = 0;
        while place < Size::ALL.len() {
            if Size::ALL[place].bits() == bits {
                return Some(Size::ALL[place]);
            }
            place += 1;
        }
        None
    }

    /// Returns the number of limbs of a prime.
    pub(crate) const fn half_limbs(self) -> usize {
        match self {
            Size::Rsa1024 => 10,
            Size::Rsa2048 => 20,
            Size::Rsa3072 => 30,
            Size::Rsa4096 => 40,
        }
    }

    /// Returns the number of limbs of the modulus.
    pub(crate) const fn limbs(self) -> usize {
        2 * self.half_limbs()
    }

    /// Returns the number of blocks of words of a prime.
    pub(crate) const fn blocks_of_half(self) -> usize {
        self.bits() / 2 / crate::words::BLOCK_BITS
    }

    /// Returns the number of 60-bit words of an exponent modulo a prime − 1.
    pub(crate) const fn exponent_words(self) -> usize {
        (self.bits() / 2).div_ceil(60)
    }
}

/// Calls a function with the numbers of limbs of a half and of the modulus as constants, by size.
macro_rules! for_size {
    ($size:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::rsa::size::for_size!($size, $function::<>($($argument),*))
    };
    ($size:expr, $function:ident::<$($kind:ty),*>($($argument:expr),* $(,)?)) => {
        match $size {
            $crate::rsa::size::Size::Rsa1024 => $function::<$($kind,)* 10, 20>($($argument),*),
            $crate::rsa::size::Size::Rsa2048 => $function::<$($kind,)* 20, 40>($($argument),*),
            $crate::rsa::size::Size::Rsa3072 => $function::<$($kind,)* 30, 60>($($argument),*),
            $crate::rsa::size::Size::Rsa4096 => $function::<$($kind,)* 40, 80>($($argument),*),
        }
    };
}
pub(crate) use for_size;

/// Calls a function with the number of 64-bit words of the modulus as a constant, by size.
macro_rules! for_words {
    ($size:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $size {
            $crate::rsa::size::Size::Rsa1024 => $function::<16>($($argument),*),
            $crate::rsa::size::Size::Rsa2048 => $function::<32>($($argument),*),
            $crate::rsa::size::Size::Rsa3072 => $function::<48>($($argument),*),
            $crate::rsa::size::Size::Rsa4096 => $function::<64>($($argument),*),
        }
    };
}
pub(crate) use for_words;

/// [`for_size`], on the lanes `$wide` in the order of work of `$schedule`; for sizes with one order
/// only, on these lanes unchanged.
#[cfg(vectors)]
macro_rules! for_schedule {
    (
        $schedule:expr, $wide:ident, $size:expr,
        $function:ident::<$($kind:ty),*>($($argument:expr),* $(,)?)
    ) => {
        match $size {
            $crate::rsa::size::Size::Rsa1024 if $schedule.reduces_after() => {
                let $wide = $wide.reducing_after();
                $function::<$($kind,)* 10, 20>($($argument),*)
            }
            $crate::rsa::size::Size::Rsa2048 if $schedule.reduces_after() => {
                let $wide = $wide.reducing_after();
                $function::<$($kind,)* 20, 40>($($argument),*)
            }
            size => $crate::rsa::size::for_size!(size, $function::<$($kind),*>($($argument),*)),
        }
    };
}
#[cfg(vectors)]
pub(crate) use for_schedule;

const _: () = {
    let mut i = 0;
    while i < Size::ALL.len() {
        let size = Size::ALL[i];
        check_slack(size.half_limbs(), size.bits() / 2);
        check_slack(size.limbs(), size.bits());
        assert!(size.bits() <= Size::LARGEST.bits());
        i += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<const HALF: usize, const WHOLE: usize>() -> (usize, usize) {
        (HALF, WHOLE)
    }

    fn words<const WORDS: usize>() -> usize {
        WORDS
    }

    #[test]
    fn every_list_of_sizes_has_each_of_them() {
        for size in Size::ALL {
            assert_eq!(Size::from_bits(size.bits()), Some(size));
            assert!(Size::OTHERS.contains(&size.bits().to_string()), "{size:?}");
            assert_eq!(for_words!(size, words()), size.bits() / 64);
            let limbs = (size.half_limbs(), size.limbs());
            assert_eq!(for_size!(size, counts()), limbs);
        }
        assert_eq!(Size::from_bits(2047), None);
    }
}
