//! The JSON body of an object, and offsets in it that let parts be replaced without parsing.

use std::cell::RefCell;

use bytes::Bytes;
use serde_json::Value;

/// Start of a body.
pub(super) const METADATA: &[u8] = br#""metadata":"#;
/// Start of the spec in a body.
pub(super) const SPEC: &[u8] = br#","spec":{"#;
/// Start of the status in a body.
pub(super) const STATUS: &[u8] = br#","status":"#;

/// The JSON body of an object, with offsets.
pub(super) struct Encoded {
    pub(super) body: Bytes,
    pub(super) revision_at: u32,
    pub(super) managed: (u32, u32),
    pub(super) status_at: u32,
}

/// Encodes the members after `kind`, with `more` appended to the spec. `resourceVersion` is inserted after the members
/// of `metadata` that sort before it.
pub(super) fn encode(value: &Value, more: &[u8]) -> Encoded {
    thread_local! {
        /// Bodies are written here and then copied, as growing a buffer fragments the heap.
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|out| {
        out.clear();
        let (at, (from, to), status) = write_body(out, value, more);
        let body = Bytes::copy_from_slice(out);
        // One huge object must not pin its memory.
        out.shrink_to(1 << 20);
        Encoded { body, revision_at: at as u32, managed: (from as u32, to as u32), status_at: status as u32 }
    })
}

/// Appends the members after `kind`; returns the insertion offset of `resourceVersion`, the range of the managed
/// fields, and the offset of the status.
fn write_body(out: &mut Vec<u8>, value: &Value, more: &[u8]) -> (usize, (usize, usize), usize) {
    let (at, managed) = write_metadata(out, &value["metadata"]);
    let mut status = None;
    for (key, member) in value.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            status = (key == "status").then_some(out.len());
            out.push(b',');
            write_member(out, key, member);
            if key == "spec" && !more.is_empty() {
                append_members(out, more);
            }
        }
    }
    let end = out.len();
    out.push(b'}');
    (at, managed, status.unwrap_or(end))
}

/// Appends the metadata; returns the insertion offset of `resourceVersion` and the range of the managed fields.
pub(super) fn write_metadata(out: &mut Vec<u8>, meta: &Value) -> (usize, (usize, usize)) {
    let (mut at, mut managed) = (0, (0, 0));
    out.extend_from_slice(METADATA);
    out.push(b'{');
    let mut pending = true;
    let mut first = true;
    for (key, member) in meta.as_object().into_iter().flatten() {
        if key == "resourceVersion" {
            continue;
        }
        if pending && key.as_str() > "resourceVersion" {
            (at, pending) = (out.len(), false);
        }
        let start = out.len();
        if !first {
            out.push(b',');
        }
        write_member(out, key, member);
        // Stored objects always have a member before it; without one the comma would be elsewhere.
        if key == "managedFields" && !first {
            managed = (start, out.len());
        }
        first = false;
    }
    if pending {
        at = out.len();
    }
    out.push(b'}');
    (at, managed)
}

/// Appends members to the object at the end of the buffer.
fn append_members(out: &mut Vec<u8>, members: &[u8]) {
    out.pop();
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.extend_from_slice(members);
    out.push(b'}');
}

fn write_member(out: &mut Vec<u8>, key: &str, value: &Value) {
    write_string(out, key);
    out.push(b':');
    serde_json::to_writer(out, value).expect("a JSON value encodes");
}

pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("text encodes");
}
