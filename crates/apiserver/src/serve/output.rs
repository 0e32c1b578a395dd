//! Serialization of objects and lists: full, as tables, or metadata only.
//!
//! Full objects are spliced from the stored bytes; only tables parse them.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};

use super::body::Body;
use super::media::{Format, Media, View};
use super::table::{self, Include};
use crate::clock::Clock;
use crate::registry::Resource;
use crate::store::{Listing, Object};

/// Representation of the objects in a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Representation {
    /// Media type.
    pub(crate) media: Media,
    /// What table rows contain (`includeObject`).
    pub(crate) include: Include,
    /// For ages in tables.
    pub(crate) clock: Clock,
}

impl Representation {
    /// Serializes one object.
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

    /// Serializes a list. A long one is streamed, so that it is never in memory as a whole.
    pub(crate) fn list(&self, resource: &Arc<Resource>, listing: Listing) -> Body {
        let mut meta = json!({"resourceVersion": listing.revision.to_string()});
        if let Some(token) = &listing.continue_token {
            meta["continue"] = token.as_str().into();
        } else if resource.custom().is_some() && self.media.view == View::Full {
            // Lists of custom resources always have `continue`, even if empty.
            meta["continue"] = "".into();
        }
        if let Some(remaining) = listing.remaining.filter(|remaining| *remaining > 0) {
            meta["remainingItemCount"] = remaining.into();
        }
        if let View::Table(version) = self.media.view {
            let (items, headers) = (listing.items.iter().map(|object| &**object), table::Headers::Shown);
            let mut table = table::table(resource, items, meta, version, self.include, headers, self.clock.now());
            table::mark_default(resource, &listing.items, &mut table);
            return self.media.write(&table).into();
        }
        let mut head = Vec::with_capacity(256);
        match self.media.view {
            View::Metadata(version) => {
                list_head(&mut head, "PartialObjectMetadataList", &format!("meta.k8s.io/{version}"), &meta);
            }
            _ => list_head(&mut head, &resource.list_kind, &resource.api_version(), &meta),
        }
        let items = Items { view: self.media.view, resource: resource.clone(), objects: listing.items, next: 0 };
        if self.media.format == Format::Json && items.objects.len() > CHUNK {
            let head = futures::stream::iter([Bytes::from(head)]);
            return Body::stream(head.chain(futures::stream::iter(items)));
        }
        for chunk in items {
            head.extend_from_slice(&chunk);
        }
        self.media.finish(head).into()
    }
}

/// Maximum number of items per chunk of a list.
const CHUNK: usize = 256;

/// The items of a list, serialized in chunks, with the end of the list.
struct Items {
    view: View,
    resource: Arc<Resource>,
    objects: Vec<Arc<Object>>,
    next: usize,
}

impl Iterator for Items {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.next > self.objects.len() {
            return None;
        }
        let end = self.objects.len().min(self.next + CHUNK);
        let chunk = &self.objects[self.next..end];
        let mut out = Vec::with_capacity(chunk.iter().map(|object| object.len() + 96).sum::<usize>() + 2);
        for (index, object) in chunk.iter().enumerate() {
            if self.next + index > 0 {
                out.push(b',');
            }
            match self.view {
                View::Metadata(version) => metadata_only(object, version, &mut out),
                // Items of built-in lists omit `apiVersion` and `kind`.
                _ if self.resource.custom().is_none() => object.write_item(&mut out),
                _ => object.write(&mut out),
            }
        }
        self.next = end;
        if end == self.objects.len() {
            out.extend_from_slice(b"]}");
            self.next += 1;
        }
        Some(out.into())
    }
}

fn list_head(out: &mut Vec<u8>, kind: &str, api_version: &str, meta: &Value) {
    write!(out, r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{meta},"items":["#)
        .expect("writing to a Vec cannot fail");
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
        .expect("writing to a Vec cannot fail");
    out.extend_from_slice(metadata);
    out.push(b'}');
}

/// The bytes of `metadata`, which is the first member of an item.
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
                depth = depth.saturating_sub(1);
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
    use crate::clock::Clock;
    use crate::registry::Registry;

    #[tokio::test]
    async fn a_long_list_is_the_same_as_a_short_one() {
        let resource = Registry::builtin().lookup("", "v1", "configmaps").unwrap();
        for (view, count) in [(View::Full, 0), (View::Full, 3), (View::Full, 1000), (View::Metadata("v1"), 512)] {
            let object =
                |n: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("n{n}")}});
            let items: Vec<Arc<Object>> = (0..count).map(|n| Arc::new(Object::synthetic(&object(n)))).collect();
            let representation = Representation {
                media: Media { view, ..Media::default() },
                include: Include::None,
                clock: Clock::real(),
            };
            let body = representation.list(&resource, Listing { items, revision: 7, ..Listing::default() });
            let text = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            let list: Value = serde_json::from_slice(&text).unwrap();
            let names: Vec<&str> = list["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["metadata"]["name"].as_str().unwrap())
                .collect();
            let expected: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
            assert_eq!(names, expected);
            assert_eq!(list["metadata"]["resourceVersion"], "7");
        }
    }

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
