//! Validation of CRDs, worded as by kube-apiserver.
//!
//! kube-apiserver validates an internal form in which what all versions share is hoisted to the top: [`Spec`] is that
//! form, and field paths in errors refer to it.

mod conversion;
mod defaults;
mod extras;
mod names;
mod node;
mod schema;
mod structural;

use std::collections::BTreeSet;

use capstan_semantics::names as rules;
use serde_json::Value;

use super::status::{condition, is_url};
use super::text;
use crate::error::Cause;
use crate::field::Path;
use crate::golang;

/// Validates a CRD. On update, pre-existing errors are tolerated where kube-apiserver does so (ratcheting).
pub fn validate(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (spec, old_spec) = (Spec::of(crd), old.map(Spec::of));
    if old.is_none() {
        causes.extend(name_fault(crd));
    }
    let ratcheting = Ratcheting::of(old, old_spec.as_ref(), &spec);
    spec_faults(&spec, &ratcheting, &mut causes);
    if let (Some(old), Some(old_spec)) = (old, &old_spec) {
        causes.extend(changed(&spec, old_spec, established(old)));
    }
    names::check(&crd["status"]["acceptedNames"], &Path::new("status.acceptedNames"), &mut causes);
    causes.extend(stored_faults(crd));
    causes.extend(approval_fault(crd, old));
    let kept_before = old.is_some_and(|old| old["spec"]["preserveUnknownFields"] == true);
    if crd["spec"]["preserveUnknownFields"] == true && !kept_before {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid(&Path::new("spec.preserveUnknownFields"), &true.into(), detail));
    }
    causes
}

/// Warnings about a CRD.
pub fn warnings(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(|old| schema::warnings(&Spec::of(old))).unwrap_or_default();
    schema::warnings(&Spec::of(crd)).into_iter().filter(|warning| !known.contains(warning)).collect()
}

/// The spec of a CRD in internal form, with what all versions share at the top.
pub(super) struct Spec {
    pub(super) value: Value,
    pub(super) versions: Vec<Value>,
    pub(super) validation: Value,
    pub(super) subresources: Value,
    pub(super) columns: Value,
    pub(super) selectable: Value,
}

impl Spec {
    fn of(crd: &Value) -> Self {
        let value = crd["spec"].clone();
        let mut versions = value["versions"].as_array().cloned().unwrap_or_default();
        let mut shared = |key: &str| -> Value {
            let first = versions.first().map(|version| version[key].clone()).unwrap_or_default();
            if !versions.iter().all(|version| version[key] == first) {
                return Value::Null;
            }
            for version in &mut versions {
                version.as_object_mut().map(|version| version.remove(key));
            }
            first
        };
        let (validation, subresources) = (shared("schema"), shared("subresources"));
        let (columns, selectable) = (shared("additionalPrinterColumns"), shared("selectableFields"));
        Self { value, versions, validation, subresources, columns, selectable }
    }

    /// All schemas.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &Value> {
        let own = self.versions.iter().map(|version| &version["schema"]["openAPIV3Schema"]);
        std::iter::once(&self.validation["openAPIV3Schema"]).chain(own).filter(|schema| schema.is_object())
    }

    fn version_subresources<'a>(&'a self, version: &'a Value) -> &'a Value {
        if self.versions.iter().any(|version| !version["subresources"].is_null()) {
            &version["subresources"]
        } else {
            &self.subresources
        }
    }

    fn preserves(&self) -> bool {
        self.value["preserveUnknownFields"] == true
    }
}

/// Checks that are skipped because the old CRD did not pass them (ratcheting).
#[derive(Default)]
pub(super) struct Ratcheting {
    no_schema: bool,
    pub(super) any_type: bool,
    pub(super) not_structural: bool,
    pub(super) unpruned_defaults: bool,
    pub(super) loose_sets: bool,
    pub(super) loose_keys: bool,
    any_review_version: bool,
    /// Versions with unchanged rules, whose cost limits are not enforced.
    unchanged: BTreeSet<String>,
    many_selectable: BTreeSet<String>,
}

