//! Restart backoff of roles.

use std::time::Duration;

/// Exponential backoff with jitter.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// Delay after the first failure.
    pub initial: Duration,
    /// Longest delay.
    pub max: Duration,
    /// A role that ran this long has recovered: its next failure counts as the first.
    pub reset_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(60), reset_after: Duration::from_secs(120) }
    }
}

impl Backoff {
    /// Delay after this many consecutive failures. `random` (0 to 1) subtracts up to a quarter as jitter, so that
    /// agents do not restart in lockstep.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let whole = self.initial.saturating_mul(1 << doublings).min(self.max);
        whole.mul_f64(1.0 - random.clamp(0.0, 1.0) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let seconds = |failures| Backoff::default().delay(failures, 0.0).as_secs();
        assert_eq!([1, 2, 3, 6, 7, 8, 1000].map(seconds), [1, 2, 4, 32, 60, 60, 60]);
        assert_eq!(Backoff::default().delay(2, 1.0), Duration::from_millis(1500), "less a quarter at most");
    }
}
