//! Serialises specs as YAML or JSON.

use std::path::Path;
use std::str::FromStr;

use crate::{Error, Result, Spec};

/// Format of a spec file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

impl Format {
    /// File extension.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }

    /// The format of a file, by its extension.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "yaml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            _ => Err(Error::Name { what: "format", value: text.to_owned(), why: "write yaml or json" }),
        }
    }
}

impl Spec {
    /// Serialises the spec, with its minimum version.
    pub fn to_text(&self, format: Format) -> Result<String> {
        let mut spec = self.clone();
        spec.cdi_version = self.minimum_version().to_owned();
        match format {
            Format::Json => serde_json::to_string_pretty(&spec).map(|text| text + "\n").map_err(text_error),
            Format::Yaml => serde_saphyr::to_string(&spec).map(|text| format!("---\n{text}")).map_err(text_error),
        }
    }

    /// Parses YAML or JSON.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(text_error);
        }
        serde_saphyr::from_str(text).map_err(text_error)
    }
}

fn text_error(error: impl std::fmt::Display) -> Error {
    Error::Text(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ContainerEdits, Device, DeviceNode, Hook, Mount};
    use proptest::prelude::*;

    #[test]
    fn fields_have_the_names_of_the_format() {
        let node = DeviceNode {
            path: "/dev/nvidia0".into(),
            host_path: Some("/run/nvidia/driver/dev/nvidia0".into()),
            type_: Some("c".into()),
            major: Some(195),
            minor: Some(0),
            file_mode: Some(0o666),
            permissions: Some("rwm".into()),
            uid: None,
            gid: Some(44),
        };
        let edits = ContainerEdits { device_nodes: vec![node], additional_gids: vec![44], ..ContainerEdits::default() };
        let device = Device { name: "0".into(), container_edits: edits, ..Device::default() };
        let spec = Spec { kind: "nvidia.com/gpu".into(), devices: vec![device], ..Spec::default() };
        let json: serde_json::Value = serde_json::from_str(&spec.to_text(Format::Json).expect("text")).expect("json");
        let wanted = serde_json::json!({
            "cdiVersion": "0.7.0",
            "kind": "nvidia.com/gpu",
            "devices": [{"name": "0", "containerEdits": {
                "deviceNodes": [{
                    "path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia0", "type": "c", "major": 195,
                    "minor": 0, "fileMode": 438, "permissions": "rwm", "gid": 44
                }],
                "additionalGids": [44]
            }}]
        });
        assert_eq!(json, wanted);
    }

    #[test]
    fn the_name_of_a_file_says_its_format() {
        let cases = [
            ("a.json", Some(Format::Json)),
            ("a.yaml", Some(Format::Yaml)),
            ("a.yml", Some(Format::Yaml)),
            ("a", None),
        ];
        for (name, format) in cases {
            assert_eq!(Format::of(Path::new(name)), format);
        }
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[ -~]{0,12}", Just("yes".to_owned()), Just("0x1f".into()), Just("1.0".into()), Just("~".into())]
    }

    prop_compose! {
        fn spec()(name in text(), env in proptest::collection::vec(text(), 0..3), path in text(), args in proptest::collection::vec(text(), 0..3), major: Option<i64>) -> Spec {
            let edits = ContainerEdits {
                env,
                device_nodes: vec![DeviceNode { path: path.clone(), major, ..DeviceNode::default() }],
                hooks: vec![Hook { hook_name: "createContainer".into(), path: path.clone(), args, ..Hook::default() }],
                mounts: vec![Mount { host_path: path.clone(), container_path: path, ..Mount::default() }],
                ..ContainerEdits::default()
            };
            let device = Device { name, container_edits: edits.clone(), ..Device::default() };
            Spec { cdi_version: "0.3.0".into(), kind: "a/b".into(), devices: vec![device], container_edits: edits, ..Spec::default() }
        }
    }

    proptest! {
        #[test]
        fn a_spec_is_read_as_it_was_written(mut spec in spec()) {
            spec.cdi_version = spec.minimum_version().to_owned();
            for format in [Format::Json, Format::Yaml] {
                let text = spec.to_text(format).expect("text");
                let read = Spec::parse(&text).expect(&text);
                prop_assert_eq!(&read, &spec, "{}", text);
            }
        }

        #[test]
        fn any_text_is_answered(text in "[ -~\n]{0,80}") {
            let _ = Spec::parse(&text);
        }
    }
}
