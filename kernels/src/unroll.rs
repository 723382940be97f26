//! Unrolled loops, so that indices are constants and arrays stay in registers.

/// Runs `$body` for `$i` from 0 to 9, the limbs of a block of `montgomery`, or for the given
/// values. Unrolls the loop if an operation is one instruction (`INLINE`): with a loop counter as
/// index, an array of sums would be in memory.
macro_rules! unroll {
    ($simd:ident, $i:ident => $body:block) => {
        unroll!($simd, $i in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] => $body)
    };
    ($simd:ident, $i:ident in [$($value:literal),*] => $body:block) => {
        if $simd::INLINE {
            $({
                let $i: usize = $value;
                $body
            })*
        } else {
            for $i in [$($value),*] {
                $body
            }
        }
    };
}
pub(crate) use unroll;

/// Calls `body` for 0..`N`, unrolled.
#[inline(always)]
pub(crate) fn unrolled<const N: usize>(mut body: impl FnMut(usize)) {
    const { assert!(N <= 16) };
    macro_rules! call {
        ($($i:literal)*) => { $(if const { $i < N } { body($i); })* };
    }
    call!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}

/// The values of an expression for the limb indices 0 to 4, as an array.
///
/// A macro, since a closure that the compiler does not inline would be compiled without the lanes'
/// instructions.
macro_rules! five_limbs {
    ($i:ident => $limb:expr) => {{
        [
            {
                let $i = 0;
                $limb
            },
            {
                let $i = 1;
                $limb
            },
            {
                let $i = 2;
                $limb
            },
            {
                let $i = 3;
                $limb
            },
            {
                let $i = 4;
                $limb
            },
        ]
    }};
}
pub(crate) use five_limbs;
