//! The operations on requests in lanes: bytes in, points and scalars between, bytes out.
//!
//! A *group* is up to [`VECTORS`] vectors of requests, which share their inversions. A lane whose
//! request is invalid continues with a harmless value; so does a lane without a request.

use super::curve::Curve;
use super::inverse::{invert_all, invert_all_of_both};
use super::point::{Affine, Denominator, FieldOf, Point, add_assign_complete};
use super::scalar_mul::{self, ENTRIES};
use super::types::{
    Error, KeypairJob, Multiplication, PublicKey, SecretKey, SignJob, Signature, VECTORS, VerifyJob,
};
use crate::fault;
use crate::layout::{bytes_from_limbs, limbs_from_bytes};
use crate::modular::{Factor, Field, Loose, Modulus, Tight, any, none};
use crate::secret::wipe;
use crate::simd::{Plain, Simd, enter, inlined, words, words_mut};
use crate::taint::disclosed;

/// A number in every lane.
type Number<S, const N: usize> = [<S as Simd>::Limb; N];

/// A number for every vector of a group, wiped when dropped.
pub(super) struct Numbers<L: Plain, const N: usize>(pub(super) [[L; N]; VECTORS]);

impl<L: Plain, const N: usize> Numbers<L, N> {
    pub(super) fn new<S: Simd<Limb = L>>(s: S) -> Self {
        Self([[s.zero(); N]; VECTORS])
    }

    /// Replaces the first `count` by their inverses; see [`invert_all`].
    fn invert<S: Simd<Limb = L>, M: Modulus<N>>(&mut self, s: S, count: usize) {
        let mut prefixes = Self::new(s);
        invert_all::<S, M, N>(s, &mut self.0[..count], &mut prefixes.0[..count]);
    }

    /// Replaces the first `count` of both by their inverses; see [`invert_all_of_both`].
    fn invert_both<S: Simd<Limb = L>, P: Modulus<N>, O: Modulus<N>>(
        &mut self,
        of_o: &mut Self,
        s: S,
        count: usize,
    ) {
        let (mut p, mut o) = (Self::new(s), Self::new(s));
        let prefixes = [&mut p.0[..count], &mut o.0[..count]];
        let (of_p, of_o) = (&mut self.0[..count], &mut of_o.0[..count]);
        invert_all_of_both::<S, P, O, N>(s, of_p, of_o, prefixes);
    }
}

impl<L: Plain, const N: usize> Drop for Numbers<L, N> {
    fn drop(&mut self) {
        wipe(words_mut(self.0.as_flattened_mut()));
    }
}

pub(super) fn keypair<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    jobs: &mut [KeypairJob<'_, BYTES>],
) {
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let count = group.len().div_ceil(S::LANES);
        let mut d = Numbers::<S::Limb, N>::new(s);
        let mut bad = [s.zero(); VECTORS];
        let (mut x, mut y, mut z) = (Numbers::new(s), Numbers::new(s), Numbers::new(s));
        for (v, jobs) in group.chunks(S::LANES).enumerate() {
            (d.0[v], bad[v]) =
                wide_scalar::<S, C, N>(s, jobs.iter().map(|job| &job.seed.as_bytes()[..]));
        }
        let mut points = [Point::infinity(s); VECTORS];
        scalar_mul::mul_base_all::<S, C, N>(s, &d.0[..count], &mut points[..count], group.len());
        for (v, point) in points[..count].iter().enumerate() {
            (x.0[v], y.0[v], z.0[v]) = (point.x.0, point.y.0, point.z.0);
        }
        points.iter_mut().for_each(Point::wipe);
        z.invert::<S, C::Field>(s, count);
        for (v, jobs) in group.chunks_mut(S::LANES).enumerate() {
            let (x, y) = to_affine::<S, C, N>(s, &x.0[v], &y.0[v], &z.0[v]);
            for (lane, job) in jobs.iter_mut().enumerate() {
                job.result = Some(if word::<S>(&bad[v], lane) != 0 {
                    Err(Error::Scalar)
                } else {
                    let mut secret = SecretKey([0; BYTES]);
                    store::<S, N>(&mut secret.0, &d.0[v], lane);
                    let mut public = PublicKey {
                        x: [0; BYTES],
                        y: [0; BYTES],
                    };
                    store::<S, N>(&mut public.x, &x, lane);
                    store::<S, N>(&mut public.y, &y, lane);
                    Ok((secret, public))
                });
            }
        }
    }
}

