//! Names of kinds, devices, annotations and files, with their rules.

use std::fmt;
use std::str::FromStr;

use crate::text::Format;
use crate::{Error, Result};

/// A kind of device: `<vendor>/<class>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    vendor: String,
    class: String,
}

impl Kind {
    /// A kind from vendor and class.
    pub fn new(vendor: &str, class: &str) -> Result<Self> {
        let letters = "it starts with a letter, ends with a letter or digit, and has only those, '-', '_' and '.'";
        for (what, value) in [("vendor", vendor), ("class", class)] {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let begins = value.starts_with(|c: char| c.is_ascii_alphabetic());
            let ends = value.ends_with(|c: char| c.is_ascii_alphanumeric());
            if !(begins && ends && value.chars().all(plain)) {
                return Err(Error::Name { what, value: value.to_owned(), why: letters });
            }
        }
        Ok(Self { vendor: vendor.to_owned(), class: class.to_owned() })
    }

    /// Vendor of the devices.
    pub fn vendor(&self) -> &str {
        &self.vendor
    }

    /// Class of the devices.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// A device name of this kind.
    pub fn device(&self, name: &str) -> Result<QualifiedName> {
        if !is_device_name(name) {
            let why = "it starts and ends with a letter or digit, and has only those, '-', '_', '.' and ':'";
            return Err(Error::Name { what: "device name", value: name.to_owned(), why });
        }
        Ok(QualifiedName { kind: self.clone(), name: name.to_owned() })
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let why = "write it as vendor.com/class";
        let parts = text.split_once('/').ok_or(Error::Name { what: "kind", value: text.to_owned(), why })?;
        Self::new(parts.0, parts.1)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vendor, self.class)
    }
}

/// A qualified device name: `<vendor>/<class>=<name>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct QualifiedName {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

impl FromStr for QualifiedName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let why = "write it as vendor.com/class=device";
        let parts = text.split_once('=').ok_or(Error::Name { what: "device", value: text.to_owned(), why })?;
        parts.0.parse::<Kind>()?.device(parts.1)
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.name)
    }
}

/// Whether a device name is valid.
pub fn is_device_name(name: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(edge)
        && name.ends_with(edge)
        && name.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.' | ':'))
}

/// Annotation key with which a plugin requests devices: `<prefix><plugin>_<id>`, such as `cdi.k8s.io/plugin_0`.
pub fn annotation_key(prefix: &str, plugin: &str, id: &str) -> Result<String> {
    let name = format!("{plugin}_{}", id.replace('/', "_"));
    let edge = |c: char| c.is_ascii_alphanumeric();
    let plain = name.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'));
    let whole = !plugin.is_empty() && !id.is_empty() && name.len() <= 63;
    if !(whole && plain && name.starts_with(edge) && name.ends_with(edge)) {
        let why = "it has at most 63 letters, digits, '-', '_' and '.', and starts and ends with a letter or digit";
        return Err(Error::Name { what: "annotation", value: name, why });
    }
    Ok(format!("{prefix}{name}"))
}

/// Annotation value with these devices.
pub fn annotation_value(devices: &[QualifiedName]) -> String {
    devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// File name of a spec: `<vendor>-<class>.yaml`, or `<vendor>-<class>_<id>.yaml` for a transient one.
pub fn file_name(kind: &Kind, id: Option<&str>, format: Format) -> String {
    let id = id.map(|id| format!("_{}", id.replace('/', "_"))).unwrap_or_default();
    format!("{}-{}{id}.{}", kind.vendor, kind.class, format.extension())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_and_devices_are_read_or_refused_with_the_rule() {
        let good = ["nvidia.com/gpu=0", "nvidia.com/gpu=0:1", "nvidia.com/gpu.coherent=GPU-1_x", "a/b=all"];
        for text in good {
            assert_eq!(text.parse::<QualifiedName>().map(|name| name.to_string()).as_deref(), Ok(text));
        }
        let bad = [
            "",
            "nvidia.com",
            "nvidia.com/gpu",
            "nvidia.com/gpu=",
            "1nvidia/gpu=0",
            "nvidia-/gpu=0",
            "a/b=-",
            "a/=0",
            "a/b=x y",
        ];
        for text in bad {
            assert!(text.parse::<QualifiedName>().is_err(), "{text}");
        }
    }

    #[test]
    fn annotations_and_files_are_named_as_runtimes_expect() {
        assert_eq!(annotation_key("cdi.k8s.io/", "plugin", "a/b").as_deref(), Ok("cdi.k8s.io/plugin_a_b"));
        assert!(annotation_key("cdi.k8s.io/", "plugin", &"x".repeat(64)).is_err());
        assert!(annotation_key("cdi.k8s.io/", "-plugin", "0").is_err());
        assert!(annotation_key("cdi.k8s.io/", "", "0").is_err());
        let kind: Kind = "nvidia.com/gpu".parse().expect("a kind");
        let devices = [kind.device("0").expect("a name"), kind.device("all").expect("a name")];
        assert_eq!(annotation_value(&devices), "nvidia.com/gpu=0,nvidia.com/gpu=all");
        assert_eq!(file_name(&kind, None, Format::Json), "nvidia.com-gpu.json");
        assert_eq!(file_name(&kind, Some("a/b"), Format::Yaml), "nvidia.com-gpu_a_b.yaml");
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,40}") {
            if let Ok(name) = text.parse::<QualifiedName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