impl Ratcheting {
    fn of(old: Option<&Value>, old_spec: Option<&Spec>, spec: &Spec) -> Self {
        let (Some(old), Some(old_spec)) = (old, old_spec) else { return Self::default() };
        let any = |test: fn(&Value) -> bool| old_spec.schemas().any(|schema| node::any(schema, &test));
        let old_versions = old["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let before = |name: &Value| old_versions.iter().find(|version| version["name"] == *name);
        let mut unchanged = BTreeSet::new();
        let mut many_selectable = BTreeSet::new();
        for version in spec.value["versions"].as_array().into_iter().flatten() {
            let Some(old) = before(&version["name"]) else { continue };
            if old["schema"] == version["schema"] {
                unchanged.insert(text(&version["name"]).to_owned());
            }
            let count = old["selectableFields"].as_array().map_or(0, Vec::len);
            if count > extras::MAX_SELECTABLE && old["selectableFields"] == version["selectableFields"] {
                many_selectable.insert(text(&version["name"]).to_owned());
                many_selectable.insert(String::new());
            }
        }
        let reviews = &old["spec"]["conversion"]["webhook"]["conversionReviewVersions"];
        Self {
            no_schema: !old_versions.iter().all(|version| version["schema"]["openAPIV3Schema"].is_object()),
            any_type: any(|schema| schema.get("type").is_some_and(|type_| !node::TYPES.contains(&text(type_)))),
            not_structural: old_spec.schemas().any(|it| !structural::check(it, &Path::root()).is_empty()),
            unpruned_defaults: old_spec.schemas().any(defaults::has_unknown),
            loose_sets: any(|schema| schema::loose_set(schema).is_some()),
            loose_keys: any(|schema| !schema::key_faults(schema, &Path::root()).is_empty()),
            any_review_version: reviews
                .as_array()
                .is_some_and(|list| !list.is_empty() && !list.iter().any(conversion::accepted)),
            unchanged,
            many_selectable,
        }
    }
}

fn established(crd: &Value) -> bool {
    condition(crd, "Established").is_some_and(|condition| condition["status"] == "True")
}

fn name_fault(crd: &Value) -> Option<Cause> {
    let (name, spec) = (text(&crd["metadata"]["name"]), &crd["spec"]);
    let wanted = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    let path = Path::new("metadata.name");
    (name != wanted).then(|| Cause::invalid(&path, &name.into(), "must be spec.names.plural+\".\"+spec.group"))
}

fn spec_faults(spec: &Spec, ratcheting: &Ratcheting, causes: &mut Vec<Cause>) {
    let path = Path::new("spec");
    let group = text(&spec.value["group"]);
    let faults = rules::dns_subdomain(group);
    if group.is_empty() {
        causes.push(Cause::required(&path.child("group"), ""));
    } else if !faults.is_empty() {
        causes.push(Cause::invalid(&path.child("group"), &group.into(), &faults.join(",")));
    } else if !group.contains('.') {
        causes.push(Cause::invalid(&path.child("group"), &group.into(), "should be a domain with at least one dot"));
    }
    causes.extend(one_of(&path.child("scope"), text(&spec.value["scope"]), &["Cluster", "Namespaced"]));
    missing_schemas(spec, ratcheting, &path, causes);
    let has_defaults = spec.schemas().any(|schema| node::any(schema, &|schema| schema.get("default").is_some()));
    if has_defaults && spec.preserves() {
        let detail = "must be false in order to use defaults in the schema";
        causes.push(Cause::invalid(&path.child("preserveUnknownFields"), &true.into(), detail));
    }
    version_faults(spec, ratcheting, &path, causes);
    let names = path.child("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(&spec.value["names"][name]).is_empty() {
            causes.push(Cause::required(&names.child(name), ""));
        }
    }
    names::check(&spec.value["names"], &names, causes);
    let status = spec.versions.iter().any(|version| !version["subresources"]["status"].is_null())
        || !spec.subresources["status"].is_null();
    let unchanged = ratcheting.unchanged.contains(spec.versions.first().map_or("", |version| text(&version["name"])));
    let place = schema::Place { status, structural: needs_structure(spec, ratcheting), unchanged, ratcheting };
    schema::check(&spec.validation, &path.child("validation"), &place, causes);
    extras::subresources(&spec.subresources, &path.child("subresources"), causes);
    extras::columns(&spec.columns, &path.child("additionalPrinterColumns"), causes);
    let many = ratcheting.many_selectable.contains("");
    let own = spec.validation["openAPIV3Schema"].is_object().then_some(&spec.validation["openAPIV3Schema"]);
    extras::selectable(&spec.selectable, own, &path.child("selectableFields"), many, causes);
    conversion::check(&spec.value, ratcheting.any_review_version, &path, causes);
}

