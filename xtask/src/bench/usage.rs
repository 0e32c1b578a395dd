//! What a process takes, as the kernel counts it.

use anyhow::{Context, Result};

/// The kernel counts time of processors in hundredths of a second, whatever its own clock does.
const TICKS: f64 = 100.0;

/// Memory in kilobytes, time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Everything that is resident.
    pub(super) resident: u64,
    /// What the process has written: heap and stacks.
    pub(super) own: u64,
    /// The most that was resident so far.
    pub(super) peak: u64,
    /// Time that processors worked for it, in the kernel too.
    pub(super) cpu: f64,
}

impl Usage {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).context("the operator has ended");
        Ok(Self::parse(&read("status")?, &read("stat")?))
    }

    /// Lets the kernel look for the most that is resident from now on.
    pub(super) fn forget_peak(pid: u32) -> Result<()> {
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("the kernel does not forget the peak of memory")
    }

    fn parse(status: &str, stat: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
        };
        // The name before it may have spaces and parentheses.
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = |place: usize| after.split_whitespace().nth(place).and_then(|text| text.parse::<f64>().ok());
        let cpu = (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / TICKS;
        Self { resident: field("VmRSS"), own: field("RssAnon"), peak: field("VmHWM"), cpu }
    }
}

/// Kilobytes of 1,024 bytes as megabytes of a million.
pub(super) fn megabytes(kilobytes: u64) -> f64 {
    kilobytes as f64 * 1024.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_in_kilobytes_and_ticks() {
        let status = "Name:\tx\nVmHWM:\t   40960 kB\nVmRSS:\t   20480 kB\nRssAnon:\t    1024 kB\n";
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 5 0 1 2 3";
        assert_eq!(Usage::parse(status, stat), Usage { resident: 20480, own: 1024, peak: 40960, cpu: 3.0 });
    }
}
