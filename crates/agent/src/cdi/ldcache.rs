//! Reads ld.so.cache in its old and new format. The file is untrusted: every offset is checked, and its paths are only
//! hints.

/// Magic of the old format; the new format may follow it.
const OLD: &[u8] = b"ld.so-1.7.0\0";
const NEW: &[u8] = b"glibc-ld.so.cache1.1";
/// Entry sizes of the old and the new format.
const OLD_ENTRY: usize = 12;
const NEW_ENTRY: usize = 24;
/// Flag bits of 64-bit entries.
const MACHINE: u32 = 0xff00;
const X86_64: u32 = 0x0300;
const AARCH64: u32 = 0x0a00;
const ELF: u32 = 0x1;

/// Paths of all 64-bit libraries in the cache, in order; empty for an invalid cache.
pub(super) fn paths(cache: &[u8]) -> Vec<String> {
    if cache.starts_with(NEW) {
        return new(cache).unwrap_or_default();
    }
    if !cache.starts_with(OLD) {
        return Vec::new();
    }
    let start = OLD.len() + 4;
    let count = number(cache, OLD.len()).unwrap_or_default() as usize;
    let end = count.checked_mul(OLD_ENTRY).and_then(|size| size.checked_add(start)).unwrap_or(usize::MAX);
    // The new format follows, aligned to 8 bytes.
    let aligned = end.checked_next_multiple_of(8).unwrap_or(usize::MAX);
    if let Some(rest) = cache.get(aligned..).filter(|rest| rest.starts_with(NEW)) {
        return new(rest).unwrap_or_default();
    }
    let strings = cache.get(end..).unwrap_or_default();
    let entries = cache.get(start..end).unwrap_or_default();
    entries.chunks_exact(OLD_ENTRY).filter_map(|entry| entry_path(entry, strings)).collect()
}

fn new(cache: &[u8]) -> Option<Vec<String>> {
    let count = number(cache, NEW.len())? as usize;
    // Entry count, string length, and five reserved words.
    let start = NEW.len() + 4 + 4 + 5 * 4;
    let end = count.checked_mul(NEW_ENTRY)?.checked_add(start)?;
    let entries = cache.get(start..end)?;
    // String offsets are relative to the header.
    Some(entries.chunks_exact(NEW_ENTRY).filter_map(|entry| entry_path(entry, cache)).collect())
}

/// Flags, name offset, path offset.
fn entry_path(entry: &[u8], strings: &[u8]) -> Option<String> {
    let flags = number(entry, 0)?;
    if flags & 0xff & ELF == 0 || !matches!(flags & MACHINE, X86_64 | AARCH64) {
        return None;
    }
    let text = strings.get(number(entry, 8)? as usize..)?;
    let text = &text[..text.iter().position(|&byte| byte == 0)?];
    String::from_utf8(text.to_vec()).ok().filter(|path| path.starts_with('/'))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cache of the new format.
    pub(in crate::cdi) fn cache(entries: &[(u32, &str)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let start = NEW.len() + 28 + entries.len() * NEW_ENTRY;
        let mut table = Vec::new();
        for (flags, path) in entries {
            let at = u32::try_from(start + strings.len()).expect("small");
            for word in [*flags, at, at, 0, 0, 0] {
                table.extend(word.to_ne_bytes());
            }
            strings.extend(path.bytes().chain([0]));
        }
        let count = u32::try_from(entries.len()).expect("few").to_ne_bytes();
        let length = u32::try_from(strings.len()).expect("small").to_ne_bytes();
        [NEW, &count, &length, &[0; 20], &table, &strings].concat()
    }

    fn old(entries: &[(u32, &str)], then: &[u8]) -> Vec<u8> {
        let (mut table, mut strings) = (Vec::new(), Vec::new());
        for (flags, path) in entries {
            let at = u32::try_from(strings.len()).expect("small");
            [*flags, at, at].iter().for_each(|word| table.extend(word.to_ne_bytes()));
            strings.extend(path.bytes().chain([0]));
        }
        let count = u32::try_from(entries.len()).expect("few").to_ne_bytes();
        let mut cache = [OLD, &count, &table].concat();
        if then.is_empty() {
            cache.extend(strings);
        } else {
            cache.resize(cache.len().next_multiple_of(8), 0);
            cache.extend(then);
        }
        cache
    }

    const ENTRIES: [(u32, &str); 4] = [
        (0x0303, "/usr/lib64/libcuda.so.1"),
        (0x0003, "/usr/lib/libcuda.so.1"),
        (0x0a03, "/usr/lib/aarch64-linux-gnu/libcuda.so.1"),
        (0x0300, "/not-elf"),
    ];

    #[test]
    fn both_formats_name_the_64_bit_libraries() {
        let wanted = ["/usr/lib64/libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1"];
        assert_eq!(paths(&cache(&ENTRIES)), wanted);
        assert_eq!(paths(&old(&ENTRIES, &[])), wanted);
        assert_eq!(paths(&old(&[(0x0303, "/old")], &cache(&ENTRIES))), wanted);
    }

    #[test]
    fn what_is_cut_off_or_no_cache_names_nothing() {
        let whole = cache(&ENTRIES);
        assert_eq!(paths(&whole[..60]), [""; 0]);
        assert_eq!(paths(b"ld.so-1.7.0\0\xff\xff\xff\xff"), [""; 0]);
        assert_eq!(paths(b"text"), [""; 0]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(mut bytes: Vec<u8>, which in 0..3) {
            let head: &[u8] = [NEW, OLD, b""][which as usize];
            bytes.splice(0..0, head.iter().copied());
            let _ = paths(&bytes);
        }

        #[test]
        fn a_damaged_cache_is_answered(at in 0usize..150, byte: u8) {
            let mut bytes = cache(&ENTRIES);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = paths(&bytes);
        }
    }
}
