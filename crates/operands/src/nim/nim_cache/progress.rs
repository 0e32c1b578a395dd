//! Download progress, parsed from the log.

/// The last progress in `log`: files, or a percentage.
pub(super) fn last(log: &str) -> Option<String> {
    // Progress bars use carriage returns instead of new lines.
    log.split(['\n', '\r']).rev().find_map(|line| files(line).or_else(|| share(line)))
}

/// `Fetching 12 files:  25%|██▌  | 3/12 [00:02<00:06]`
fn files(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("Fetching ")?;
    let (_, bar) = rest.split_once(" files:")?;
    let counts = bar.rsplit('|').next()?.split_whitespace().next()?;
    let (done, all) = counts.split_once('/')?;
    let (done, all): (u32, u32) = (done.parse().ok()?, all.parse().ok()?);
    Some(format!("{done} of {all} files"))
}

/// `model.safetensors:  42%|████▏     | 2.10G/4.98G [00:40<00:55, 52.1MB/s]`
fn share(line: &str) -> Option<String> {
    let (name, bar) = line.split_once(':')?;
    let percent = bar.split('|').next()?.trim().strip_suffix('%')?;
    let percent: u8 = percent.parse().ok().filter(|percent| *percent <= 100)?;
    let amount = bar.rsplit('|').next()?.split_whitespace().next().filter(|amount| amount.contains('/'))?;
    let (done, all) = amount.split_once('/')?;
    Some(format!("{done} of {all} ({percent} %) of {}", name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bar_counts() {
        let log = "downloading\nFetching 12 files:   8%|▊         | 1/12 [00:01<00:11]\r\
                   Fetching 12 files:  25%|██▌       | 3/12 [00:02<00:06]\r";
        assert_eq!(last(log).unwrap(), "3 of 12 files");
        let log = "model.safetensors:  42%|████▏     | 2.10G/4.98G [00:40<00:55, 52.1MB/s]";
        assert_eq!(last(log).unwrap(), "2.10G of 4.98G (42 %) of model.safetensors");
    }

    #[test]
    fn other_lines_tell_nothing() {
        for log in ["", "Fetching files", "ratio: 3/4", "error: 200% wrong", "a: 300%| 1/2"] {
            assert_eq!(last(log), None, "{log}");
        }
    }
}
