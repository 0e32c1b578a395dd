//! Driver DaemonSets and their ControllerRevisions: the target DaemonSet and revision of a node.
//!
//! A failed revision is recorded on its DaemonSet by driver digest: while the desired driver has that digest, the
//! DaemonSet keeps the template of the previous revision. See [`hold_back`].

use capstan_plan::{Gvk, LiveObjects, Object, Ref};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use serde_json::Value;

use super::view::{REVISION, Target, digest};
use crate::gpu::nodes::{Entries, Node};

/// Annotation of a DaemonSet: digest of the driver that failed, and name of the revision to keep instead.
pub const REJECTED: &str = "capstan.dev/upgrade-rejected";

/// Component label of drivers.
const COMPONENT: &str = "app.kubernetes.io/component";
const DRIVERS: [&str; 2] = ["nvidia-driver", "nvidia-vgpu-host-manager"];

/// Whether an object belongs to a driver, by its labels.
pub fn is_driver(object: &Value) -> bool {
    Entries::of(&object["metadata"]["labels"]).get(COMPONENT).is_some_and(|value| DRIVERS.contains(&value))
}

/// The driver DaemonSets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriverRevisions<'a> {
    sets: Vec<Set<'a>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Set<'a> {
    name: &'a str,
    /// Name of its owner.
    owner: &'a str,
    selector: Vec<(&'a str, &'a str)>,
    target: Target<'a>,
    /// Hash, name and digest of all revisions.
    revisions: Vec<(&'a str, &'a str, &'a str)>,
    rejected: Option<(&'a str, &'a str)>,
}

/// A change of the rejection annotation of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionRejection {
    /// Its name.
    pub daemon_set: String,
    /// Value of [`REJECTED`]; `None` removes it.
    pub rejected: Option<String>,
}

impl<'a> DriverRevisions<'a> {
    /// From the cached DaemonSets and ControllerRevisions of one namespace.
    pub fn of(
        sets: impl IntoIterator<Item = &'a Value>,
        revisions: impl IntoIterator<Item = &'a Value> + Clone,
    ) -> Self {
        let staying = |set: &&Value| is_driver(set) && set["metadata"]["deletionTimestamp"].is_null();
        let sets = sets.into_iter().filter(staying).filter_map(|set| {
            let meta = &set["metadata"];
            let uid = meta["uid"].as_str()?;
            let owned = |one: &&Value| one["metadata"]["ownerReferences"][0]["uid"] == uid;
            let mut own: Vec<&Value> = revisions.clone().into_iter().filter(owned).collect();
            own.sort_by_key(|one| one["revision"].as_i64());
            let revision_of = |one: &'a Value| {
                let meta = &one["metadata"];
                let hash = meta["labels"][REVISION].as_str().unwrap_or_default();
                (hash, meta["name"].as_str().unwrap_or_default(), digest(&one["data"]["spec"]["template"]["spec"]))
            };
            let revisions: Vec<_> = own.into_iter().map(revision_of).collect();
            let (revision, _, digest) = *revisions.last()?;
            let selector = set.pointer("/spec/template/spec/nodeSelector").and_then(Value::as_object);
            let selector = selector.into_iter().flatten();
            Some(Set {
                name: meta["name"].as_str().unwrap_or_default(),
                owner: meta["ownerReferences"][0]["name"].as_str().unwrap_or_default(),
                selector: selector.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect(),
                target: Target { daemon_set: uid, revision, digest },
                revisions,
                rejected: meta["annotations"][REJECTED].as_str().and_then(|text| text.split_once(' ')),
            })
        });
        Self { sets: sets.collect() }
    }

    /// The target revision of a node's driver pod.
    pub fn wanted(&self, node: &Node<'_>) -> Option<Target<'a>> {
        let selects = |set: &&Set<'_>| set.selector.iter().all(|(key, value)| node.labels.is(key, value));
        self.sets.iter().find(selects).map(|set| set.target)
    }

    /// Rejects the newest revision and rolls back to the one with this hash. `None` if that has the same driver.
    pub fn reject(&self, back_to: &str) -> Option<RevisionRejection> {
        let back = |set: &Set<'a>| set.revisions.iter().find(|(hash, ..)| *hash == back_to).copied();
        let (set, (_, name, digest)) = self.sets.iter().find_map(|set| Some((set, back(set)?)))?;
        let failed = set.target.digest;
        let useful = !failed.is_empty() && digest != failed && set.rejected != Some((failed, name));
        useful.then(|| RevisionRejection { daemon_set: set.name.into(), rejected: Some(format!("{failed} {name}")) })
    }

    /// Clears rejections of drivers that are no longer desired.
    pub fn clear_rejections(&self) -> Vec<RevisionRejection> {
        let over = |set: &&Set<'_>| {
            set.rejected.is_some_and(|(failed, name)| {
                let kept = set.revisions.iter().find(|(_, one, _)| *one == name).map(|(.., digest)| *digest);
                set.target.digest != failed && Some(set.target.digest) != kept
            })
        };
        let sets = self.sets.iter().filter(over);
        sets.map(|set| RevisionRejection { daemon_set: set.name.into(), rejected: None }).collect()
    }

    /// DaemonSets of an NVIDIADriver, or all for an empty name, that are held back to an older driver.
    pub fn held_back<'b>(&'b self, driver: &'b str) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        let sets = self.sets.iter().filter(move |set| driver.is_empty() || set.owner == driver);
        sets.filter(|set| set.rejected.is_some_and(|(failed, _)| failed != set.target.digest)).map(|set| set.name)
    }
}

/// The ControllerRevisions that DaemonSets are held back to: input of a plan.
pub fn kept_revisions(live: &LiveObjects) -> Vec<Ref> {
    let sets = live.iter().filter(|(reference, _)| reference.gvk == Gvk::of::<DaemonSet>());
    let kept = sets.filter_map(|(reference, set)| {
        let (_, name) = set["metadata"]["annotations"][REJECTED].as_str()?.split_once(' ')?;
        Some(Ref::of::<ControllerRevision>(&reference.namespace, name))
    });
    kept.collect()
}

/// The DaemonSet with the template of the previous revision, if the desired driver was rejected.
pub fn hold_back(mut set: Object, live: &LiveObjects) -> Object {
    let template = |set: &Object| -> Option<Value> {
        let there = live.get(&set.reference)?;
        let (failed, name) = there["metadata"]["annotations"][REJECTED].as_str()?.split_once(' ')?;
        if digest(&set.body["spec"]["template"]["spec"]) != failed {
            return None;
        }
        let revision = live.get(&Ref::of::<ControllerRevision>(&set.reference.namespace, name))?;
        let mut template = revision.pointer("/data/spec/template")?.clone();
        template.as_object_mut()?.remove("$patch");
        Some(template)
    };
    if let Some(template) = template(&set) {
        set.body["spec"]["template"] = template;
    }
    set
}
