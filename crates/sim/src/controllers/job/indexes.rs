//! Sets of completion indexes, written as `0-2,5`.

use std::collections::BTreeSet;

/// Indexes below a number of completions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes {
    completions: usize,
    members: BTreeSet<usize>,
}

impl Indexes {
    /// Parses a set; indexes from `completions` on are dropped.
    pub(super) fn parse(text: &str, completions: usize) -> Self {
        let mut indexes = Self { completions, members: BTreeSet::new() };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
                indexes.members.extend((first..=last).take_while(|index| *index < completions));
            }
        }
        indexes
    }

    /// Formats the set; `None` if it is empty.
    pub(super) fn text(&self) -> Option<String> {
        let mut parts: Vec<(usize, usize)> = Vec::new();
        for index in &self.members {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => parts.push((*index, *index)),
            }
        }
        let written = parts.iter().map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        });
        (!parts.is_empty()).then(|| written.collect::<Vec<_>>().join(","))
    }

    /// Adds an index, if it is valid.
    pub(super) fn insert(&mut self, index: usize) {
        if self.is_valid(index) {
            self.members.insert(index);
        }
    }

    /// Whether the index is below the number of completions.
    pub(super) fn is_valid(&self, index: usize) -> bool {
        index < self.completions
    }

    /// Whether the index is in the set.
    pub(super) fn contains(&self, index: usize) -> bool {
        self.members.contains(&index)
    }

    /// Number of indexes in the set.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_ranges() {
        for text in ["", "0", "1,2", "1-3", "0-2,5,7-9", "0,2,4"] {
            assert_eq!(Indexes::parse(text, 10).text().unwrap_or_default(), text);
        }
        assert_eq!(Indexes::parse("8-12,x", 10).text().as_deref(), Some("8,9"));
    }
}
