//! Diff of desired and live objects: what to apply, what to prune, and conflicts.

use std::borrow::Cow;

use serde_json::Value;

use crate::kit::hash_json;
use crate::object::{Object, Policy, Ref, controller, same_manager, uid};
use crate::{LiveObjects, kit};

/// Annotation with the hash of the last applied configuration. Removing a field changes the hash, and server-side apply
/// then removes the field.
pub(crate) const LAST_APPLIED: &str = "nvidia.com/last-applied-hash";

/// Field manager of all our writes.
pub const FIELD_MANAGER: &str = "capstan";

/// The writes that turn the live objects into the desired ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// uid of the owner of the desired objects.
    pub owner: String,
    /// To apply, in waves: dependencies first.
    pub apply: Vec<Write>,
    /// To prune, in reverse order.
    pub delete: Vec<Deletion>,
    /// Desired objects whose name is taken by an object of another owner.
    pub conflicts: Vec<Conflict>,
}

impl Diff {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.apply.is_empty() && self.delete.is_empty() && self.conflicts.is_empty()
    }
}

/// An object to apply, with the precondition that it was decided on.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The object to apply.
    pub object: Object,
    /// The live state it was decided on.
    pub basis: Basis,
}

/// The live state that a write was decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// No live object.
    Absent,
    /// A live object that we own.
    Live {
        /// Its uid.
        uid: String,
        /// Its resourceVersion, if the write preserves fields of the live object: a concurrent change of these must not
        /// be reverted.
        resource_version: Option<String>,
    },
    /// A live object of which too little is cached to tell its owner: it has to be read and [decided](decide) on again.
    Unread,
}

/// The decision on one desired object.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing: it is up to date, unmanaged, or terminating.
    Leave,
    /// Apply it.
    Apply(Box<Write>),
    /// Nothing, because another owner has it.
    Conflict(Conflict),
}

/// An object to delete, with uid and resourceVersion as preconditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its identity.
    pub reference: Ref,
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// What happens to its dependents.
    pub propagation: PropagationPolicy,
}

/// What the API server does with the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// The garbage collector deletes dependents after the object.
    Background,
    /// Dependents are orphaned.
    Orphan,
    /// Dependents are deleted first; the object stays until they are gone.
    Foreground,
}

/// An object of another owner with the name of a desired one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its identity.
    pub reference: Ref,
    /// Its controlling owner: `NIMService llama`, or `nobody`.
    pub holder: String,
}

/// The diff that turns the objects of the owner with `owner_uid` into `wanted`.
pub fn diff(owner_uid: &str, wanted: &[Object], live: &LiveObjects) -> Diff {
    let mut result = Diff { owner: owner_uid.into(), ..Diff::default() };
    for object in wanted {
        match decide(owner_uid, object, live.get(&object.reference).map(|live| &**live)) {
            Decision::Leave => {}
            Decision::Apply(write) => result.apply.push(*write),
            Decision::Conflict(conflict) => result.conflicts.push(conflict),
        }
    }
    let wanted_as = |reference: &Ref| wanted.iter().find(|object| object.reference == *reference).map(|one| one.policy);
    for (reference, live_object) in live.iter() {
        let ours = controller(live_object).is_some_and(|(_, _, uid)| uid == owner_uid);
        let propagation = match wanted_as(reference) {
            None => PropagationPolicy::Background,
            Some(Policy::DeleteOrphan) => PropagationPolicy::Orphan,
            Some(Policy::DeleteForeground) => PropagationPolicy::Foreground,
            Some(_) => continue,
        };
        if ours && !is_terminating(live_object) && !kit::holds_data(&reference.gvk.kind) {
            result.delete.push(Deletion {
                reference: reference.clone(),
                uid: uid(live_object).into(),
                resource_version: live_object["metadata"]["resourceVersion"].as_str().unwrap_or_default().into(),
                propagation,
            });
        }
    }
    result.apply.sort_by_key(|write| kit::wave(&write.object.reference.gvk.kind));
    result.delete.sort_by_key(|deletion| std::cmp::Reverse(kit::wave(&deletion.reference.gvk.kind)));
    result
}

