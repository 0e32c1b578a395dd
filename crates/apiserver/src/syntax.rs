//! JSON syntax errors, worded as by Go's decoder.

/// Duplicate keys of objects in a JSON text, with the line of each repetition.
pub(crate) fn keys_set_twice(text: &[u8]) -> Vec<(usize, String)> {
    let mut scanner = Scanner::new(text);
    let _ = scanner.value();
    let line = |at: usize| 1 + text[..at].iter().filter(|byte| **byte == b'\n').count();
    scanner.twice.iter().map(|(at, key)| (line(*at), key.clone())).collect()
}

/// Maximum nesting of objects and arrays.
const DEPTH: usize = 128;

/// The syntax error of `text`; `None` if it is valid JSON.
pub(crate) fn fault(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner::new(text);
    let result = scanner.value().and_then(|()| scanner.end());
    result.err().map(|fault| match fault {
        Fault::End => "unexpected end of JSON input".to_owned(),
        Fault::Depth => "exceeded max depth".to_owned(),
        Fault::Byte(byte, place) => format!("invalid character {} {place}", quote(byte)),
    })
}

enum Fault {
    /// Unexpected end of input.
    End,
    /// Nested too deep.
    Depth,
    /// An unexpected byte, and the context.
    Byte(u8, String),
}

type Step = Result<(), Fault>;

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// Duplicate keys with their lines.
    twice: Vec<(usize, String)>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0, twice: Vec::new() }
    }

    fn peek(&self) -> Result<u8, Fault> {
        self.text.get(self.at).copied().ok_or(Fault::End)
    }

    fn next(&mut self) -> Result<u8, Fault> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    /// The next byte that is not whitespace.
    fn visible(&mut self) -> Result<u8, Fault> {
        loop {
            match self.next()? {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                byte => return Ok(byte),
            }
        }
    }

    fn end(&mut self) -> Step {
        match self.visible() {
            Ok(byte) => Err(Fault::Byte(byte, "after top-level value".into())),
            Err(_) => Ok(()),
        }
    }

    fn value(&mut self) -> Step {
        let first = self.visible()?;
        self.value_from(first)
    }

    fn value_from(&mut self, first: u8) -> Step {
        match first {
            b'{' | b'[' if self.depth == DEPTH => Err(Fault::Depth),
            b'{' => self.deeper(Self::object),
            b'[' => self.deeper(Self::array),
            b'"' => self.string(),
            b'-' => match self.next()? {
                digit @ b'0'..=b'9' => self.number(digit),
                byte => Err(Fault::Byte(byte, "in numeric literal".into())),
            },
            b'0'..=b'9' => self.number(first),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            byte => Err(Fault::Byte(byte, "looking for beginning of value".into())),
        }
    }

    fn deeper(&mut self, inner: fn(&mut Self) -> Step) -> Step {
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn object(&mut self) -> Step {
        let mut first = self.visible()?;
        if first == b'}' {
            return Ok(());
        }
        let mut keys = std::collections::HashSet::new();
        loop {
            if first != b'"' {
                return Err(Fault::Byte(first, "looking for beginning of object key string".into()));
            }
            let begin = self.at;
            self.string()?;
            let key = String::from_utf8_lossy(&self.text[begin..self.at - 1]).into_owned();
            if !keys.insert(key.clone()) {
                self.twice.push((begin, key));
            }
            match self.visible()? {
                b':' => {}
                byte => return Err(Fault::Byte(byte, "after object key".into())),
            }
            self.value()?;
            match self.visible()? {
                b',' => first = self.visible()?,
                b'}' => return Ok(()),
                byte => return Err(Fault::Byte(byte, "after object key:value pair".into())),
            }
        }
    }

    fn array(&mut self) -> Step {
        let mut first = self.visible()?;
        if first == b']' {
            return Ok(());
        }
        loop {
            self.value_from(first)?;
            match self.visible()? {
                b',' => first = self.visible()?,
                b']' => return Ok(()),
                byte => return Err(Fault::Byte(byte, "after array element".into())),
            }
        }
    }

    fn string(&mut self) -> Step {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                byte if byte < 0x20 => return Err(Fault::Byte(byte, "in string literal".into())),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Step {
        match self.next()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => (0..4).try_for_each(|_| match self.next()? {
                byte if byte.is_ascii_hexdigit() => Ok(()),
                byte => Err(Fault::Byte(byte, "in \\u hexadecimal character escape".into())),
            }),
            byte => Err(Fault::Byte(byte, "in string escape code".into())),
        }
    }

    /// The rest of a number that starts with a digit.
    fn number(&mut self, first: u8) -> Step {
        if first != b'0' {
            self.digits();
        }
        if self.peek().is_ok_and(|byte| byte == b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if self.peek().is_ok_and(|byte| matches!(byte, b'e' | b'E')) {
            self.at += 1;
            if self.peek().is_ok_and(|byte| matches!(byte, b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn some_digits(&mut self, place: &str) -> Step {
        match self.next()? {
            b'0'..=b'9' => {
                self.digits();
                Ok(())
            }
            byte => Err(Fault::Byte(byte, place.into())),
        }
    }

    fn digits(&mut self) {
        while self.peek().is_ok_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// The rest of a literal whose first letter was read.
    fn literal(&mut self, word: &str) -> Step {
        word.bytes().skip(1).try_for_each(|expected| match self.next()? {
            byte if byte == expected => Ok(()),
            byte => Err(Fault::Byte(byte, format!("in literal {word} (expecting '{}')", char::from(expected)))),
        })
    }
}

fn quote(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        _ => {
            let quoted = crate::golang::quote(&char::from(byte).to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn faults_are_worded_as_by_a_real_server() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            (r#"{"a":}"#, "invalid character '}' looking for beginning of value"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            ("{'a': 1}", r"invalid character '\'' looking for beginning of object key string"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            (r#"{"a":1} x"#, "invalid character 'x' after top-level value"),
            (r#"{"a":tru}"#, "invalid character '}' in literal true (expecting 'e')"),
            ("{\"a\":\"b\nc\"}", r"invalid character '\n' in string literal"),
            (r#"{"a":"\x"}"#, "invalid character 'x' in string escape code"),
            (r#"{"a":"\u12g4"}"#, r"invalid character 'g' in \u hexadecimal character escape"),
            (r#"{"a":01}"#, "invalid character '1' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e+x", "invalid character 'x' in exponent of numeric literal"),
        ] {
            assert_eq!(fault(text.as_bytes()).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(fault(br#" {"a": [-1.5e+3, true, null, "\u00e9"]} "#), None);
    }
}
