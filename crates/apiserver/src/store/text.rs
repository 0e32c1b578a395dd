//! The text of an object as it is kept, and the places in it that are found again without reading it.

use std::cell::RefCell;

use bytes::Bytes;
use serde_json::Value;

/// How a text begins.
pub(super) const METADATA: &[u8] = br#""metadata":"#;
/// How the spec begins in a text.
pub(super) const SPEC: &[u8] = br#","spec":{"#;
/// How the status begins in a text.
pub(super) const STATUS: &[u8] = br#","status":"#;

/// The text of an object, with places in it.
pub(super) struct Encoded {
    pub(super) body: Bytes,
    pub(super) revision_at: u32,
    pub(super) managed: (u32, u32),
    pub(super) status_at: u32,
}

/// The members after `kind`, with `more` in the spec. `resourceVersion` goes after the members of `metadata` that sort
/// before it.
pub(super) fn encode(value: &Value, more: &[u8]) -> Encoded {
    thread_local! {
        /// Texts are written here and then copied, as a buffer that grows leaves holes in the heap.
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|out| {
        out.clear();
        let (at, (from, to), status) = write_body(out, value, more);
        let body = Bytes::copy_from_slice(out);
        // One huge object must not keep its memory for good.
        out.shrink_to(1 << 20);
        Encoded { body, revision_at: at as u32, managed: (from as u32, to as u32), status_at: status as u32 }
    })
}

/// Appends the members after `kind`, and returns where `resourceVersion` goes, from where to where managed fields are, and
/// where the status is or would be.
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

/// Appends the metadata, and returns where `resourceVersion` goes and from where to where managed fields are.
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
        // Without a member before it, which stored objects have, the comma would have to go elsewhere.
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

/// Appends members to the object that the text ends with.
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
