//! A stored object: its JSON as bytes, and beside it the parts that selectors, indexes and concurrency checks read.
//!
//! The bytes omit `apiVersion`, `kind` and `resourceVersion`. These are inserted when the object is serialized, so that
//! a commit need not rewrite the bytes, a deletion shares the bytes of the last state, and an object can be written in
//! another version or as a list item without being parsed.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::Fields;
use super::text::{Encoded, METADATA, SPEC, STATUS, encode, write_metadata, write_string};
use crate::clock::seconds;

/// `apiVersion` and `kind` of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypeMeta {
    /// `v1`, `apps/v1` …
    pub api_version: String,
    /// `Pod`, `Deployment` …
    pub kind: String,
}

/// One version of an object.
#[derive(Clone, Debug)]
pub struct Object {
    /// `NAMESPACE/NAME`, or `NAME` if cluster-scoped: the sort key of lists.
    key: Arc<str>,
    /// Offset of the name in `key`.
    name_at: u32,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// Store revision of the write; 0 if the object was never stored.
    pub revision: u64,
    /// `metadata.generation`, 0 if absent.
    pub generation: i64,
    /// Labels, sorted by key.
    pub labels: Arc<[(Box<str>, Box<str>)]>,
    /// Values of the selectable fields.
    pub fields: Fields,
    /// UIDs of the owner references.
    pub owners: Arc<[Arc<str>]>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `apiVersion` and `kind` of the JSON.
    pub types: Arc<TypeMeta>,
    /// The JSON members after `kind`, with the closing brace: `"metadata":{…},"spec":…}`.
    body: Bytes,
    /// Insertion offset of `resourceVersion` in `body`.
    revision_at: u32,
    /// Range of `metadata.managedFields` in `body`, including the preceding comma.
    managed: (u32, u32),
    /// Offset of `status` in `body`, including the preceding comma, if it is the last member; else of the closing
    /// brace.
    status_at: u32,
}

impl Object {
    /// An object from its JSON. `fields` are the selectable fields; `resourceVersion` in `value` is ignored.
    pub fn new(types: Arc<TypeMeta>, value: &Value, fields: &super::FieldPaths) -> Self {
        Self::with_text(types, value, fields, encode(value, b""))
    }

    /// An object whose spec has further members beyond `value`: the JSON in `more`, from which no field is extracted.
    pub(crate) fn with_raw_spec(types: Arc<TypeMeta>, value: &Value, more: &[u8], fields: &super::FieldPaths) -> Self {
        Self::with_text(types, value, fields, encode(value, more))
    }

