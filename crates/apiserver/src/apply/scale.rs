//! Managed fields of the scale subresource.
//!
//! A Scale is a view of another object, and so are its managed fields: the owner of the object's replicas owns
//! `spec.replicas` of the Scale, and vice versa.

use serde_json::Value;

use super::entries::{self, Manager, Managers, Owned};
use super::managed::{self, Force, Reset, Versions, Write};
use super::path::{Element, Path};
use super::set::Set;
use crate::error::Result;
use crate::schema::{Schema, builtin};

const API_VERSION: &str = "autoscaling/v1";
const IN_SCALE: [&str; 2] = ["spec", "replicas"];

/// An object that is written through its `scale` subresource.
#[derive(Clone, Copy)]
pub struct Scaled<'a> {
    /// The object.
    pub object: &'a Value,
    /// Version in which it is written, as in `apps/v1`.
    pub api_version: &'a str,
    /// Path of the replicas in a version of the kind: `None` for an unknown version, an empty path for one without a
    /// scale.
    pub replicas: &'a dyn Fn(&str) -> Option<Vec<String>>,
    /// Name of the field manager.
    pub manager: &'a str,
    /// The current time.
    pub now: jiff::Timestamp,
}

/// A written Scale, and the resulting managed fields of its object.
#[derive(Clone, Debug, PartialEq)]
pub struct Rescaled {
    /// The Scale, without managed fields.
    pub scale: Value,
    /// New `metadata.managedFields` of the object, which replace its own.
    pub managed_fields: Vec<Value>,
}

struct Scales;

impl Versions for Scales {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        builtin::definition("io.k8s.api.autoscaling.v1.Scale").filter(|_| api_version == API_VERSION)
    }
}

