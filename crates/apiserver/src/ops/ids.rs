//! UIDs and generated names, from one seed: a simulation with the same seed gets the same names.

use std::sync::{Mutex, PoisonError};

use ring::rand::{SecureRandom, SystemRandom};

/// Maximum prefix of a generated name: five characters follow, and 63 is the shortest name limit of any kind.
const MAX_PREFIX: usize = 58;
/// Alphabet of generated names: without vowels, so that no words result.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Generator of UIDs and names.
#[derive(Debug)]
pub(crate) struct Ids {
    state: Mutex<u64>,
}

impl Ids {
    /// A generator seeded with `seed`, or randomly.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| {
            let mut bytes = [0; 8];
            SystemRandom::new().fill(&mut bytes).expect("the system has a random number generator");
            u64::from_le_bytes(bytes)
        });
        Self { state: Mutex::new(seed) }
    }

    /// SplitMix64: small, fast, and sufficient for identifiers that need not be secret.
    pub(crate) fn next(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A UUID, version 4.
    pub(crate) fn uid(&self) -> String {
        let (high, low) = (self.next(), self.next());
        let high = (high & !0xf000) | 0x4000;
        let low = (low & !(3 << 62)) | (2 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// A generated name with this prefix.
    pub(crate) fn name(&self, prefix: &str) -> String {
        let mut name: String = prefix.chars().take(MAX_PREFIX).collect();
        let mut bits = self.next();
        for _ in 0..5 {
            name.push(ALPHABET[(bits % ALPHABET.len() as u64) as usize] as char);
            bits /= ALPHABET.len() as u64;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_random_uuid() {
        let ids = Ids::new(None);
        let uid = ids.uid();
        let parts: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]));
        assert_ne!(ids.uid(), uid);
    }

    #[test]
    fn the_same_seed_gives_the_same_names() {
        let (one, two) = (Ids::new(Some(7)), Ids::new(Some(7)));
        assert_eq!((one.uid(), one.name("web-")), (two.uid(), two.name("web-")));
        assert_eq!(one.name(&"x".repeat(80)).len(), 63);
    }
}
