//! The race of the schedules at the first use of a size, which finds the fastest on this core.
//!
//! In turn, each schedule raises the same public numbers to a few more windows of an exponent, as
//! an exponentiation does. The median of its turns counts. The race uses no secret.

use std::time::{Duration, Instant};

use super::size::Size;
use crate::arena::{Arena, Memory};
use crate::modexp::Power;
use crate::schedule::Schedule;
use crate::simd::avx512ifma::Avx512Ifma;
use crate::simd::{Simd, words_mut};

/// Maximum time of a race, unless [`FEWEST`] turns take longer. On all measured cores a race ends
/// earlier, after [`ROUNDS`] rounds, unless the system interrupts it.
const LIMIT: Duration = Duration::from_micros(300);

/// Maximum number of turns of each schedule.
const ROUNDS: usize = 9;

/// Minimum number of turns of each schedule, so that one interrupted turn does not decide the race.
const FEWEST: usize = 3;

/// Another schedule wins if its time is below this percentage of the default's. On a busy machine
/// races of equals differ by 1 to 2 %, and the cores that want another order gain more than 10 % by
/// it.
const CLEARLY: u32 = 97;

/// Number of windows of each exponentiation in a turn.
const WINDOWS: usize = 5;

/// Returns the fastest schedule for numbers of a size, by a race or by the result of an earlier
/// one.
pub(super) fn fastest(wide: Avx512Ifma, size: Size, memory: &mut Memory) -> Schedule {
    match size {
        Size::Rsa1024 => Schedule::chosen_by(|| race::<10>(wide, size, memory), size),
        Size::Rsa2048 => Schedule::chosen_by(|| race::<20>(wide, size, memory), size),
        _ => Schedule::default(),
    }
}

/// Races the schedules of a size whose primes have `N` limbs.
#[inline(never)]
fn race<const N: usize>(wide: Avx512Ifma, size: Size, memory: &mut Memory) -> Schedule {
    let start = Instant::now();
    prepare::<_, N>(wide, size, memory.arena());
    let mut turn = |schedule: &Schedule| match schedule.reduces_after() {
        true => turn::<_, N>(wide.reducing_after(), *schedule, size, memory.arena()),
        false => turn::<_, N>(wide, *schedule, size, memory.arena()),
    };
    let schedules = Schedule::of(size);
    // The first turns load code and numbers into the caches.
    for schedule in schedules {
        turn(schedule);
    }
    schedules[winner(times(schedules, turn, start))]
}

/// Returns the times of each schedule's turns: [`ROUNDS`] of them, or fewer if they take long.
fn times(
    schedules: &[Schedule],
    mut turn: impl FnMut(&Schedule) -> Duration,
    start: Instant,
) -> Vec<Vec<Duration>> {
    let mut times = vec![Vec::with_capacity(ROUNDS); schedules.len()];
    for round in 1..=ROUNDS {
        let before = Instant::now();
        for (schedule, times) in schedules.iter().zip(&mut times) {
            times.push(turn(schedule));
        }
        // The next round would take as long as this one.
        if round >= FEWEST && start.elapsed() + before.elapsed() > LIMIT {
            break;
        }
    }
    times
}

/// Returns the winner: the first contestant, unless another's median is clearly less.
fn winner(mut times: Vec<Vec<Duration>>) -> usize {
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let medians: Vec<Duration> = times.iter_mut().map(median).collect();
    let best = (0..medians.len()).min_by_key(|&at| medians[at]);
    best.filter(|&best| 100 * medians[best] < CLEARLY * medians[0])
        .unwrap_or(0)
}

/// Returns as many exponentiations as take turns, with the memory of `arena`.
fn powers<'a, S: Simd, const N: usize>(size: Size, mut arena: Arena<'a>) -> Vec<Power<'a, S, N>> {
    (0..Power::<S, N>::PASSES)
        .map(|_| Power::new(&mut arena, 0, size.exponent_words()))
        .collect()
}

/// Writes public numbers to all lanes: n = 2^bits − 1 for the bits of a prime, and 3 as the base.
fn prepare<S: Simd, const N: usize>(s: S, size: Size, arena: Arena<'_>) {
    let mut powers = powers::<S, N>(size, arena);
    let bits = size.bits() / 2;
    let top = S::LANES * (N - 1);
    for power in &mut powers {
        let n = words_mut(power.n);
        n.fill(S::LIMB_MASK);
        n[top..].fill((1 << (bits % S::LIMB_BITS as usize)) - 1);
        words_mut(core::slice::from_mut(power.k0)).fill(1);
        for (number, value) in [
            (&mut power.one, 1 << (N * S::LIMB_BITS as usize - bits)),
            (&mut power.base, 3),
        ] {
            number.fill(s.zero());
            words_mut(&mut number[..1]).fill(value);
        }
        words_mut(power.exponent).fill(0x123_4567_89ab_cdef);
    }
    Power::fill_tables(&mut powers, s);
}

/// Measures the time of some windows of all exponentiations.
#[inline(never)]
fn turn<S: Simd, const N: usize>(
    s: S,
    schedule: Schedule,
    size: Size,
    arena: Arena<'_>,
) -> Duration {
    let mut powers = powers::<S, N>(size, arena);
    let at_once = schedule.at_once(powers.len());
    let start = Instant::now();
    for powers in powers.chunks_mut(at_once) {
        for digit in 0..WINDOWS {
            Power::step(powers, s, digit);
        }
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::Scratch;

    #[test]
    fn only_a_clear_lead_beats_the_default() {
        let winner = |medians: &[u64]| {
            let laps = |median: &u64| [1, 1, *median, 9_999, 9_999].map(Duration::from_nanos);
            winner(medians.iter().map(|median| laps(median).to_vec()).collect())
        };
        assert_eq!(winner(&[1000, 1000, 1000]), 0);
        assert_eq!(winner(&[1000, 971, 995]), 0);
        assert_eq!(winner(&[1000, 969, 995]), 1);
        assert_eq!(winner(&[1000, 900, 890]), 2);
        assert_eq!(winner(&[1000, 2000]), 0);
    }

    #[test]
    fn an_interrupted_race_has_the_fewest_turns() {
        let turn = |_: &Schedule| Duration::from_nanos(1);
        let start = Instant::now();
        // A start long ago looks like an interruption.
        let start = start
            .checked_sub(2 * LIMIT)
            .expect("the system runs for longer");
        let times = times(&Schedule::ALL, turn, start);
        assert!(times.iter().all(|times| times.len() == FEWEST), "{times:?}");
    }

    #[test]
    fn a_race_leaves_powers_of_the_base() {
        let Some(wide) = Avx512Ifma::detect() else {
            println!("skipped: this CPU has no AVX-512 IFMA");
            return;
        };
        let mut memory = Scratch::new().memory;
        for (size, race) in [
            (Size::Rsa1024, race::<10> as fn(_, _, &mut _) -> _),
            (Size::Rsa2048, race::<20>),
        ] {
            assert!(Schedule::of(size).contains(&race(wide, size, &mut memory)));
        }
        let powers = powers::<Avx512Ifma, 20>(Size::Rsa2048, memory.arena());
        let words = words_mut(&mut *powers.into_iter().next().unwrap().power).to_vec();
        assert!(words.iter().any(|word| *word > 3), "nothing was computed");
        assert!(
            words
                .chunks(8)
                .all(|limb| limb.iter().all(|word| *word == limb[0]))
        );
    }
}