pub(super) fn sign<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    jobs: &mut [SignJob<'_, BYTES>],
) {
    for (number, group) in jobs.chunks_mut(VECTORS * S::LANES).enumerate() {
        let count = group.len().div_ceil(S::LANES);
        let (mut k, mut x, mut z) = (Numbers::new(s), Numbers::new(s), Numbers::new(s));
        let mut bad_nonce = [s.zero(); VECTORS];
        for (v, jobs) in group.chunks(S::LANES).enumerate() {
            let nonces = jobs.iter().map(|job| &job.nonce.as_bytes()[..]);
            (k.0[v], bad_nonce[v]) = wide_scalar::<S, C, N>(s, nonces);
        }
        let mut points = [Point::infinity(s); VECTORS];
        scalar_mul::mul_base_all::<S, C, N>(s, &k.0[..count], &mut points[..count], group.len());
        for (v, point) in points[..count].iter().enumerate() {
            (x.0[v], z.0[v]) = (point.x.0, point.z.0);
            enter!(
                s,
                k.0[v] = Field::<S, C::Order, N>::new(s).encode(&Factor(k.0[v])).0
            );
        }
        points.iter_mut().for_each(Point::wipe);
        z.invert_both::<S, C::Field, C::Order>(&mut k, s, count);
        for (v, jobs) in group.chunks_mut(S::LANES).enumerate() {
            let mut d = Numbers::<S::Limb, N>::new(s);
            d.0[0] = load::<S, N>(s, jobs.iter().map(|job| &job.key.as_bytes()[..]));
            let e = load_digests::<S, N, BYTES>(s, jobs.iter().map(|job| job.digest));
            let mut signed =
                sign_vector::<S, C, N>(s, &x.0[v], &z.0[v], &k.0[v], &d.0[0], &e, bad_nonce[v]);
            fault::begin_chunk((number * VECTORS + v) * S::LANES);
            fault::touch::<S>(fault::Point::Recombined, &mut signed.s);
            for (lane, job) in jobs.iter_mut().enumerate() {
                job.result = Some(if word::<S>(&signed.bad_key, lane) != 0 {
                    Err(Error::Scalar)
                } else if word::<S>(&signed.bad_nonce, lane) != 0 {
                    Err(Error::Nonce)
                } else {
                    let mut signature = Signature {
                        r: [0; BYTES],
                        s: [0; BYTES],
                    };
                    store::<S, N>(&mut signature.r, &signed.r, lane);
                    store::<S, N>(&mut signature.s, &signed.s, lane);
                    Ok(signature)
                });
            }
        }
    }
}

/// A vector of signatures, and flags that are not zero where a signature failed.
struct Signed<S: Simd, const N: usize> {
    r: Number<S, N>,
    s: Number<S, N>,
    bad_key: S::Limb,
    bad_nonce: S::Limb,
}

/// Computes r = (x/z² mod p) mod n and s = (e + r·d)/k, from 1/z and 1/k (Montgomery form), and d
/// and e (not in Montgomery form).
#[inline(never)]
fn sign_vector<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &Number<S, N>,
    z_inverse: &Number<S, N>,
    k_inverse: &Number<S, N>,
    d: &Number<S, N>,
    e: &Number<S, N>,
    bad_nonce: S::Limb,
) -> Signed<S, N> {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        let o = Field::<S, C::Order, N>::new(s);
        let z = Factor(*z_inverse);
        let zz = f.factor(f.sqr(&z));
        let x = f.decode(&f.factor(f.mul(&Factor(*x), &zz)));
        let r = o.reduced(x);
        // `encode` gives d·R, so `product` is r·d. Then (r·d + e)·(R/k)/R.
        let product = o.mul(&r, &o.encode(&Factor(*d)));
        let sum = o.factor(o.add(&product, &Tight(*e)));
        let signature = o.reduced(o.tight(o.mul(&sum, &Factor(*k_inverse))));
        let zero = inlined!(|number: &Number<S, N>| s.select(
            none(s, any(s, number)),
            s.splat(1),
            s.zero()
        ));
        Signed {
            r: r.0,
            s: signature.0,
            bad_key: s.or_xor(o.is_not_below(d), zero(d), s.zero()),
            bad_nonce: s.or_xor(
                s.or_xor(bad_nonce, zero(&r.0), s.zero()),
                zero(&signature.0),
                s.zero(),
            ),
        }
    })
}

/// The numbers u1 = e/s, u2 = r/s and r of the signatures of a group. An r or s that is not in 1..n
/// is replaced by 1, and `bad` is not zero there.
pub(super) struct Scalars<S: Simd, const N: usize> {
    pub(super) u1: [Number<S, N>; VECTORS],
    pub(super) u2: [Number<S, N>; VECTORS],
    pub(super) r: [Number<S, N>; VECTORS],
    pub(super) bad: [S::Limb; VECTORS],
}

