//! Lists: paginated reads of one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::table::Table;
use super::{Object, Selection};
use crate::error::{Result, Status};

/// The revision that a list reads: `resourceVersion` with `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListRevision {
    /// The most recent revision.
    #[default]
    Latest,
    /// The most recent revision, which must be at least this one.
    NotOlderThan(u64),
    /// Exactly this revision.
    Exact(u64),
}

/// A list request.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Which objects.
    pub selection: Selection,
    /// At which revision.
    pub at: ListRevision,
    /// Maximum number of objects; 0 for all.
    pub limit: usize,
    /// Token of the previous page, or empty.
    pub continue_token: String,
}

/// The result of a [`Query`].
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The objects, ordered by key.
    pub items: Vec<Arc<Object>>,
    /// Revision of the snapshot: a watch can start from here.
    pub revision: u64,
    /// Token for the next page, if there is one.
    pub continue_token: Option<String>,
    /// Number of objects after this page, where known.
    pub remaining: Option<u64>,
}

/// A continue token, in the format of kube-apiserver.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    #[serde(rename = "v", default)]
    version: String,
    /// Revision of the first page; -1 to continue at the most recent revision.
    #[serde(rename = "rv", default)]
    revision: i64,
    /// First key of the page, relative to the namespace.
    #[serde(default)]
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

pub(super) fn list(table: &Table, now: u64, query: &Query) -> Result<Listing> {
    let prefix = query.selection.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let token = if query.continue_token.is_empty() { None } else { Some(Token::decode(&query.continue_token)?) };
    let revision = snapshot_revision(table, now, query, token.as_ref())?;
    let before = if revision < now { table.log.undo(revision) } else { BTreeMap::new() };
    let start = token.map(|token| format!("{prefix}{}", token.start)).unwrap_or_else(|| prefix.clone());
    let mut objects = View { table, before: &before }.objects(&query.selection, &prefix, &start);

    let mut listing = Listing { revision, ..Listing::default() };
    for object in objects.by_ref() {
        if query.selection.matches(object) {
            listing.items.push(object.clone());
            if query.limit > 0 && listing.items.len() == query.limit {
                break;
            }
        }
    }
    let last = listing.items.last().map(|object| object.key().clone());
    if let (Some(last), Some(_)) = (last, objects.next()) {
        let start = format!("{}\0", &last[prefix.len()..]);
        let token = Token { version: TOKEN_VERSION.into(), revision: revision as i64, start };
        listing.continue_token = Some(token.encode());
        listing.remaining = (!query.selection.is_filtered()).then(|| 1 + objects.count() as u64);
    }
    Ok(listing)
}

/// The revision that a query reads.
fn snapshot_revision(table: &Table, now: u64, query: &Query, token: Option<&Token>) -> Result<u64> {
    let asked = match (token, query.at) {
        (Some(token), _) if token.revision < 0 => return Ok(now),
        (Some(token), _) => token.revision as u64,
        (None, ListRevision::Latest) => return Ok(now),
        (None, ListRevision::NotOlderThan(least)) if least <= now => return Ok(now),
        (None, ListRevision::NotOlderThan(least)) => least,
        (None, ListRevision::Exact(revision)) => revision,
    };
    if asked > now {
        return Err(too_large(asked, now));
    }
    match token {
        _ if asked >= table.log.compacted() => Ok(asked),
        None => Err(Status::expired("The resourceVersion for the provided list is too old.")),
        Some(token) => Err(token.expired()),
    }
}

/// 504 for a revision in the future.
pub(crate) fn too_large(asked: u64, now: u64) -> Status {
    let message = format!("Timeout: Too large resource version: {asked}, current: {now}");
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    Status::new(504, "Timeout", message).with_details(json!({"causes": [cause], "retryAfterSeconds": 1}))
}

impl Token {
    fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("plain data encodes"))
    }

    fn decode(text: &str) -> Result<Self> {
        let refuse =
            |why: String| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|error| refuse(base64_error(&error)))?;
        let token: Self = serde_json::from_slice(&bytes)
            .map_err(|error| refuse(crate::syntax::fault(&bytes).unwrap_or_else(|| error.to_string())))?;
        let version = &token.version;
        match () {
            () if version != TOKEN_VERSION => {
                Err(refuse(format!("server does not recognize this encoded version {version}")))
            }
            () if token.revision == 0 => {
                Err(refuse(format!("incorrect encoded start resourceVersion (version {version})")))
            }
            () if token.start.is_empty() => Err(refuse(format!("encoded start key empty (version {version})"))),
            () => Ok(token),
        }
    }

    /// 410 for a page whose snapshot was compacted, with a token to continue at the most recent revision.
    fn expired(&self) -> Status {
        let anyway = Self { version: TOKEN_VERSION.into(), revision: -1, start: self.start.clone() };
        let mut status = Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
             results. Continuing with the provided token results in an inconsistent list - objects that were created, \
             modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        status.continue_token = Some(anyway.encode());
        status
    }
}

/// The error as Go's decoder words it.
fn base64_error(error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(length) => length - length % 4,
        base64::DecodeError::InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

/// A table at some revision.
#[derive(Clone, Copy)]
struct View<'a> {
    table: &'a Table,
    before: &'a BTreeMap<Arc<str>, Option<Arc<Object>>>,
}

impl<'a> View<'a> {
    fn get(self, key: &str) -> Option<&'a Arc<Object>> {
        match self.before.get(key) {
            Some(before) => before.as_ref(),
            None => self.table.objects.get(key),
        }
    }

    /// Objects ordered by key from `start` on, within the prefix. A superset of what is selected, narrowed by the
    /// indexes.
    fn objects(
        self,
        selection: &Selection,
        prefix: &str,
        start: &str,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + 'a> {
        if let Some(keys) = self.keys(selection, prefix, start) {
            return Box::new(keys.into_iter().filter_map(move |key| self.get(&key)));
        }
        let end = prefix.strip_suffix('/').map(|namespace| format!("{namespace}0")); // `0` follows `/`
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(start), end);
        let now = self.table.objects.range::<str, _>(range);
        if self.before.is_empty() {
            return Box::new(now.map(|(_, object)| object));
        }
        let before = self.before.range::<str, _>(range).map(|(key, _)| key);
        let keys: BTreeSet<&'a Arc<str>> = now.map(|(key, _)| key).chain(before).collect();
        Box::new(keys.into_iter().filter_map(move |key| self.get(key)))
    }

    /// The candidate keys, if an index narrows them down.
    fn keys(self, selection: &Selection, prefix: &str, start: &str) -> Option<BTreeSet<Arc<str>>> {
        let mut keys: BTreeSet<Arc<str>> = BTreeSet::new();
        let namespaced = || self.table.objects.first_key_value().is_some_and(|(key, _)| key.contains('/'));
        if let Some(key) = selection.only_key(namespaced) {
            keys.insert(key.into());
        } else {
            let (path, value) = selection.fields.any_required()?;
            keys.extend(self.table.indexed(path, value)?.cloned());
        }
        keys.extend(self.before.keys().cloned());
        keys.retain(|key| key.starts_with(prefix) && **key >= *start);
        Some(keys)
    }
}