/// Decides on one object that the owner with `owner_uid` wants: the only place that checks ownership and differences.
/// Called again with the complete object for one that the caches lack, or have only in part.
pub fn decide(owner_uid: &str, wanted: &Object, live: Option<&Value>) -> Decision {
    let unmanaged = matches!(wanted.policy, Policy::Unmanaged | Policy::DeleteOrphan | Policy::DeleteForeground);
    let Some(live) = live else {
        let write = || Box::new(Write { object: with_hash(wanted), basis: Basis::Absent });
        return if unmanaged { Decision::Leave } else { Decision::Apply(write()) };
    };
    if unmanaged || wanted.policy == Policy::CreateOnce {
        return Decision::Leave;
    }
    match is_owned(owner_uid, wanted, live) {
        Some(false) => Decision::Conflict(Conflict {
            reference: wanted.reference.clone(),
            holder: controller(live).map_or("nobody".into(), |(kind, name, _)| format!("{kind} {name}")),
        }),
        // A terminating object is recreated when it is gone.
        Some(true) if is_terminating(live) || is_applied(wanted, live) => Decision::Leave,
        Some(true) => {
            let version = live["metadata"]["resourceVersion"].as_str().filter(|_| !wanted.preserved.is_empty());
            let basis = Basis::Live { uid: uid(live).into(), resource_version: version.map(Into::into) };
            Decision::Apply(Box::new(Write { object: with_hash(wanted).with_preserved(live), basis }))
        }
        None => Decision::Apply(Box::new(Write { object: with_hash(wanted), basis: Basis::Unread })),
    }
}

/// Whether the owner owns a live object; `None` if what is cached does not tell.
///
/// It is owned if the owner is its controller. One without a controller, and desired so, must have our field manager.
fn is_owned(owner_uid: &str, wanted: &Object, live: &Value) -> Option<bool> {
    if wanted.policy == Policy::Shared {
        return Some(same_manager(&wanted.body, live));
    }
    match controller(live) {
        Some((_, _, uid)) => Some(uid == owner_uid),
        None if controller(&wanted.body).is_some() => Some(false),
        None => {
            let managers = live["metadata"]["managedFields"].as_array()?;
            Some(managers.iter().any(|entry| entry["manager"] == FIELD_MANAGER))
        }
    }
}

fn is_terminating(live: &Value) -> bool {
    !live["metadata"]["deletionTimestamp"].is_null()
}

/// Whether the live object is up to date.
pub fn is_current(wanted: &Object, live: &LiveObjects) -> bool {
    match wanted.policy {
        Policy::Unmanaged => true,
        Policy::DeleteOrphan | Policy::DeleteForeground => live.get(&wanted.reference).is_none(),
        Policy::CreateOnce => live.get(&wanted.reference).is_some(),
        Policy::Apply | Policy::Shared => {
            live.get(&wanted.reference).is_some_and(|live_object| is_applied(wanted, live_object))
        }
    }
}

fn with_hash(object: &Object) -> Object {
    object.clone().annotated(LAST_APPLIED, &desired_hash(object))
}

/// The hash of the desired object. An object that is decided on again has the annotation already.
fn desired_hash(object: &Object) -> Cow<'_, str> {
    match &object.body["metadata"]["annotations"][LAST_APPLIED] {
        Value::String(desired_hash) => desired_hash.into(),
        _ => hash_json(&*object.without_preserved()).into(),
    }
}

/// Whether an apply would be a no-op.
fn is_applied(object: &Object, live: &Value) -> bool {
    live["metadata"]["annotations"][LAST_APPLIED] == *desired_hash(object)
        && match object.preserved.is_empty() {
            true => is_subset(&object.body, live),
            false => is_subset(&object.clone().with_preserved(live).body, live),
        }
}

