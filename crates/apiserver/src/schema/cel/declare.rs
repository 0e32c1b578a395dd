//! CEL type declarations from schemas: fields with types and maximum sizes.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use super::escape;
use super::types::Ty;

/// Maximum request size in bytes: an upper bound of any value in an object.
pub(super) const LARGEST: u64 = 3 * 1024 * 1024;
/// Maximum length of an object name.
const LONGEST_NAME: u64 = 253;

/// Declaration of a value.
#[derive(Debug)]
pub(super) struct Decl {
    pub(super) shape: Shape,
    /// Maximum number of items, entries or characters.
    pub(super) most: u64,
    /// Minimum number of JSON bytes.
    pub(super) least: u64,
}

/// Type of a declared value.
#[derive(Debug)]
pub(super) enum Shape {
    Plain(Ty),
    List(Rc<Decl>),
    Map(Rc<Decl>),
    /// An object without declared fields.
    Open,
    Object {
        /// The type name, if it is not derived from the path.
        name: Option<&'static str>,
        fields: BTreeMap<String, Rc<Decl>>,
    },
}

impl Decl {
    /// A value without fields or items.
    pub(super) fn plain(ty: Ty, most: u64, least: u64) -> Rc<Self> {
        Rc::new(Self { shape: Shape::Plain(ty), most, least })
    }

    /// An object of a named type.
    pub(super) fn named(name: &'static str, fields: impl IntoIterator<Item = (&'static str, Rc<Decl>)>) -> Rc<Self> {
        Self::fields(name, fields.into_iter().map(|(field, decl)| (field.to_owned(), decl)))
    }

    /// The same with dynamic field names.
    pub(super) fn fields(name: &'static str, fields: impl IntoIterator<Item = (String, Rc<Decl>)>) -> Rc<Self> {
        let fields = fields.into_iter().collect();
        Rc::new(Self { shape: Shape::Object { name: Some(name), fields }, most: 0, least: 2 })
    }

    /// An object with arbitrary fields.
    pub(super) fn open() -> Rc<Self> {
        Rc::new(Self { shape: Shape::Open, most: 0, least: 2 })
    }

    pub(super) fn list(of: Rc<Decl>, most: u64) -> Rc<Self> {
        Rc::new(Self { shape: Shape::List(of), most, least: 2 })
    }

    pub(super) fn map(of: Rc<Decl>, most: u64) -> Rc<Self> {
        Rc::new(Self { shape: Shape::Map(of), most, least: 2 })
    }

    /// The declaration of a structural schema; `None` if CEL cannot access such values. The root of an object, also of
    /// an embedded one, has a type and a name.
    pub(super) fn of(schema: &Value, root: bool) -> Option<Rc<Self>> {
        if schema["x-kubernetes-int-or-string"] == true {
            let most = schema["maxLength"].as_i64().map_or(LARGEST - 2, characters);
            return Some(Self::plain(Ty::Dyn, most, 1));
        }
        let inner = |schema: &Value| Self::of(schema, schema["x-kubernetes-embedded-resource"] == true);
        match schema["type"].as_str()? {
            "array" => {
                let items = inner(schema.get("items")?)?;
                let most = schema["maxItems"].as_i64().map_or((LARGEST - 2) / (items.least + 1), not_negative);
                Some(Self::list(items, most))
            }
            "object" => match schema.get("additionalProperties").filter(|it| it.is_object()) {
                Some(values) => {
                    let values = inner(values)?;
                    let most =
                        schema["maxProperties"].as_i64().map_or((LARGEST - 2) / (values.least + 6), not_negative);
                    Some(Self::map(values, most))
                }
                None => Some(Self::object(schema, root)),
            },
            "string" => Some(text(schema)),
            "boolean" => Some(Self::plain(Ty::Bool, 0, 4)),
            "number" => Some(Self::plain(Ty::Double, 0, 1)),
            "integer" => Some(Self::plain(Ty::Int, 0, 1)),
            _ => None,
        }
    }

    fn object(schema: &Value, root: bool) -> Rc<Self> {
        let mut fields = BTreeMap::new();
        let mut least = 2;
        let required =
            |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name));
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if root && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                continue;
            }
            let Some(decl) = Self::of(property, property["x-kubernetes-embedded-resource"] == true) else { continue };
            if required(name) && property.get("default").is_none_or(Value::is_null) {
                least += name.len() as u64 + decl.least + 4;
            }
            if let Some(name) = escape::escape(name) {
                fields.insert(name, decl);
            }
        }
        if root {
            let plain = || Self::plain(Ty::Text, LARGEST - 2, 2);
            for (name, decl) in [("apiVersion", plain()), ("kind", plain()), ("metadata", metadata(schema))] {
                if required(name) {
                    least += name.len() as u64 + decl.least + 4;
                }
                fields.insert(name.to_owned(), decl);
            }
        }
        Rc::new(Self { shape: Shape::Object { name: None, fields }, most: 0, least })
    }

    /// The type of such values; object types are named by their path.
    pub(super) fn ty(self: &Rc<Self>, name: &str) -> Ty {
        match &self.shape {
            Shape::Plain(ty) => ty.clone(),
            Shape::List(of) => Ty::list(of.ty(&format!("{name}.@idx"))),
            Shape::Map(of) => Ty::Map(Rc::new(Ty::Text), Rc::new(of.ty(&format!("{name}.@elem")))),
            Shape::Open => Ty::Object(name.into(), self.clone()),
            Shape::Object { name: own, .. } => Ty::Object(own.unwrap_or(name).into(), self.clone()),
        }
    }

    /// A field of an object. Names that CEL reserves are unescaped.
    pub(super) fn field(&self, name: &str) -> Option<Rc<Decl>> {
        match &self.shape {
            Shape::Open => Some(Self::plain(Ty::Dyn, 0, 1)),
            Shape::Object { fields, .. } => {
                let reserved = || fields.get(&escape::escape(name).filter(|_| escape::is_reserved(name))?);
                fields.get(name).or_else(reserved).cloned()
            }
            _ => None,
        }
    }

    /// The declaration at the end of a path, if declared.
    pub(super) fn part(self: &Rc<Self>, path: &[Rc<str>]) -> Option<Rc<Decl>> {
        let mut current = self.clone();
        for step in path {
            current = match (&**step, &current.shape) {
                ("@items" | "@values", Shape::List(of) | Shape::Map(of)) => of.clone(),
                ("@keys", Shape::Map(_)) => Self::plain(Ty::Text, 0, 2),
                (name, Shape::Object { fields, .. }) => fields.get(name)?.clone(),
                _ => return None,
            };
        }
        Some(current)
    }
}

