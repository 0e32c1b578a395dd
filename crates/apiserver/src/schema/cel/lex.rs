//! Lexer. It stops at invalid input; the slower, exact parser then explains the error.

/// A token and its offset.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: u32,
}

/// Token type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Ident(String),
    /// A field name in backticks.
    Quoted(String),
    /// Parsed once the sign is known.
    Int(String),
    UInt(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator or bracket.
    Mark(&'static str),
    End,
}

/// Longer ones first, so that `<=` is not read as `<`.
const MARKS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}",
];

/// Tokenizes an expression; the last token is the end.
pub(super) fn tokenize(source: &str) -> Option<Vec<Token>> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::with_capacity(source.len() / 3);
    loop {
        lexer.blank();
        let at = u32::try_from(lexer.at).ok()?;
        let kind = lexer.word()?;
        let end = kind == Kind::End;
        tokens.push(Token { kind, at });
        if end {
            return Some(tokens);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take_while(&mut self, test: impl Fn(char) -> bool) -> String {
        let taken: String = self.rest().chars().take_while(|c| test(*c)).collect();
        self.at += taken.len();
        taken
    }

    fn blank(&mut self) {
        loop {
            self.take_while(|c| "\t \r\n\u{c}".contains(c));
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn word(&mut self) -> Option<Kind> {
        let Some(first) = self.peek() else { return Some(Kind::End) };
        let second = self.rest().chars().nth(1);
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if let Some(literal) = self.quoted() {
            return literal;
        }
        if first.is_ascii_alphabetic() || first == '_' {
            return Some(Kind::Ident(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')));
        }
        if first == '`' {
            self.at += 1;
            let name = self.take_while(|c| c.is_ascii_alphanumeric() || "_.-/ ".contains(c));
            self.at += 1;
            return (self.source.get(self.at - 1..self.at) == Some("`") && !name.is_empty())
                .then_some(Kind::Quoted(name));
        }
        let mark = MARKS.iter().find(|mark| self.rest().starts_with(**mark))?;
        self.at += mark.len();
        Some(Kind::Mark(mark))
    }

    fn number(&mut self) -> Option<Kind> {
        if let Some(digits) = self.rest().strip_prefix("0x") {
            let digits: String = digits.chars().take_while(char::is_ascii_hexdigit).collect();
            self.at += 2 + digits.len();
            if self.peek().is_some_and(|c| "uU".contains(c)) {
                self.at += 1;
                return u64::from_str_radix(&digits, 16).ok().map(Kind::UInt);
            }
            return (!digits.is_empty()).then(|| Kind::Int(format!("0x{digits}")));
        }
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit());
        let mut whole = true;
        let mut after = self.rest().chars();
        if after.next() == Some('.') && after.next().is_some_and(|c| c.is_ascii_digit()) {
            whole = false;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        let mut after = self.rest().chars();
        if after.next().is_some_and(|c| "eE".contains(c)) {
            let sign = usize::from(after.clone().next().is_some_and(|c| "+-".contains(c)));
            if after.nth(sign).is_some_and(|c| c.is_ascii_digit()) {
                whole = false;
                self.at += 1 + sign;
                self.take_while(|c| c.is_ascii_digit());
            }
        }
        let text = &self.source[start..self.at];
        if !whole {
            return text.parse().ok().map(Kind::Double);
        }
        if self.peek().is_some_and(|c| "uU".contains(c)) {
            let number = text.parse().ok().map(Kind::UInt);
            self.at += 1;
            return number;
        }
        Some(Kind::Int(text.to_owned()))
    }

    /// A string or bytes literal with its prefix; `None` if there is none here.
    fn quoted(&mut self) -> Option<Option<Kind>> {
        let prefix: String = self.rest().chars().take_while(|c| "rRbB".contains(*c)).take(3).collect();
        let quoted = &self.rest()[prefix.len()..];
        if prefix.len() > 2 || !quoted.starts_with(['\'', '"']) {
            return None;
        }
        let lower = prefix.to_ascii_lowercase();
        if lower.len() == 2 && lower != "br" && lower != "rb" {
            return None;
        }
        let (raw, bytes) = (lower.contains('r'), lower.contains('b'));
        let quote = &quoted[..1];
        let triple = quote.repeat(3);
        let quote = if quoted.starts_with(&triple) { triple.as_str() } else { quote };
        let start = self.at + prefix.len() + quote.len();
        let Some(length) = length(&self.source[start..], quote, raw) else { return Some(None) };
        let body = &self.source[start..start + length];
        let quote = quote.len();
        let literal = if bytes {
            unescape(body, raw, true).map(Kind::Bytes)
        } else {
            unescape(body, raw, false).and_then(|text| String::from_utf8(text).ok()).map(Kind::Text)
        };
        self.at = start + length + quote;
        Some(literal)
    }
}

/// Length of a string up to its closing quote; `None` if it is unterminated.
fn length(source: &str, quote: &str, raw: bool) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = &source[at..];
        if rest.starts_with(quote) {
            return Some(at);
        }
        let mut chars = rest.chars();
        let next = chars.next()?;
        if quote.len() == 1 && "\r\n".contains(next) {
            return None;
        }
        at += next.len_utf8();
        if next == '\\' && !raw {
            at += chars.next()?.len_utf8();
        }
    }
}

/// Unescapes a literal into bytes: in a bytes literal, an escape is a byte and not a character.
fn unescape(body: &str, raw: bool, bytes: bool) -> Option<Vec<u8>> {
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    if raw || !body.contains('\\') {
        return Some(body.into_bytes());
    }
    let mut out = Vec::with_capacity(body.len());
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape = chars.next()?;
        let (code, digits, radix) = match escape {
            'x' | 'X' => (0, 2, 16),
            'u' if !bytes => (0, 4, 16),
            'U' if !bytes => (0, 8, 16),
            '0'..='3' => (escape.to_digit(8)?, 2, 8),
            _ => (simple(escape)?, 0, 10),
        };
        let code = (0..digits).try_fold(code, |code, _| Some(code * radix + chars.next()?.to_digit(radix)?))?;
        if bytes {
            out.push(u8::try_from(code).ok()?);
        } else {
            out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Some(out)
}

/// Single-letter escapes.
fn simple(escape: char) -> Option<u32> {
    Some(match escape {
        'a' => 7,
        'b' => 8,
        't' => 9,
        'n' => 10,
        'v' => 11,
        'f' => 12,
        'r' => 13,
        '\\' | '\'' | '"' | '`' | '?' => u32::from(escape),
        _ => return None,
    })
}
