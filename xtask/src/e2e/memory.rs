//! Memory of operators: the numbers behind the chart's requests and limits.

use anyhow::{Context, Result};

use super::{Suite, name};
use crate::cluster::ctr;

/// Current and peak resident set size of every operator, in MB.
pub(super) fn measure(suite: &Suite) -> Result<String> {
    let tasks = ctr(&["tasks", "list"])?;
    let mut reports = Vec::new();
    for pod in suite.operators()? {
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
        let pid = pid(&tasks, id.trim_start_matches("containerd://"));
        let pid = pid.with_context(|| format!("{} has no process", name(&pod)))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        reports.push(format!(
            "{} {}, at most {}",
            name(&pod),
            megabytes(&status, "VmRSS"),
            megabytes(&status, "VmHWM")
        ));
    }
    Ok(reports.join("; "))
}

/// The PID of a container, from a table of `TASK PID STATUS`.
fn pid<'a>(tasks: &'a str, id: &str) -> Option<&'a str> {
    let mut rows = tasks.lines().map(|line| line.split_whitespace());
    rows.find_map(|mut row| (row.next()? == id).then(|| row.next()).flatten())
}

/// Parses a line such as `VmRSS:     12345 kB`.
fn megabytes(status: &str, field: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or_else(|| "unknown".into(), |kilobytes| format!("{} MB", kilobytes / 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_in_kilobytes() {
        assert_eq!(megabytes("Name:\tx\nVmHWM:\t   40960 kB\nVmRSS:\t   20480 kB\n", "VmRSS"), "20 MB");
        assert_eq!(pid("TASK    PID    STATUS\nabc     42     RUNNING\n", "abc"), Some("42"));
    }
}
