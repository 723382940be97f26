//! The functions of which `cargo xtask prove` proves statements: each with its operands, their
//! bounds, and the statement.
//!
//! The checker reads a statement as it stands here. `out*R = a*b mod n` says that the numbers on
//! both sides differ by a multiple of n; without `mod` they are equal. A number is the sum of
//! x_i·2^(52·i) for its limbs x_i; of a *loose* one only the low 52 bits of each limb count.

use core::marker::PhantomData;

use crate::curve25519::batch_inverse::powers_for_root;
use crate::curve25519::field::mul::{multiply_by, multiply_where, square_where};
use crate::curve25519::field::{Factor as Factor25519, Multiplier};
use crate::curve25519::ladder::multiple_of_u;
use crate::curve25519::proved::{
    add as add_points, add_affine, add_cached, affine as affine_of, are_equal, cached, comb,
    double, double_four_times, equation, factors, from_projective, inverses, minus_key,
    minus_point, new, quotient, root, root_base, scaled, signed, times_squares,
};
use crate::curve25519::scalar::Order as Order25519;
use crate::modular::{AsFactor, Factor, Field, Loose, Modulus as Prime, Tight};
use crate::montgomery::{self, Modulus, mask_limbs, normalise, subtract_mod};
use crate::nist::compressed;
use crate::nist::curve::{Curve, P256, P256Field, P256Order, P384, P384Field, P384Order};
use crate::nist::point::{self, Affine, Denominator, Differences, FieldOf, Point};
use crate::nist::scalar_mul::{
    ENTRIES, PART_ENTRIES, mul_base_all, mul_point, sum_of_base, sum_of_point,
};
use crate::order::{Beside, Order};
use crate::rsa::proved::blinding;
use crate::simd::portable::Portable;
use crate::simd::symbolic::{Lanes, Symbolic, limb, record};
use crate::simd::{Simd, words, words_mut};

pub use crate::curve25519::proved::comb_table;
pub use crate::simd::symbolic::{Place, Term, Terms};

/// Functions of blocks.
pub mod blocks {
    pub use crate::aes_gcm::proved::{Function, functions, powers, prepared};
    pub use crate::simd::blocks::symbolic::{Half, List, Place};
}

/// Functions of words of 16 bits and of 32.
pub mod words {
    use crate::{mldsa, mlkem};

    pub use crate::simd::words16::symbolic::{Function, Place, Word};

    /// All of them.
    pub fn functions() -> Vec<Function> {
        [mlkem::proved::functions(), mldsa::proved::functions()].concat()
    }
}

/// A number that goes in or comes out.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its name in statements.
    pub name: &'static str,
    /// How many limbs it has.
    pub limbs: usize,
    /// Whether only the low 52 bits of its limbs count.
    pub loose: bool,
    /// The least and the greatest value of a limb.
    pub range: [u64; 2],
    /// The greatest value of the uppermost limb; of a loose input, of its low 52 bits.
    pub top: u64,
    /// Upper bound as a multiple of the modulus: numerator and denominator.
    pub below: Option<[u64; 2]>,
}

/// The modulus of a reduction.
#[derive(Clone, Debug)]
pub enum Reduced {
    /// Nothing.
    Not,
    /// The operand `n`, which is odd; R is at least this many times as large. The operand `k0` is
    /// −1/n mod 2^52.
    By(u64),
    /// A constant.
    Constant(Vec<u64>),
}

/// A function, and the statements about it.
pub struct Function {
    /// Its name, with its size and its lanes.
    pub name: String,
    /// Operands, in the order of their limbs.
    pub inputs: Vec<Operand>,
    /// Results, in the order of their limbs.
    pub outputs: Vec<Operand>,
    /// The modulus.
    pub reduced: Reduced,
    /// Statements.
    pub claims: &'static [&'static str],
    /// Upper bound on the multiple of n that is added, in units of R.
    pub quotient: Option<u64>,
    /// Nothing is stated of it, not even bounds: machine code is compared with its terms.
    pub only_compared: bool,
    terms: fn(&[u64]) -> Vec<u64>,
    words: fn(&[u64]) -> Vec<u64>,
}

impl core::fmt::Debug for Function {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Function {
    /// All its terms, and the places of its results.
    pub fn terms(&self) -> (Terms, Vec<Place>) {
        let count: usize = self.inputs.iter().map(|input| input.limbs).sum();
        let (terms, results) = record(|| {
            let inputs: Vec<u64> = (0..count as u32).map(|i| limb(Term::Input(i))).collect();
            (self.terms)(&inputs)
        });
        (
            terms,
            results.into_iter().map(|place| place as Place).collect(),
        )
    }

    /// The same with another bound of an operand's uppermost limb.
    pub fn with_top(&self, operand: usize, top: u64) -> Self {
        let mut inputs = self.inputs.clone();
        inputs[operand] = Operand {
            top,
            below: None,
            ..inputs[operand].clone()
        };
        Self {
            name: self.name.clone(),
            inputs,
            outputs: self.outputs.clone(),
            reduced: self.reduced.clone(),
            ..*self
        }
    }

    /// Its results for these limbs, by the portable lanes.
    pub fn words(&self, inputs: &[u64]) -> Vec<u64> {
        (self.words)(inputs)
    }
}

/// The other order of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Behind;

impl Order for Behind {
    const BESIDE: bool = false;
}

const MASK: u64 = (1 << 52) - 1;

/// Limbs below 2^52.
fn tight(name: &'static str, limbs: usize) -> Operand {
    Operand {
        name,
        limbs,
        loose: false,
        range: [0, MASK],
        top: MASK,
        below: None,
    }
}

/// Limbs of which the low 52 bits count.
fn loose(name: &'static str, limbs: usize) -> Operand {
    Operand {
        loose: true,
        range: [0, (1 << 63) - 1],
        ..tight(name, limbs)
    }
}

/// Columns of 62 bits.
fn columns(name: &'static str, limbs: usize) -> Operand {
    let most = (1 << 62) - 1;
    Operand {
        range: [0, most],
        top: most,
        ..tight(name, limbs)
    }
}

impl Operand {
    fn below(self, numerator: u64, denominator: u64) -> Self {
        Self {
            below: Some([numerator, denominator]),
            ..self
        }
    }

    fn top(self, top: u64) -> Self {
        Self { top, ..self }
    }
}

/// Reads arrays of limbs, one after the other.
struct Read<'a, L>(&'a [L]);

impl<L: Copy> Read<'_, L> {
    fn number<const N: usize>(&mut self) -> [L; N] {
        let (number, rest) = self.0.split_first_chunk().expect("all operands");
        self.0 = rest;
        *number
    }
}

