//! The merge view of a schema: which values are atomic, which lists have keys, which maps allow unknown fields.
//!
//! As structured-merge-diff sees a schema. Where the schema is silent, types are deduced from values: maps are
//! granular, lists are atomic.

use serde_json::Value;

use super::path::{Element, Scalar as Key};
use crate::schema::{Child, ListType, Schema, Type, builtin};

/// The merge type of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape<'a> {
    /// Typed by a schema. `open`: unknown fields are preserved, inherited from a parent. `whole`: an object with
    /// `apiVersion`, `kind` and `metadata`, whether or not the schema lists them.
    Of { schema: &'a Schema, open: bool, whole: bool },
    /// Untyped: deduced from the value.
    Deduced,
    /// Untyped and atomic.
    Untyped,
}

/// The forms that a value of a shape may take (`Atom` of structured-merge-diff).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Atom<'a> {
    pub scalar: Option<Scalar>,
    pub list: Option<List<'a>>,
    pub map: Option<Map<'a>>,
}

/// The form of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'a> {
    Scalar(Scalar),
    List(List<'a>),
    Map(Map<'a>),
}

/// Scalar types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    Text,
    Boolean,
    Untyped,
}

/// A list type and the identity of its items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'a> {
    pub items: Shape<'a>,
    pub by: By<'a>,
}

/// Identity of list items: atomic, set or map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By<'a> {
    /// Atomic: the items have no identity.
    Nothing,
    /// Set: by value.
    Value,
    /// Map: by these keys.
    Keys(&'a [String]),
}

/// A struct or map type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map<'a> {
    fields: Option<(&'a Schema, bool, bool)>,
    /// Shape of fields that the schema does not list; `None` if they are not allowed.
    pub extra: Option<Shape<'a>>,
    /// Whether it is atomic.
    pub atomic: bool,
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

static TEXT: std::sync::LazyLock<Schema> =
    std::sync::LazyLock::new(|| Schema { type_: Type::String, ..Schema::default() });

impl<'a> Shape<'a> {
    /// The shape of a whole object.
    pub(crate) fn root(schema: &'a Schema) -> Self {
        Self::Of { schema, open: schema.preserve_unknown, whole: true }
    }

    fn of_child(child: &'a Child, open: bool) -> Self {
        match child {
            Child::Named(name, _) if &**name == RAW_EXTENSION => Self::Untyped,
            Child::Named(..) => Self::of_schema(child.schema(), false),
            Child::Inline(schema) => Self::of_schema(schema, open),
        }
    }

    fn of_schema(schema: &'a Schema, open: bool) -> Self {
        Self::Of { schema, open: open || schema.preserve_unknown, whole: schema.embedded_resource }
    }

    /// The possible forms.
    pub(crate) fn atom(self) -> Atom<'a> {
        let (schema, open, whole) = match self {
            Self::Of { schema, open, whole } => (schema, open, whole),
            Self::Deduced | Self::Untyped => {
                let deduced = matches!(self, Self::Deduced);
                return Atom {
                    scalar: Some(Scalar::Untyped),
                    list: Some(List { items: Self::Untyped, by: By::Nothing }),
                    map: Some(Map { fields: None, extra: Some(self), atomic: !deduced }),
                };
            }
        };
        let scalar = |scalar| Atom { scalar: Some(scalar), ..Atom::default() };
        match schema.type_ {
            Type::Object => Atom { map: Some(map(schema, open, whole)), ..Atom::default() },
            Type::Array => Atom { list: Some(list(schema, open)), ..Atom::default() },
            Type::Integer | Type::Number => scalar(Scalar::Numeric),
            Type::Boolean => scalar(Scalar::Boolean),
            Type::IntOrString => scalar(Scalar::Untyped),
            Type::String => match schema.source.get("format").and_then(Value::as_str) {
                None | Some("" | "byte") => scalar(Scalar::Text),
                Some(_) => scalar(Scalar::Untyped),
            },
            // Kubernetes' definitions have properties even where their type is omitted.
            Type::Any if whole => Atom { map: Some(map(schema, open, whole)), ..Atom::default() },
            Type::Any => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(list(schema, open)),
                map: Some(map(schema, open, whole)),
            },
        }
    }
}

fn map(schema: &Schema, open: bool, whole: bool) -> Map<'_> {
    let extra = match &schema.additional {
        Some(child) => Some(Shape::of_child(child, open)),
        None if open || schema.properties.is_empty() => Some(Shape::Deduced),
        None => None,
    };
    Map { fields: Some((schema, open, whole)), extra, atomic: schema.atomic_map }
}

fn list(schema: &Schema, open: bool) -> List<'_> {
    let items = schema.items.as_ref().map_or(Shape::Untyped, |child| Shape::of_child(child, open));
    let by = match &schema.list {
        ListType::Atomic => By::Nothing,
        ListType::Set => By::Value,
        ListType::Map(keys) => By::Keys(keys),
    };
    List { items, by }
}

