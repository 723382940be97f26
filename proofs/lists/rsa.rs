//! Blinding without jobs, for the statements of [`proved`](crate::proved).

use super::Wide;
use crate::arena::Memory;
use crate::simd::Simd;

/// From n, k0, the input, the first part of its pair, y and the second part: the blinded input, the
/// first part squared, y without its blinding, and the second part squared.
pub(crate) fn blinding<S: Simd, const N: usize, const M: usize>(
    s: S,
    x: &[S::Limb],
) -> Vec<S::Limb> {
    let mut memory = Memory::new(Wide::<S, N, M>::BYTES);
    let mut wide = Wide::<S, N, M>::new(&mut memory.arena());
    let (n, x) = x.split_at(M);
    let (k0, x) = x.split_at(1);
    wide.n.copy_from_slice(n);
    *wide.k0 = k0[0];
    let mut numbers = x.chunks(M);
    let mut read = |to: &mut [S::Limb; M]| to.copy_from_slice(numbers.next().expect("a number"));
    read(wide.input);
    read(wide.blind);
    wide.blind(s, &mut []);
    let blinded = [*wide.x, *wide.spare];
    read(wide.x);
    read(wide.unblind);
    wide.unblind(s, &mut []);
    [blinded.concat(), wide.x.to_vec(), wide.spare.to_vec()].concat()
}
