//! A batch on words, one request after the other: the steps of `private.rs` without lanes.
//!
//! Numbers of keys and blinding pairs are in the Montgomery form of lanes, whose R is 2^excess
//! times the R of words; [`Field::remove_excess`] divides by 2^excess.

use zeroize::Zeroizing;

use super::job::{Blinded, JobError, PrivateJob, Returned, Unblinding, refuse};
use super::key::{Half, PublicKey};
use super::size::Size;
use super::verify::{self, Claim, Signature, Verified};
use crate::arena::{Arena, Memory};
use crate::fault::{self, Point};
use crate::layout::{bytes_from_words, words_from_bytes};
use crate::secret::{SecretWords, own_words};
#[cfg(all(target_arch = "x86_64", not(any(miri, ct_msan))))]
use crate::words::Adx;
use crate::words::{Block, Field, Multiplier, Plain, Power, multiply_add, repack};

/// Calls a function with the multiplier of this CPU before its arguments.
macro_rules! on_multiplier {
    ($function:ident($($argument:expr),*)) => {{
        #[cfg(all(target_arch = "x86_64", not(any(miri, ct_msan))))]
        let adx = Adx::detect();
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, ct_msan)))))]
        let adx = None::<Plain>;
        match adx {
            Some(adx) => $function(adx, $($argument),*),
            None => $function(Plain, $($argument),*),
        }
    }};
}

