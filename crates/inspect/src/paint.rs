//! Colours of text that people read on a terminal, or none.

/// Colours, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Text as it is.
    Plain,
    /// Escape sequences of terminals (ANSI).
    Ansi,
}

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Ansi => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }

    /// A title.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Less important text.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Something wrong, or gone.
    pub fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Something as it should be, or new.
    pub fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Something to look at, or changed.
    pub fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }
}