/// The same function on lanes of terms and on portable ones.
macro_rules! function {
    ([$order:ty, $short:expr, $halves:expr] $name:expr, $f:ident::<$($g:tt),*>) => {
        Function {
            name: $name,
            inputs: Vec::new(),
            outputs: Vec::new(),
            reduced: Reduced::Not,
            claims: &[],
            quotient: None,
            only_compared: false,
            terms: |x| $f::<_, $($g),*>(Symbolic::<$order, $short, $halves>(PhantomData), x),
            words: |x| {
                let mut limbs = vec![Portable::<1>.splat(0); x.len()];
                words_mut(&mut limbs).copy_from_slice(x);
                words(&$f::<_, $($g),*>(Portable::<1>, &limbs)).to_vec()
            },
        }
    };
    ($name:expr, $f:ident::<$($g:tt),*>) => {
        function!([Beside, true, false] $name, $f::<$($g),*>)
    };
}

fn multiply<S: Simd, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (a, b, n, [k0]) = (x.number(), x.number(), x.number::<N>(), x.number());
    let mut out = [s.zero(); N];
    montgomery::multiply(s, &mut out, &a, &b, Modulus::new(&n, &k0));
    out.to_vec()
}

fn square<S: Simd, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (a, n, [k0]) = (x.number(), x.number::<N>(), x.number());
    let (mut out, mut doubled) = ([s.zero(); N], [s.zero(); N]);
    montgomery::square(s, &mut out, &mut doubled, &a, Modulus::new(&n, &k0));
    out.to_vec()
}

fn to_montgomery<S: Simd, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (low, high): ([_; N], [_; N]) = (x.number(), x.number());
    let (r2, r3, n, [k0]) = (x.number(), x.number(), x.number::<N>(), x.number());
    let (mut out, mut spare) = ([s.zero(); N], [s.zero(); N]);
    let whole = [low, high].concat();
    montgomery::to_montgomery(
        s,
        &mut out,
        &mut spare,
        &whole,
        (&r2, &r3),
        Modulus::new(&n, &k0),
    );
    [out, spare].concat()
}

fn multiply_add<S: Simd, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let mut out = vec![s.zero(); 2 * N];
    let (a, b, c) = (x.number::<N>(), x.number(), x.number());
    montgomery::multiply_add(s, &mut out, &a, &b, &c);
    out
}

/// The steps of `recombine`, with their intermediate results.
fn recombine<S: Simd, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (m_p, m_q, p) = (x.number(), x.number(), x.number::<N>());
    let (q, qinv, [k0]) = (x.number::<N>(), x.number(), x.number());
    let (mut difference, mut h) = ([s.zero(); N], [s.zero(); N]);
    let mut out = vec![s.zero(); 2 * N];
    subtract_mod(s, &mut difference, &m_p, &m_q, &p);
    montgomery::multiply(s, &mut h, &difference, &qinv, Modulus::new(&p, &k0));
    montgomery::multiply_add(s, &mut out, &q, &h, &m_q);
    [difference.to_vec(), h.to_vec(), out].concat()
}

fn normalised<S: Simd, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut out = Read(x).number::<N>();
    normalise(s, &mut out);
    out.to_vec()
}

fn masked<S: Simd, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut out = Read(x).number::<N>();
    mask_limbs(s, &mut out);
    out.to_vec()
}

fn canonical<S: Simd, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (mut out, n) = (x.number::<N>(), x.number());
    let mut difference = [s.zero(); N];
    montgomery::canonical(s, &mut out, &mut difference, &n);
    out.to_vec()
}

fn reduced<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let f = Field::<S, M, N>::new(s);
    f.reduced(Tight(Read(x).number())).0.to_vec()
}

fn is_not_below<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let f = Field::<S, M, N>::new(s);
    vec![f.is_not_below(&Read(x).number())]
}

fn canonical_25519<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    Factor25519::from_limbs(s, Read(x).number())
        .canonical()
        .to_vec()
}

fn mul<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let f = Field::<S, M, N>::new(s);
    f.mul(&Factor(x.number()), &Factor(x.number())).0.to_vec()
}

fn sqr<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let f = Field::<S, M, N>::new(s);
    f.sqr(&Factor(Read(x).number())).0.to_vec()
}

fn add<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let f = Field::<S, M, N>::new(s);
    f.add(&Loose(x.number()), &Loose(x.number())).0.to_vec()
}

fn sub<S: Simd, M: Prime<N>, const N: usize, const K: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let f = Field::<S, M, N>::new(s);
    f.sub(K, &Loose(x.number()), &Loose(x.number())).0.to_vec()
}

fn negate<S: Simd, M: Prime<N>, const N: usize, const K: usize>(
    s: S,
    x: &[S::Limb],
) -> Vec<S::Limb> {
    let f = Field::<S, M, N>::new(s);
    f.negate(K, &Loose(Read(x).number())).0.to_vec()
}

fn factor<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let f = Field::<S, M, N>::new(s);
    f.factor(Loose(Read(x).number())).limbs().to_vec()
}

fn tighten<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let f = Field::<S, M, N>::new(s);
    f.tight(Loose(Read(x).number())).0.to_vec()
}

/// Of a padded difference.
fn weak<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let f = Field::<S, M, N>::new(s);
    let difference = f.sub(7, &Loose(x.number()), &Loose(x.number()));
    f.weak(difference).0.to_vec()
}

fn product<S: Simd, const KIND: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let mut factor = || Factor25519::from_limbs(s, x.number());
    let (a, b, c, d) = (factor(), factor(), factor(), factor());
    let out = match KIND {
        0 => (a * b).carry(),
        1 => a.square().carry(),
        2 => (a * b + c * d).carry(),
        3 => (a * b - c * d).carry(),
        4 => (a.times_biased(&b) - c * d).carry(),
        5 => (a.square_biased() - b.square()).carry(),
        6 => a.mul_small_add(121_665, &b.square_biased()).carry(),
        7 => (a * &Multiplier::new(b)).carry(),
        8 => (a.square_biased().double() - b.square() + c.square()).carry(),
        9 => (a.times_biased(&b) - (c * d + c * d)).carry(),
        _ => (a.square_biased() - (b.square() + c.square())).carry(),
    };
    out.limbs().to_vec()
}

fn ladder<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    multiple_of_u(s, &x.number(), &x.number()).concat()
}

/// 0 and 1: products, plain and biased; 2 and 3: squares.
fn called<S: Simd, const KIND: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (a, b) = (x.number(), x.number());
    match KIND {
        0 => multiply_where::<S, false>(s, &a, &b),
        1 => multiply_where::<S, true>(s, &a, &b),
        2 => square_where::<S, false>(s, &a),
        _ => square_where::<S, true>(s, &a),
    }
    .to_vec()
}

