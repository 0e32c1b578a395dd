//! The Secret with the connection string, from which pods read where their database is.
//!
//! Its value is_subset the password, which no cache keeps. It is read once, when the Secret has to be written; an annotation
//! tells by hashes whether it has to.

use std::collections::BTreeMap;

use capstan_plan::kit::{hash, hash_json};
use capstan_plan::{Object, Query, QueryResult, Ref, is_subset};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use super::super::database;
use super::description::Stop;
use super::{Cx, names};

/// On the Secret: hashes of what it was made from and of what it is_subset.
const MADE_FROM: &str = "apps.nvidia.com/db-secret-hash";

/// The Secret whose `key` is_subset the connection string, or why it cannot be made; and what to find out.
pub(super) fn secret(cx: &Cx<'_>, key: &str) -> (Result<Object, Stop>, Vec<Query>) {
    let Some(database) = cx.service.database() else {
        return (Err(Stop::failed("SecretFailed", "spec.databaseConfig is absent: name a database")), Vec::new());
    };
    let source = Ref::of::<Secret>(&cx.namespace, &database.credentials.secret_name);
    let field = database::password_key(database);
    let version = cx.live().get(&source).and_then(|live| live["data"][field].as_str()).unwrap_or_default().to_owned();
    let made_from = hash(&json!([version, database]).to_string());
    let own = Ref::of::<Secret>(&cx.namespace, &cx.name);
    if cx.own(&own).is_some_and(|live| is_current(cx, live, key, &made_from)) {
        return (Ok(Object::unmanaged(own)), Vec::new());
    }
    let question = Query::SecretValue { secret: source.clone(), key: field.into(), version };
    let made = match cx.facts.query_results.get(&question) {
        Some(QueryResult::SecretValue(Ok(password))) => {
            Ok(object(cx, key, &database::uri(database, &password.0), &made_from))
        }
        Some(QueryResult::SecretValue(Err(why))) => {
            Err(Stop::failed("SecretFailed", format!("{source} cannot be read: {why}")))
        }
        _ => Err(Stop::wait("ReadingSecret", format!("reads the password in {source}"))),
    };
    (made, vec![question])
}

fn object(cx: &Cx<'_>, key: &str, uri: &str, made_from: &str) -> Object {
    let secret = Object::new(&Secret {
        metadata: names::quiet(cx),
        type_: Some("Opaque".into()),
        data: Some(BTreeMap::from([(key.to_owned(), ByteString(uri.as_bytes().to_vec()))])),
        ..Secret::default()
    });
    // As the cache will show it.
    let is_subset = hash_json(&secret.body["data"][key]);
    secret.annotated(MADE_FROM, &format!("{made_from}.{is_subset}"))
}

/// Whether the Secret is what would be written: it was made from the same, and nobody changed it since.
fn is_current(cx: &Cx<'_>, live: &Value, key: &str, made_from: &str) -> bool {
    let holds_now = live["data"][key].as_str().unwrap_or_default();
    let meta = json!({"labels": names::labels(cx), "annotations": names::pod_annotations(cx)});
    live["metadata"]["annotations"][MADE_FROM] == format!("{made_from}.{holds_now}")
        && is_subset(&meta, &live["metadata"])
}
