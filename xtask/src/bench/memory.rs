//! The memory of a process, as the kernel counts it.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// In kilobytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Everything that is resident.
    pub(super) resident: u64,
    /// What the process has written: heap and stacks.
    pub(super) own: u64,
    /// The most that was resident so far.
    pub(super) peak: u64,
}

impl Memory {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the operator has ended")?;
        Ok(Self::parse(&status))
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
        };
        Self { resident: field("VmRSS"), own: field("RssAnon"), peak: field("VmHWM") }
    }

    pub(super) fn json(self) -> Value {
        json!({"residentKB": self.resident, "ownKB": self.own, "peakKB": self.peak})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_in_kilobytes() {
        let status = "Name:\tx\nVmHWM:\t   40960 kB\nVmRSS:\t   20480 kB\nRssAnon:\t    1024 kB\n";
        assert_eq!(Memory::parse(status), Memory { resident: 20480, own: 1024, peak: 40960 });
    }
}
