//! Policy parameters: objects that a binding references or selects.

use serde_json::Value;

use super::config::{Binding, Policy};
use crate::ops::Request;
use crate::registry::group_version;
use crate::store::{Selection, TableKey};

/// Why parameters could not be resolved.
pub(super) enum Missing {
    /// The kind does not exist.
    Kind(String),
    /// The object does not exist.
    Object(String),
}

/// The parameters of a request: null if the binding has no `paramRef`; empty if absent parameters are allowed.
pub(super) fn find(request: &Request, policy: &Policy, binding: &Binding) -> Result<Vec<Value>, Missing> {
    let Some((api_version, kind)) = &policy.parameter_kind else { return Ok(vec![Value::Null]) };
    let (group, version) = group_version(api_version);
    let Some(resource) = request.server.registry().by_kind(group, version, kind) else {
        let why = format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'");
        return Err(Missing::Kind(why));
    };
    let Some(reference) = &binding.parameter else { return Ok(vec![Value::Null]) };
    let own = request.target.namespace.as_deref().unwrap_or_default();
    let namespace = match (resource.namespaced, reference.namespace.as_str()) {
        (false, "") => "",
        (false, _) => {
            let why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
            return Err(Missing::Object(why.to_owned()));
        }
        (true, "") if own.is_empty() => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(Missing::Object(why.to_owned()));
        }
        (true, "") => own,
        (true, namespace) => namespace,
    };
    let (store, table) = (request.server.store(), TableKey::of(&resource));
    let found = match &reference.selector {
        None => store.get(&table, namespace, &reference.name).into_iter().collect(),
        Some(labels) => {
            let everywhere = if namespace.is_empty() { Selection::default() } else { Selection::namespace(namespace) };
            store.select(&table, &Selection { labels: labels.clone(), ..everywhere })
        }
    };
    if found.is_empty() && !reference.optional {
        let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Err(Missing::Object(why.to_owned()));
    }
    Ok(found.iter().map(|object| crate::ops::convert(&object.value(), api_version)).collect())
}
