//! Tolerant reading: what the API server stores is wider than what typed clients write.
//!
//! A number is legal wherever the schema says quantity (`nvidia.com/gpu: 1`), yet k8s-openapi's `Quantity` decodes
//! strings only. [`lenient`] decodes any type from a value and turns such numbers into strings on the way. Everything
//! else follows serde's own rules.

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Error, Value};

/// Decodes `value` as `T`, with numbers accepted as quantities.
pub fn lenient<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(Lenient(value))
}

/// [`lenient`] for a flattened field: `#[serde(flatten, deserialize_with = "crate::wire::flat")]`. Without it serde buffers
/// the fields on the way, and the buffer no longer knows which numbers are quantities.
pub(crate) fn flat<'de, T: DeserializeOwned, D: Deserializer<'de>>(fields: D) -> Result<T, D::Error> {
    let fields = serde_json::Map::deserialize(fields)?;
    lenient(Value::Object(fields)).map_err(serde::de::Error::custom)
}

struct Lenient(Value);

impl<'de> Deserializer<'de> for Lenient {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => visitor.visit_seq(Items(items.into_iter())),
            Value::Object(fields) => visitor.visit_map(Fields { rest: fields.into_iter(), value: None }),
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Number(number) if name == "Quantity" => {
                let text: StringDeserializer<Error> = number.to_string().into_deserializer();
                visitor.visit_newtype_struct(text)
            }
            value => visitor.visit_newtype_struct(Lenient(value)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items(std::vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for Items {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(Lenient(item))).transpose()
    }
}

struct Fields {
    rest: serde_json::map::IntoIter,
    value: Option<Value>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(StringDeserializer::<Error>::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Lenient(self.value.take().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ResourceRequirements;
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
}
