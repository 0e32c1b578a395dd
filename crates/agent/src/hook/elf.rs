//! Finds an ELF note: a minimal parser that reads one section by name and checks every offset.

/// The description of the first note of a section, for 64-bit little-endian files.
pub(super) fn note<'a>(file: &'a [u8], section: &str, owner: &str) -> Option<&'a [u8]> {
    let contents = find_section(file, section)?;
    let (name_length, length) = (word(contents, 0)? as usize, word(contents, 4)? as usize);
    let name = contents.get(12..12usize.checked_add(name_length)?)?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    if name != owner.as_bytes() {
        return None;
    }
    let start = 12 + name_length.checked_next_multiple_of(4)?;
    contents.get(start..start.checked_add(length)?)
}

fn find_section<'a>(file: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    // ELFCLASS64, little-endian.
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(long(file, 40)?).ok()?;
    let (size, count, names) = (half(file, 58)?, half(file, 60)?, half(file, 62)?);
    let header = |index: usize| {
        let start = table.checked_add(index.checked_mul(size)?)?;
        file.get(start..start.checked_add(64)?)
    };
    let body = |header: &[u8]| {
        let start = usize::try_from(long(header, 24)?).ok()?;
        file.get(start..start.checked_add(usize::try_from(long(header, 32)?).ok()?)?)
    };
    let names = body(header(names)?)?;
    (0..count).find_map(|index| {
        let header = header(index)?;
        let name = names.get(word(header, 0)? as usize..)?;
        let name = name.split(|&byte| byte == 0).next()?;
        (name == wanted.as_bytes()).then(|| body(header))?
    })
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?).into())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with one note.
    pub(in crate::hook) fn library(section: &str, owner: &str, description: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        let owner = [owner.as_bytes(), &[0]].concat();
        note.extend(u32::try_from(owner.len()).expect("short").to_le_bytes());
        note.extend(u32::try_from(description.len()).expect("short").to_le_bytes());
        note.extend([0; 4]);
        note.extend(&owner);
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(description);
        let names = [b"\0", section.as_bytes(), b"\0"].concat();
        let (note_at, names_at) = (64, 64 + note.len());
        let table_at = names_at + names.len();
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0);
        file[40..48].copy_from_slice(&(table_at as u64).to_le_bytes());
        file[58..60].copy_from_slice(&64u16.to_le_bytes());
        file[60..62].copy_from_slice(&2u16.to_le_bytes());
        file[62..64].copy_from_slice(&1u16.to_le_bytes());
        file.extend(&note);
        file.extend(&names);
        for (name, at, length) in [(1u32, note_at, note.len()), (0, names_at, names.len())] {
            let mut header = vec![0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(length as u64).to_le_bytes());
            file.extend(header);
        }
        file
    }

    #[test]
    fn a_note_is_found_by_section_and_owner() {
        let file = library(".note.x", "NVIDIA Corporation", b"text");
        assert_eq!(note(&file, ".note.x", "NVIDIA Corporation"), Some(&b"text"[..]));
        assert_eq!(note(&file, ".note.y", "NVIDIA Corporation"), None);
        assert_eq!(note(&file, ".note.x", "GNU"), None);
        assert_eq!(note(b"text", ".note.x", "GNU"), None);
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_answered(at in 0usize..300, byte: u8, cut in 0usize..300) {
            let mut file = library(".note.x", "NVIDIA Corporation", b"text");
            let at = at % file.len();
            file[at] = byte;
            file.truncate(file.len().saturating_sub(cut % 64));
            let _ = note(&file, ".note.x", "NVIDIA Corporation");
        }
    }
}
