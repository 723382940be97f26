//! The choice of the passes that are checked.

use std::sync::atomic::{AtomicI64, Ordering};

use super::random::random;

/// Chooses passes at random, one in every N on average.
pub(super) struct Sample {
    /// Maximum distance between two chosen passes: one less than twice the average.
    most: u32,
    /// Number of passes before the next chosen one.
    left: AtomicI64,
}

impl Sample {
    pub(super) fn new(every: u32) -> Sample {
        let sample = Sample {
            most: 2 * every.max(1) - 1,
            left: AtomicI64::new(0),
        };
        sample.draw();
        sample
    }

    /// Returns whether the next pass is chosen.
    pub(super) fn has_next(&self) -> bool {
        // Below zero, another thread is about to draw.
        let chosen = self.left.fetch_sub(1, Ordering::Relaxed) <= 0;
        if chosen {
            self.draw();
        }
        chosen
    }

    /// Draws the next choice; without randomness that is the next pass.
    fn draw(&self) {
        let left = random::<4>(1).map_or(0, |bytes| u32::from_le_bytes(bytes[0]) % self.most);
        self.left.store(i64::from(left), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_as_large_as_asked_for() {
        let chosen = |every, passes| {
            let sample = Sample::new(every);
            (0..passes).filter(|_| sample.has_next()).count()
        };
        assert_eq!(chosen(1, 1000), 1000);
        // Six standard deviations on either side, where that of a distance is two.
        let every_fourth = chosen(4, 40_000);
        assert!((9_700..10_300).contains(&every_fourth), "{every_fourth}");
    }

    #[test]
    fn the_next_choice_cannot_be_told() {
        let sample = Sample::new(64);
        let mut distances = [0_u32; 127];
        for _ in 0..20_000 {
            let mut distance = 0;
            while !sample.has_next() {
                distance += 1;
            }
            distances[distance] += 1;
        }
        assert!(distances.iter().all(|&times| times > 60), "{distances:?}");
    }
}
