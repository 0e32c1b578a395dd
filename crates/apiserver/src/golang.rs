//! Go's formatting of values and its `regexp` syntax, on which error messages and CRD patterns depend.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// A value as field errors print it: strings quoted, numbers plain, everything else as JSON.
pub fn value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => number
            .as_i64()
            .map_or_else(|| number.as_f64().map_or_else(|| number.to_string(), float), |whole| whole.to_string()),
        other => json(other),
    }
}

/// Text as Go's `%q` formats it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if c.is_control() && (c as u32) < 0x80 => {
                write!(out, "\\x{:02x}", c as u32).expect("writing to a String cannot fail")
            }
            c if c.is_control() || c == '\u{feff}' => {
                write!(out, "\\u{:04x}", c as u32).expect("writing to a String cannot fail")
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A float as Go's `%v` formats it: the shortest digits, an exponent below 1e-4 and from 1e6.
pub fn float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        exponent(&format!("{number:e}"))
    } else {
        format!("{number}")
    }
}

/// A float without an exponent.
pub fn plain_float(number: f64) -> String {
    format!("{number}")
}

/// Go writes exponents with a sign and at least two digits.
fn exponent(text: &str) -> String {
    let Some((digits, power)) = text.split_once('e') else { return text.to_owned() };
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{digits}e{sign}{power:0>2}")
}

/// JSON as Go's `encoding/json` writes it: no spaces, HTML-safe, whole numbers without a fraction.
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) if number.is_f64() => out.push_str(&json_float(number.as_f64().unwrap_or_default())),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(&Value::String(name.clone()), out);
                out.push(':');
                write_json(value, out);
            }
            out.push('}');
        }
        other => {
            for c in other.to_string().chars() {
                match c {
                    '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                        write!(out, "\\u{:04x}", c as u32).expect("writing to a String cannot fail");
                    }
                    c => out.push(c),
                }
            }
        }
    }
}

fn json_float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        // `encoding/json` writes small negative exponents with one digit.
        exponent(&format!("{number:e}")).replace("e-0", "e-")
    } else {
        format!("{number}")
    }
}

/// Compiles a Go `regexp` pattern, whose classes are ASCII and whose brackets do not nest.
pub fn regex(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&translate(pattern)).size_limit(64 << 20).build()
}