/// Whether schemas must be structural: unless the old one was not, and no feature needs it.
fn needs_structure(spec: &Spec, ratcheting: &Ratcheting) -> bool {
    let extended = |schema: &Value| {
        let keys = ["default", "x-kubernetes-embedded-resource", "x-kubernetes-preserve-unknown-fields"];
        let more = ["x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type"];
        keys.iter().chain(&more).chain(&["x-kubernetes-validations"]).any(|key| schema.get(*key).is_some())
    };
    !ratcheting.not_structural || !spec.preserves() || spec.schemas().any(|schema| node::any(schema, &extended))
}

fn missing_schemas(spec: &Spec, ratcheting: &Ratcheting, path: &Path, causes: &mut Vec<Cause>) {
    if spec.validation["openAPIV3Schema"].is_object() || (ratcheting.no_schema && spec.preserves()) {
        return;
    }
    for (index, version) in spec.versions.iter().enumerate() {
        let missing = !version["schema"]["openAPIV3Schema"].is_object();
        let path = path.child("versions").index(index).child("schema").child("openAPIV3Schema");
        if missing && !ratcheting.no_schema {
            causes.push(Cause::required(&path, ""));
        } else if missing && version["served"] == true {
            causes.push(Cause::required(&path, "because otherwise all fields are pruned"));
        }
    }
}

fn version_faults(spec: &Spec, ratcheting: &Ratcheting, path: &Path, causes: &mut Vec<Cause>) {
    let all = path.child("versions");
    for (index, version) in spec.versions.iter().enumerate() {
        let (path, name) = (all.index(index), text(&version["name"]));
        let faults = rules::dns_1035_label(name);
        if !faults.is_empty() {
            causes.push(Cause::invalid(&path.child("name"), &name.into(), &faults.join(",")));
        }
        causes.extend(extras::deprecation(version, &path.child("deprecationWarning")));
        let status = !spec.version_subresources(version)["status"].is_null();
        let unchanged = ratcheting.unchanged.contains(name);
        let place = schema::Place { status, structural: needs_structure(spec, ratcheting), unchanged, ratcheting };
        schema::check(&version["schema"], &path.child("schema"), &place, causes);
        extras::subresources(&version["subresources"], &path.child("subresources"), causes);
        extras::columns(&version["additionalPrinterColumns"], &path.child("additionalPrinterColumns"), causes);
        let schema = Some(&version["schema"]["openAPIV3Schema"]).filter(|schema| schema.is_object());
        let many = ratcheting.many_selectable.contains(name);
        extras::selectable(&version["selectableFields"], schema, &path.child("selectableFields"), many, causes);
    }
    let mut names: Vec<&str> = spec.versions.iter().map(|version| text(&version["name"])).collect();
    names.sort_unstable();
    let shown = internal_versions(&spec.versions);
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        causes.push(Cause::invalid_as(&all, &shown, "must contain unique version names"));
    }
    if spec.versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        causes.push(Cause::invalid_as(&all, &shown, "must have exactly one version marked as storage version"));
    }
    if let Some(name) = spec.versions.first().map(|version| text(&version["name"])).filter(|name| !name.is_empty()) {
        let faults = rules::dns_1035_label(name);
        if !faults.is_empty() {
            causes.push(Cause::invalid(&path.child("version"), &name.into(), &faults.join(",")));
        }
    }
}

