//! Model manifests: the list of profiles that an image can serve.
//!
//! Two layouts are in use. The first is a map from profile ids to profiles; the second has `schema_version: 2` and a
//! list. Both are YAML with tags of their own, such as `!workspace`, whose values do not matter here.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// ConfigMap key of a manifest.
pub(super) const KEY: &str = "model_manifest.yaml";

/// A profile: one variant of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// Id.
    pub(super) id: String,
    /// Model; empty in the second layout.
    pub(super) model: String,
    /// Release; empty in the second layout.
    pub(super) release: String,
    /// Tags: GPU, precision, parallelism …
    pub(super) tags: BTreeMap<String, String>,
    /// Its container image; only in the first layout.
    container: String,
}

/// The layout of a manifest; each has its own matching rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A map.
    First,
    /// A list.
    Second,
}

/// A manifest, with profiles sorted by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Layout.
    pub(super) layout: Layout,
    /// Profiles.
    pub(super) profiles: Vec<Profile>,
    /// `schema_version` and `profile_selection_criteria` of the second layout, unchanged.
    head: Map<String, Value>,
}

impl Manifest {
    /// Parses a manifest from an image or a ConfigMap.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let value: Value =
            serde_saphyr::from_str(text).map_err(|error| format!("the manifest is not YAML: {error}"))?;
        let Value::Object(fields) = value else {
            return Err("the manifest is no map of profiles".into());
        };
        let major = fields.get("schema_version").map(text_of).unwrap_or_default();
        let second = major.trim_start_matches('v').split('.').next() == Some("2");
        let (layout, mut profiles, head) = if second {
            let list = fields.get("profiles").and_then(Value::as_array).cloned().unwrap_or_default();
            let profiles = list.iter().map(|entry| profile(text_of(&entry["id"]), entry)).collect::<Vec<_>>();
            let head = fields.into_iter().filter(|(name, _)| name != "profiles" && HEAD.contains(&name.as_str()));
            (Layout::Second, profiles, head.collect())
        } else {
            let profiles = fields.iter().filter(|(_, entry)| entry.is_object());
            let profiles = profiles.map(|(id, entry)| profile(id.clone(), entry)).collect::<Vec<_>>();
            (Layout::First, profiles, Map::new())
        };
        profiles.retain(|profile| !profile.id.is_empty());
        profiles.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(Self { layout, profiles, head })
    }

    /// The profile of that id.
    pub(super) fn profile(&self, id: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// The manifest without unused fields: a complete one may not fit into a ConfigMap.
    pub(super) fn to_yaml(&self) -> String {
        let value = match self.layout {
            Layout::First => {
                let entry = |profile: &Profile| {
                    let entry = json!({
                        "model": profile.model, "release": profile.release,
                        "tags": profile.tags, "container_url": profile.container,
                    });
                    (profile.id.clone(), entry)
                };
                Value::Object(self.profiles.iter().map(entry).collect())
            }
            Layout::Second => {
                let mut fields = self.head.clone();
                let list = self.profiles.iter().map(|profile| json!({"id": profile.id, "tags": profile.tags}));
                fields.insert("profiles".into(), list.collect());
                Value::Object(fields)
            }
        };
        serde_saphyr::to_string(&value).unwrap_or_else(|_| value.to_string())
    }
}

/// Fields of the second layout that are kept besides profiles.
const HEAD: [&str; 2] = ["schema_version", "profile_selection_criteria"];

fn profile(id: String, entry: &Value) -> Profile {
    let tags = entry["tags"].as_object().into_iter().flatten();
    Profile {
        id,
        model: text_of(&entry["model"]),
        release: text_of(&entry["release"]),
        tags: tags.map(|(name, value)| (name.clone(), text_of(value))).collect(),
        container: text_of(&entry["container_url"]),
    }
}

/// Scalars as text: a manifest may say `tp: 2` or `tp: "2"`.
fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "
b-profile:
  model: meta/llama
  release: '1.8.0'
  tags: {tp: 2, precision: fp8, feat_lora: false}
  container_url: nvcr.io/nim/meta/llama:1.8
  workspace: !workspace
    components: [!name {dst: x}]
a-profile:
  model: !name meta/llama
  tags: {tp: '1'}
";

    const SECOND: &str = "
schema_version: 2.1
profile_selection_criteria: best
profiles:
- id: two
  tags: {tp: 2, model_type: triton}
  workspace: !workspace {files: [1, 2]}
- id: one
  tags: {}
";

    #[test]
    fn a_map_of_profiles_is_read_in_the_order_of_ids() {
        let manifest = Manifest::parse(FIRST).unwrap();
        assert_eq!(manifest.layout, Layout::First);
        assert_eq!(
            manifest.profiles.iter().map(|profile| profile.id.as_str()).collect::<Vec<_>>(),
            ["a-profile", "b-profile"]
        );
        let profile = manifest.profile("b-profile").unwrap();
        assert_eq!((profile.model.as_str(), profile.release.as_str()), ("meta/llama", "1.8.0"));
        assert_eq!(profile.tags["tp"], "2");
        assert_eq!(profile.tags["feat_lora"], "false");
    }

    #[test]
    fn a_list_of_profiles_is_read() {
        let manifest = Manifest::parse(SECOND).unwrap();
        assert_eq!(manifest.layout, Layout::Second);
        assert_eq!(manifest.profile("two").unwrap().tags["model_type"], "triton");
        assert_eq!(manifest.profile("two").unwrap().model, "");
    }

    #[test]
    fn only_the_major_version_tells_the_layouts_apart() {
        assert_eq!(Manifest::parse("schema_version: '1.2'\np: {tags: {tp: 1}}").unwrap().layout, Layout::First);
        assert_eq!(Manifest::parse("schema_version: v2\nprofiles: []").unwrap().layout, Layout::Second);
    }

    #[test]
    fn what_is_kept_reads_the_same_and_has_no_workspaces() {
        for text in [FIRST, SECOND] {
            let manifest = Manifest::parse(text).unwrap();
            let kept = manifest.to_yaml();
            assert!(!kept.contains("workspace"), "{kept}");
            assert_eq!(Manifest::parse(&kept).unwrap(), manifest);
        }
    }

    #[test]
    fn what_is_no_manifest_is_an_error_and_not_an_empty_one() {
        assert!(Manifest::parse("just words").unwrap_err().contains("no map of profiles"));
        assert!(Manifest::parse("{").unwrap_err().contains("not YAML"));
    }
}
