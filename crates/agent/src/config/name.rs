//! Names of resources, and patterns that match them.

use std::fmt;

use super::Wrong;

/// The longest name of a resource, prefix included.
const LONGEST: usize = 63;
const PREFIX: &str = "nvidia.com/";

/// A resource as pods ask for it, such as `nvidia.com/gpu`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(String);

impl ResourceName {
    /// Full GPUs.
    pub fn gpu() -> Self {
        Self(format!("{PREFIX}gpu"))
    }

    /// MIG devices of a profile, which may hold a `+` where a resource may not.
    pub fn mig(profile: &str) -> Self {
        Self(format!("{PREFIX}mig-{}", profile.replace('+', ".")))
    }

    /// From a name with or without the prefix; `field` is where it stands.
    pub fn parse(field: &str, text: &str) -> Result<Self, Wrong> {
        let name = if text.starts_with(PREFIX) { text.to_owned() } else { format!("{PREFIX}{text}") };
        let part = name.split_once('/').map_or("", |(_, part)| part);
        let wrong = |why: &str| Wrong::new(field, format!("'{text}'"), why);
        if name.len() > LONGEST {
            return Err(wrong("is too long for a resource; use at most 63 characters, prefix included"));
        }
        let label = |label: &str| {
            let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        if !part.split('.').all(label) {
            return Err(wrong("is no name of a resource; use lower case letters, digits, '-' and '.'"));
        }
        Ok(Self(name))
    }

    /// All of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What follows the prefix.
    pub fn part(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, part)| part)
    }

    /// The name of its shared form.
    pub fn shared(&self) -> Self {
        Self(format!("{}.shared", self.0))
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pattern in which `*` stands for anything and everything else for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// From its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether all of a text fits.
    pub fn matches(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else { return rest.is_empty() };
        for part in parts {
            let Some(found) = rest.find(part) else { return false };
            rest = &rest[found + part.len()..];
        }
        rest.ends_with(last)
    }
}