/// Computes the numbers of the signatures in `claims`, which are pairs of digest and signature.
pub(super) fn scalars<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    claims: Vec<(&[u8], &Signature<BYTES>)>,
) -> Scalars<S, N> {
    let zeros = [[s.zero(); N]; VECTORS];
    let mut scalars = Scalars {
        u1: zeros,
        u2: zeros,
        r: zeros,
        bad: [s.zero(); VECTORS],
    };
    let mut inverse = Numbers::<S::Limb, N>::new(s);
    for (v, claims) in claims.chunks(S::LANES).enumerate() {
        let numerator = load::<S, N>(s, claims.iter().map(|(_, signature)| &signature.s[..]));
        enter!(s, {
            let o = Field::<S, C::Order, N>::new(s);
            let usable;
            (usable, scalars.bad[v]) = valid_scalar::<S, C, N>(s, &numerator);
            inverse.0[v] = o.encode(&Factor(usable)).0;
        });
    }
    inverse.invert::<S, C::Order>(s, claims.len().div_ceil(S::LANES));
    for (v, claims) in claims.chunks(S::LANES).enumerate() {
        let r = load::<S, N>(s, claims.iter().map(|(_, signature)| &signature.r[..]));
        let e = load_digests::<S, N, BYTES>(s, claims.iter().map(|(digest, _)| *digest));
        enter!(s, {
            let (usable_r, bad_r) = valid_scalar::<S, C, N>(s, &r);
            let o = Field::<S, C::Order, N>::new(s);
            let w = Factor(inverse.0[v]);
            let u = inlined!(|a: Number<S, N>| o.reduced(o.tight(o.mul(&Factor(a), &w))).0);
            (scalars.u1[v], scalars.u2[v], scalars.r[v]) = (u(e), u(usable_r), usable_r);
            scalars.bad[v] = s.or_xor(scalars.bad[v], bad_r, s.zero());
        });
    }
    scalars
}

pub(super) fn verify<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    jobs: &mut [VerifyJob<'_, BYTES>],
) {
    let mut table = [Affine::empty(s); ENTRIES];
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let claims = group.iter().map(|job| (job.digest, job.signature));
        let numbers = scalars::<S, C, N, BYTES>(s, claims.collect());
        for (v, jobs) in group.chunks_mut(S::LANES).enumerate() {
            let x = load::<S, N>(s, jobs.iter().map(|job| &job.key.x[..]));
            let y = load::<S, N>(s, jobs.iter().map(|job| &job.key.y[..]));
            let (key, bad_key) = valid_point::<S, C, N>(s, &x, &y);
            let (u1, u2) = (&numbers.u1[v], &numbers.u2[v]);
            let mut sum = scalar_mul::mul_point::<S, C, N>(s, &mut table, u2, &key, jobs.len());
            let other = scalar_mul::mul_base::<S, C, N>(s, u1, jobs.len());
            let wrong = enter!(s, {
                let f = FieldOf::<S, C, N>::new(s);
                let denominator = Denominator::new(f, other.z);
                let lone = sum;
                let entry = Affine {
                    x: other.x,
                    y: other.y,
                };
                let never = s.any_bit(s.zero(), s.zero());
                add_assign_complete::<S, C, N>(s, &mut sum, &entry, &denominator, never);
                // u1·G is infinity if u1 is zero; u2·Q never is.
                let point = super::point::select(f, f.is_zero(&other.z), &lone, &sum);
                let differs = differs_from_x::<S, C, N>(s, &point, &numbers.r[v]);
                s.or_xor(differs, numbers.bad[v], s.zero())
            });
            for (lane, job) in jobs.iter_mut().enumerate() {
                job.result = Some(if word::<S>(&bad_key, lane) != 0 {
                    Err(Error::Point)
                } else if word::<S>(&wrong, lane) != 0 {
                    Err(Error::Signature)
                } else {
                    Ok(())
                });
            }
        }
    }
}

