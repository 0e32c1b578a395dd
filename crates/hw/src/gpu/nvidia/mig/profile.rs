//! Names of MIG profiles: `1g.18gb`, `1c.3g.71gb`, `1g.18gb+me`, `1g.24gb-me`.
//!
//! Memory in a name is in eighths of the GPU's memory, so that a profile has the same name whatever the driver
//! reserves.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A parsed profile name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Profile {
    /// Compute slices.
    pub compute: u32,
    /// GPU slices.
    pub gpu: u32,
    /// Memory in GB.
    pub gigabytes: u64,
    /// Additional engines: `me`, `me.all`, `gfx`.
    pub with: BTreeSet<String>,
    /// Missing engines: `me`.
    pub without: BTreeSet<String>,
}

impl Profile {
    /// The plain profile of these slices on a GPU with `total_bytes` of memory.
    pub fn of(compute: u32, gpu: u32, memory_mib: u64, total_bytes: u64) -> Self {
        let gigabytes = gigabytes(memory_mib, total_bytes);
        Self { compute, gpu, gigabytes, with: BTreeSet::new(), without: BTreeSet::new() }
    }

    /// Adds the engine that the driver's profile number stands for.
    pub fn with_attribute(mut self, attribute: Option<Attribute>) -> Self {
        match attribute {
            Some(Attribute::With(name)) => drop(self.with.insert(name.to_owned())),
            Some(Attribute::Without(name)) => drop(self.without.insert(name.to_owned())),
            None => {}
        }
        self
    }

    /// The name in a resource or label, where `+` is not allowed.
    pub fn resource_part(&self) -> String {
        self.to_string().replace('+', ".")
    }

    /// Whether it has all compute slices of its GPU instance: only such profiles have a resource.
    pub fn whole(&self) -> bool {
        self.compute == self.gpu
    }
}

/// Memory as in profile names: eighths of the GPU, rounded up, in GB.
fn gigabytes(memory_mib: u64, total_bytes: u64) -> u64 {
    let total_mib = total_bytes >> 20;
    if total_mib == 0 {
        return 0;
    }
    let eighths = (memory_mib * 8).div_ceil(total_mib);
    let total_gb = total_bytes.div_ceil(1 << 30);
    // Rounded to the nearest, halves up.
    (eighths * total_gb * 2 + 8) / 16
}