/// Serves all of `jobs`, which have one size, and sets their results.
pub(super) fn private_batch(size: Size, memory: &mut Memory, jobs: &mut [PrivateJob<'_>]) {
    on_multiplier!(one_by_one(size, memory, jobs));
}

/// Returns the maximum number of bytes that an operation and its check take from the arena.
pub(super) const fn bytes(size: Size) -> usize {
    let blocks = size.blocks_of_half();
    let operation = 8 * blocks * size_of::<Block>()
        + Field::<Plain>::bytes(2 * blocks)
        + Power::<Plain>::bytes(blocks, size.exponent_words());
    let check = verify::on_words::bytes(blocks);
    if operation > check { operation } else { check }
}

#[inline(never)]
fn one_by_one(m: impl Multiplier, size: Size, memory: &mut Memory, jobs: &mut [PrivateJob<'_>]) {
    for (request, job) in jobs.iter_mut().enumerate() {
        fault::begin_chunk(request);
        let refused = refuse(job.input, job.key.public());
        let output = operate(m, memory.arena(), job, refused.is_some());
        let claim = Claim::new(job.key, job.check_input, output);
        job.result = Some(match refused {
            Some(error) => Err(error),
            None => checked(m, memory.arena(), claim),
        });
        memory.wipe(bytes(size));
    }
}

/// Returns a result that was computed elsewhere, if it is right.
pub(super) fn verified(
    memory: &mut Memory,
    claim: Claim<'_>,
    size: Size,
) -> Result<Verified<Signature>, JobError> {
    let result = on_multiplier!(checked(memory.arena(), claim));
    memory.wipe(bytes(size));
    result
}

/// Blinds an input, and squares the pair.
pub(super) fn blind(memory: &mut Memory, job: &mut PrivateJob<'_>) -> Blinded {
    let public = job.key.public();
    if let Some(error) = refuse(job.input, public) {
        return Err(error);
    }
    let mut output = Zeroizing::new(vec![0; job.input.len()]);
    let (pair, arena) = (&mut *job.blinding, memory.arena());
    let unblinding = Unblinding(Zeroizing::new(pair.unblind.to_vec()));
    let parts = [&mut pair.unblind, &mut pair.blind];
    pair.uses += 1;
    on_multiplier!(multiply_by(arena, public, job.input, parts, &mut output));
    memory.wipe(bytes(public.size()));
    Ok((output, unblinding))
}

/// Unblinds a result and returns it, if it is right.
pub(super) fn unblind(memory: &mut Memory, job: &Returned<'_>) -> Option<Verified<Signature>> {
    let (size, public) = (job.key.size(), job.key.public());
    let mut output = vec![0; job.output.len()];
    let mut part = own_words(job.unblinding.0.len());
    part.copy_from_slice(&job.unblinding.0);
    let (arena, parts) = (memory.arena(), [&mut part]);
    on_multiplier!(multiply_by(arena, public, job.output, parts, &mut output));
    verified(memory, Claim::new(job.key, job.input, output), size).ok()
}

/// Computes output = input·v mod n for the last part v of `parts`, which belong to blinding pairs;
/// squares all of them.
#[inline(never)]
fn multiply_by<const PARTS: usize>(
    m: impl Multiplier,
    mut arena: Arena<'_>,
    public: &PublicKey,
    input: &[u8],
    parts: [&mut SecretWords; PARTS],
    output: &mut [u8],
) {
    let blocks = 2 * public.size().blocks_of_half();
    let mut n = Field::new(m, &mut arena, blocks);
    let x: &mut [Block] = arena.slice(blocks);
    let factor: &mut [Block] = arena.slice(blocks);
    n.set_modulus(&public.modulus.limbs);
    for part in parts {
        words_from_bytes(x.as_flattened_mut(), input);
        multiply_and_square(&mut n, x, factor, part, Point::Unblind);
    }
    n.canonical(x);
    bytes_from_words(output, x.as_flattened());
}

/// Returns the result of a claim, if the check finds it right.
fn checked(
    m: impl Multiplier,
    arena: Arena<'_>,
    mut claim: Claim<'_>,
) -> Result<Verified<Signature>, JobError> {
    verify::on_words::check(m, arena, &mut claim);
    claim.verdict().ok_or(JobError::CheckFailed)
}

/// Computes the result for a request, not checked yet. A refused input counts as zero.
#[inline(never)]
fn operate(
    m: impl Multiplier,
    mut arena: Arena<'_>,
    job: &mut PrivateJob<'_>,
    is_refused: bool,
) -> Vec<u8> {
    let whole = arena.bytes_left();
    let (key, public) = (job.key, job.key.public());
    let size = key.size();
    let blocks = size.blocks_of_half();
    let mut n = Field::new(m, &mut arena, 2 * blocks);
    let mut power = Power::new(m, &mut arena, blocks, size.exponent_words());
    let x: &mut [Block] = arena.slice(2 * blocks);
    let factor: &mut [Block] = arena.slice(2 * blocks);
    let m_p: &mut [Block] = arena.slice(blocks);
    let m_q: &mut [Block] = arena.slice(blocks);
    let q: &mut [Block] = arena.slice(blocks);
    let r3: &mut [Block] = arena.slice(blocks);
    debug_assert!(whole - arena.bytes_left() <= bytes(size));

    n.set_modulus(&public.modulus.limbs);
    let input = if is_refused { &[] } else { job.input };
    words_from_bytes(x.as_flattened_mut(), input);
    for (point, words) in [
        (Point::Product, n.n.as_flattened_mut()),
        (Point::ProductFactor, core::slice::from_mut(n.k0)),
        (Point::Input, x.as_flattened_mut()),
    ] {
        fault::touch_words(point, words, 0);
    }
    let blinding = &mut *job.blinding;
    multiply_and_square(&mut n, x, factor, &mut blinding.blind, Point::Blind);
    blinding.uses += 1;

    // The field of p comes last, because it is needed once more.
    for (half, power_of_x) in [(1, &mut *m_q), (0, &mut *m_p)] {
        load(&mut power, r3, key.half(half), half);
        power.field.montgomery_form(power.base, x, r3);
        power.exponentiate(power_of_x, size.bits() / 2, half);
    }

    // x = m_q + q·((m_p − m_q)·qinv mod p)
    let p = &mut power.field;
    let qinv = &mut factor[..blocks];
    repack(q.as_flattened_mut(), 64, &key.q.modulus.limbs, 52);
    repack(qinv.as_flattened_mut(), 64, &key.qinv, 52);
    for (point, words) in [
        (Point::P, p.n.as_flattened_mut()),
        (Point::Q, q.as_flattened_mut()),
        (Point::Inverse, qinv.as_flattened_mut()),
    ] {
        fault::touch_words(point, words, 0);
    }
    let (lower, upper) = x.split_at_mut(blocks);
    lower.copy_from_slice(m_q);
    upper.fill([0; 8]);
    // m_q < q < 2p, as both primes have the same length.
    p.canonical(m_q);
    p.subtract(m_p, m_q);
    p.multiply(m_p, qinv);
    p.remove_excess(m_p, 1);
    multiply_add(m, x, q, m_p);

    fault::touch_words(Point::Recombined, x.as_flattened_mut(), 0);
    multiply_and_square(&mut n, x, factor, &mut blinding.unblind, Point::Unblind);
    n.canonical(x);
    let mut output = vec![0; size.bytes()];
    bytes_from_words(&mut output, x.as_flattened());
    output
}

/// Computes x = x·v mod n, below 2n, for a part v of a blinding pair, and squares v.
#[inline(never)]
fn multiply_and_square(
    n: &mut Field<'_, impl Multiplier>,
    x: &mut [Block],
    v: &mut [Block],
    part: &mut SecretWords,
    point: Point,
) {
    repack(v.as_flattened_mut(), 64, part, 52);
    fault::touch_words(point, v.as_flattened_mut(), 0);
    n.multiply(x, v);
    n.remove_excess(x, 1);
    n.square(v);
    n.remove_excess(v, 1);
    repack(part, 52, v.as_flattened(), 64);
}

/// Loads the modulus and the exponent of a half, and R and `r3` = R³ modulo this modulus.
#[inline(never)]
fn load(
    power: &mut Power<'_, impl Multiplier>,
    r3: &mut [Block],
    Half { modulus, exponent }: &Half,
    half: usize,
) {
    let field = &mut power.field;
    let one = &mut power.table[..r3.len()];
    field.set_modulus(&modulus.limbs);
    power.exponent.copy_from_slice(exponent);
    repack(one.as_flattened_mut(), 64, &modulus.one, 52);
    repack(r3.as_flattened_mut(), 64, &modulus.r3, 52);
    for (point, words) in [
        (Point::Modulus, field.n.as_flattened_mut()),
        (Point::ReductionFactor, core::slice::from_mut(field.k0)),
        (Point::Exponent, power.exponent),
        (Point::One, one.as_flattened_mut()),
        (Point::RCubed, r3.as_flattened_mut()),
    ] {
        fault::touch_words(point, words, half);
    }
    field.remove_excess(one, 1);
    field.remove_excess(r3, 3);
}