/// Returns a number that is not zero in the lanes in which the point is infinity or its x modulo n
/// is not r, for 0 < r < n.
///
/// It needs no inversion: X = r·Z², or X = (r + n)·Z² if r + n < p.
#[inline(always)]
pub(super) fn differs_from_x<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    point: &Point<S::Limb, N>,
    r: &Number<S, N>,
) -> S::Limb {
    let f = FieldOf::<S, C, N>::new(s);
    let zz = f.factor(f.sqr(&point.z));
    let differs = inlined!(|x: &Tight<S::Limb, N>| {
        let expected = f.tight(f.mul(&f.encode(x), &zz));
        f.is_nonzero(&f.factor(f.sub(3, &point.x, &expected)))
    });
    let order = f.constant(&<C::Order as Modulus<N>>::VALUE);
    let second = f.tight(f.add(&Tight(*r), &order));
    let second_differs = s.or_xor(differs(&second), f.is_not_below(&second.0), s.zero());
    let first_differs = differs(&Tight(*r));
    let neither = s.select(none(s, second_differs), s.zero(), first_differs);
    let finite = f.is_nonzero(&point.z);
    s.select(none(s, finite), s.splat(1), neither)
}

pub(super) fn multiply<S, C, J, const N: usize, const BYTES: usize>(s: S, jobs: &mut [J])
where
    S: Simd,
    C: Curve<N>,
    J: Multiplication<BYTES>,
{
    let mut table = [Affine::empty(s); ENTRIES];
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let count = group.len().div_ceil(S::LANES);
        let (mut x, mut y, mut z) = (Numbers::new(s), Numbers::new(s), Numbers::new(s));
        let mut bad_key = [s.zero(); VECTORS];
        let mut bad_point = [s.zero(); VECTORS];
        for (v, jobs) in group.chunks(S::LANES).enumerate() {
            let mut d = Numbers::<S::Limb, N>::new(s);
            d.0[0] = load::<S, N>(s, jobs.iter().map(|job| &job.operands().0.as_bytes()[..]));
            (d.0[0], bad_key[v]) = enter!(s, valid_scalar::<S, C, N>(s, &d.0[0]));
            let peer_x = load::<S, N>(s, jobs.iter().map(|job| &job.operands().1.x[..]));
            let peer_y = load::<S, N>(s, jobs.iter().map(|job| &job.operands().1.y[..]));
            let peer;
            (peer, bad_point[v]) = valid_point::<S, C, N>(s, &peer_x, &peer_y);
            let point = scalar_mul::mul_point::<S, C, N>(s, &mut table, &d.0[0], &peer, jobs.len());
            (x.0[v], y.0[v], z.0[v]) = (point.x.0, point.y.0, point.z.0);
        }
        z.invert::<S, C::Field>(s, count);
        for (v, jobs) in group.chunks_mut(S::LANES).enumerate() {
            (x.0[v], y.0[v]) = to_affine::<S, C, N>(s, &x.0[v], &y.0[v], &z.0[v]);
            for (lane, job) in jobs.iter_mut().enumerate() {
                if word::<S>(&bad_key[v], lane) != 0 {
                    job.finish(Err(Error::Scalar));
                } else if word::<S>(&bad_point[v], lane) != 0 {
                    job.finish(Err(Error::Point));
                } else {
                    let mut product = PublicKey {
                        x: [0; BYTES],
                        y: [0; BYTES],
                    };
                    store::<S, N>(&mut product.x, &x.0[v], lane);
                    store::<S, N>(&mut product.y, &y.0[v], lane);
                    job.finish(Ok(&product));
                    wipe(&mut product.x);
                    wipe(&mut product.y);
                }
            }
        }
    }
    table.iter_mut().for_each(Affine::wipe);
}

/// Returns (x/z², y/z³) as numbers below p, from 1/z.
#[inline(never)]
fn to_affine<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &Number<S, N>,
    y: &Number<S, N>,
    z_inverse: &Number<S, N>,
) -> (Number<S, N>, Number<S, N>) {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        let z = Factor(*z_inverse);
        let zz = f.factor(f.sqr(&z));
        let zzz = f.factor(f.mul(&z, &zz));
        let x = f.decode(&f.factor(f.mul(&Factor(*x), &zz)));
        let y = f.decode(&f.factor(f.mul(&Factor(*y), &zzz)));
        (x.0, y.0)
    })
}

/// Returns k = wide mod n, or 1 where that is zero, and a flag that is not zero there.
///
/// wide = high·R + low, so k·R = low·R + high·R·R.
fn wide_scalar<'a, S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    wides: impl Iterator<Item = &'a [u8]>,
) -> (Number<S, N>, S::Limb) {
    let mut halves = [[s.zero(); N]; 2];
    for (lane, wide) in wides.enumerate() {
        limbs_from_bytes(
            &mut words_mut(halves.as_flattened_mut())[lane..],
            S::LANES,
            wide,
        );
    }
    let result = enter!(s, {
        let o = Field::<S, C::Order, N>::new(s);
        let low = o.mul(
            &Factor(halves[0]),
            &o.constant(&<C::Order as Modulus<N>>::R2),
        );
        let high = o.encode(&o.encode(&Factor(halves[1])));
        let k = o.decode(&o.factor(o.add(&low, &high))).0;
        or_one(s, k, any(s, &k))
    });
    wipe(words_mut(halves.as_flattened_mut()));
    result
}

