//! Conversion of objects and patches that expressions construct to JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::value::{Key, Val};

impl Val<'_> {
    /// The value as JSON; `None` if it has no JSON form.
    pub(super) fn to_json(&self) -> Option<Value> {
        Some(match self {
            Self::Null | Self::Optional(None) => Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(value) => (*value).into(),
            Self::UInt(value) => (*value).into(),
            Self::Double(value) => (*value).into(),
            Self::Text(text) => (**text).into(),
            Self::Bytes(bytes) => STANDARD.encode(bytes).into(),
            Self::Duration(span) => format!("{}s", crate::golang::plain_float(*span as f64 / 1e9)).into(),
            Self::Time(time) => time.to_string().into(),
            Self::Optional(Some(inner)) => return inner.to_json(),
            Self::Unknown(value) => (*value).clone(),
            Self::List(_) | Self::Items(..) => {
                let items = self.items()?.into_iter();
                items.map(|item| item.ok()?.to_json()).collect::<Option<Vec<Value>>>()?.into()
            }
            Self::Constructed(_, fields) => {
                let fields = fields.iter().map(|(name, value)| Some((name.to_string(), value.to_json()?)));
                Value::Object(fields.collect::<Option<_>>()?)
            }
            Self::Map(_) | Self::Object(..) => {
                let keys = self.keys()?.into_iter();
                let entry = |key: Key| {
                    let Key::Text(name) = &key else { return None };
                    Some((name.to_string(), self.get(&key)?.ok()?.to_json()?))
                };
                Value::Object(keys.map(entry).collect::<Option<_>>()?)
            }
            Self::Named(_) | Self::Access(_) | Self::Type(_) | Self::Foreign(_) => return None,
        })
    }

    /// Checks the type names of constructed objects, which must match their field paths.
    pub(super) fn misnamed(&self, path: &str, found: &mut Vec<String>) {
        match self {
            Self::Constructed(name, fields) => {
                if **name != *path {
                    found.push(format!(
                        "unexpected type name {:?}, expected {path:?}, which matches field name path from root Object type",
                        &**name
                    ));
                }
                fields.iter().for_each(|(field, value)| value.misnamed(&format!("{path}.{field}"), found));
            }
            Self::List(items) => items.iter().for_each(|item| item.misnamed(path, found)),
            Self::Map(map) => map.values().for_each(|value| value.misnamed(path, found)),
            _ => {}
        }
    }
}
