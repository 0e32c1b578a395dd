//! Resource names, and patterns that match them.

use std::fmt;

use super::InvalidValue;

/// Maximum length of a resource name, prefix included.
const LONGEST: usize = 63;
const PREFIX: &str = "nvidia.com/";

/// A resource name as in pod requests, such as `nvidia.com/gpu`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(String);

impl ResourceName {
    /// Full GPUs.
    pub fn gpu() -> Self {
        Self(format!("{PREFIX}gpu"))
    }

    /// MIG devices of a profile; a `+` is replaced, as resource names must not contain it.
    pub fn mig(profile: &str) -> Self {
        Self(format!("{PREFIX}mig-{}", profile.replace('+', ".")))
    }

    /// Parses a name with or without the prefix; `field` is for the error.
    pub fn parse(field: &str, text: &str) -> Result<Self, InvalidValue> {
        let name = if text.starts_with(PREFIX) { text.to_owned() } else { format!("{PREFIX}{text}") };
        let part = name.split_once('/').map_or("", |(_, part)| part);
        let wrong = |why: &str| InvalidValue::new(field, format!("'{text}'"), why);
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

    /// The full name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without its prefix.
    pub fn part(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, part)| part)
    }

    /// The name with the suffix for shared resources.
    pub fn shared(&self) -> Self {
        Self(format!("{}.shared", self.0))
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pattern in which `*` matches any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether the whole text matches.
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