/// Returns the scalar, or 1 where it is not in 1..n, and a flag that is not zero there.
#[inline(always)]
fn valid_scalar<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    k: &Number<S, N>,
) -> (Number<S, N>, S::Limb) {
    let o = Field::<S, C::Order, N>::new(s);
    let zero = s.zero();
    let good = s.select(none(s, o.is_not_below(k)), any(s, k), zero);
    or_one(s, *k, good)
}

/// Returns `k` where `good` is not zero, 1 elsewhere, and a flag that is not zero there.
#[inline(always)]
fn or_one<S: Simd, const N: usize>(
    s: S,
    mut k: Number<S, N>,
    good: S::Limb,
) -> (Number<S, N>, S::Limb) {
    let bad = none(s, good);
    for (i, limb) in k.iter_mut().enumerate() {
        *limb = s.select(bad, s.splat(u64::from(i == 0)), *limb);
    }
    (k, s.select(bad, s.splat(1), s.zero()))
}

/// Returns the point in Montgomery form, or G where it is not on the curve, and a flag that is not
/// zero there.
///
/// Its coordinates must be below p and y² = x³ − 3x + b. The order is prime, so no other check is
/// needed; infinity has no coordinates.
#[inline(never)]
pub(super) fn valid_point<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &Number<S, N>,
    y: &Number<S, N>,
) -> (Affine<S::Limb, N>, S::Limb) {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        let too_large = s.or_xor(f.is_not_below(x), f.is_not_below(y), s.zero());
        let (x, y) = (f.encode(&Factor(*x)), f.encode(&Factor(*y)));
        let right = right_side::<S, C, N>(s, &x);
        let off = f.is_nonzero(&f.factor(f.sub(3, &right, &f.sqr(&y))));
        let bad_flag = s.or_xor(too_large, off, s.zero());
        let good = none(s, bad_flag);
        let generator = [
            f.encode(&f.constant(&C::G.0)),
            f.encode(&f.constant(&C::G.1)),
        ];
        let point = Affine {
            x: Tight(f.select(good, &x.0, &generator[0].0)),
            y: Tight(f.select(good, &y.0, &generator[1].0)),
        };
        (point, s.select(good, s.zero(), s.splat(1)))
    })
}

/// Returns x³ − 3x + b = x(x² − 3) + b, below 2.4 (P-256) or 4.1 (P-384), for an encoded x.
///
/// Encoded numbers are below 1.1 (P-256) or 2.01 (P-384).
#[inline(always)]
pub(super) fn right_side<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &Tight<S::Limb, N>,
) -> Loose<S::Limb, N> {
    let f = FieldOf::<S, C, N>::new(s);
    let b = f.encode(&f.constant(&C::B));
    let three = f.encode(&{
        let mut three = [0; N];
        three[0] = 3;
        f.constant(&three)
    });
    let slope = f.factor(f.sub(3, &f.sqr(x), &three));
    f.add(&f.mul(x, &slope), &b)
}

/// Loads big-endian numbers, one in each lane; zero in lanes without a number.
pub(super) fn load<'a, S: Simd, const N: usize>(
    s: S,
    numbers: impl Iterator<Item = &'a [u8]>,
) -> Number<S, N> {
    let mut out = [s.zero(); N];
    for (lane, bytes) in numbers.enumerate() {
        limbs_from_bytes(&mut words_mut(&mut out)[lane..], S::LANES, bytes);
    }
    out
}

/// Loads the leftmost bits of the digests, as many as n has (FIPS 186-5, 6.4.1, step 2).
fn load_digests<'a, S: Simd, const N: usize, const BYTES: usize>(
    s: S,
    digests: impl Iterator<Item = &'a [u8]>,
) -> Number<S, N> {
    load::<S, N>(s, digests.map(|digest| &digest[..digest.len().min(BYTES)]))
}

/// Stores the number in one lane as big-endian bytes.
pub(super) fn store<S: Simd, const N: usize>(bytes: &mut [u8], number: &Number<S, N>, lane: usize) {
    bytes_from_limbs(bytes, &words(number)[lane..], S::LANES);
}

/// Returns the word of one lane, a verdict, which is public.
pub(super) fn word<S: Simd>(limb: &S::Limb, lane: usize) -> u64 {
    disclosed(words(core::slice::from_ref(limb))[lane])
}
