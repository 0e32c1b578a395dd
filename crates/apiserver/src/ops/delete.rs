//! delete and deletecollection: preconditions, grace periods, finalizers, propagation policy.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::admission::Options;
use super::server::Profile;
use super::strategy::Strategy;
use super::{
    Caller, DeleteOptions, Deleted, ListOptions, Operation, Preconditions, Propagation, Request, Server, Target,
    convert, meta, namespaces, read,
};
use crate::clock::seconds;
use crate::error::{Result, Status};
use crate::registry::crd;
use crate::store::{Listing, Object, WriteError};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Default grace period of pods, in seconds.
const DEFAULT_GRACE: i64 = 30;
const ATTEMPTS: usize = 64;

pub(super) async fn delete(
    server: &Server,
    caller: &Caller,
    target: &Target,
    options: &DeleteOptions,
) -> Result<Deleted> {
    namespaces::admit_delete(target)?;
    let profile = server.profile(&target.resource);
    for _ in 0..ATTEMPTS {
        let live = read::find(server, &profile, target)?;
        let old = Arc::new(convert::serve_value(&profile, &live));
        check_preconditions(target, &old, &options.preconditions)?;
        let request = Request::new(
            server,
            caller,
            target,
            Operation::Delete,
            Some(old.clone()),
            Options::Delete(options.clone()),
        );
        for plugin in server.admission().iter().filter(|plugin| plugin.handles(&request)) {
            plugin.validate(&request, None).await?;
        }
        let step = plan(&profile, &old, options, server.clock().now());
        if let Some((object, gone)) = execute(server, &profile, &live, step, options.dry_run)? {
            let show_object = profile.strategy.shows_deleted || !gone;
            let object = convert::serve(&profile, &object);
            return Ok(Deleted { object, gone, show_object, warnings: request.take_warnings() });
        }
    }
    Err(Status::modified(&target.resource, target.name.as_deref().unwrap_or_default()))
}

pub(super) async fn delete_collection(
    server: &Server,
    caller: &Caller,
    target: &Target,
    select: &ListOptions,
    options: &DeleteOptions,
) -> Result<Listing> {
    let listing = read::list(server, target, select, None)?;
    for object in &listing.items {
        let namespace = Some(object.namespace()).filter(|namespace| !namespace.is_empty());
        let one = Target::one(target.resource.clone(), namespace, object.name());
        match delete(server, caller, &one, options).await {
            Ok(_) => {}
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    Ok(listing)
}

/// The effect of a deletion on the object.
#[derive(Debug)]
enum Step {
    /// None: it is already terminating.
    Nothing,
    /// Sets the deletion timestamp; the object is removed later.
    Mark(Value),
    /// Removes the object, after a final update if given.
    Remove(Option<Value>),
}

fn plan(profile: &Profile, old: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let mut object = old.clone();
    if namespaces::is_namespaces(&profile.resource) {
        return plan_namespace(object, options, now);
    }
    if crd::is_definitions(&profile.resource) && object["metadata"]["deletionTimestamp"].is_null() {
        // The objects of a CRD are deleted first: see `lifecycle`.
        set_deletion(&mut object, now, 0);
        meta::members(&mut object).remove("deletionGracePeriodSeconds");
        crd::begin_deletion(&mut object, &seconds(now));
        return Step::Mark(object);
    }
    let grace = begin(profile.strategy, &mut object, options, now);
    if grace == Grace::Pending {
        return Step::Nothing;
    }
    if profile.strategy.collected {
        set_gc_finalizers(&mut object, options.propagation);
    }
    let waits = !meta::finalizers(&object).is_empty();
    match grace {
        Grace::None if waits => {
            mark(&mut object, now);
            Step::Mark(object)
        }
        Grace::None => Step::Remove(None),
        Grace::Seconds(0) if !waits => Step::Remove(Some(object)),
        _ => Step::Mark(object),
    }
}

/// A namespace is only marked as terminating; the namespace controller removes it when it is empty.
fn plan_namespace(mut object: Value, options: &DeleteOptions, now: Timestamp) -> Step {
    if object["metadata"]["deletionTimestamp"].is_null() {
        meta::members(&mut object).insert("deletionTimestamp".into(), seconds(now).into());
        object["status"]["phase"] = "Terminating".into();
        set_gc_finalizers(&mut object, options.propagation);
        return if namespaces::has_content(&object) || !meta::finalizers(&object).is_empty() {
            Step::Mark(object)
        } else {
            Step::Remove(Some(object))
        };
    }
    let waits = namespaces::has_content(&object) || !meta::finalizers(&object).is_empty();
    if waits { Step::Nothing } else { Step::Remove(None) }
}

/// Grace period of a deletion.
#[derive(Debug, PartialEq, Eq)]
enum Grace {
    /// The kind has no graceful deletion, or the period is over.
    None,
    /// Already running, and not shortened by this request.
    Pending,
    /// Runs from now, for this many seconds.
    Seconds(i64),
}

/// Starts or shortens the grace period.
fn begin(strategy: Strategy, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    if !strategy.graceful {
        return Grace::None;
    }
    let requested = options.grace.map(|grace| if grace < 0 { 1 } else { grace });
    let running =
        object["metadata"]["deletionGracePeriodSeconds"].as_i64().map(|grace| if grace < 0 { 1 } else { grace });
    let since: Option<Timestamp> = meta::text(object, "deletionTimestamp").parse().ok();
    if let Some(end) = since {
        let Some(running) = running.filter(|running| *running > 0) else { return Grace::None };
        let Some(requested) = requested.filter(|requested| *requested < running) else { return Grace::Pending };
        let end = end.saturating_sub(SignedDuration::from_secs(running - requested)).unwrap_or(end);
        set_deletion(object, end, requested);
        return Grace::Seconds(requested);
    }
    let grace = pod_grace(object, requested);
    set_deletion(object, now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now), grace);
    bump(object);
    Grace::Seconds(grace)
}

/// A pod that is unscheduled or has finished needs no grace period.
fn pod_grace(pod: &Value, requested: Option<i64>) -> i64 {
    let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if over || pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    let grace = requested.or(own).unwrap_or(DEFAULT_GRACE);
    if grace < 0 { 1 } else { grace }
}

fn set_deletion(object: &mut Value, at: Timestamp, grace: i64) {
    let meta = meta::members(object);
    meta.insert("deletionTimestamp".into(), seconds(at).into());
    meta.insert("deletionGracePeriodSeconds".into(), grace.into());
}

/// Sets the deletion timestamp of an object that waits only for finalizers.
fn mark(object: &mut Value, now: Timestamp) {
    let at: Option<Timestamp> = meta::text(object, "deletionTimestamp").parse().ok();
    if at.is_none() {
        bump(object);
    }
    set_deletion(object, at.filter(|at| *at <= now).unwrap_or(now), 0);
}

/// Setting the deletion timestamp increments `metadata.generation`, for kinds that have one.
fn bump(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        meta::members(object).insert("generation".into(), (generation + 1).into());
    }
}

