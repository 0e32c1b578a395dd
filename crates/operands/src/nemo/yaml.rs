//! YAML as the Customizer reads it: version 1.1, in which unquoted `yes` and `on` are booleans and `010` is eight.

use serde_json::{Map, Number, Value};

/// Words that mean something other than themselves when they are not quoted.
const RESERVED: [&str; 13] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "inf", "nan", "none"];

/// Reads a text.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

/// Writes a value: keys sorted, blocks, one newline at the end.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => map(&mut out, fields, 0),
        Value::Array(items) if !items.is_empty() => list(&mut out, items, 0),
        other => {
            out += &scalar(other);
            out.push('\n');
        }
    }
    out
}

fn map(out: &mut String, fields: &Map<String, Value>, depth: usize) {
    for (index, (key, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push_str(&"  ".repeat(depth));
        }
        *out += &string(key);
        out.push(':');
        below(out, value, depth);
    }
}

/// What follows a key: a list lies as deep as its key.
fn below(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            out.push_str(&"  ".repeat(depth + 1));
            map(out, fields, depth + 1);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            out.push_str(&"  ".repeat(depth));
            list(out, items, depth);
        }
        other => {
            out.push(' ');
            *out += &scalar(other);
            out.push('\n');
        }
    }
}

fn list(out: &mut String, items: &[Value], depth: usize) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&"  ".repeat(depth));
        }
        out.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => map(out, fields, depth + 1),
            Value::Array(items) if !items.is_empty() => list(out, items, depth + 1),
            other => {
                *out += &scalar(other);
                out.push('\n');
            }
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => number(value),
        Value::String(text) => string(text),
        Value::Array(_) => "[]".into(),
        Value::Object(_) => "{}".into(),
    }
}

/// Readers of version 1.1 take a number with an exponent for a text unless it has a point and a sign.
fn number(value: &Number) -> String {
    let text = value.to_string();
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let digits = if digits.contains('.') { digits.to_owned() } else { format!("{digits}.0") };
    let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
    format!("{digits}e{sign}{exponent}")
}

/// A text, quoted unless it can be read as nothing else.
fn string(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let starts = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == '/');
    if starts && text.chars().all(plain) && !RESERVED.contains(&text.to_lowercase().as_str()) {
        return text.into();
    }
    Value::String(text.into()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_read_is_of_version_1_1() {
        let read = parse("a: yes\nb: off\nc: 010\nd: 70000000000\ne: \"1.0\"\nf: 1.5\ng: null\nh: 'no'\n").unwrap();
        assert_eq!(
            read,
            json!({"a": true, "b": false, "c": 8, "d": 70_000_000_000_u64, "e": "1.0", "f": 1.5, "g": null, "h": "no"})
        );
        assert!(parse("a: [").is_err());
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let value = json!({
            "training": {
                "env": [{"name": "A", "value": "1"}, {"name": "LOG", "value": "no"}],
                "nested": [[1, 2], [], {}], "empty": {}, "none": null, "on": true,
                "image": "nvcr.io/x:1", "size": "10Gi", "n": 70_000_000_000_u64, "rate": 1e-7, "large": 1e20,
                "text": "two\nlines: \"quoted\" # and more", "10": "010", "version": "1.0", "blank": "",
            },
        });
        let written = text(&value);
        assert_eq!(parse(&written).unwrap(), value, "{written}");
        assert!(written.ends_with('\n') && !written.ends_with("\n\n"), "{written}");
        assert!(written.contains("rate: 1.0e-7\n"), "{written}");
    }
}
