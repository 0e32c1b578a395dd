//! Field errors, worded as in Kubernetes' `field.Error`.

pub use capstan_semantics::field::Path;
use serde_json::Value;

use crate::error::Cause;
use crate::golang;

impl Cause {
    fn build(reason: &'static str, path: &Path, head: String, detail: &str) -> Self {
        let message = if detail.is_empty() { head } else { format!("{head}: {detail}") };
        Self { reason, message, field: path.to_string() }
    }

    /// A required value is missing.
    pub fn required(path: &Path, detail: &str) -> Self {
        Self::build("FieldValueRequired", path, "Required value".into(), detail)
    }

    /// A malformed value.
    pub fn invalid(path: &Path, value: &Value, detail: &str) -> Self {
        Self::build("FieldValueInvalid", path, format!("Invalid value: {}", golang::value(value)), detail)
    }

    /// A malformed value, printed as given.
    pub fn invalid_as(path: &Path, shown: &str, detail: &str) -> Self {
        Self::build("FieldValueInvalid", path, format!("Invalid value: {shown}"), detail)
    }

    /// A malformed value that is not printed.
    pub fn invalid_hidden(path: &Path, detail: &str) -> Self {
        Self::build("FieldValueInvalid", path, "Invalid value".into(), detail)
    }

    /// A value of the wrong JSON type.
    pub fn type_invalid(path: &Path, value: &Value, detail: &str) -> Self {
        Self::build("FieldValueTypeInvalid", path, format!("Invalid value: {}", golang::value(value)), detail)
    }

    /// A value that is not one of `supported`.
    pub fn not_supported<S: AsRef<str>>(path: &Path, value: &Value, supported: &[S]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| golang::quote(value.as_ref())).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::build("FieldValueNotSupported", path, format!("Unsupported value: {}", golang::value(value)), &detail)
    }

    /// A value that is not permitted here.
    pub fn forbidden(path: &Path, detail: &str) -> Self {
        Self::build("FieldValueForbidden", path, "Forbidden".into(), detail)
    }

    /// A duplicate of a value that must be unique.
    pub fn duplicate(path: &Path, value: &Value) -> Self {
        Self::build("FieldValueDuplicate", path, format!("Duplicate value: {}", golang::value(value)), "")
    }

    /// A duplicate whose value is not printed.
    pub fn duplicate_hidden(path: &Path) -> Self {
        Self::build("FieldValueDuplicate", path, "Duplicate value".into(), "")
    }

    /// A reference to something that does not exist.
    pub fn not_found(path: &Path, value: &Value) -> Self {
        Self::build("FieldValueNotFound", path, format!("Not found: {}", golang::value(value)), "")
    }

    /// A string over `max` bytes.
    pub fn too_long(path: &Path, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::build("FieldValueTooLong", path, "Too long".into(), &format!("may not be more than {max} {unit}"))
    }

    /// A list of `actual` items where `max` are allowed.
    pub fn too_many(path: &Path, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::build("FieldValueTooMany", path, format!("Too many: {actual}"), &detail)
    }

    /// A check that failed with an internal error.
    pub fn internal(path: &Path, detail: &str) -> Self {
        Self::build("InternalError", path, "Internal error".into(), detail)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn causes_read_as_on_a_real_server() {
        let path = Path::new("spec").child("ports").index(0).child("name");
        let cases = [
            (Cause::required(&path, ""), "Required value"),
            (Cause::invalid(&path, &json!("a\"b"), "must be good"), r#"Invalid value: "a\"b": must be good"#),
            (Cause::invalid(&path, &json!({"a": [1, "<"]}), ""), r#"Invalid value: {"a":[1,"\u003c"]}"#),
            (
                Cause::not_supported(&path, &json!("x"), &["A", "B"]),
                r#"Unsupported value: "x": supported values: "A", "B""#,
            ),
            (Cause::too_long(&path, 1), "Too long: may not be more than 1 byte"),
            (Cause::too_many(&path, 3, 2), "Too many: 3: must have at most 2 items"),
            (Cause::duplicate(&path, &json!(1.5)), "Duplicate value: 1.5"),
        ];
        for (cause, message) in cases {
            assert_eq!(cause.message, message);
            assert_eq!(cause.field, "spec.ports[0].name");
        }
        assert_eq!(Path::root().to_string(), "<nil>");
        assert_eq!(Path::root().key("a").to_string(), "[a]");
    }
}
