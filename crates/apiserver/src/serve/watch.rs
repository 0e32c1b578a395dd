//! Watch responses: a stream of JSON events, one per line.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use serde_json::{Value, json};

use super::media::View;
use super::output::Representation;
use super::table::Headers;
use crate::ops::{WatchEvent, WatchStream};
use crate::registry::Resource;
use crate::store::Object;

/// Maximum number of events per chunk, so that a busy watch has little overhead per event.
const BATCH: usize = 64;

/// Serializes the events.
pub(crate) fn lines(
    events: WatchStream,
    resource: Arc<Resource>,
    representation: Representation,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let mut headers = Headers::Shown;
    events.ready_chunks(BATCH).map(move |events| {
        let mut out = Vec::with_capacity(512 * events.len());
        for event in events {
            line(&event, &resource, &representation, headers, &mut out);
            // Only the first table of a watch has column definitions.
            headers = Headers::Hidden;
        }
        Bytes::from(out)
    })
}

fn line(event: &WatchEvent, resource: &Resource, representation: &Representation, headers: Headers, out: &mut Vec<u8>) {
    let object = |kind: &str, object: &Object, out: &mut Vec<u8>| {
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(br#"","object":"#);
        representation.write_one(resource, object, headers, out);
        out.extend_from_slice(b"}\n");
    };
    let value = |kind: &str, value: &Value, out: &mut Vec<u8>| {
        let event = json!({"type": kind, "object": value});
        serde_json::to_writer(&mut *out, &event).expect("a JSON value encodes");
        out.push(b'\n');
    };
    match event {
        WatchEvent::Added(changed) => object("ADDED", changed, out),
        WatchEvent::Modified(changed) => object("MODIFIED", changed, out),
        WatchEvent::Deleted(changed) => object("DELETED", changed, out),
        WatchEvent::Bookmark { revision, initial } => {
            value("BOOKMARK", &bookmark(resource, *revision, *initial, representation, headers), out);
        }
        WatchEvent::Error(status) => value("ERROR", &status.to_json(), out),
    }
}

/// A bookmark: an object of the watched kind with only a resource version.
fn bookmark(
    resource: &Resource,
    revision: u64,
    initial: bool,
    representation: &Representation,
    headers: Headers,
) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    match representation.media.view {
        View::Full => json!({"kind": &*resource.kind, "apiVersion": resource.api_version(), "metadata": metadata}),
        View::Metadata(version) => json!({
            "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
        }),
        View::Table(version) => {
            let row = json!({"kind": &*resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
            let rows = [Object::synthetic(&row)];
            let meta = json!({"resourceVersion": revision.to_string()});
            super::table::table(
                resource,
                rows.iter(),
                meta,
                version,
                representation.include,
                headers,
                representation.clock.now(),
            )
        }
    }
}
