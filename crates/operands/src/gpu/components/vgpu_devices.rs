//! The default vGPU configs: one per type, and `default` with one per GPU.

use std::fmt::Write;

/// GPUs with the same types; the suffix of each type with its devices per GPU.
const TYPES: &[(&str, &str)] = &[
    ("6000D", "1-42C:2 1-42Q:2 2-84C:1 2-84Q:1 84C:1 84Q:1 1-42CGFX:2 1-42QGFX:2 2-84CGFX:1 2-84QGFX:1"),
    ("A2 A16 T4 V100L V100X V100", "1Q:16 2Q:8 4C:4 4Q:4 8C:2 8Q:2 16C:1 16Q:1"),
    ("A10 L2 L4 RTX6000P RTXA5000 RTXA5500", "1Q:24 2Q:12 3Q:8 4C:6 4Q:6 6C:4 6Q:4 8C:3 8Q:3 12C:2 12Q:2 24C:1 24Q:1"),
    ("A30", "1-6C:4 1-6CME:1 2-12C:2 2-12CME:1 4C:6 4-24C:1 6C:4 8C:3 12C:2 24C:1"),
    (
        "A40 L20 L40S L40 RTX5880-Ada RTX6000-Ada RTXA6000",
        "1Q:32 2Q:24 3Q:16 4C:12 4Q:12 6C:8 6Q:8 8C:6 8Q:6 12C:4 12Q:4 16C:3 16Q:3 24C:2 24Q:2 48C:1 48Q:1",
    ),
    (
        "A100D A100DX A800D A800DX",
        "1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4C:20 4-40C:1 7-80C:1 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1",
    ),
    ("A100X A100 A800", "1-5C:7 1-5CME:1 1-10C:4 2-10C:3 3-20C:2 4C:10 4-20C:1 5C:8 7-40C:1 8C:5 10C:4 20C:2 40C:1"),
    ("B200X", "1-23C:7 1-23CME:1 1-45C:4 2-45C:3 3-90C:2 4-90C:1 7-180C:1 180C:1"),
    (
        "DC",
        "1-2Q:48 1-3Q:32 1-4Q:24 1-6Q:16 1-8C:12 1-8Q:12 1-12C:8 1-12Q:8 1-24C:4 1-24Q:4 2-12C:8 2-12Q:8 \
         2-16C:6 2-16Q:6 2-24C:4 2-24Q:4 2-48C:2 2-48Q:2 3Q:32 4Q:24 4-24C:4 4-24Q:4 4-32C:3 4-32Q:3 4-48C:2 \
         4-48Q:2 4-96C:1 4-96Q:1 6Q:16 8C:12 8Q:12 12C:8 12Q:8 16C:6 16Q:6 24C:4 24Q:4 32C:3 32Q:3 48C:2 \
         48Q:2 96C:1 96Q:1 1-2QGFX:48 1-3QGFX:32 1-4QGFX:24 1-6QGFX:16 1-8CGFX:12 1-8QGFX:12 1-12CGFX:8 \
         1-12QGFX:8 1-16C:2 1-16Q:2 1-24CGFX:4 1-24QGFX:4 2-8C:4 2-8Q:4 2-12CGFX:8 2-12QGFX:8 2-16CGFX:6 \
         2-16QGFX:6 2-24CGFX:4 2-24QGFX:4 2-32C:1 2-32Q:1 2-48CGFX:2 2-48QGFX:2 4-24CGFX:4 4-24QGFX:4 \
         4-32CGFX:3 4-32QGFX:3 4-48CGFX:2 4-48QGFX:2 4-96CGFX:1 4-96QGFX:1",
    ),
    ("GB200", "1-24C:7 1-24CME:1 1-47C:4 2-47C:3 3-95C:2 4-95C:1 7-189C:1 189C:1"),
    ("GH200L", "1-18C:7 1-18CME:1 1-36C:4 2-36C:3 3-72C:2 4-72C:1 7-144C:1 144C:1"),
    ("GH200", "1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-48C:2 4-48C:1 7-96C:1 96C:1"),
    (
        "H20X H200X H200",
        "1-18C:7 1-18CME:1 1-35C:4 2-35C:3 3-71C:2 4C:32 4-71C:1 7C:20 7-141C:1 8C:16 14C:10 17C:8 28C:5 \
         35C:4 70C:2 141C:1",
    ),
    (
        "H20",
        "1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-48C:2 4C:24 4-48C:1 6C:16 7-96C:1 8C:12 12C:8 16C:6 24C:4 32C:3 \
         48C:2 96C:1",
    ),
    (
        "H100L H100XL H800L",
        "1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-47C:2 4C:23 4-47C:1 6C:15 7-94C:1 11C:8 15C:6 23C:4 47C:2 94C:1",
    ),
    (
        "H100XM H100 H800XM H800",
        "1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4C:20 4-40C:1 5C:16 7-80C:1 8C:10 10C:8 16C:5 20C:4 40C:2 \
         80C:1",
    ),
    ("H100XS", "1-8C:7 1-8CME:1 1-16C:4 2-16C:3 3-32C:2 4C:16 4-32C:1 7-64C:1 8C:8 16C:4 32C:2 64C:1"),
    ("RTX5000-Ada V100D V100DX V100S", "1Q:32 2Q:16 4C:8 4Q:8 8C:4 8Q:4 16C:2 16Q:2 32C:1 32Q:1"),
    ("RTX8000P", "1Q:32 2Q:24 3Q:16 4C:8 4Q:12 6C:8 6Q:8 8C:6 8Q:6 12C:4 12Q:4 16C:3 16Q:3 24C:2 24Q:2 48C:1 48Q:1"),
    ("B300X", "1-34C:7 1-34CME:1 1-67C:4 2-67C:3 3-135C:2 4-135C:1 7-269C:1 269C:1"),
];