/// Sets the finalizers `orphan` and `foregroundDeletion` by propagation policy. Without a policy, existing finalizers
/// are kept.
fn set_gc_finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let before = meta::finalizers(object);
    let own = before.iter().find_map(|one| match *one {
        ORPHAN => Some(Propagation::Orphan),
        FOREGROUND => Some(Propagation::Foreground),
        _ => None,
    });
    let mut after: Vec<String> =
        before.iter().filter(|one| !matches!(**one, ORPHAN | FOREGROUND)).map(|one| (*one).to_owned()).collect();
    match propagation.or(own) {
        Some(Propagation::Orphan) => after.push(ORPHAN.into()),
        Some(Propagation::Foreground) => after.push(FOREGROUND.into()),
        _ => {}
    }
    let same = before.len() == after.len() && before.iter().all(|one| after.iter().any(|other| other == one));
    if !same {
        meta::set_finalizers(object, after);
    }
}

fn check_preconditions(target: &Target, old: &Value, wanted: &Preconditions) -> Result<()> {
    // kube-apiserver names the kind here, not the resource.
    let conflict = |why: String| {
        let resource = &target.resource;
        let kind = if resource.group.is_empty() {
            resource.kind.to_string()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        let name = meta::text(old, "name");
        let mut status = Status::conflict(resource, name, &why);
        status.message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
        status.details["kind"] = (*resource.kind).into();
        status
    };
    let (uid, version) = (meta::text(old, "uid"), meta::text(old, "resourceVersion"));
    if let Some(wanted) = wanted.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )));
    }
    if let Some(wanted) = wanted.resource_version.as_deref().filter(|wanted| *wanted != version) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        )));
    }
    Ok(())
}

/// Executes a step. `None`: a concurrent write conflicted. The flag tells whether the object was removed.
fn execute(
    server: &Server,
    profile: &Profile,
    live: &Arc<Object>,
    step: Step,
    dry_run: bool,
) -> Result<Option<(Arc<Object>, bool)>> {
    let store = server.store();
    let (object, gone) = match step {
        Step::Nothing => return Ok(Some((live.clone(), false))),
        Step::Mark(value) => (Some(value), false),
        Step::Remove(value) => (value, true),
    };
    let object = object.map(|value| {
        let value = convert::store_value(profile, value);
        Object::new(profile.stored.clone(), &value, &profile.fields)
    });
    if dry_run {
        let object = object.map_or_else(|| live.clone(), |object| Arc::new(object.at(live.revision)));
        return Ok(Some((object, gone)));
    }
    let mut last = live.clone();
    if let Some(object) = object.filter(|object| !object.same_text(live)) {
        match store.update(&profile.table, object, live.revision) {
            Ok(object) => last = object,
            Err(_) => return Ok(None),
        }
    }
    if !gone {
        return Ok(Some((last, false)));
    }
    match store.delete(&profile.table, last.namespace(), last.name(), last.revision) {
        Ok(object) => {
            server.removed(profile, &object);
            Ok(Some((object, true)))
        }
        // A concurrent request removed it.
        Err(WriteError::NotFound) => Ok(Some((last, true))),
        Err(WriteError::Conflict(_)) => Ok(None),
    }
}

/// Whether an update removes the last finalizer of a terminating object.
pub(super) fn update_completes_deletion(profile: &Profile, old: &Value, new: &Value) -> bool {
    let deleting = !old["metadata"]["deletionTimestamp"].is_null();
    let over = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
    let free = meta::finalizers(new).is_empty();
    let empty = !namespaces::is_namespaces(&profile.resource) || !namespaces::has_content(new);
    deleting && over && free && empty
}

/// Removes an object whose last finalizer an update removed. Returns the updated object.
pub(super) fn finish(
    server: &Server,
    profile: &Profile,
    object: Object,
    revision: u64,
) -> std::result::Result<Arc<Object>, WriteError> {
    let gone = server.store().delete(&profile.table, object.namespace(), object.name(), revision)?;
    server.removed(profile, &gone);
    Ok(Arc::new(object.at(revision)))
}
