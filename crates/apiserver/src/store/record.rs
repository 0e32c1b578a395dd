//! On-disk encoding of an object: revision, offsets, `apiVersion` and `kind`, then the JSON body unchanged.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::text::Encoded;
use super::{FieldPaths, Object, TypeMeta};

/// Interned `apiVersion` and `kind`, so that each is in memory once.
pub(super) type Types = HashSet<Arc<TypeMeta>>;

pub(super) fn write(object: &Object) -> Vec<u8> {
    let Encoded { body, revision_at, managed, status_at } = object.encoded();
    let mut out = Vec::with_capacity(body.len() + 64);
    out.extend_from_slice(&object.revision.to_le_bytes());
    for place in [revision_at, managed.0, managed.1, status_at] {
        out.extend_from_slice(&place.to_le_bytes());
    }
    for text in [&object.types.api_version, &object.types.kind] {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&body);
    out
}

/// Decodes a record; `None` if it is corrupt.
pub(super) fn read(bytes: &[u8], fields: &FieldPaths, types: &mut Types) -> Option<Object> {
    let mut rest = bytes;
    let revision = take(&mut rest).copied().map(u64::from_le_bytes)?;
    let (revision_at, from, to) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
    let status_at = number(&mut rest)?;
    let read = TypeMeta { api_version: text(&mut rest)?, kind: text(&mut rest)? };
    let shared = match types.get(&read) {
        Some(shared) => shared.clone(),
        None => {
            let shared = Arc::new(read);
            types.insert(shared.clone());
            shared
        }
    };
    let text = Encoded { body: Bytes::copy_from_slice(rest), revision_at, managed: (from, to), status_at };
    Object::decoded(shared, text, revision, fields)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    take(rest).copied().map(u32::from_le_bytes)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let length = number(rest)? as usize;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    String::from_utf8(text.to_vec()).ok()
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Object {
        let types = TypeMeta { api_version: "v1".into(), kind: "Pod".into() };
        let value = json!({
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "generation": 3, "labels": {"a": "b"},
                "managedFields": [{"manager": "m"}], "deletionTimestamp": "2030-01-01T00:00:00Z",
                "ownerReferences": [{"uid": "o"}],
            },
            "spec": {"nodeName": "x"}, "share": 0.1,
        });
        Object::new(Arc::new(types), &value, &FieldPaths::builtin("", "pods")).at(9)
    }

    #[test]
    fn an_object_comes_back_as_it_was() {
        let (object, mut types) = (object(), Types::new());
        let read = read(&write(&object), &FieldPaths::builtin("", "pods"), &mut types).unwrap();
        assert_eq!(format!("{read:?}"), format!("{object:?}"));
        assert!(types.contains(&read.types));
    }

    #[test]
    fn bytes_that_are_cut_off_or_changed_are_no_object() {
        let bytes = write(&object());
        let read = |bytes: &[u8]| read(bytes, &FieldPaths::default(), &mut Types::new());
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_none(), "{length}");
        }
        // An offset beyond the end of the body.
        let mut far = bytes.clone();
        far[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&far).is_none());
    }
}
