//! Resource usage of a process, from procfs.

use anyhow::{Context, Result};

/// USER_HZ: the unit of CPU time in procfs, whatever the kernel's own clock rate.
const TICKS: f64 = 100.0;

/// Memory in kilobytes, time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Resident set size.
    pub(super) resident: u64,
    /// Anonymous memory: heap and stacks.
    pub(super) own: u64,
    /// Peak resident set size.
    pub(super) peak: u64,
    /// CPU time, user and system.
    pub(super) cpu: f64,
}

impl Usage {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).context("the operator has ended");
        Ok(Self::parse(&read("status")?, &read("stat")?))
    }

    /// Resets the peak resident set size.
    pub(super) fn reset_peak(pid: u32) -> Result<()> {
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("the kernel does not forget the peak of memory")
    }

    fn parse(status: &str, stat: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
        };
        // The process name before it may contain spaces and parentheses.
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = |place: usize| after.split_whitespace().nth(place).and_then(|text| text.parse::<f64>().ok());
        let cpu = (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / TICKS;
        Self { resident: field("VmRSS"), own: field("RssAnon"), peak: field("VmHWM"), cpu }
    }
}

/// Converts KiB to MB.
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