/// a^(2^252 − 3).
fn power_for_root<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let a = Factor25519::from_limbs(s, Read(x).number());
    let [power] = powers_for_root(s, &[a]);
    power.limbs().to_vec()
}

/// A product by the rows of a multiplier.
fn by_rows<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let a = x.number();
    multiply_by(s, &a, &core::array::from_fn(|_| x.number())).to_vec()
}

/// Reads a point.
fn read_point<S: Simd, const N: usize>(x: &mut Read<'_, S::Limb>) -> Point<S::Limb, N> {
    Point {
        x: Tight(x.number()),
        y: Tight(x.number()),
        z: Factor(x.number()),
    }
}

fn affine<S: Simd, const N: usize>(x: &mut Read<'_, S::Limb>) -> Affine<S::Limb, N> {
    Affine {
        x: Tight(x.number()),
        y: Tight(x.number()),
    }
}

fn double_times<S: Simd, C: Curve<N>, const N: usize, const TIMES: usize>(
    s: S,
    x: &[S::Limb],
) -> Vec<S::Limb> {
    let mut p = read_point::<S, N>(&mut Read(x));
    point::double_times::<S, C, N>(s, &mut p, TIMES);
    [p.x.0, p.y.0, p.z.0].concat()
}

fn add_assign_mixed<S: Simd, C: Curve<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (mut p, q) = (read_point::<S, N>(&mut x), affine::<S, N>(&mut x));
    let [negative] = x.number();
    let negative = s.any_bit(negative, s.splat(1));
    point::add_assign_mixed::<S, C, N>(s, &mut p, &q, negative);
    [p.x.0, p.y.0, p.z.0].concat()
}

fn add_assign<S: Simd, C: Curve<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (mut p, q) = (read_point::<S, N>(&mut x), affine::<S, N>(&mut x));
    let (z, zz, zzz) = (x.number(), x.number(), x.number());
    let [negative] = x.number();
    let negative = s.any_bit(negative, s.splat(1));
    let q_z = Denominator {
        z: Factor(z),
        zz: Factor(zz),
        zzz: Factor(zzz),
    };
    point::add_assign::<S, C, N>(s, &mut p, &q, &q_z, negative);
    [p.x.0, p.y.0, p.z.0].concat()
}

fn decode<S: Simd, M: Prime<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let f = Field::<S, M, N>::new(s);
    f.decode(&Factor(Read(x).number())).0.to_vec()
}

/// The sum of a complete addition, both points from which it chooses, both differences, and the
/// same decoded.
fn choice<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    points: [Point<S::Limb, N>; 3],
    Differences { h, r }: Differences<S::Limb, N>,
) -> Vec<S::Limb> {
    let f = FieldOf::<S, C, N>::new(s);
    let points = points.map(|p| [p.x.0, p.y.0, p.z.0].concat());
    let decoded = [f.decode(&h), f.decode(&r)].map(|a| a.0);
    [points.concat(), [h.0, r.0].concat(), decoded.concat()].concat()
}

fn add_assign_mixed_complete<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &[S::Limb],
) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (p, q) = (read_point::<S, N>(&mut x), affine::<S, N>(&mut x));
    let [negative] = x.number();
    let negative = s.any_bit(negative, s.splat(1));
    let [mut out, mut twice, mut sum] = [p; 3];
    point::add_assign_mixed_complete::<S, C, N>(s, &mut out, &q, negative);
    point::double_times::<S, C, N>(s, &mut twice, 1);
    point::add_assign_mixed::<S, C, N>(s, &mut sum, &q, negative);
    let f = FieldOf::<S, C, N>::new(s);
    let (_, differences) = point::add_mixed::<S, C, N, false>(f, &p, &q, negative);
    choice::<S, C, N>(s, [out, twice, sum], differences)
}

fn add_assign_complete<S: Simd, C: Curve<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (p, q) = (read_point::<S, N>(&mut x), affine::<S, N>(&mut x));
    let q_z = Denominator {
        z: Factor(x.number()),
        zz: Factor(x.number()),
        zzz: Factor(x.number()),
    };
    let [negative] = x.number();
    let negative = s.any_bit(negative, s.splat(1));
    let [mut out, mut twice, mut sum] = [p; 3];
    point::add_assign_complete::<S, C, N>(s, &mut out, &q, &q_z, negative);
    point::double_times::<S, C, N>(s, &mut twice, 1);
    point::add_assign::<S, C, N>(s, &mut sum, &q, &q_z, negative);
    let f = FieldOf::<S, C, N>::new(s);
    let (_, differences) = point::add_shared::<S, C, N, false>(f, &p, &q, &q_z, negative);
    choice::<S, C, N>(s, [out, twice, sum], differences)
}

fn odd_multiples<S: Simd, C: Curve<N>, const N: usize, const E: usize>(
    s: S,
    x: &[S::Limb],
) -> Vec<S::Limb> {
    let p = read_point::<S, N>(&mut Read(x));
    let mut table = [Affine::empty(s); E];
    let mut ratios = [Factor([s.zero(); N]); E];
    let d = point::odd_multiples::<S, C, N>(s, &mut table, &mut ratios, &p);
    [entries(&table), [d.z.0, d.zz.0, d.zzz.0].concat()].concat()
}

/// The coordinates of a table.
fn entries<L: Copy, const N: usize>(table: &[Affine<L, N>]) -> Vec<L> {
    let entries = table.iter().flat_map(|entry| [entry.x.0, entry.y.0]);
    entries.flatten().collect()
}

/// −a, as a multiple of a point is negated.
fn negated<S: Simd, C: Curve<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let f = FieldOf::<S, C, N>::new(s);
    let y = f.negate(C::PAD_Y, &Tight(Read(x).number()));
    f.weak(y).0.to_vec()
}

/// a^((p + 1)/4).
fn root_of_square<S: Simd, C: Curve<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let a = Factor(Read(x).number());
    compressed::root::<S, C, N>(s, &a).0.to_vec()
}

/// Z² and Z³.
fn powers<S: Simd, C: Curve<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let f = FieldOf::<S, C, N>::new(s);
    let powers = Denominator::new(f, Factor(Read(x).number()));
    [powers.zz.0, powers.zzz.0].concat()
}

/// The table of k·G, which all lanes share, is one of numbers: the portable lanes make it first.
fn make_base_table<C: Curve<N>, const N: usize>() {
    let s = Portable::<1>;
    let mut point = [Point::infinity(s)];
    mul_base_all::<Portable<1>, C, N>(s, &[[s.zero(); N]], &mut point, 1);
}

