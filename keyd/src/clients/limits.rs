//! Limits on the rates of requests and of lines for the log.

use std::sync::Mutex;
use std::time::Instant;

/// A token bucket that fills at a constant rate.
pub struct Rate {
    /// Tokens per second; zero for no limit.
    rate: u32,
    /// Capacity.
    most: u32,
    state: Mutex<(f64, Instant)>,
}

impl Rate {
    /// Creates a full bucket.
    pub fn new(rate: u32, most: u32, now: Instant) -> Rate {
        Rate {
            rate,
            most,
            state: Mutex::new((f64::from(most), now)),
        }
    }

    /// Takes a token; returns false if there is none.
    pub fn take(&self, now: Instant) -> bool {
        if self.rate == 0 {
            return true;
        }
        let mut state = self.state.lock().unwrap_or_else(|error| error.into_inner());
        let (permits, since) = *state;
        let more = f64::from(self.rate) * now.duration_since(since).as_secs_f64();
        let permits = (permits + more).min(f64::from(self.most));
        let may = permits >= 1.0;
        *state = (permits - f64::from(u8::from(may)), now);
        may
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_gives_as_many_permits_as_the_rate_says() {
        let start = Instant::now();
        let rate = Rate::new(10, 10, start);
        let taken = |now| (0..100).filter(|_| rate.take(now)).count();
        assert_eq!(taken(start), 10);
        assert_eq!(taken(start), 0);
        assert_eq!(taken(start + Duration::from_millis(350)), 3);
        // Tokens do not accumulate beyond the capacity.
        assert_eq!(taken(start + Duration::from_secs(60)), 10);
        let unlimited = Rate::new(0, 0, start);
        assert!((0..1000).all(|_| unlimited.take(start)));
    }
}