impl<'a> Map<'a> {
    /// The shape of a field that the schema lists.
    pub(crate) fn named(&self, name: &str) -> Option<Shape<'a>> {
        let (schema, open, whole) = self.fields?;
        if whole {
            match name {
                "metadata" => return builtin::definition(OBJECT_META).map(|meta| Shape::of_schema(meta, false)),
                "apiVersion" | "kind" => return Some(Shape::of_schema(&TEXT, false)),
                _ => {}
            }
        }
        schema.properties.get(name).map(|child| Shape::of_child(child, open))
    }

    /// The shape of a field, listed or not.
    pub(crate) fn child(&self, name: &str) -> Option<Shape<'a>> {
        self.named(name).or(self.extra)
    }

    /// The same; fields that the schema does not allow are deduced, so that they are not lost.
    pub(crate) fn child_or_deduced(&self, name: &str) -> Shape<'a> {
        self.child(name).unwrap_or(Shape::Deduced)
    }

    /// Whether its fields are untyped.
    pub(crate) fn is_deduced(&self) -> bool {
        matches!(self.extra, Some(Shape::Deduced))
            && self.fields.is_none_or(|(schema, ..)| schema.properties.is_empty())
    }

    fn default_of(&self, name: &str) -> Option<&'a Value> {
        let (schema, ..) = self.fields?;
        schema.properties.get(name)?.schema().default.as_ref()
    }
}

impl<'a> Atom<'a> {
    /// Restricts to the form of `value`, if it is one of the forms; all of them for null and absent values.
    pub(crate) fn deduce(self, value: Option<&Value>) -> Self {
        let only = match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if self.scalar.is_some() => {
                Self { scalar: self.scalar, ..Self::default() }
            }
            Some(Value::Array(_)) if self.list.is_some() => Self { list: self.list, ..Self::default() },
            Some(Value::Object(_)) if self.map.is_some() => Self { map: self.map, ..Self::default() },
            _ => self,
        };
        debug_assert!(only.map.is_some() || only.scalar.is_some() || only.list.is_some(), "an atom has a form");
        only
    }

    /// The form to treat a value as.
    pub(crate) fn form(self) -> Form<'a> {
        match (self.map, self.scalar, self.list) {
            (Some(map), ..) => Form::Map(map),
            (None, Some(scalar), _) => Form::Scalar(scalar),
            (None, None, Some(list)) => Form::List(list),
            (None, None, None) => Form::Scalar(Scalar::Untyped),
        }
    }

    /// Whether both allow the same forms. They derive from one shape, so nothing else can differ.
    pub(crate) fn alike(&self, other: &Self) -> bool {
        self.map.is_some() == other.map.is_some()
            && self.scalar.is_some() == other.scalar.is_some()
            && self.list.is_some() == other.list.is_some()
    }
}

impl Scalar {
    /// Checks that `value` is such a scalar; the error is worded as by kube-apiserver.
    pub(crate) fn check(self, value: Option<&Value>) -> Result<(), String> {
        use super::gofmt::{plain, sharp, type_name};
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(()) };
        match (self, value) {
            (Self::Numeric, Value::Number(_)) | (Self::Text, Value::String(_)) | (Self::Boolean, Value::Bool(_)) => {
                Ok(())
            }
            (Self::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => Ok(()),
            (Self::Numeric, other) => Err(format!("expected numeric (int or float), got {}", type_name(other))),
            (Self::Text, other) => {
                Err(format!("expected string, got &value.valueUnstructured{{Value:{}}}", sharp(other)))
            }
            (Self::Boolean, other) => Err(format!("expected boolean, got &{{{}}}", plain(other))),
            (Self::Untyped, other) => Err(format!("expected any scalar, got &{{{}}}", plain(other))),
        }
    }
}

impl List<'_> {
    /// Whether the list is atomic.
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self.by, By::Nothing)
    }

    /// The path element of `item`.
    pub(crate) fn element(&self, item: &Value) -> Result<Element, String> {
        match self.by {
            By::Nothing => Err("invalid indexing of non-associative list".into()),
            By::Value => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
                scalar => Ok(Element::Value(Key(scalar.clone()))),
            },
            By::Keys(keys) => self.keyed(keys, item),
        }
    }

    fn keyed(&self, keys: &[String], item: &Value) -> Result<Element, String> {
        let map = match item {
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            Value::Object(map) => map,
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let shape = self.items.atom().map;
        let mut found: Vec<(String, Key)> = keys
            .iter()
            .filter_map(|key| {
                let value = map.get(key).or_else(|| shape.and_then(|shape| shape.default_of(key)))?;
                Some((key.clone(), Key(value.clone())))
            })
            .collect();
        if found.is_empty() && !keys.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| super::gofmt::quoted(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(Element::Key(found))
    }
}