/// k·G.
fn multiple_of_base<S: Simd, C: Curve<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    make_base_table::<C, N>();
    let mut point = [Point::infinity(s)];
    mul_base_all::<S, C, N>(s, &[Read(x).number()], &mut point, 1);
    let [p] = point;
    [p.x.0, p.y.0, p.z.0].concat()
}

/// k·P, and the table of P.
fn multiple_of_point<S: Simd, C: Curve<N>, const N: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (k, p) = (x.number(), affine::<S, N>(&mut x));
    let mut table = [Affine::empty(s); ENTRIES];
    let p = mul_point::<S, C, N>(s, &mut table, &k, &p, 1);
    [[p.x.0, p.y.0, p.z.0].concat(), entries(&table)].concat()
}

/// k·G for odd k of `count` requests, by the parts of k.
fn base_in_parts<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &[S::Limb],
    count: usize,
) -> Vec<S::Limb> {
    make_base_table::<C, N>();
    let p = sum_of_base::<S, C, N>(s, &mut Read(x).number(), count);
    [p.x.0, p.y.0, p.z.0].concat()
}

/// k·P for odd k of `count` requests, by the parts of k, and the table.
fn point_in_parts<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &[S::Limb],
    count: usize,
) -> Vec<S::Limb> {
    let mut x = Read(x);
    let (mut k, p) = (x.number(), affine::<S, N>(&mut x));
    let z = Factor(FieldOf::<S, C, N>::new(s).one().0);
    let p = Point { x: p.x, y: p.y, z };
    let mut table = [Affine::empty(s); PART_ENTRIES];
    let p = sum_of_point::<S, C, N>(s, &mut table, &mut k, &p, count);
    [[p.x.0, p.y.0, p.z.0].concat(), entries(&table)].concat()
}

/// A function of all lanes. Their words lie side by side, limb by limb.
fn on_lanes<S: Simd>(
    s: S,
    x: &[u64],
    count: usize,
    function: impl Fn(S, &[S::Limb], usize) -> Vec<S::Limb>,
) -> Vec<u64> {
    let mut limbs = vec![s.zero(); x.len() / S::LANES];
    words_mut(&mut limbs).copy_from_slice(x);
    words(&function(s, &limbs, count)).to_vec()
}

/// All of them.
pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    montgomery_of::<10>(&mut all);
    montgomery_of::<20>(&mut all);
    montgomery_of::<30>(&mut all);
    montgomery_of::<40>(&mut all);
    montgomery_of::<60>(&mut all);
    montgomery_of::<80>(&mut all);
    halves_of::<10>(&mut all);
    halves_of::<20>(&mut all);
    halves_of::<30>(&mut all);
    halves_of::<40>(&mut all);
    canonical_of::<10>(&mut all);
    canonical_of::<20>(&mut all);
    canonical_of::<30>(&mut all);
    canonical_of::<40>(&mut all);
    canonical_of::<60>(&mut all);
    canonical_of::<80>(&mut all);
    blinding_of::<10, 20>(&mut all);
    blinding_of::<20, 40>(&mut all);
    blinding_of::<30, 60>(&mut all);
    blinding_of::<40, 80>(&mut all);
    // Below 1.01·p.
    field::<P256Field, 5>(&mut all, "P-256", (1 << 48) + (1 << 21));
    field::<P256Order, 5>(&mut all, "order of P-256", MASK);
    field::<P384Field, 8>(&mut all, "P-384", MASK);
    field::<P384Order, 8>(&mut all, "order of P-384", MASK);
    field::<Order25519, 5>(&mut all, "order of Ed25519", MASK);
    curve25519(&mut all);
    edwards(&mut all);
    points::<P256, 5>(&mut all, "P-256");
    points::<P384, 8>(&mut all, "P-384");
    multiples::<P256, 5>(&mut all, "P-256", [190, 101]);
    multiples::<P384, 8>(&mut all, "P-384", [790, 1000]);
    all
}

/// Functions of which nothing is stated: the machine code is compared with their terms.
fn points<C: Curve<N>, const N: usize>(all: &mut Vec<Function>, name: &str) {
    let p = || tight("p", 3 * N);
    let (q, qz, negative) = (
        || tight("q", 2 * N),
        || tight("qz", 3 * N),
        || tight("negative", 1),
    );
    // The bounds of Z hold for its value; ranges know little of it.
    let outputs = || vec![loose("out", 3 * N).top((1 << 63) - 1)];
    // The limbs of P-384 are in bounds because its values are, of which ranges know nothing.
    let only_compared = N == 8;
    let reduced = || Reduced::Constant(C::Field::VALUE.to_vec());
    for (times, double) in [
        ("", function!(String::new(), double_times::<C, N, 1>)),
        (" 5", function!(String::new(), double_times::<C, N, 5>)),
    ] {
        all.push(Function {
            name: format!("nist::point::double_times{times}, {name}"),
            inputs: vec![p()],
            outputs: outputs(),
            reduced: reduced(),
            only_compared: only_compared || !times.is_empty(),
            ..double
        });
    }
    all.push(Function {
        inputs: vec![p(), q(), negative()],
        outputs: outputs(),
        reduced: reduced(),
        only_compared,
        ..function!(
            format!("nist::point::add_assign_mixed, {name}"),
            add_assign_mixed::<C, N>
        )
    });
    all.push(Function {
        inputs: vec![p(), q(), qz(), negative()],
        outputs: outputs(),
        reduced: reduced(),
        only_compared,
        ..function!(
            format!("nist::point::add_assign, {name}"),
            add_assign::<C, N>
        )
    });
    let outputs = || {
        let points = ["out", "twice", "sum"].map(|name| loose(name, 3 * N));
        let differences = ["h", "r"].map(|name| loose(name, N));
        let decoded = ["decoded h", "decoded r"].map(|name| tight(name, N));
        points
            .into_iter()
            .chain(differences)
            .chain(decoded)
            .collect()
    };
    all.push(Function {
        inputs: vec![p(), q(), negative()],
        outputs: outputs(),
        reduced: reduced(),
        only_compared: true,
        ..function!(
            format!("nist::point::add_assign_mixed_complete, {name}"),
            add_assign_mixed_complete::<C, N>
        )
    });
    all.push(Function {
        inputs: vec![p(), q(), qz(), negative()],
        outputs: outputs(),
        reduced: reduced(),
        only_compared: true,
        ..function!(
            format!("nist::point::add_assign_complete, {name}"),
            add_assign_complete::<C, N>
        )
    });
}

