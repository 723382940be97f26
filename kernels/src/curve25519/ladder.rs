//! x25519 ladder
use super::field::Factor;
use crate::simd::Simd;

/// (A + 2) / 4
const A24: u64 = 121_665;

/// A point X : Z
#[derive(Clone, Copy)]
pub(crate) struct Ladder<S: Simd> {
    pub x2: super::field::Product<S>,
    pub z2: super::field::Product<S>,
    pub x3: super::field::Product<S>,
    pub z3: super::field::Product<S>,
}

/// one step
#[inline(always)]
pub(crate) fn step<S: Simd>(p: &Ladder<S>, x1: &Factor<S>, swap: S::Mask) -> Ladder<S> {
    let a = (p.x2 + p.z2).carry();
    let b = (p.x2 - p.z2).carry();
    let c = (p.x3 + p.z3).carry();
    let d = (p.x3 - p.z3).carry();
    let da = d * a;
    let cb = c * b;
    let aa = Factor::select(swap, &c, &a).square();
    let bb = Factor::select(swap, &d, &b).square();
    let x3 = (da + cb).carry().square();
    let z3 = *x1 * (da - cb).carry().square().carry();
    let e = (aa - bb).carry();
    let x2 = aa.carry() * bb.carry();
    let z2 = e * e.mul_small_add(A24, &aa).carry();
    Ladder { x2, z2, x3, z3 }
}

#[inline(always)]
fn run<S: Simd>(s: S, x1: &[S::Limb; 5], swaps: &[S::Limb; 4]) -> [S::Limb; 5] {
    let x1 = Factor::from_limbs(s, *x1);
    let one = Factor::splat(s, [1, 0, 0, 0, 0]).to_product();
    let mut p = Ladder { x2: one, z2: x1.to_product(), x3: x1.to_product(), z3: one };
    let top = s.splat(1 << 63);
    for w in swaps {
        let mut w = *w;
        for _ in 0..64 {
            p = step(&p, crate::simd::opaque(&x1), s.any_bit(w, top));
            w = s.add(w, w);
        }
    }
    let f = p.x2.carry() * p.z2.carry();
    f.carry().limbs
}

/// bench
pub fn bench(which: u32) {
    if which == 0 {
        let s = crate::simd::avx512ifma::Avx512Ifma::detect().unwrap();
        let w = [s.splat(0x123456789abcdef); 4];
        let x1 = [s.splat(9); 5];
        std::hint::black_box(s.enter(#[inline(always)] || run(s, &x1, &w)));
    } else {
        let s = crate::simd::avx512ifma256::Avx512Ifma256::detect().unwrap();
        let w = [s.splat(0x123456789abcdef); 4];
        let x1 = [s.splat(9); 5];
        std::hint::black_box(s.enter(#[inline(always)] || run(s, &x1, &w)));
    }
}