/// The `default` config: PCI id, type, devices per GPU. Where two GPUs share an id, the first counts.
const DEFAULT: &[(&str, &str, u8)] = &[
    ("0x1DB110DE", "V100X-8Q", 2),
    ("0x1DB310DE", "V100L-8Q", 2),
    ("0x1DB410DE", "V100-8Q", 2),
    ("0x1DB510DE", "V100DX-16Q", 2),
    ("0x1DB610DE", "V100D-16Q", 2),
    ("0x1DF610DE", "V100S-16Q", 2),
    ("0x1E7810DE", "RTX8000P-24Q", 2),
    ("0x1EB810DE", "T4-8Q", 2),
    ("0x20B010DE", "A100X-20C", 2),
    ("0x20B210DE", "A100DX-40C", 2),
    ("0x20B510DE", "A100D-40C", 2),
    ("0x20B810DE", "A100D-40C", 2),
    ("0x20B710DE", "A30-12C", 2),
    ("0x20B910DE", "A30-12C", 2),
    ("0x20F110DE", "A100-20C", 2),
    ("0x20F310DE", "A800DX-40C", 2),
    ("0x20F510DE", "A800D-40C", 2),
    ("0x20FD10DE", "A800D-40C", 2),
    ("0x20F610DE", "A800-20C", 2),
    ("0x223010DE", "RTXA6000-24Q", 2),
    ("0x223110DE", "RTXA5000-12Q", 2),
    ("0x223310DE", "RTXA5500-12Q", 2),
    ("0x223510DE", "A40-24Q", 2),
    ("0x223610DE", "A10-12Q", 2),
    ("0x232110DE", "H100L-47C", 2),
    ("0x232210DE", "H800-40C", 2),
    ("0x232410DE", "H800XM-40C", 2),
    ("0x232910DE", "H20-48C", 2),
    ("0x232C10DE", "H20X-70C", 2),
    ("0x233010DE", "H100XM-40C", 2),
    ("0x233610DE", "H100XM-40C", 2),
    ("0x233110DE", "H100-40C", 2),
    ("0x233510DE", "H200X-70C", 2),
    ("0x233710DE", "H100XS-32C", 2),
    ("0x233910DE", "H100XL-47C", 2),
    ("0x233A10DE", "H800L-47C", 2),
    ("0x233B10DE", "H200-70C", 2),
    ("0x234210DE", "GH200-96C", 1),
    ("0x234810DE", "GH200L-144C", 1),
    ("0x25B610DE", "A16-8Q", 2),
    ("0x26B110DE", "RTX6000-Ada-24Q", 2),
    ("0x26B210DE", "RTX5000-Ada-16Q", 2),
    ("0x26B310DE", "RTX5880-Ada-24Q", 2),
    ("0x26B510DE", "L40-24Q", 2),
    ("0x26B910DE", "L40S-24Q", 2),
    ("0x26BA10DE", "L20-24Q", 2),
    ("0x27B610DE", "L2-12Q", 2),
    ("0x27B810DE", "L4-12Q", 2),
    ("0x290110DE", "B200X-180C", 1),
    ("0x294110DE", "GB200-189C", 1),
    ("0x2BB510DE", "DC-48Q", 2),
    ("0x2BB910DE", "6000D-84Q", 1),
    ("0x2C3A10DE", "DC-16Q", 2),
    ("0x318210DE", "B300X-269C", 1),
];

/// The config file of the vGPU device manager.
pub(crate) fn config() -> String {
    let mut text = String::from("version: v1\nvgpu-configs:\n  default:\n");
    for (id, type_, count) in DEFAULT {
        let _ = write!(text, "    - device-filter: [\"{id}\"]\n      devices: all\n");
        let _ = write!(text, "      vgpu-devices:\n        \"{type_}\": {count}\n");
    }
    for (families, types) in TYPES {
        for family in families.split_whitespace() {
            for (suffix, count) in types.split_whitespace().filter_map(|entry| entry.split_once(':')) {
                let _ = write!(text, "  {family}-{suffix}:\n    - devices: all\n      vgpu-devices:\n");
                let _ = writeln!(text, "        \"{family}-{suffix}\": {count}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_names_a_type_that_there_is() {
        let text = config();
        for (id, type_, count) in DEFAULT {
            assert!(text.contains(&format!("  {type_}:\n")), "{id}: {type_}");
            assert!(*count > 0);
        }
        assert!(text.contains("  H200-141C:\n    - devices: all\n      vgpu-devices:\n        \"H200-141C\": 1\n"));
    }

    #[test]
    fn every_gpu_has_one_default() {
        let ids: std::collections::BTreeSet<_> = DEFAULT.iter().map(|(id, ..)| id).collect();
        assert_eq!(ids.len(), DEFAULT.len());
    }
}
