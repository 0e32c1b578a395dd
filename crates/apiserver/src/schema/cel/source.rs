//! Source text of an expression, and positions of its AST nodes.

/// A source text and the positions of its AST nodes.
#[derive(Clone, Debug)]
pub(super) struct Source {
    text: String,
    /// Offsets by node ID.
    places: Vec<u32>,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        // IDs start at 1.
        Self { text: text.to_owned(), places: vec![0] }
    }

    /// Allocates a node ID.
    pub(super) fn place(&mut self, at: u32) -> u64 {
        self.places.push(at);
        self.places.len() as u64 - 1
    }

    /// The next node ID.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The offset of a node.
    pub(super) fn at(&self, id: u64) -> u32 {
        usize::try_from(id).ok().and_then(|id| self.places.get(id)).copied().unwrap_or(0)
    }

    /// An error at a node, with its line and a caret below.
    pub(super) fn error(&self, id: u64, message: &str) -> String {
        let before = &self.text[..self.at(id) as usize];
        let line = before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        self.error_at(line + 1, before[start..].chars().count() + 1, message)
    }

    /// The same by line and column, both from 1.
    pub(super) fn error_at(&self, line: usize, column: usize, message: &str) -> String {
        let mut out = format!("ERROR: <input>:{line}:{column}: {message}");
        let Some(text) = self.text.split('\n').nth(line - 1) else { return out };
        let text = text.replace('\t', " ");
        // Wide characters get wide dots, so that the caret is aligned.
        let dots: String = text.chars().take(column - 1).map(|c| if c.is_ascii() { '.' } else { '．' }).collect();
        let wide = text.chars().nth(column - 1).is_some_and(|c| !c.is_ascii());
        out.push_str(&format!("\n | {text}\n | {dots}{}", if wide { '＾' } else { '^' }));
        out
    }
}