    /// An object with its encoded JSON: `value` is the same, parsed.
    fn with_text(types: Arc<TypeMeta>, value: &Value, fields: &super::FieldPaths, encoded: Encoded) -> Self {
        let Encoded { body, revision_at, managed, status_at } = encoded;
        let meta = &value["metadata"];
        let (namespace, name) = (text(meta, "namespace"), text(meta, "name"));
        let key: Arc<str> = if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}").into() };
        Self {
            name_at: (key.len() - name.len()) as u32,
            key,
            uid: text(meta, "uid").into(),
            revision: 0,
            generation: meta["generation"].as_i64().unwrap_or(0),
            labels: labels(meta),
            fields: fields.read(value),
            owners: owners(meta),
            deleting: !meta["deletionTimestamp"].is_null(),
            types,
            body,
            revision_at,
            managed,
            status_at,
        }
    }

    /// Replaces the status without parsing the object. `outline` holds the selectable fields of the status. `None` if
    /// the status is not the last member, which it is in every built-in kind.
    pub(crate) fn with_status(
        &self,
        status: &impl Serialize,
        outline: &Value,
        fields: &super::FieldPaths,
    ) -> Option<Self> {
        self.with_head_and_status(
            &self.body[..self.status_at as usize],
            status,
            fields.read_some(&self.fields, outline, &["status."]),
        )
    }

    /// Sets `spec.nodeName` and replaces the status of a pod without parsing it. The pod must be unscheduled. `outline`
    /// holds the selectable fields of the status.
    pub(crate) fn bound(
        &self,
        node: &str,
        status: &impl Serialize,
        mut outline: Value,
        fields: &super::FieldPaths,
    ) -> Option<Self> {
        let text = self.body.strip_prefix(METADATA).expect("a body starts with its metadata");
        let mut reader = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
        reader.next()?.ok()?;
        let (before, rest) = self.body[..self.status_at as usize].split_at(METADATA.len() + reader.byte_offset());
        let members = rest.strip_prefix(SPEC).filter(|members| members.starts_with(b"\""))?;
        let mut head = Vec::with_capacity(self.body.len() + node.len() + 16);
        head.extend_from_slice(before);
        head.extend_from_slice(SPEC);
        head.extend_from_slice(br#""nodeName":"#);
        write_string(&mut head, node);
        head.push(b',');
        head.extend_from_slice(members);
        outline["spec"]["nodeName"] = node.into();
        self.with_head_and_status(
            &head,
            status,
            fields.read_some(&self.fields, &outline, &["status.", "spec.nodeName"]),
        )
    }

    /// Replaces the JSON before the status, and the status.
    fn with_head_and_status(&self, head: &[u8], status: &impl Serialize, fields: Fields) -> Option<Self> {
        let tail = &self.body[self.status_at as usize..];
        if tail.len() > 1 && !tail.starts_with(STATUS) {
            return None;
        }
        let mut body = Vec::with_capacity(head.len() + tail.len() + 1024);
        body.extend_from_slice(head);
        body.extend_from_slice(STATUS);
        serde_json::to_writer(&mut body, status).expect("a status encodes");
        body.push(b'}');
        Some(Self { body: Bytes::copy_from_slice(&body), fields, status_at: head.len() as u32, ..self.clone() })
    }

    /// Sets the deletion timestamp and grace period, parsing only the metadata. `None` if the object has finalizers.
    pub(crate) fn terminating(&self, deletion: &Deletion) -> Option<Self> {
        let text = self.body.strip_prefix(METADATA).expect("a body starts with its metadata");
        let mut reader = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
        let mut meta = reader.next().and_then(Result::ok).expect("an encoded value decodes");
        if meta["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
            return None;
        }
        let rest = &text[reader.byte_offset()..];
        let generation = self.generation + 1;
        meta["deletionTimestamp"] = seconds(deletion.at).into();
        meta["deletionGracePeriodSeconds"] = deletion.grace.into();
        meta["generation"] = generation.into();
        let mut body = Vec::with_capacity(self.body.len() + 128);
        let (revision_at, (from, to)) = write_metadata(&mut body, &meta);
        let status_at = self.status_at as usize + body.len() + rest.len() - self.body.len();
        body.extend_from_slice(rest);
        Some(Self {
            generation,
            deleting: true,
            body: Bytes::copy_from_slice(&body),
            revision_at: revision_at as u32,
            managed: (from as u32, to as u32),
            status_at: status_at as u32,
            ..self.clone()
        })
    }

    /// An object that is served but not stored: a Scale, a review, another version of a stored object.
    /// `resourceVersion` is taken from `value`.
    pub fn synthetic(value: &Value) -> Self {
        let types = TypeMeta { api_version: text(value, "apiVersion").into(), kind: text(value, "kind").into() };
        let mut object = Self::new(Arc::new(types), value, &super::FieldPaths::default());
        object.revision = text(&value["metadata"], "resourceVersion").parse().unwrap_or(0);
        object
    }

    /// The JSON in its on-disk encoding.
    pub(super) fn encoded(&self) -> Encoded {
        let Self { revision_at, managed, status_at, .. } = *self;
        Encoded { body: self.body.clone(), revision_at, managed, status_at }
    }

    /// Decodes an object from disk; `None` if the record is corrupt.
    pub(super) fn decoded(
        types: Arc<TypeMeta>,
        text: Encoded,
        revision: u64,
        fields: &super::FieldPaths,
    ) -> Option<Self> {
        let (from, to) = text.managed;
        let places = [from, to, text.revision_at, text.status_at];
        if !places.is_sorted() || text.status_at as usize >= text.body.len() {
            return None;
        }
        let value: Value = serde_json::from_slice(&[b"{", &text.body[..]].concat()).ok()?;
        Some(Self { revision, ..Self::with_text(types, &value, fields, text) })
    }

    /// The same state at another revision, sharing the bytes.
    pub fn at(&self, revision: u64) -> Self {
        Self { revision, ..self.clone() }
    }

    /// The same JSON with another `apiVersion` and `kind`.
    pub fn retyped(&self, types: Arc<TypeMeta>) -> Self {
        Self { types, ..self.clone() }
    }

    /// Shares unchanged parts with the previous version, so that they are in memory once.
    pub(super) fn share(&mut self, previous: &Self) {
        self.key = previous.key.clone();
        share(&mut self.uid, &previous.uid);
        share(&mut self.labels, &previous.labels);
        share(&mut self.owners, &previous.owners);
    }

    /// Shares equal parts with another object of the same owner.
    pub(super) fn share_with_sibling(&mut self, sibling: &Self) {
        share(&mut self.labels, &sibling.labels);
        share(&mut self.owners, &sibling.owners);
    }

    /// The same object with the selectable fields extracted again.
    pub(super) fn reindexed(&self, fields: &super::FieldPaths) -> Self {
        Self { fields: fields.read(&self.value()), ..self.clone() }
    }

    /// Namespace, empty if cluster-scoped.
    pub fn namespace(&self) -> &str {
        &self.key[..(self.name_at as usize).saturating_sub(1)]
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.key[self.name_at as usize..]
    }

    /// `NAMESPACE/NAME`, or `NAME` if cluster-scoped.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(mine, _)| (**mine).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// Parses the object, with `apiVersion`, `kind` and `resourceVersion`.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.to_json()).expect("an encoded value decodes")
    }

    /// Parses only the metadata, without `resourceVersion`.
    pub fn metadata(&self) -> Value {
        let text = self.body.strip_prefix(METADATA).expect("a body starts with its metadata");
        let mut reader = serde_json::Deserializer::from_slice(text);
        Value::deserialize(&mut reader).expect("an encoded value decodes")
    }

    /// Deserializes the object.
    pub fn parse<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.to_json())
    }

    /// Deserializes the object without managed fields: controllers do not read them, and they are a large part of the
    /// JSON.
    pub fn parse_unmanaged<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        let mut text = Vec::with_capacity(self.len() + 160);
        self.write_types(&mut text, &self.types.api_version);
        self.write_members(&mut text, self.managed);
        serde_json::from_slice(&text)
    }

    /// Serializes the object.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len() + 160);
        self.write(&mut out);
        out
    }

    /// Appends the serialized object.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_as(out, &self.types.api_version);
    }

    /// Appends the serialized object with another `apiVersion`, for versions with the same schema.
    pub fn write_as(&self, out: &mut Vec<u8>, api_version: &str) {
        self.write_types(out, api_version);
        self.write_members(out, (0, 0));
    }

    /// Appends the serialized object without `apiVersion` and `kind`: an item in a list of a built-in kind.
    pub fn write_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_members(out, (0, 0));
    }

    /// Approximate length of the JSON.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Never true: objects have at least metadata.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Whether both have the same JSON, whatever their revisions.
    pub fn same_text(&self, other: &Self) -> bool {
        self.body == other.body && self.types == other.types
    }

    fn write_types(&self, out: &mut Vec<u8>, api_version: &str) {
        out.extend_from_slice(br#"{"apiVersion":"#);
        write_string(out, api_version);
        out.extend_from_slice(br#","kind":"#);
        write_string(out, &self.types.kind);
        out.push(b',');
    }

    /// Appends the members without the given range of the body.
    fn write_members(&self, out: &mut Vec<u8>, (from, to): (u32, u32)) {
        let (head, tail) = self.body.split_at(self.revision_at as usize);
        out.extend_from_slice(&head[..from as usize]);
        out.extend_from_slice(&head[to as usize..]);
        if self.revision > 0 {
            let first = out.ends_with(b"{");
            let last = tail.starts_with(b"}");
            let comma = if first { "" } else { "," };
            write!(out, "{comma}\"resourceVersion\":\"{}\"", self.revision).expect("writing to a Vec cannot fail");
            if first && !last {
                out.push(b',');
            }
        }
        out.extend_from_slice(tail);
    }
}

/// Deletion metadata.
#[derive(Clone, Copy, Debug)]
pub struct Deletion {
    /// `metadata.deletionTimestamp`.
    pub at: Timestamp,
    /// `metadata.deletionGracePeriodSeconds`.
    pub grace: i64,
}

fn share<T: PartialEq + ?Sized>(mine: &mut Arc<T>, previous: &Arc<T>) {
    if **mine == **previous {
        *mine = previous.clone();
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn labels(meta: &Value) -> Arc<[(Box<str>, Box<str>)]> {
    let labels = meta["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
}

fn owners(meta: &Value) -> Arc<[Arc<str>]> {
    let owners = meta["ownerReferences"].as_array().into_iter().flatten();
    owners.filter_map(|owner| owner["uid"].as_str().map(Into::into)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text_of(object: &Object) -> String {
        String::from_utf8(object.to_json()).unwrap()
    }

    #[test]
    fn the_revision_is_put_where_it_belongs() {
        let cases = [
            (json!({"metadata": {"name": "a", "uid": "u"}}), r#"{"name":"a","resourceVersion":"7","uid":"u"}"#),
            (json!({"metadata": {"name": "a"}}), r#"{"name":"a","resourceVersion":"7"}"#),
            (json!({"metadata": {"uid": "u"}}), r#"{"resourceVersion":"7","uid":"u"}"#),
            (json!({"metadata": {}}), r#"{"resourceVersion":"7"}"#),
            (json!({"metadata": {"name": "a", "resourceVersion": "3"}}), r#"{"name":"a","resourceVersion":"7"}"#),
        ];
        for (value, metadata) in cases {
            let object = Object::synthetic(&value).at(7);
            assert_eq!(text_of(&object), format!(r#"{{"apiVersion":"","kind":"","metadata":{metadata}}}"#));
        }
    }

    #[test]
    fn an_object_can_be_read_without_its_managed_fields() {
        let fields = json!([{"manager": "m", "fieldsV1": {"f:data": {}}}]);
        let rest = json!({"kind": "K", "apiVersion": "v1", "data": 1});
        for metadata in [
            json!({"labels": {"a": "b"}, "name": "n", "uid": "u"}),
            json!({"labels": {"a": "b"}}),
            json!({"annotations": {}, "name": "n"}),
        ] {
            let (mut with, mut without) = (rest.clone(), rest.clone());
            (with["metadata"], without["metadata"]) = (metadata.clone(), metadata);
            with["metadata"]["managedFields"] = fields.clone();
            without["metadata"]["resourceVersion"] = json!("7");
            let object = Object::synthetic(&with).at(7);
            assert_eq!(object.metadata(), with["metadata"]);
            assert_eq!(object.parse_unmanaged::<Value>().unwrap(), without);
            with["metadata"]["resourceVersion"] = json!("7");
            assert_eq!(object.value(), with);
        }
    }

    #[test]
    fn a_status_is_replaced_without_the_rest_being_read() {
        let paths: crate::store::FieldPaths = ["spec.nodeName", "status.phase"].into_iter().collect();
        let whole =
            json!({"metadata": {"name": "n"}, "spec": {"nodeName": "a"}, "status": {"phase": "Pending", "x": 1}});
        let bare = json!({"metadata": {"name": "n"}, "spec": {"nodeName": "a"}});
        for value in [whole, bare] {
            let types = Arc::new(TypeMeta { api_version: "v1".into(), kind: "Pod".into() });
            let object = Object::new(types, &value, &paths).at(7);
            let status = json!({"phase": "Running"});
            let told = object.with_status(&status, &json!({"status": status}), &paths).unwrap();
            let status = r#""spec":{"nodeName":"a"},"status":{"phase":"Running"}}"#;
            let meta = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","resourceVersion":"7"}"#;
            assert_eq!(text_of(&told), format!("{meta},{status}"));
            assert_eq!(
                (told.fields.get("spec.nodeName"), told.fields.get("status.phase")),
                (Some("a"), Some("Running"))
            );
            let again = told.with_status(&json!({}), &json!({"status": {}}), &paths).unwrap();
            assert!(text_of(&again).ends_with(r#","status":{}}"#));
        }
    }

    #[test]
    fn an_object_that_was_never_written_has_no_revision() {
        let object = Object::synthetic(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}));
        assert_eq!(text_of(&object), r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
    }

    #[test]
    fn an_item_has_no_type_and_another_version_no_other_text() {
        let value = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "namespace": "s"}, "data": 1});
        let object = Object::synthetic(&value);
        let (mut item, mut other) = (Vec::new(), Vec::new());
        object.write_item(&mut item);
        object.write_as(&mut other, "g/v2");
        assert_eq!(item, br#"{"metadata":{"name":"n","namespace":"s"},"data":1}"#);
        assert_eq!(other, br#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","namespace":"s"},"data":1}"#);
        assert_eq!((object.namespace(), object.name(), &**object.key()), ("s", "n", "s/n"));
        assert_eq!(object.value(), value);
    }
}