fn metadata(schema: &Value) -> Rc<Decl> {
    let name = |name: &str, longest: u64| {
        let own = schema["properties"]["metadata"]["properties"][name]["maxLength"].as_i64().map(not_negative);
        (name.to_owned(), Decl::plain(Ty::Text, own.map_or(longest, |own| own.min(longest)) * 4, 2))
    };
    let fields = [name("name", LONGEST_NAME), name("generateName", LONGEST_NAME - 1)].into_iter().collect();
    Rc::new(Decl { shape: Shape::Object { name: None, fields }, most: 0, least: 2 })
}

fn text(schema: &Value) -> Rc<Decl> {
    let longest = schema["maxLength"].as_i64();
    match schema["format"].as_str() {
        Some("byte") => Decl::plain(Ty::Bytes, longest.map_or(LARGEST - 2, not_negative), 2),
        Some("duration") => Decl::plain(Ty::Duration, 32, 3),
        Some("date") => Decl::plain(Ty::Time, 12, 12),
        Some("date-time") => Decl::plain(Ty::Time, 32, 21),
        _ => {
            let choices = schema["enum"].as_array().filter(|choices| !choices.is_empty());
            let longest_choice = |choices: &Vec<Value>| choices.iter().filter_map(Value::as_str).map(str::len).max();
            let most = match (longest, choices) {
                (Some(longest), _) => characters(longest),
                (None, Some(choices)) => longest_choice(choices).unwrap_or(0) as u64,
                (None, None) => LARGEST - 2,
            };
            Decl::plain(Ty::Text, most, 2)
        }
    }
}

fn not_negative(number: i64) -> u64 {
    number.try_into().unwrap_or(0)
}

/// Maximum bytes of this many characters.
fn characters(number: i64) -> u64 {
    not_negative(number).saturating_mul(4)
}