/// The error of Go's `regexp` for an invalid pattern.
pub fn regex_error(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let has = |words: &str| text.contains(words);
    let from = |at: Option<usize>| at.map_or(pattern, |at| &pattern[at..]);
    let what = if has("unclosed character class") {
        format!("missing closing ]: `{}`", from(pattern.rfind('[')))
    } else if has("unclosed group") {
        format!("missing closing ): `{pattern}`")
    } else if has("unopened group") {
        format!("unexpected ): `{pattern}`")
    } else if has("look-around") {
        let at = ["(?=", "(?!", "(?<=", "(?<!"].iter().filter_map(|it| pattern.find(it).map(|at| (at, it))).min();
        format!("invalid or unsupported Perl syntax: `{}`", at.map_or("(?", |(_, it)| &it[..3]))
    } else if has("repetition operator missing expression") {
        let operator = pattern.find(['*', '+', '?']).map_or("*", |at| &pattern[at..=at]);
        format!("missing argument to repetition operator: `{operator}`")
    } else if has("unrecognized escape") {
        let escape = pattern.match_indices('\\').map(|(at, _)| &pattern[at..]).find(|rest| {
            rest.chars().nth(1).is_some_and(|c| c.is_ascii_alphabetic() && !"abdfnprstvwzABDPSWQE".contains(c))
        });
        let escape: String = escape.unwrap_or("\\").chars().take(2).collect();
        format!("invalid escape sequence: `{escape}`")
    } else if has("repetition") {
        format!("invalid repeat count: `{}`", from(pattern.find('{')))
    } else {
        format!("invalid pattern: `{pattern}`")
    };
    format!("error parsing regexp: {what}")
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut class = false;
    // Position inside the class: `]` is literal when it comes first.
    let mut first = false;
    while let Some(c) = chars.next() {
        let at_start = std::mem::take(&mut first);
        match c {
            '\\' => match chars.next() {
                Some('Q') if !class => {
                    let rest: String = chars.clone().collect();
                    let quoted = rest.split("\\E").next().unwrap_or_default();
                    out.push_str(&regex::escape(quoted));
                    let skip = quoted.chars().count() + if rest.len() > quoted.len() { 2 } else { 0 };
                    chars.by_ref().take(skip).for_each(drop);
                }
                // `\0`, and up to three octal digits; a lone `\1` would be a backreference, which neither engine
                // supports.
                Some(digit @ '0'..='7') if digit == '0' || matches!(chars.peek(), Some('0'..='7')) => {
                    let mut code = digit.to_digit(8).unwrap_or(0);
                    for _ in 0..2 {
                        let Some(next) = chars.next_if(|c| c.is_digit(8)) else { break };
                        code = code * 8 + next.to_digit(8).unwrap_or(0);
                    }
                    write!(out, "\\x{{{code:x}}}").expect("writing to a String cannot fail");
                }
                Some(escaped) => out.push_str(&escape(escaped, class)),
                None => out.push('\\'),
            },
            '[' if !class => {
                class = true;
                first = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            '[' if chars.peek() == Some(&':') => out.push('['),
            '[' => out.push_str("\\["),
            ']' if class && at_start => out.push_str("\\]"),
            ']' if class && out.ends_with(':') && out.rfind("[:").is_some_and(|open| open + 2 < out.len() - 1) => {
                out.push(']');
            }
            ']' => {
                class = false;
                out.push(']');
            }
            // Rust reads `&&`, `--` and `~~` in a class as operators.
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            '-' if class && chars.peek() == Some(&'-') => out.push_str("\\-"),
            c => out.push(c),
        }
    }
    out
}

fn escape(escaped: char, class: bool) -> String {
    let set = match escaped {
        'd' | 'D' => "0-9",
        'w' | 'W' => "0-9A-Za-z_",
        's' | 'S' => "\\t\\n\\f\\r ",
        'b' | 'B' if !class => return format!("(?-u:\\{escaped})"),
        // Go accepts escapes of letters without a meaning, Rust rejects them; both accept escaped punctuation.
        other => return format!("\\{other}"),
    };
    match (class, escaped.is_lowercase()) {
        (true, true) => set.to_owned(),
        (true, false) => format!("[^{set}]"),
        (false, true) => format!("[{set}]"),
        (false, false) => format!("[^{set}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes() {
        let path = regex(r"^(/[^/\0]+)*(/)?$").unwrap();
        assert!(path.is_match("/var/lib/kubelet/"));
        assert!(!path.is_match("/var\0"));
        assert!(regex(r"^\101\012$").unwrap().is_match("A\n"));
        assert!(regex(r"(a)\1").is_err());
    }

    #[test]
    fn floats() {
        for (number, text) in [
            (1.5, "1.5"),
            (3.0, "3"),
            (1e21, "1e+21"),
            (2147483648.0, "2.147483648e+09"),
            (123456.0, "123456"),
            (0.00001, "1e-05"),
            (0.0001, "0.0001"),
        ] {
            assert_eq!(float(number), text);
        }
    }

    #[test]
    fn quotes() {
        assert_eq!(quote("a\u{1}\u{7f}é\n"), "\"a\\x01\\x7fé\\n\"");
    }

    #[test]
    fn patterns_of_go() {
        for (pattern, good, bad) in [
            (r"^\d+$", "12", "١٢"),
            (r"^[[\]a-z]+$", "[a]", "A"),
            (r"^[^\s]+$", "ab", "a b"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^\Qa.b\E$", "a.b", "axb"),
            (r"^[[:alpha:]]+$", "ab", "a1"),
            (r"^[\W]$", "-", "a"),
            (r"^(?i)abc$", "ABC", "abd"),
            (r"^[]a]+$", "]a", "b"),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", "-a"),
            (r"^\w+\.example$", "x.example", "x-example"),
        ] {
            let regex = regex(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert!(regex.is_match(good), "{pattern} matches {good}");
            assert!(!regex.is_match(bad), "{pattern} does not match {bad}");
        }
    }
}