/// Whether `live` has every field that `wanted` sets. Fields of other managers are ignored.
///
/// Lists with a merge key compare by key, so that an item of another manager is no difference: no apply of ours could
/// remove it. Other lists compare item by item. An empty value equals an absent one, because the server drops empty
/// values of built-in types.
pub fn is_subset(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            wanted.iter().all(|(name, value)| live.get(name).map_or(is_empty(value), |live| is_subset(value, live)))
        }
        (Value::Array(wanted), Value::Array(live)) => match merge_key(wanted) {
            Some(key) => {
                wanted.iter().all(|item| live.iter().any(|live| live[key] == item[key] && is_subset(item, live)))
            }
            None => wanted.len() == live.len() && wanted.iter().zip(live).all(|(wanted, live)| is_subset(wanted, live)),
        },
        _ => wanted == live,
    }
}

/// The merge key of a list, if it has one.
fn merge_key(items: &[Value]) -> Option<&'static str> {
    const KEYS: [&str; 3] = ["uid", "mountPath", "name"];
    KEYS.into_iter().find(|key| !items.is_empty() && items.iter().all(|item| item[*key].is_string()))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn config_map(name: &str, data: Value) -> Object {
        let body = json!({"metadata": {"name": name, "namespace": "ns"}, "data": data});
        let typed: ConfigMap = serde_json::from_value(body).unwrap();
        Object::new(&typed)
    }

    fn owner(uid: &str) -> Value {
        json!([{"apiVersion": "v1", "kind": "NIMService", "name": "llama", "uid": uid, "controller": true}])
    }

    fn stored(object: &Object, owner_uid: &str) -> LiveObjects {
        let mut body = with_hash(object).body;
        body["metadata"]["uid"] = "u1".into();
        body["metadata"]["resourceVersion"] = "7".into();
        body["metadata"]["ownerReferences"] = owner(owner_uid);
        let mut live = LiveObjects::default();
        live.insert(object.reference.clone(), Arc::new(body));
        live
    }

    #[test]
    fn an_unchanged_object_costs_nothing() {
        let wanted = config_map("a", json!({"k": "v"}));
        assert!(diff("me", std::slice::from_ref(&wanted), &stored(&wanted, "me")).is_empty());
    }

    #[test]
    fn a_field_that_is_no_longer_wanted_is_applied_away() {
        let before = config_map("a", json!({"k": "v", "gone": "x"}));
        let wanted = config_map("a", json!({"k": "v"}));
        assert_eq!(diff("me", &[wanted], &stored(&before, "me")).apply.len(), 1);
    }

    #[test]
    fn an_edited_field_of_ours_is_repaired_and_a_foreign_one_is_left() {
        let wanted = config_map("a", json!({"k": "v"}));
        let mut live = stored(&wanted, "me");
        let mut edited = (**live.get(&wanted.reference).unwrap()).clone();
        edited["metadata"]["annotations"]["cloud.example/id"] = "7".into();
        live.insert(wanted.reference.clone(), Arc::new(edited.clone()));
        assert!(diff("me", std::slice::from_ref(&wanted), &live).is_empty());
        edited["data"]["k"] = "edited".into();
        live.insert(wanted.reference.clone(), Arc::new(edited));
        assert_eq!(diff("me", &[wanted], &live).apply.len(), 1);
    }

    #[test]
    fn an_item_that_somebody_added_to_a_named_list_is_left() {
        let wanted = json!({"env": [{"name": "A", "value": "1"}]});
        assert!(is_subset(&wanted, &json!({"env": [{"name": "B"}, {"name": "A", "value": "1"}]})));
        assert!(!is_subset(&wanted, &json!({"env": [{"name": "A", "value": "2"}]})));
        assert!(!is_subset(&json!({"args": ["a"]}), &json!({"args": ["a", "b"]})));
    }

    #[test]
    fn an_object_of_somebody_else_is_in_the_way_and_stays() {
        let wanted = config_map("a", json!({}));
        let result = diff("me", std::slice::from_ref(&wanted), &stored(&wanted, "other"));
        assert_eq!(result.conflicts, [Conflict { reference: wanted.reference, holder: "NIMService llama".into() }]);
        assert!(result.apply.is_empty() && result.delete.is_empty());
    }

    #[test]
    fn what_is_ours_and_no_longer_wanted_is_deleted_as_it_was_seen() {
        let before = config_map("a", json!({}));
        let result = diff("me", &[], &stored(&before, "me"));
        let seen = Deletion {
            reference: before.reference,
            uid: "u1".into(),
            resource_version: "7".into(),
            propagation: PropagationPolicy::Background,
        };
        assert_eq!(result.delete, [seen]);
        assert!(diff("somebody", &[], &stored(&config_map("a", json!({})), "me")).is_empty());
    }

    #[test]
    fn what_is_released_goes_without_what_it_owns() {
        let before = config_map("a", json!({}));
        let live = stored(&before, "me");
        let released = [Object::orphan_deleted(before.reference.clone())];
        let result = diff("me", &released, &live);
        assert!(
            result.apply.is_empty()
                && result.delete.iter().all(|one| one.propagation == PropagationPolicy::Orphan)
                && result.delete.len() == 1
        );
        assert!(diff("somebody", &released, &live).delete.is_empty());
        assert!(diff("me", &released, &LiveObjects::default()).is_empty());
    }

    #[test]
    fn a_volume_is_never_pruned_because_it_holds_data() {
        let claim = Object::new(&PersistentVolumeClaim {
            metadata: ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() },
            ..PersistentVolumeClaim::default()
        });
        assert!(diff("me", &[], &stored(&claim, "me")).is_empty());
    }

    #[test]
    fn an_object_made_once_is_left_alone() {
        let wanted = config_map("a", json!({"k": "v"})).create_once();
        let other = config_map("a", json!({"k": "theirs"}));
        assert!(diff("me", std::slice::from_ref(&wanted), &stored(&other, "me")).is_empty());
        assert_eq!(diff("me", &[wanted], &LiveObjects::default()).apply.len(), 1);
    }

    #[test]
    fn a_field_that_follows_gets_a_first_value_and_is_then_left_to_others() {
        let wanted = config_map("a", json!({"k": "v", "replicas": "1"})).preserve("/data/replicas");
        let first = diff("me", std::slice::from_ref(&wanted), &LiveObjects::default());
        assert_eq!(first.apply[0].object.body["data"]["replicas"], "1");
        let mut live = stored(&wanted, "me");
        let mut scaled = (**live.get(&wanted.reference).unwrap()).clone();
        scaled["data"]["replicas"] = "5".into();
        live.insert(wanted.reference.clone(), Arc::new(scaled));
        assert!(diff("me", std::slice::from_ref(&wanted), &live).is_empty());
        let newer = config_map("a", json!({"k": "w", "replicas": "1"})).preserve("/data/replicas");
        assert_eq!(diff("me", &[newer], &live).apply[0].object.body["data"]["replicas"], "5");
        let ours = config_map("a", json!({"k": "v", "replicas": "1"}));
        assert_eq!(diff("me", &[ours], &live).apply[0].object.body["data"]["replicas"], "1");
    }

    #[test]
    fn what_is_left_is_neither_made_nor_changed_nor_pruned() {
        let live_object = config_map("a", json!({"k": "v"}));
        let left = Object::unmanaged(live_object.reference.clone());
        assert!(diff("me", std::slice::from_ref(&left), &stored(&live_object, "me")).is_empty());
        assert!(diff("me", std::slice::from_ref(&left), &LiveObjects::default()).is_empty());
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), "[a-c]{0,2}".prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn applying_leaves_nothing_to_do(wanted in json_value(), extra in json_value()) {
            prop_assert!(is_subset(&wanted, &wanted));
            // What others add beside our fields is no difference.
            let ours = json!({"ours": wanted});
            let mut live = ours.clone();
            live["theirs"] = extra;
            prop_assert!(is_subset(&ours, &live));
        }
    }
}
