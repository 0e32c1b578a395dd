//! Terminal colours.

/// Colours, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Plain text.
    Plain,
    /// ANSI escape sequences.
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

    /// Failed, or deleted.
    pub fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Healthy, or created.
    pub fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    /// A warning, or changed.
    pub fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }
}
