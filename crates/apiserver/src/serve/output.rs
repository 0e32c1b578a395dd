//! Objects and lists as text: whole, as tables, or their metadata only.
//!
//! Whole objects are spliced from the bytes that the store has; only tables parse them.

use std::io::Write;

use serde_json::{Value, json};

use super::media::{Media, View};
use super::table::{self, Include};
use crate::clock::Clock;
use crate::registry::Resource;
use crate::store::{Listing, Object};

/// How objects of one request are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The form.
    pub(crate) media: Media,
    /// What rows of a table carry.
    pub(crate) include: Include,
    /// For ages in tables.
    pub(crate) clock: Clock,
}

impl Shown {
    /// One object.
    pub(crate) fn one(&self, resource: &Resource, object: &Object) -> Vec<u8> {
        let mut out = Vec::with_capacity(object.len() + 256);
        self.write_one(resource, object, table::Headers::Shown, &mut out);
        out
    }

    /// Appends one object.
    pub(crate) fn write_one(&self, resource: &Resource, object: &Object, headers: table::Headers, out: &mut Vec<u8>) {
        match self.media.view {
            View::Full => object.write(out),
            View::Metadata(version) => metadata_only(object, version, out),
            View::Table(version) => {
                let meta = json!({"resourceVersion": object.revision.to_string()});
                let rows = std::iter::once(object);
                let table = table::table(resource, rows, meta, version, self.include, headers, self.clock.now());
                write_value(out, &table);
            }
        }
    }

    /// A list.
    pub(crate) fn list(&self, resource: &Resource, listing: &Listing) -> Vec<u8> {
        let mut meta = json!({"resourceVersion": listing.revision.to_string()});
        if let Some(token) = &listing.continue_token {
            meta["continue"] = token.as_str().into();
        }
        if let Some(remaining) = listing.remaining.filter(|remaining| *remaining > 0) {
            meta["remainingItemCount"] = remaining.into();
        }
        let items = listing.items.iter().map(|object| &**object);
        match self.media.view {
            View::Full => full_list(resource, listing, &meta),
            View::Metadata(version) => {
                let mut out = Vec::new();
                list_head(&mut out, "PartialObjectMetadataList", &format!("meta.k8s.io/{version}"), &meta);
                for (index, object) in items.enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    metadata_only(object, version, &mut out);
                }
                out.extend_from_slice(b"]}");
                out
            }
            View::Table(version) => {
                let headers = table::Headers::Shown;
                let table = table::table(resource, items, meta, version, self.include, headers, self.clock.now());
                let mut out = Vec::new();
                write_value(&mut out, &table);
                out
            }
        }
    }
}

fn full_list(resource: &Resource, listing: &Listing, meta: &Value) -> Vec<u8> {
    let size: usize = listing.items.iter().map(|object| object.len() + 64).sum();
    let mut out = Vec::with_capacity(size + 256);
    list_head(&mut out, &resource.list_kind, &resource.api_version(), meta);
    for (index, object) in listing.items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // Items of built-in lists go without their type, as it is that of the list.
        if resource.custom().is_some() { object.write(&mut out) } else { object.write_item(&mut out) }
    }
    out.extend_from_slice(b"]}");
    out
}

fn list_head(out: &mut Vec<u8>, kind: &str, api_version: &str, meta: &Value) {
    write!(out, r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{meta},"items":["#)
        .expect("a vector takes all");
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("a JSON value encodes");
}

/// Appends a PartialObjectMetadata.
pub(crate) fn metadata_only(object: &Object, version: &str, out: &mut Vec<u8>) {
    let mut item = Vec::with_capacity(object.len() + 64);
    object.write_item(&mut item);
    let metadata = metadata_of(&item);
    write!(out, r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{version}","metadata":"#)
        .expect("a vector takes all");
    out.extend_from_slice(metadata);
    out.push(b'}');
}

/// The text of `metadata`, which is the first member of an item.
fn metadata_of(item: &[u8]) -> &[u8] {
    const START: &[u8] = br#"{"metadata":"#;
    let Some(rest) = item.strip_prefix(START) else { return b"{}" };
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return &rest[..=at];
                }
            }
            _ => {}
        }
    }
    b"{}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_cut_out_of_the_text() {
        let value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "a", "annotations": {"x": "}{\\\"}"}, "labels": {}}, "spec": {"y": "}"}});
        let mut out = Vec::new();
        metadata_only(&Object::synthetic(&value), "v1", &mut out);
        let seen: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(seen["metadata"], value["metadata"]);
        assert_eq!(seen.as_object().unwrap().len(), 3);
    }
}