/// Multiples of points. Bounds of a point's y and of −y are in hundredths of p.
fn multiples<C: Curve<N>, const N: usize>(
    all: &mut Vec<Function>,
    name: &str,
    [y, minus_y]: [u64; 2],
) {
    let times = |limbs: [u64; N], hundredths: u64| {
        let top = u128::from(limbs[N - 1] + 1) * u128::from(hundredths) / 100;
        u64::try_from(top).expect("a limb")
    };
    let below = |name, limbs, hundredths| tight(name, N).top(times(limbs, hundredths));
    let reduced = || Reduced::Constant(C::Field::VALUE.to_vec());
    let (p, n) = (C::Field::VALUE, C::Order::VALUE);
    all.push(Function {
        inputs: vec![below("a", p, y)],
        outputs: vec![below("out", p, minus_y)],
        reduced: reduced(),
        claims: &["out = n - a mod n"],
        ..function!(
            format!("nist::scalar_mul::negated, {name}"),
            negated::<C, N>
        )
    });
    let table = |entries: usize| tight("table", 2 * N * entries);
    let mut table_of = |entries: usize, function: Function| {
        all.push(Function {
            name: format!("nist::point::odd_multiples of {entries}, {name}"),
            inputs: vec![tight("p", 3 * N)],
            outputs: vec![table(entries), loose("z", 3 * N)],
            reduced: reduced(),
            only_compared: true,
            ..function
        });
    };
    table_of(
        ENTRIES,
        function!(String::new(), odd_multiples::<C, N, ENTRIES>),
    );
    table_of(
        PART_ENTRIES,
        function!(String::new(), odd_multiples::<C, N, PART_ENTRIES>),
    );
    all.push(Function {
        inputs: vec![loose("z", N)],
        outputs: vec![loose("powers", 2 * N)],
        reduced: reduced(),
        only_compared: true,
        ..function!(format!("nist::point::Denominator, {name}"), powers::<C, N>)
    });
    all.push(Function {
        inputs: vec![loose("a", N)],
        outputs: vec![loose("out", N)],
        reduced: reduced(),
        only_compared: true,
        ..function!(
            format!("nist::compressed::root, {name}"),
            root_of_square::<C, N>
        )
    });
    macro_rules! parts {
        ($($lanes:literal $count:literal),*) => { $(
            let of = concat!($count, " of ", $lanes, " lanes");
            all.push(Function {
                name: format!("nist::scalar_mul::mul_base_in_parts, {of}, {name}"),
                inputs: vec![tight("k", $lanes * N)],
                outputs: vec![tight("out", $lanes * 3 * N)],
                reduced: Reduced::Constant(n.to_vec()),
                claims: &[],
                quotient: None,
                only_compared: true,
                terms: |x| on_lanes(Lanes::<$lanes>, x, $count, base_in_parts::<_, C, N>),
                words: |x| on_lanes(Portable::<$lanes>, x, $count, base_in_parts::<_, C, N>),
            });
            // Six million terms, which take as long as all of P-256.
            let is_too_long = N == 8 && ($lanes, $count) == (8, 4);
            all.extend((!is_too_long).then(|| Function {
                name: format!("nist::scalar_mul::mul_point_in_parts, {of}, {name}"),
                inputs: vec![tight("k", $lanes * N), tight("p", $lanes * 2 * N)],
                outputs: vec![
                    tight("out", $lanes * 3 * N),
                    tight("table", $lanes * 2 * N * PART_ENTRIES),
                ],
                reduced: Reduced::Constant(n.to_vec()),
                claims: &[],
                quotient: None,
                only_compared: true,
                terms: |x| on_lanes(Lanes::<$lanes>, x, $count, point_in_parts::<_, C, N>),
                words: |x| on_lanes(Portable::<$lanes>, x, $count, point_in_parts::<_, C, N>),
            }));
        )* };
    }
    // Three requests of eight lanes have as many parts as four.
    parts!(8 1, 8 2, 8 4, 4 1, 4 2);
    if N == 5 {
        parts!(8 3);
    }
    let k = || tight("k", N).top(n[N - 1]);
    all.push(Function {
        inputs: vec![k()],
        outputs: vec![tight("out", 3 * N)],
        reduced: Reduced::Constant(n.to_vec()),
        only_compared: true,
        ..function!(
            format!("nist::scalar_mul::mul_base_all, {name}"),
            multiple_of_base::<C, N>
        )
    });
    all.push(Function {
        inputs: vec![k(), tight("p", 2 * N)],
        outputs: vec![tight("out", 3 * N), table(ENTRIES)],
        reduced: Reduced::Constant(n.to_vec()),
        only_compared: true,
        ..function!(
            format!("nist::scalar_mul::mul_point, {name}"),
            multiple_of_point::<C, N>
        )
    });
}

fn montgomery_of<const N: usize>(all: &mut Vec<Function>) {
    let n = || tight("n", N).top((1 << 44) - 1);
    // Below 4n, so that the top limb has six spare bits.
    let factor = |name| loose(name, N).top((1 << 46) - 1).below(4, 1);
    let k0 = || tight("k0", 1);
    let out = || {
        let most = (1 << 61) - 1;
        Operand {
            range: [0, most],
            top: most,
            ..loose("out", N).below(2, 1)
        }
    };
    let orders = |name: &str| {
        [
            (
                function!([Beside, true, false] format!("{name}, loop"), multiply::<N>),
                false,
            ),
            (
                function!([Beside, true, false] format!("{name}, loop"), square::<N>),
                true,
            ),
            (
                function!([Beside, false, false] format!("{name}, beside"), multiply::<N>),
                false,
            ),
            (
                function!([Beside, false, false] format!("{name}, beside"), square::<N>),
                true,
            ),
            (
                function!([Behind, false, false] format!("{name}, after"), multiply::<N>),
                false,
            ),
            (
                function!([Behind, false, false] format!("{name}, after"), square::<N>),
                true,
            ),
        ]
    };
    for (function, is_square) in orders(&format!("{N} limbs")) {
        // Longer numbers are not written out, and have one order only.
        if N > 20 && !function.name.ends_with("loop") {
            continue;
        }
        all.push(Function {
            name: match is_square {
                true => format!("montgomery::square, {}", function.name),
                false => format!("montgomery::multiply, {}", function.name),
            },
            inputs: match is_square {
                true => vec![factor("a"), n(), k0()],
                false => vec![factor("a"), factor("b"), n(), k0()],
            },
            outputs: vec![out()],
            reduced: Reduced::By(1 << 8),
            claims: match is_square {
                true => &["out*R = a*a mod n"],
                false => &["out*R = a*b mod n"],
            },
            quotient: Some(1),
            ..function
        });
    }
    all.push(Function {
        inputs: vec![loose("a", N)],
        outputs: vec![tight("out", N)],
        claims: &["out = a"],
        ..function!(format!("montgomery::mask_limbs, {N} limbs"), masked::<N>)
    });
}