/// Versions as kube-apiserver prints them: as Go structs.
fn internal_versions(versions: &[Value]) -> String {
    let one = |version: &Value| {
        let value = |key: &str| golang::json(version.get(key).unwrap_or(&Value::Null));
        let flag = |key: &str| version[key] == true;
        format!(
            r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{},"Subresources":{},"AdditionalPrinterColumns":{},"SelectableFields":{}}}"#,
            value("name"),
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            value("deprecationWarning"),
            value("schema"),
            value("subresources"),
            value("additionalPrinterColumns"),
            value("selectableFields"),
        )
    };
    format!("[{}]", versions.iter().map(one).collect::<Vec<_>>().join(","))
}

/// The error for a value that is not one of `known`.
pub(super) fn one_of(path: &Path, value: &str, known: &[&str]) -> Option<Cause> {
    match value {
        "" => Some(Cause::required(path, "")),
        value if known.contains(&value) => None,
        value => Some(Cause::not_supported(path, &value.into(), known)),
    }
}

fn changed(spec: &Spec, old: &Spec, established: bool) -> Vec<Cause> {
    let fixed = |path: &str, new: &Value, old: &Value| {
        (new != old).then(|| Cause::invalid(&Path::new(path), new, "field is immutable"))
    };
    let (new, old) = (&spec.value, &old.value);
    let mut causes = Vec::new();
    if established {
        causes.extend(fixed("spec.scope", &new["scope"], &old["scope"]));
        causes.extend(fixed("spec.names.kind", &new["names"]["kind"], &old["names"]["kind"]));
    }
    causes.extend(fixed("spec.group", &new["group"], &old["group"]));
    causes.extend(fixed("spec.names.plural", &new["names"]["plural"], &old["names"]["plural"]));
    causes
}

fn stored_faults(crd: &Value) -> Vec<Cause> {
    let path = Path::new("status.storedVersions");
    let shown = crd["status"]["storedVersions"].clone();
    let stored = super::texts(&shown);
    if stored.is_empty() {
        return vec![Cause::invalid(&path, &shown, "must have at least one stored version")];
    }
    let mut causes = Vec::new();
    let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for version in versions.iter().filter(|version| version["storage"] == true) {
        let name = text(&version["name"]);
        if !stored.iter().any(|stored| stored == name) {
            causes.push(Cause::invalid(&path, &shown, &format!("must have the storage version {name}")));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == name.as_str()) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            causes.push(Cause::invalid(&path.index(index), &name.as_str().into(), &detail));
        }
    }
    causes
}

/// CRDs in `*.k8s.io` groups need the annotation `api-approved.kubernetes.io`.
fn approval_fault(crd: &Value, old: Option<&Value>) -> Option<Cause> {
    const KEY: &str = "api-approved.kubernetes.io";
    let group = text(&crd["spec"]["group"]);
    if !["k8s.io", "kubernetes.io"].iter().any(|owner| group == *owner || group.ends_with(&format!(".{owner}"))) {
        return None;
    }
    let state = |crd: &Value| match text(&crd["metadata"]["annotations"][KEY]) {
        "" => 0,
        text if text.starts_with("unapproved") || is_url(text) => 1,
        _ => 2,
    };
    if old.is_some_and(|old| state(old) == state(crd)) {
        return None;
    }
    let path = Path::new("metadata.annotations").key(KEY);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state(crd) {
        0 => Some(Cause::required(&path, &format!("protected groups must have approval annotation \"{KEY}\", {see}"))),
        1 => None,
        _ => {
            let detail = format!(
                "protected groups must have approval annotation \"{KEY}\" with either a URL or a reason starting with \"unapproved\", {see}"
            );
            Some(Cause::invalid(&path, &crd["metadata"]["annotations"][KEY], &detail))
        }
    }
}

#[cfg(test)]
mod tests;
