//! Short hashes that identify template revisions.

use serde::Serialize;

/// Alphabet of generated names: no vowels, so that no words appear.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A short hash of a value, salted with the collision count.
pub(crate) fn short<T: Serialize>(value: &T, collisions: Option<i32>) -> String {
    let mut text = serde_json::to_vec(value).expect("typed values encode");
    if let Some(collisions) = collisions {
        text.extend_from_slice(&collisions.to_le_bytes());
    }
    safe(&fnv(&text).to_string())
}

fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn safe(digits: &str) -> String {
    digits.bytes().map(|byte| char::from(SAFE[usize::from(byte) % SAFE.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collisions_change_the_hash() {
        assert_eq!(short(&"a", None), short(&"a", None));
        assert_ne!(short(&"a", None), short(&"a", Some(1)));
        assert_ne!(short(&"a", None), short(&"b", None));
        assert!(short(&"a", None).bytes().all(|byte| SAFE.contains(&byte)));
    }
}