/// Functions of numbers with half the length of the modulus.
fn halves_of<const N: usize>(all: &mut Vec<Function>) {
    let n = |name| tight(name, N).top((1 << 44) - 1);
    let below = |name, times: u64| tight(name, N).top((times << 44) - 1).below(times, 1);
    let k0 = || tight("k0", 1);
    all.push(Function {
        inputs: vec![
            tight("low", N),
            tight("high", N),
            n("r2"),
            n("r3"),
            n("n"),
            k0(),
        ],
        outputs: vec![columns("out", N), columns("spare", N)],
        reduced: Reduced::By(1 << 8),
        claims: &["out*R = low*r2 + high*r3 mod n"],
        ..function!(
            format!("montgomery::to_montgomery, {N} limbs"),
            to_montgomery::<N>
        )
    });
    all.push(Function {
        inputs: vec![loose("a", N), loose("b", N), tight("c", N)],
        outputs: vec![tight("out", 2 * N)],
        claims: &["out = a*b + c"],
        ..function!(
            format!("montgomery::multiply_add, {N} limbs"),
            multiply_add::<N>
        )
    });
    all.push(Function {
        inputs: vec![
            below("mp", 1),
            below("mq", 2),
            n("n"),
            n("q"),
            n("qinv"),
            k0(),
        ],
        outputs: vec![tight("difference", N), loose("h", N), tight("out", 2 * N)],
        reduced: Reduced::By(1 << 8),
        claims: &[
            "difference = mp + 2*n - mq",
            "h*R = difference*qinv mod n",
            "out = q*h + mq",
        ],
        ..function!(format!("rsa::recombine, {N} limbs"), recombine::<N>)
    });
    all.push(Function {
        inputs: vec![columns("a", N).top((1 << 51) - 1)],
        outputs: vec![tight("out", N)],
        claims: &["out = a"],
        ..function!(format!("montgomery::normalise, {N} limbs"), normalised::<N>)
    });
}

/// The end of a private operation, and how it is blinded.
fn blinding_of<const N: usize, const M: usize>(all: &mut Vec<Function>) {
    let n = || tight("n", M).top((1 << 44) - 1);
    let below = |name, times: u64| tight(name, M).top((times << 44) - 1).below(times, 1);
    all.push(Function {
        inputs: vec![
            n(),
            tight("k0", 1),
            below("input", 1),
            below("blind", 2),
            below("y", 3),
            below("unblind", 2),
        ],
        outputs: vec![
            Operand {
                range: [0, (1 << 61) - 1],
                top: (1 << 61) - 1,
                ..loose("x", M).below(2, 1)
            },
            below("next_blind", 2),
            below("out", 1),
            below("next_unblind", 2),
        ],
        reduced: Reduced::By(1 << 8),
        claims: &[
            "x*R = input*blind mod n",
            "next_blind*R = blind*blind mod n",
            "out*R = y*unblind mod n",
            "next_unblind*R = unblind*unblind mod n",
        ],
        only_compared: true,
        ..function!(format!("rsa::blinding, {M} limbs"), blinding::<N, M>)
    });
}

fn canonical_of<const N: usize>(all: &mut Vec<Function>) {
    let n = || tight("n", N).top((1 << 44) - 1);
    let below = |name, times: u64| tight(name, N).top((times << 44) - 1).below(times, 1);
    all.push(Function {
        inputs: vec![below("a", 2), n()],
        outputs: vec![tight("out", N)],
        reduced: Reduced::By(1 << 8),
        claims: &["out = a % n"],
        ..function!(format!("montgomery::canonical, {N} limbs"), canonical::<N>)
    });
}

fn field<M: Prime<N>, const N: usize>(all: &mut Vec<Function>, name: &str, top_of_weak: u64) {
    let reduced_by = || Reduced::Constant(M::VALUE.to_vec());
    let out = || columns("out", N);
    let more = |name| Operand {
        range: [0, (1 << 61) - 1],
        ..columns(name, N).top((1 << 51) - 1)
    };
    // The top column of a number below (times − 0.01)·n.
    let n_top = M::VALUE[N - 1];
    let less = |name, times: u64| Operand {
        range: [0, (1 << 60) - (1 << 52)],
        ..columns(name, N)
            .top((100 * times - 1) * n_top / 100)
            .below(100 * times - 1, 100)
    };
    all.push(Function {
        inputs: vec![loose("a", N), loose("b", N)],
        outputs: vec![out()],
        reduced: reduced_by(),
        claims: &["out*R = a*b mod n"],
        quotient: Some(1 + M::PAD),
        ..function!(format!("modular::mul, {name}"), mul::<M, N>)
    });
    all.push(Function {
        inputs: vec![loose("a", N)],
        outputs: vec![out()],
        reduced: reduced_by(),
        claims: &["out*R = a*a mod n"],
        quotient: Some(1 + M::PAD),
        ..function!(format!("modular::sqr, {name}"), sqr::<M, N>)
    });
    all.push(Function {
        inputs: vec![more("a"), more("b")],
        outputs: vec![out()],
        claims: &["out = a + b"],
        ..function!(format!("modular::add, {name}"), add::<M, N>)
    });
    all.push(Function {
        inputs: vec![columns("a", N).top((1 << 51) - 1)],
        outputs: vec![loose("out", N)],
        claims: &["out = a"],
        ..function!(format!("modular::factor, {name}"), factor::<M, N>)
    });
    all.push(Function {
        inputs: vec![columns("a", N).top((1 << 51) - 1)],
        outputs: vec![tight("out", N)],
        claims: &["out = a"],
        ..function!(format!("modular::tight, {name}"), tighten::<M, N>)
    });
    let top = (2 + M::PAD) * (M::VALUE[N - 1] + 1) - 1;
    all.push(Function {
        inputs: vec![tight("a", N).top(top).below(2 + M::PAD, 1)],
        outputs: vec![tight("out", N)],
        reduced: reduced_by(),
        claims: &["out = a % n"],
        ..function!(format!("modular::reduced, {name}"), reduced::<M, N>)
    });
    all.push(Function {
        inputs: vec![loose("a", N)],
        outputs: vec![tight("out", N)],
        reduced: reduced_by(),
        only_compared: true,
        ..function!(format!("modular::decode, {name}"), decode::<M, N>)
    });
    all.push(Function {
        inputs: vec![tight("a", N)],
        outputs: vec![Operand {
            range: [0, u64::MAX],
            top: u64::MAX,
            ..tight("out", 1)
        }],
        reduced: reduced_by(),
        claims: &["out = -(a >= n)"],
        ..function!(
            format!("modular::is_not_below, {name}"),
            is_not_below::<M, N>
        )
    });
    macro_rules! differences {
        ($($k:literal)*) => { $(
            all.push(Function {
                inputs: vec![more("a"), less("b", $k)],
                outputs: vec![out()],
                reduced: reduced_by(),
                claims: &[concat!("out = a + ", $k, "*n - b")],
                ..function!(format!("modular::sub, {}, {name}", $k), sub::<M, N, $k>)
            });
            all.push(Function {
                inputs: vec![less("a", $k)],
                outputs: vec![out()],
                reduced: reduced_by(),
                claims: &[concat!("out = ", $k, "*n - a")],
                ..function!(format!("modular::negate, {}, {name}", $k), negate::<M, N, $k>)
            });
        )* };
    }
    differences!(2 3 4 5 7 9 10 12);
    all.push(Function {
        inputs: vec![less("a", 8), less("b", 7)],
        outputs: vec![tight("out", N).top(top_of_weak)],
        reduced: reduced_by(),
        claims: &["out = a - b mod n"],
        ..function!(format!("modular::weak, {name}"), weak::<M, N>)
    });
}