/// An attribute of a profile beyond its slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// Has this engine.
    With(&'static str),
    /// Lacks this engine.
    Without(&'static str),
}

/// The attribute of a GPU instance profile number (the index passed to NVML).
pub fn attribute_of_index(index: u32) -> Option<Attribute> {
    match index {
        7 | 8 => Some(Attribute::With("me")),
        10..=12 => Some(Attribute::With("gfx")),
        13 | 14 => Some(Attribute::Without("me")),
        15 | 16 => Some(Attribute::With("me.all")),
        _ => None,
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.whole() {
            write!(f, "{}c.", self.compute)?;
        }
        write!(f, "{}g.{}gb", self.gpu, self.gigabytes)?;
        for (sign, names) in [('+', &self.with), ('-', &self.without)] {
            if !names.is_empty() {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                write!(f, "{sign}{}", names.join(","))?;
            }
        }
        Ok(())
    }
}

/// An invalid profile name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no MIG profile; write it as 1g.18gb, 1c.3g.71gb or 1g.18gb+me")]
pub struct NoProfile(String);

impl FromStr for Profile {
    type Err = NoProfile;

    fn from_str(text: &str) -> Result<Self, NoProfile> {
        parse(text).ok_or_else(|| NoProfile(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Profile> {
    let (slices, with, without) = match (text.split_once('+'), text.split_once('-')) {
        (Some(_), Some(_)) => return None,
        (Some((slices, names)), None) => (slices, attributes(names)?, BTreeSet::new()),
        (None, Some((slices, names))) => (slices, BTreeSet::new(), attributes(names)?),
        (None, None) => (text, BTreeSet::new(), BTreeSet::new()),
    };
    let parts: Vec<&str> = slices.split('.').collect();
    let (compute, gpu, memory) = match parts[..] {
        [gpu, memory] => (None, gpu, memory),
        [compute, gpu, memory] => (Some(number(compute.strip_suffix('c')?)?), gpu, memory),
        _ => return None,
    };
    let gpu = number(gpu.strip_suffix('g')?)?;
    let gigabytes = number(memory.strip_suffix("gb")?)?.into();
    let compute = compute.unwrap_or(gpu);
    (compute <= gpu).then_some(Profile { compute, gpu, gigabytes, with, without })
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|&n| n > 0)
}

fn attributes(text: &str) -> Option<BTreeSet<String>> {
    let names: Vec<&str> = text.split(',').collect();
    let plain = |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    names.iter().all(plain).then(|| names.into_iter().map(str::to_owned).collect())
}

/// GPU, GPU instance and compute instance in a legacy MIG device name: `MIG-GPU-<uuid>/<gi>/<ci>`.
pub fn legacy(name: &str) -> Option<(&str, u32, u32)> {
    let mut parts = name.strip_prefix("MIG-")?.split('/');
    let (gpu, gi, ci) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (gpu.starts_with("GPU-") && parts.next().is_none()).then_some((gpu, gi, ci))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Memory of an H200, as its driver reports it.
    const H200: u64 = 143_771 << 20;

    #[test]
    fn an_h200_is_cut_into_the_profiles_that_its_driver_names() {
        let cases = [
            (1, 1, 16384 + 512, "1g.18gb"),
            (1, 1, 33280, "1g.35gb"),
            (2, 2, 33280, "2g.35gb"),
            (3, 3, 71424, "3g.71gb"),
            (4, 4, 71424, "4g.71gb"),
            (7, 7, 143_000, "7g.141gb"),
            (1, 3, 71424, "1c.3g.71gb"),
        ];
        for (compute, gpu, memory, name) in cases {
            assert_eq!(Profile::of(compute, gpu, memory, H200).to_string(), name);
        }
    }

    #[test]
    fn other_memory_sizes_round_as_their_drivers_do() {
        let of = |slices, memory, total: u64| Profile::of(slices, slices, memory, total << 20).to_string();
        assert_eq!(of(1, 4864, 40_960), "1g.5gb");
        assert_eq!(of(3, 20_096, 40_960), "3g.20gb");
        assert_eq!(of(1, 9856, 81_920), "1g.10gb");
        assert_eq!(of(1, 22_528, 183_359), "1g.23gb");
        assert_eq!(of(2, 45_056, 183_359), "2g.45gb");
    }

    #[test]
    fn what_is_no_profile_is_refused_with_an_example() {
        for text in [
            "",
            "1g",
            "1g.",
            "g.5gb",
            "1g.5",
            "1g.5gb+",
            "1g.5gb+me-gfx",
            "1 g.5gb",
            "4c.3g.20gb",
            "0g.5gb",
            "1g.5gb+me,",
            "1x.5gb",
        ] {
            let error = text.parse::<Profile>().expect_err(text).to_string();
            assert!(error.contains("write it as"), "{error}");
        }
    }

    #[test]
    fn resource_names_hold_no_plus() {
        let cases = [
            ("1g.5gb", "1g.5gb"),
            ("1g.10gb+me", "1g.10gb.me"),
            ("1g.24gb-me", "1g.24gb-me"),
            ("2g.48gb+gfx", "2g.48gb.gfx"),
            ("1g.24gb+me.all", "1g.24gb.me.all"),
        ];
        for (name, part) in cases {
            assert_eq!(name.parse::<Profile>().map(|profile| profile.resource_part()).as_deref(), Ok(part));
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_as_it_was_written(compute in 1u32..8, more in 0u32..4, gigabytes in 1u64..300, me: bool) {
            let attribute = me.then_some(Attribute::With("me"));
            let profile = Profile { compute, gpu: compute + more, gigabytes, with: BTreeSet::new(), without: BTreeSet::new() };
            let profile = profile.with_attribute(attribute);
            prop_assert_eq!(profile.to_string().parse::<Profile>(), Ok(profile));
        }

        #[test]
        fn any_text_is_answered(text in ".{0,24}") {
            let _ = text.parse::<Profile>();
        }
    }

    #[test]
    fn old_names_say_where_a_mig_device_is() {
        assert_eq!(legacy("MIG-GPU-5a/7/0"), Some(("GPU-5a", 7, 0)));
        for name in ["MIG-5a", "GPU-5a/7/0", "MIG-GPU-5a/7", "MIG-GPU-5a/7/0/1", "MIG-GPU-5a/x/0", ""] {
            assert_eq!(legacy(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_old_name_is_answered(name in "(MIG-)?(GPU-)?[0-9a-f/-]{0,24}") {
            let _ = legacy(&name);
        }
    }
}
