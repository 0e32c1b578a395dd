//! The values that flags can have.

use std::time::Duration;

use super::Wrong;

/// Words and what they stand for.
pub type Choices<T> = &'static [(&'static str, T)];

/// What a word stands for, or what it could have been.
pub fn one_of<T: Copy>(field: &str, text: &str, choices: Choices<T>) -> Result<T, Wrong> {
    let found = choices.iter().find(|(word, _)| *word == text.trim());
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        Wrong::new(field, format!("'{text}'"), format!("is unknown; write {}", words.join(", ")))
    })
}

/// Yes or no, in the words that flags take.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "1" => Ok(true),
        "false" | "f" | "0" => Ok(false),
        _ => Err("is neither true nor false".into()),
    }
}

/// How MIG devices are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MigStrategy {
    /// Not at all: GPUs only.
    #[default]
    None,
    /// As GPUs, all of them alike.
    Single,
    /// Each profile under a name of its own.
    Mixed,
}

impl MigStrategy {
    /// Its words.
    pub const CHOICES: Choices<Self> = &[("none", Self::None), ("single", Self::Single), ("mixed", Self::Mixed)];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Single => "single",
            Self::Mixed => "mixed",
        }
    }
}

/// How a container is told which devices it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceListStrategy {
    /// By an environment variable.
    Envvar,
    /// By empty mounts, which a container cannot forge.
    VolumeMounts,
    /// By annotations with CDI names.
    CdiAnnotations,
    /// By CDI names in the kubelet's call to the runtime.
    CdiCri,
}

impl DeviceListStrategy {
    /// Its words.
    pub const CHOICES: Choices<Self> = &[
        ("envvar", Self::Envvar),
        ("volume-mounts", Self::VolumeMounts),
        ("cdi-annotations", Self::CdiAnnotations),
        ("cdi-cri", Self::CdiCri),
    ];

    /// Whether the runtime needs CDI specs for it.
    pub fn cdi(self) -> bool {
        matches!(self, Self::CdiAnnotations | Self::CdiCri)
    }

    /// Several, with commas between them, each once.
    pub fn list(field: &str, text: &str) -> Result<Vec<Self>, Wrong> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let mut list = words.map(|word| one_of(field, word, Self::CHOICES)).collect::<Result<Vec<Self>, Wrong>>()?;
        list.sort_unstable();
        list.dedup();
        if list.is_empty() {
            return Err(Wrong::new(field, "''", "names no strategy; write envvar, or leave it out"));
        }
        Ok(list)
    }
}

/// How devices are named to containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceIdStrategy {
    /// By UUID.
    #[default]
    Uuid,
    /// By place.
    Index,
}

impl DeviceIdStrategy {
    /// Its words.
    pub const CHOICES: Choices<Self> = &[("uuid", Self::Uuid), ("index", Self::Index)];
}

/// Which replicas of shared devices are chosen first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllocationPolicy {
    /// Those of the device that is shared least.
    #[default]
    Distributed,
    /// Those of the device that is shared most.
    Packed,
}

impl AllocationPolicy {
    /// Its words.
    pub const CHOICES: Choices<Self> = &[("distributed", Self::Distributed), ("packed", Self::Packed)];
}

/// How GPUs are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiscoveryStrategy {
    /// In the way that fits the machine.
    #[default]
    Auto,
    /// Through NVML.
    Nvml,
    /// As part of the processor.
    Tegra,
}

impl DiscoveryStrategy {
    /// Its words.
    pub const CHOICES: Choices<Self> = &[("auto", Self::Auto), ("nvml", Self::Nvml), ("tegra", Self::Tegra)];
}

/// How often something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Again after that time.
    Every(Duration),
    /// Only when something happens.
    Infinite,
}

impl Interval {
    /// From `90s`, `1m30s`, `1.5h` or `infinite`; `None` when it is none of these.
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