fn curve25519(all: &mut Vec<Function>) {
    let p = vec![MASK - 18, MASK, MASK, MASK, (1 << 47) - 1];
    let top = (1 << 47) + (1 << 9) - 1;
    let factor = |name| loose(name, 5).top(top);
    let claims: [(&str, &'static [&'static str]); 11] = [
        ("a·b", &["out = a*b mod n"]),
        ("a²", &["out = a*a mod n"]),
        ("a·b + c·d", &["out = a*b + c*d mod n"]),
        ("a·b − c·d", &["out = a*b - c*d mod n"]),
        ("a·b − c·d, biased", &["out = a*b - c*d mod n"]),
        ("a² − b²", &["out = a*a - b*b mod n"]),
        ("a24·a + b²", &["out = 121665*a + b*b mod n"]),
        ("a by a multiplier", &["out = a*b mod n"]),
        ("2a² − b² + c²", &["out = 2*a*a - b*b + c*c mod n"]),
        ("a·b − 2·c·d", &["out = a*b - 2*c*d mod n"]),
        ("a² − b² − c²", &["out = a*a - b*b - c*c mod n"]),
    ];
    macro_rules! kinds {
        ($halves:expr, $lanes:expr, $($kind:tt)*) => {
            [$(function!(
                [Beside, true, $halves]
                format!("curve25519::field, {}{}", claims[$kind].0, $lanes),
                product::<$kind>
            )),*]
        };
    }
    let whole = kinds!(false, "", 0 1 2 3 4 5 6 7 8 9 10);
    let halves = kinds!(true, ", halves", 0 1 2 3 4 5 6 7 8 9 10);
    for functions in [whole, halves] {
        for (function, (_, claims)) in functions.into_iter().zip(claims) {
            all.push(Function {
                inputs: ["a", "b", "c", "d"].map(factor).to_vec(),
                outputs: vec![Operand {
                    range: [0, (1 << 61) - 1],
                    top,
                    ..loose("out", 5)
                }],
                reduced: Reduced::Constant(p.clone()),
                claims,
                ..function
            });
        }
    }
    let any = |name: String, halves: bool| {
        let ladder = match halves {
            true => function!([Beside, true, true] name, ladder::<0>),
            false => function!(name, ladder::<0>),
        };
        Function {
            inputs: vec![
                Operand {
                    range: [0, u64::MAX],
                    top: u64::MAX,
                    ..tight("swaps", 4)
                },
                tight("u", 5).top((1 << 47) - 1),
            ],
            outputs: vec![loose("out", 10)],
            reduced: Reduced::Constant(p.clone()),
            ..ladder
        }
    };
    all.push(any("curve25519::ladder".into(), false));
    all.push(any("curve25519::ladder, halves".into(), true));
    for (lanes, canonical) in [
        ("", function!(String::new(), canonical_25519::<0>)),
        (
            ", halves",
            function!([Beside, true, true] String::new(), canonical_25519::<0>),
        ),
    ] {
        all.push(Function {
            name: format!("curve25519::field, canonical{lanes}"),
            inputs: vec![factor("a")],
            outputs: vec![tight("out", 5)],
            reduced: Reduced::Constant(p.clone()),
            claims: &["out = a % n"],
            ..canonical
        });
    }
    let digit = |name| loose(name, 1);
    let most = (11 << 52) - 1;
    all.push(Function {
        inputs: [
            ["a0", "a1", "a2", "a3"].map(digit).to_vec(),
            vec![digit("a4").top(top)],
            ["row0", "row1", "row2", "row3", "row4"]
                .map(factor)
                .to_vec(),
        ]
        .concat(),
        outputs: vec![Operand {
            range: [0, most],
            top: most,
            ..tight("out", 5)
        }],
        reduced: Reduced::Constant(p.clone()),
        claims: &["out = a0*row0 + a1*row1 + a2*row2 + a3*row3 + a4*row4 mod n"],
        ..function!("curve25519::field::multiply_by".into(), by_rows::<0>)
    });
    for (name, power) in [
        ("", function!(String::new(), power_for_root::<0>)),
        (
            ", halves",
            function!([Beside, true, true] String::new(), power_for_root::<0>),
        ),
    ] {
        all.push(Function {
            name: format!("curve25519::powers_for_root{name}"),
            inputs: vec![factor("a")],
            outputs: vec![loose("out", 5)],
            reduced: Reduced::Constant(p.clone()),
            ..power
        });
    }
    for (name, kind) in [
        (
            "multiply, false, whole",
            function!(String::new(), called::<0>),
        ),
        (
            "multiply, true, whole",
            function!(String::new(), called::<1>),
        ),
        (
            "square, false, whole",
            function!(String::new(), called::<2>),
        ),
        ("square, true, whole", function!(String::new(), called::<3>)),
        (
            "multiply, false",
            function!([Beside, true, true] String::new(), called::<0>),
        ),
        (
            "multiply, true",
            function!([Beside, true, true] String::new(), called::<1>),
        ),
        (
            "square, false",
            function!([Beside, true, true] String::new(), called::<2>),
        ),
        (
            "square, true",
            function!([Beside, true, true] String::new(), called::<3>),
        ),
    ] {
        let is_biased = name.contains("true");
        let most = if is_biased {
            (1 << 59) - 1
        } else {
            (11 << 52) - 1
        };
        let least = if is_biased { 22 << 52 } else { 0 };
        all.push(Function {
            name: match name.strip_suffix(", whole") {
                Some(name) => format!("curve25519::field::{name}"),
                None => format!("curve25519::field::{name}, halves"),
            },
            inputs: vec![factor("a"), factor("b")],
            outputs: vec![Operand {
                range: [least, most],
                top: most,
                ..tight("out", 5)
            }],
            reduced: Reduced::Constant(p.clone()),
            claims: match name.starts_with("square") {
                true => &["out = a*a mod n"],
                false => &["out = a*b mod n"],
            },
            ..kind
        });
    }
}

