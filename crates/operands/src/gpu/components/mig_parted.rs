//! The default mig-parted config.

use std::fmt::Write;

/// Layouts with one profile on every GPU: name and count. A suffix such as `.me` is an attribute of the profile.
const SIMPLE: &str = "\
    1g.5gb=7 1g.5gb.me=1 2g.10gb=3 3g.20gb=2 4g.20gb=1 7g.40gb=1 1g.24gb.gfx=4 1g.24gb.me.all=1 1g.24gb-me=4 \
    2g.48gb=2 2g.48gb.gfx=2 2g.48gb.me.all=1 2g.48gb-me=2 4g.96gb=1 4g.96gb.gfx=1 1g.10gb.me=1 1g.20gb=4 \
    1g.23gb=7 1g.23gb.me=1 1g.24gb.me=1 2g.20gb=3 3g.40gb=2 4g.40gb=1 7g.80gb=1 1g.6gb=4 1g.6gb.me=1 2g.12gb=2 \
    2g.12gb.me=1 4g.24gb=1 1g.12gb=7 1g.12gb.me=1 1g.24gb=4 1g.45gb=4 1g.47gb=4 2g.24gb=3 2g.45gb=3 2g.47gb=3 \
    3g.47gb=2 4g.47gb=1 7g.94gb=1 3g.48gb=2 3g.90gb=2 3g.93gb=2 3g.95gb=2 4g.48gb=1 4g.90gb=1 4g.93gb=1 \
    4g.95gb=1 7g.96gb=1 7g.180gb=1 7g.186gb=1 7g.189gb=1 1g.18gb=7 1g.18gb.me=1 2g.35gb=3 3g.71gb=2 4g.71gb=1 \
    7g.141gb=1 1g.36gb=4 2g.36gb=3 3g.72gb=2 4g.72gb=1 7g.144gb=1 1g.34gb=7 1g.34gb.me=1 1g.67gb=4 2g.67gb=3 \
    3g.135gb=2 4g.135gb=1 7g.269gb=1 1g.35gb.me=1 1g.70gb=4 2g.70gb=3 3g.139gb=2 4g.139gb=1 7g.278gb=1";

/// GPUs with 80 GB.
const EIGHTY: &[&str] =
    &["0x233010DE", "0x233110DE", "0x232210DE", "0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE", "0x232410DE"];

/// GPUs with 40 GB.
const FORTY: &[&str] = &["0x20B010DE", "0x20B110DE", "0x20F110DE", "0x20F610DE"];

/// MIG profiles with counts.
type Devices = &'static [(&'static str, u8)];

/// Layouts by GPU: name, PCI ids, profiles with counts.
const FILTERED: &[(&str, &[&str], Devices)] = &[
    ("all-1g.10gb", EIGHTY, &[("1g.10gb", 7)]),
    ("all-1g.10gb", FORTY, &[("1g.10gb", 4)]),
    ("all-balanced", &["0x294110DE"], &[("1g.23gb", 2), ("2g.47gb", 1), ("3g.93gb", 1)]),
    ("all-balanced", &["0x2BB510DE"], &[("1g.24gb", 2), ("2g.48gb", 1)]),
    ("all-balanced", &["0x290110DE"], &[("1g.23gb", 2), ("2g.45gb", 1), ("3g.90gb", 1)]),
    ("all-balanced", &["0x234810DE"], &[("1g.18gb", 2), ("2g.36gb", 1), ("3g.72gb", 1)]),
    ("all-balanced", &["0x233510DE", "0x233B10DE"], &[("1g.18gb", 2), ("2g.35gb", 1), ("3g.71gb", 1)]),
    ("all-balanced", &["0x232110DE", "0x233A10DE"], &[("1g.12gb", 2), ("2g.24gb", 1), ("3g.47gb", 1)]),
    ("all-balanced", EIGHTY, &[("1g.10gb", 2), ("2g.20gb", 1), ("3g.40gb", 1)]),
    ("all-balanced", FORTY, &[("1g.5gb", 2), ("2g.10gb", 1), ("3g.20gb", 1)]),
    ("all-balanced", &["0x20B710DE"], &[("1g.6gb", 2), ("2g.12gb", 1)]),
    (
        "all-balanced",
        &["0x234210DE", "0x233D10DE", "0x20B610DE", "0x232910DE"],
        &[("1g.12gb", 2), ("2g.24gb", 1), ("3g.48gb", 1)],
    ),
    ("all-balanced", &["0x318210DE"], &[("1g.34gb", 2), ("2g.67gb", 1), ("3g.135gb", 1)]),
    ("all-balanced", &["0x31C210DE"], &[("1g.35gb", 2), ("2g.70gb", 1), ("3g.139gb", 1)]),
    ("all-1g.35gb", &["0x233510DE"], &[("1g.35gb", 4)]),
    ("all-1g.35gb", &["0x31C210DE"], &[("1g.35gb", 7)]),
];

/// The config file of mig-parted.
pub(crate) fn config() -> String {
    let mut text = String::from("version: v1\nmig-configs:\n");
    text.push_str("  all-disabled:\n    - devices: all\n      mig-enabled: false\n");
    text.push_str("  all-enabled:\n    - devices: all\n      mig-enabled: true\n      mig-devices: {}\n");
    for (name, count) in SIMPLE.split_whitespace().filter_map(|entry| entry.split_once('=')) {
        let _ = write!(text, "  all-{name}:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n");
        let _ = writeln!(text, "        \"{}\": {count}", profile(name));
    }
    let mut before = "";
    for (name, ids, devices) in FILTERED {
        if *name != before {
            let _ = writeln!(text, "  {name}:");
        }
        before = name;
        let ids = ids.iter().map(|id| format!("\"{id}\"")).collect::<Vec<_>>().join(", ");
        let _ = write!(
            text,
            "    - device-filter: [{ids}]\n      devices: all\n      mig-enabled: true\n      mig-devices:\n"
        );
        for (profile, count) in *devices {
            let _ = writeln!(text, "        \"{profile}\": {count}");
        }
    }
    text
}

/// `1g.5gb.me` is the profile `1g.5gb+me`.
fn profile(name: &str) -> String {
    for suffix in ["me.all", "me", "gfx"] {
        if let Some(size) = name.strip_suffix(suffix).and_then(|rest| rest.strip_suffix('.')) {
            return format!("{size}+{suffix}");
        }
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_a_profile_follow_a_plus() {
        let table = [
            ("1g.5gb", "1g.5gb"),
            ("1g.5gb.me", "1g.5gb+me"),
            ("1g.24gb.gfx", "1g.24gb+gfx"),
            ("2g.48gb.me.all", "2g.48gb+me.all"),
            ("1g.24gb-me", "1g.24gb-me"),
        ];
        for (name, expected) in table {
            assert_eq!(profile(name), expected);
        }
    }

    #[test]
    fn every_layout_is_there_once_and_balanced_ones_depend_on_the_gpu() {
        let text = config();
        assert!(text.contains("  all-7g.141gb:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n        \"7g.141gb\": 1\n"));
        assert_eq!(text.matches("  all-balanced:\n").count(), 1);
        assert_eq!(text.matches("device-filter").count(), FILTERED.len());
        let names: Vec<&str> = text.lines().filter(|line| line.starts_with("  all-")).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len());
    }
}