impl Scaled<'_> {
    /// Applies `config` to `live`, the Scale of the object.
    pub fn apply(&self, live: Value, config: &Value, force: Force) -> Result<Rescaled> {
        let live = self.with_entries(live);
        let scale = self.write(|write| managed::apply(Some(&live), config, write, force))?;
        Ok(self.rescaled(scale))
    }

    /// Replaces `live`, the Scale of the object, with `new`.
    pub fn update(&self, live: Value, new: Value) -> Rescaled {
        let live = self.with_entries(live);
        self.rescaled(self.write(|write| managed::update(Some(&live), new, write)))
    }

    fn write<T>(&self, action: impl FnOnce(&Write<'_>) -> T) -> T {
        let reset = Reset::default();
        let (manager, now) = (self.manager, self.now);
        action(&Write {
            versions: &Scales,
            api_version: API_VERSION,
            kind: "Scale",
            manager,
            subresource: "scale",
            reset: &reset,
            now,
        })
    }

    fn owners(&self) -> Managers<'_> {
        entries::decode(entries::of(self.object)).unwrap_or_default()
    }

    /// Path of the replicas in `version`; `None` for an unknown version.
    fn path(&self, version: &str) -> Option<Path> {
        (self.replicas)(version).map(|path| path.iter().map(|name| Element::field(name)).collect())
    }

    /// `scale` with the owners of the object's replicas as managers.
    fn with_entries(&self, mut scale: Value) -> Value {
        let owns = |owned: &Owned<'_>| self.path(&owned.api_version).is_some_and(|path| owned.set().has(&path));
        let owners = self.owners().into_iter().filter(|(_, owned)| owns(owned));
        let in_scale = |owned: Owned<'_>| Owned::new(Set::of_fields(&[&IN_SCALE]), API_VERSION, owned.time);
        let managers: Vec<(Manager, Owned<'_>)> = owners.map(|(manager, owned)| (manager, in_scale(owned))).collect();
        entries::put_all(&mut scale, managers.iter().map(|(manager, owned)| (manager, owned)));
        scale
    }

    fn rescaled(&self, mut scale: Value) -> Rescaled {
        let written = entries::take(&mut scale);
        let mut in_scale = entries::decode(written.as_ref()).unwrap_or_default();
        let owners = self.owners();
        let mut out: Vec<(Manager, Owned<'_>)> = Vec::new();
        for (manager, owned) in &owners {
            let Some(path) = self.path(&owned.api_version) else { continue };
            let mut owned = owned.clone();
            // A manager that no longer owns the Scale's replicas has lost those of the object.
            if !path.is_empty() && owned.set().has(&path) && in_scale.remove(manager).is_none() {
                let mut lost = Set::default();
                lost.insert(&path);
                owned.put(owned.set().difference(&lost));
            }
            if !owned.set().is_empty() {
                out.push((manager.clone(), owned));
            }
        }
        let mut replicas = Set::default();
        replicas.insert(&self.path(self.api_version).unwrap_or_default());
        for (manager, owned) in in_scale {
            if owned.set().has(&IN_SCALE.map(Element::field)) {
                let time = owners.get(&manager).and_then(|owned| owned.time.clone());
                out.push((manager, Owned::new(replicas.clone(), self.api_version, time)));
            }
        }
        let managed_fields = entries::encode(out.iter().map(|(manager, owned)| (manager, owned)));
        Rescaled { scale, managed_fields }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(entries: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "managedFields": entries}})
    }

    fn scale(replicas: i64) -> Value {
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "uid": "u"},
            "spec": {"replicas": replicas}, "status": {"replicas": 0},
        })
    }

    fn entry(manager: &str, operation: &str, subresource: &str, fields: Value) -> Value {
        let mut entry = json!({
            "manager": manager, "operation": operation, "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields},
        });
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        entry
    }

    fn scaled<'a>(object: &'a Value, manager: &'a str) -> Scaled<'a> {
        let replicas = &|version: &str| (version == "apps/v1").then(|| IN_SCALE.map(str::to_owned).to_vec());
        Scaled { object, api_version: "apps/v1", replicas, manager, now: jiff::Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn an_update_takes_the_replicas_and_leaves_the_rest() {
        let object = object(json!([entry("gitops", "Apply", "", json!({"f:replicas": {}, "f:paused": {}}))]));
        let rescaled = scaled(&object, "kubectl").update(scale(1), scale(4));
        assert_eq!(rescaled.scale, scale(4));
        let wanted = [
            entry("gitops", "Apply", "", json!({"f:paused": {}})),
            entry("kubectl", "Update", "scale", json!({"f:replicas": {}})),
        ];
        assert_eq!(rescaled.managed_fields, wanted);
    }

    #[test]
    fn an_apply_conflicts_with_whoever_owns_the_replicas() {
        let object = object(json!([entry("kubectl", "Update", "scale", json!({"f:replicas": {}}))]));
        let fault = scaled(&object, "hpa").apply(scale(4), &config(5), Force::No).expect_err("kubectl owns them");
        let message = "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using \
                       autoscaling/v1: .spec.replicas";
        assert_eq!(fault.message, message);
        let forced = scaled(&object, "hpa").apply(scale(4), &config(5), Force::Yes).expect("forced");
        assert_eq!(forced.managed_fields, [entry("hpa", "Apply", "scale", json!({"f:replicas": {}}))]);
    }

    #[test]
    fn nothing_changes_hands_when_the_number_stays() {
        let object = object(json!([entry("gitops", "Apply", "", json!({"f:replicas": {}}))]));
        let rescaled = scaled(&object, "kubectl").update(scale(2), scale(2));
        assert_eq!(rescaled.managed_fields, [entry("gitops", "Apply", "", json!({"f:replicas": {}}))]);
    }

    #[test]
    fn a_scale_takes_no_other_kind() {
        let object = object(json!([]));
        let wrong = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let fault = scaled(&object, "hpa").apply(scale(1), &wrong, Force::No).expect_err("not a Scale");
        assert_eq!((fault.code, fault.message.as_str()), (400, "invalid object type: apps/v1, Kind=Deployment"));
    }

    fn config(replicas: i64) -> Value {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}})
    }
}
