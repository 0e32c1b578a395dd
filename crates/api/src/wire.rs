//! Lenient decoding: the API server stores more than typed clients write.
//!
//! A number is valid wherever the schema has a quantity (`nvidia.com/gpu: 1`), but k8s-openapi's `Quantity` decodes
//! strings only. [`lenient`] decodes any type from a value and converts such numbers to strings. Conditions of other
//! writers may lack fields that ours always have. Everything else follows serde's rules, and an error names its path.

use std::fmt;

use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Transition time of a condition without one.
const DEFAULT_TRANSITION_TIME: &str = "1970-01-01T00:00:00Z";

/// Decodes `value` as `T`, with numbers accepted as quantities.
pub fn lenient<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    T::deserialize(Lenient(value))
}

/// A decoding error with its path: `image.tag: invalid type: integer `1`, expected a string`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `image.tag`, `args[2]`; empty for the root.
    place: String,
    why: String,
}

impl Fault {
    /// Prepends a field to the path.
    pub fn within(mut self, part: &str) -> Self {
        let dot = if self.place.is_empty() || self.place.starts_with('[') { "" } else { "." };
        self.place = format!("{part}{dot}{}", self.place);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() { f.write_str(&self.why) } else { write!(f, "{}: {}", self.place, self.why) }
    }
}

impl std::error::Error for Fault {}

impl serde::de::Error for Fault {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self { place: String::new(), why: why.to_string() }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        serde::de::Error::custom(error)
    }
}

/// [`lenient`] for a flattened field: `#[serde(flatten, deserialize_with = "crate::wire::flat")]`. Without it serde
/// buffers the fields, and the buffer loses which numbers are quantities.
pub(crate) fn flat<'de, T: DeserializeOwned, D: Deserializer<'de>>(fields: D) -> Result<T, D::Error> {
    let fields = serde_json::Map::deserialize(fields)?;
    lenient(Value::Object(fields)).map_err(serde::de::Error::custom)
}

struct Lenient(Value);

impl<'de> Deserializer<'de> for Lenient {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Array(items) => visitor.visit_seq(Items { rest: items.into_iter(), at: 0 }),
            Value::Object(fields) => {
                visitor.visit_map(Fields { rest: fields.into_iter(), name: String::new(), value: None })
            }
            // Not `Value::deserialize_any`, which knows arrays and objects too: the compiler would make the code that
            // reads them, for every type, a second time.
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(value) => Ok(value.deserialize_any(visitor)?),
            Value::String(value) => visitor.visit_string(value),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Number(number) if name == "Quantity" => {
                let text: StringDeserializer<Fault> = number.to_string().into_deserializer();
                visitor.visit_newtype_struct(text)
            }
            value => visitor.visit_newtype_struct(Lenient(value)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if let (Value::Object(condition), "Condition") = (&mut self.0, name) {
            fill_required(condition, fields);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        Ok(self.0.deserialize_enum(name, variants, visitor)?)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// Adds required fields that a condition lacks, as they would make the whole object undecodable.
fn fill_required(condition: &mut Map<String, Value>, fields: &[&str]) {
    let time = "lastTransitionTime";
    if fields.contains(&time) && condition.get(time).is_none_or(Value::is_null) {
        condition.insert(time.into(), DEFAULT_TRANSITION_TIME.into());
    }
}

struct Items {
    rest: std::vec::IntoIter<Value>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(item) = self.rest.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        seed.deserialize(Lenient(item)).map(Some).map_err(|fault| fault.within(&format!("[{at}]")))
    }
}

struct Fields {
    rest: serde_json::map::IntoIter,
    name: String,
    value: Option<Value>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        (self.name, self.value) = (name, Some(value));
        seed.deserialize(StrDeserializer::<Fault>::new(&self.name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let value = self.value.take().unwrap_or_default();
        seed.deserialize(Lenient(value)).map_err(|fault| fault.within(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use serde_json::json;

    #[test]
    fn a_number_is_a_quantity() {
        let read: ResourceRequirements =
            lenient(json!({"limits": {"nvidia.com/gpu": 2, "cpu": 1.5, "memory": "1Gi"}})).unwrap();
        let limits = read.limits.unwrap();
        let text: Vec<_> = limits.iter().map(|(name, quantity)| format!("{name}={}", quantity.0)).collect();
        assert_eq!(text, ["cpu=1.5", "memory=1Gi", "nvidia.com/gpu=2"]);
    }

    #[test]
    fn a_number_is_a_quantity_in_a_flattened_field() {
        #[derive(Deserialize)]
        struct Outer {
            name: String,
            #[serde(flatten, deserialize_with = "flat")]
            inner: ResourceRequirements,
        }
        let read: Outer = lenient(json!({"name": "a", "limits": {"nvidia.com/gpu": 2}})).unwrap();
        assert_eq!(read.name, "a");
        assert_eq!(read.inner.limits.unwrap()["nvidia.com/gpu"].0, "2");
    }

    #[test]
    fn a_number_is_not_a_plain_string() {
        assert!(lenient::<String>(json!(2)).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let fault = |value| lenient::<Container>(value).unwrap_err().to_string();
        let number = "invalid type: integer `1`, expected a string";
        assert_eq!(fault(json!({"image": 1})), format!("image: {number}"));
        assert_eq!(fault(json!({"args": ["a", 1]})), format!("args[1]: {number}"));
        assert_eq!(fault(json!({"env": [{"name": "A", "value": 1}]})), format!("env[0].value: {number}"));
        assert!(fault(json!("text")).starts_with("invalid type: string \"text\""));
    }

    #[test]
    fn a_condition_need_not_say_since_when() {
        for condition in [json!({"type": "A", "status": "True"}), json!({"type": "A", "lastTransitionTime": null})] {
            let read: Vec<Condition> = lenient(json!([condition])).unwrap();
            assert_eq!((read[0].type_.as_str(), read[0].last_transition_time.0.as_second()), ("A", 0));
        }
        assert!(lenient::<Condition>(json!({"type": "A", "lastTransitionTime": "soon"})).is_err());
    }
}
