//! Value types of flags.

use std::time::Duration;

use super::InvalidValue;

/// Allowed values by name.
pub type Choices<T> = &'static [(&'static str, T)];

/// Parses one of the choices; the error lists them.
pub fn one_of<T: Copy>(field: &str, text: &str, choices: Choices<T>) -> Result<T, InvalidValue> {
    let found = choices.iter().find(|(word, _)| *word == text.trim());
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        InvalidValue::new(field, format!("'{text}'"), format!("is unknown; write {}", words.join(", ")))
    })
}

/// Parses a boolean flag.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "1" => Ok(true),
        "false" | "f" | "0" => Ok(false),
        _ => Err("is neither true nor false".into()),
    }
}

/// MIG strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MigStrategy {
    /// Whole GPUs only.
    #[default]
    None,
    /// MIG devices as GPUs; all must have the same profile.
    Single,
    /// A resource for each MIG profile.
    Mixed,
}

impl MigStrategy {
    /// Allowed values.
    pub const CHOICES: Choices<Self> = &[("none", Self::None), ("single", Self::Single), ("mixed", Self::Mixed)];

    /// The value's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Single => "single",
            Self::Mixed => "mixed",
        }
    }
}

/// How a container learns its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceListStrategy {
    /// Environment variable.
    Envvar,
    /// Mounts, which a container cannot forge.
    VolumeMounts,
    /// CDI annotations.
    CdiAnnotations,
    /// CDI device names in the CRI request.
    CdiCri,
}

impl DeviceListStrategy {
    /// Allowed values.
    pub const CHOICES: Choices<Self> = &[
        ("envvar", Self::Envvar),
        ("volume-mounts", Self::VolumeMounts),
        ("cdi-annotations", Self::CdiAnnotations),
        ("cdi-cri", Self::CdiCri),
    ];

    /// Whether it needs CDI specs.
    pub fn cdi(self) -> bool {
        matches!(self, Self::CdiAnnotations | Self::CdiCri)
    }

    /// Parses a comma-separated list without duplicates.
    pub fn list(field: &str, text: &str) -> Result<Vec<Self>, InvalidValue> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let mut list =
            words.map(|word| one_of(field, word, Self::CHOICES)).collect::<Result<Vec<Self>, InvalidValue>>()?;
        list.sort_unstable();
        list.dedup();
        if list.is_empty() {
            return Err(InvalidValue::new(field, "''", "names no strategy; write envvar, or leave it out"));
        }
        Ok(list)
    }
}

/// How devices are identified to containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceIdStrategy {
    /// UUID.
    #[default]
    Uuid,
    /// Index.
    Index,
}

impl DeviceIdStrategy {
    /// Allowed values.
    pub const CHOICES: Choices<Self> = &[("uuid", Self::Uuid), ("index", Self::Index)];
}

/// Allocation policy for replicas of shared devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllocationPolicy {
    /// The least used device first.
    #[default]
    Distributed,
    /// The most used device first.
    Packed,
}

impl AllocationPolicy {
    /// Allowed values.
    pub const CHOICES: Choices<Self> = &[("distributed", Self::Distributed), ("packed", Self::Packed)];
}

/// Device discovery strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiscoveryStrategy {
    /// Detect the platform.
    #[default]
    Auto,
    /// NVML.
    Nvml,
    /// Tegra: the integrated GPU.
    Tegra,
}

impl DiscoveryStrategy {
    /// Allowed values.
    pub const CHOICES: Choices<Self> = &[("auto", Self::Auto), ("nvml", Self::Nvml), ("tegra", Self::Tegra)];
}

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// A fixed period.
    Every(Duration),
    /// On events only.
    Infinite,
}

impl Interval {
    /// Parses `90s`, `1m30s`, `1.5h` or `infinite`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("infinite") {
            return Some(Self::Infinite);
        }
        if text == "0" {
            return Some(Self::Every(Duration::ZERO));
        }
        let (mut rest, mut seconds) = (text, 0.0);
        while !rest.is_empty() {
            let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let number: f64 = rest[..unit].parse().ok()?;
            rest = &rest[unit..];
            let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
            let factor = match &rest[..end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" | "μs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
            seconds += number * factor;
            rest = &rest[end..];
        }
        (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok().map(Self::Every)).flatten()
    }
}
