//! get and list.

use std::sync::Arc;

use super::server::Profile;
use super::{GetOptions, ListOptions, Server, Target, convert, scale};
use crate::error::{Cause, Result, Status};
use crate::registry::Origin;
use crate::store::{FieldSelector, LabelSelector, ListRevision, Listing, Object, Query, Selection};

/// An object, or its scale.
pub(super) fn get(server: &Server, target: &Target, options: &GetOptions) -> Result<Arc<Object>> {
    let profile = server.profile(&target.resource);
    if let Some(least) = revision(&options.resource_version)? {
        let now = server.store().revision();
        if least > now {
            return Err(crate::store::too_large(least, now));
        }
    }
    let object = find(server, &profile, target)?;
    match target.subresource.as_deref() {
        Some("scale") => scale::of(&profile, &object),
        _ => Ok(convert::serve(&profile, &object)),
    }
}

/// The stored object that a request names.
pub(super) fn find(server: &Server, profile: &Profile, target: &Target) -> Result<Arc<Object>> {
    let name = target.name.as_deref().unwrap_or_default();
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let object = server.store().get(&profile.table, namespace, name);
    object.ok_or_else(|| Status::not_found(&target.resource, name))
}

/// Lists objects; with `stale`, at that many revisions ago.
pub(super) fn list(server: &Server, target: &Target, options: &ListOptions, stale: Option<u64>) -> Result<Listing> {
    let profile = server.profile(&target.resource);
    check_list(options)?;
    let selection = selection(&profile, target, options)?;
    let continue_token = options.continue_token.clone();
    // `resourceVersion=0` accepts any state and ignores the limit, as kube-apiserver's watch cache does.
    let limit = if options.resource_version == "0" { 0 } else { options.limit };
    let mut query = Query { selection, at: list_revision(options)?, limit, continue_token };
    if let Some(stale) = stale {
        query.at = ListRevision::Exact(server.store().revision().saturating_sub(stale).max(1));
    }
    let mut listing = server.store().list(&profile.table, &query)?;
    for object in &mut listing.items {
        if object.types != profile.served {
            *object = convert::serve(&profile, object);
        }
    }
    Ok(listing)
}

/// The selection of a list or watch.
pub(super) fn selection(profile: &Profile, target: &Target, options: &ListOptions) -> Result<Selection> {
    let labels =
        LabelSelector::parse(&options.label_selector).map_err(|error| Status::bad_request(error.to_string()))?;
    let mut fields = FieldSelector::parse(&options.field_selector)?;
    if profile.served.api_version == "events.k8s.io/v1" {
        fields.rename(convert::event_field);
    }
    if profile.table.plural.as_ref() == "pods" {
        fields.rename(|path| (path == "spec.host").then_some("spec.nodeName"));
    }
    if let Some(unknown) = fields.paths().find(|path| !profile.fields.contains(path)) {
        return Err(Status::bad_request(unknown_field(profile, unknown)));
    }
    let mut selection = Selection { namespace: target.namespace.as_deref().map(Into::into), labels, fields };
    if let Some(name) = &target.name {
        selection.fields = FieldSelector::equal("metadata.name", name);
    }
    Ok(selection)
}

fn unknown_field(profile: &Profile, path: &str) -> String {
    let more = !profile.fields.is_empty() || matches!(profile.resource.origin, Origin::Custom(_));
    if more {
        format!("field label not supported: {path}")
    } else {
        format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }
}

fn list_revision(options: &ListOptions) -> Result<ListRevision> {
    let wrong = |status: Status| Status::bad_request(format!("invalid resource version: {}", status.message));
    let Some(revision) = revision(&options.resource_version).map_err(wrong)? else { return Ok(ListRevision::Latest) };
    if !options.continue_token.is_empty() {
        if revision == 0 {
            return Ok(ListRevision::Latest);
        }
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(match options.resource_version_match.as_str() {
        "Exact" => ListRevision::Exact(revision),
        // Without `resourceVersionMatch`, a limit implies the exact revision (legacy behaviour).
        "" if options.limit > 0 && revision > 0 => ListRevision::Exact(revision),
        _ => ListRevision::NotOlderThan(revision),
    })
}

/// Parses a `resourceVersion` of a query; `None` if it is empty.
pub(super) fn revision(text: &str) -> Result<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    let why = format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
    text.parse().map(Some).map_err(|_| Status::new(500, "", why))
}

fn check_list(options: &ListOptions) -> Result<()> {
    let mut causes = Vec::new();
    let matching = options.resource_version_match.as_str();
    if options.send_initial_events.is_some() {
        causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if !matching.is_empty() {
        if options.resource_version.is_empty() {
            causes.push(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !options.continue_token.is_empty() {
            causes
                .push(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            causes.push(unsupported_match(matching, r#""Exact", "NotOlderThan", """#));
        }
        if matching == "Exact" && options.resource_version == "0" {
            causes.push(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    refuse(causes)
}

/// 422 for invalid list options.
pub(super) fn refuse(causes: Vec<Cause>) -> Result<()> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("ListOptions", "meta.k8s.io", "", causes)) }
}

pub(super) fn forbidden(field: &str, why: &str) -> Cause {
    Cause { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.to_owned() }
}

pub(super) fn unsupported_match(value: &str, supported: &str) -> Cause {
    let message = format!("Unsupported value: {value:?}: supported values: {supported}");
    Cause { reason: "FieldValueNotSupported", message, field: "resourceVersionMatch".into() }
}
