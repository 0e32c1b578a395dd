//! The text of an expression, and where the parts of it stand.

/// A text and the places of the parts of its syntax tree.
#[derive(Clone, Debug)]
pub(super) struct Source {
    text: String,
    /// By the number of the part.
    places: Vec<u32>,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        // Parts are numbered from one.
        Self { text: text.to_owned(), places: vec![0] }
    }

    /// The number of a new part.
    pub(super) fn place(&mut self, at: u32) -> u64 {
        self.places.push(at);
        self.places.len() as u64 - 1
    }

    /// The number of parts, and one more.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Where a part stands.
    pub(super) fn at(&self, id: u64) -> u32 {
        usize::try_from(id).ok().and_then(|id| self.places.get(id)).copied().unwrap_or(0)
    }

    /// A message about a part: with its line, and a mark below.
    pub(super) fn error(&self, id: u64, message: &str) -> String {
        let before = &self.text[..self.at(id) as usize];
        let line = before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        self.error_at(line + 1, before[start..].chars().count() + 1, message)
    }

    /// The same by line and column, both from one.
    pub(super) fn error_at(&self, line: usize, column: usize, message: &str) -> String {
        let mut out = format!("ERROR: <input>:{line}:{column}: {message}");
        let Some(text) = self.text.split('\n').nth(line - 1) else { return out };
        let text = text.replace('\t', " ");
        // Wide characters get wide dots, so that the mark stands below what it marks.
        let dots: String = text.chars().take(column - 1).map(|c| if c.is_ascii() { '.' } else { '．' }).collect();
        let wide = text.chars().nth(column - 1).is_some_and(|c| !c.is_ascii());
        out.push_str(&format!("\n | {text}\n | {dots}{}", if wide { '＾' } else { '^' }));
        out
    }
}