/// Points of the Edwards form.
fn edwards(all: &mut Vec<Function>) {
    let p = vec![MASK - 18, MASK, MASK, MASK, (1 << 47) - 1];
    let top = (1 << 47) + (1 << 9) - 1;
    let factor = |name| loose(name, 5).top(top);
    let within = |name, least, most| Operand {
        range: [least, most],
        top: most,
        ..tight(name, 5)
    };
    // Inputs and outputs of one name have the same bounds, and a sum is carried.
    let of = |name: &str| match name {
        "point" => {
            let product = |name| within(name, 0, (11 << 52) - 1);
            let biased = |name| within(name, 22 << 52, (1 << 58) - 1);
            vec![product("x"), biased("y"), biased("z"), product("t")]
        }
        "sign" => vec![tight("sign", 1).top(1)],
        "found" => vec![tight("found", 1).top(1)],
        "affine" => ["plus", "minus", "dt"].map(factor).to_vec(),
        "canonical" => {
            let canonical = |name| tight(name, 5).top((1 << 47) - 1);
            ["plus", "minus", "dt"].map(canonical).to_vec()
        }
        "cached" => ["plus", "minus", "z", "dt"].map(factor).to_vec(),
        "y" => vec![factor("y")],
        "power" => vec![factor("power")],
        "base" => vec![factor("base")],
        "x" => vec![factor("x")],
        "factors" => ["x", "y", "z"].map(factor).to_vec(),
        "x, y" => ["x", "y"].map(factor).to_vec(),
        _ => vec![tight("negative", 1)],
    };
    let carried = |mut operand: Operand| {
        if operand.loose {
            operand.range[1] = (1 << 61) - 1;
        }
        operand
    };
    macro_rules! add {
        ($($name:literal $f:ident::<$($g:tt),*> $inputs:expr => $outputs:expr),* $(,)?) => { $(
            for (lanes, function) in [
                ("", function!(String::new(), $f::<$($g),*>)),
                (", halves", function!([Beside, true, true] String::new(), $f::<$($g),*>)),
            ] {
                all.push(Function {
                    name: format!("curve25519::edwards::{}{lanes}", $name),
                    inputs: $inputs.map(of).concat(),
                    outputs: $outputs.map(of).concat().into_iter().map(carried).collect(),
                    reduced: Reduced::Constant(p.clone()),
                    // Four doublings are only compared.
                    only_compared: $name.ends_with("times"),
                    ..function
                });
            }
        )* };
    }
    add!(
        "double, four times" double_four_times::<0> ["point"] => ["point"],
        "double, false" double::<false> ["point"] => ["point"],
        "double, true" double::<true> ["point"] => ["point"],
        "add_cached" add_cached::<true> ["point", "cached", "negative"] => ["point"],
        "add_cached, false" add_cached::<false> ["point", "cached", "negative"] => ["point"],
        "add_assign" add_points::<0> ["point", "cached"] => ["point"],
        "add_affine" add_affine::<0> ["point", "affine", "negative"] => ["point"],
        "cached" cached::<0> ["point"] => ["cached"],
        "affine" affine_of::<0> ["x, y"] => ["canonical"],
        "signed" signed::<0> ["x, y", "negative"] => ["point"],
        "new" new::<0> ["x, y"] => ["point"],
        "from_projective" from_projective::<0> ["factors"] => ["point"],
        "factors" factors::<0> ["point"] => ["factors"],
        "root_base" root_base::<0> ["y"] => ["base"],
        "root" root::<0> ["y", "power"] => ["x", "found"],
        "minus_point" minus_point::<0> ["x, y", "sign"] => ["point"],
        "minus_key" minus_key::<0> ["y", "sign"] => ["point", "found"],
        "are_equal" are_equal::<0> ["factors", "factors"] => ["found"],
    );
    inversions(all, &p);
    let scalar = |name| tight(name, 5).top((1 << 48) - 1);
    macro_rules! multiples {
        ($($name:literal $f:ident $inputs:expr => $outputs:expr);* $(;)?) => { $(
            for (lanes, function) in [
                ("", function!(String::new(), $f::<0>)),
                (", halves", function!([Beside, true, true] String::new(), $f::<0>)),
            ] {
                all.push(Function {
                    name: format!("curve25519::{}{lanes}", $name),
                    inputs: $inputs,
                    outputs: $outputs,
                    reduced: Reduced::Constant(Order25519::VALUE.to_vec()),
                    only_compared: true,
                    ..function
                });
            }
        )* };
    }
    multiples!(
        "comb" comb vec![scalar("scalar"), scalar("other")]
            => vec![loose("digits", 8), loose("one", 20), loose("both", 40)];
        "verify_equation" equation
            [of("point"), of("point"), vec![tight("v", 5), tight("u", 5)]].concat()
            => vec![loose("out", 15)];
    );
}

/// The products before an inversion modulo p, and after it.
fn inversions(all: &mut Vec<Function>, p: &[u64]) {
    let factor = |name| loose(name, 5).top((1 << 47) + (1 << 9) - 1);
    let canonical = |name| tight(name, 5).top((1 << 47) - 1);
    // A product is carried.
    let carried = |operand: Operand| Operand {
        range: [0, (1 << 61) - 1],
        ..operand
    };
    let two = || vec![carried(factor("x")), carried(factor("y"))];
    macro_rules! add {
        ($($name:literal $f:ident::<$g:literal> $inputs:expr => $outputs:expr);* $(;)?) => { $(
            for (lanes, function) in [
                ("", function!(String::new(), $f::<$g>)),
                (", halves", function!([Beside, true, true] String::new(), $f::<$g>)),
            ] {
                all.push(Function {
                    name: format!("curve25519::{}{lanes}", $name),
                    inputs: $inputs.map(factor).to_vec(),
                    outputs: $outputs,
                    reduced: Reduced::Constant(p.to_vec()),
                    only_compared: true,
                    ..function
                });
            }
        )* };
    }
    add!(
        "x25519::product" quotient::<0> ["a", "b"] => vec![canonical("out")];
        "edwards::scaled" scaled::<0> ["x", "y", "inverse"]
            => vec![canonical("x"), canonical("y")];
        "square_times_and_multiply, 0 times" times_squares::<0> ["x", "y", "a", "b"] => two();
        "square_times_and_multiply, 2 times" times_squares::<2> ["x", "y", "a", "b"] => two();
        "invert_all of 3" inverses::<0> ["x", "y", "z", "inverse"]
            => vec![
                carried(Operand { limbs: 15, ..factor("inverses") }),
                carried(factor("product")),
            ];
    );
}
