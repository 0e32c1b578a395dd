//! CEL types and assignability.

use std::fmt;
use std::rc::Rc;

use super::declare::Decl;

/// A type.
#[derive(Clone, Debug)]
pub(super) enum Ty {
    /// Dynamic: checked at evaluation.
    Dyn,
    /// The type of an invalid node: assignable to everything, so that an error is reported once.
    Error,
    Null,
    Bool,
    Int,
    UInt,
    Double,
    Text,
    Bytes,
    Duration,
    Time,
    List(Rc<Ty>),
    Map(Rc<Ty>, Rc<Ty>),
    Optional(Rc<Ty>),
    /// A type value, of a known type or not.
    Type(Option<Rc<Ty>>),
    /// An object with declared fields.
    Object(Rc<str>, Rc<Decl>),
    /// A library type.
    Library(&'static str),
    /// A type variable.
    Open(usize),
    /// A type parameter of a function declaration.
    Parameter(char),
}

impl Ty {
    pub(super) fn list(of: Ty) -> Self {
        Self::List(Rc::new(of))
    }

    pub(super) fn optional(of: Ty) -> Self {
        Self::Optional(Rc::new(of))
    }

    pub(super) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// The inner type of an optional one, and whether it was optional.
    pub(super) fn unwrapped(&self) -> (&Ty, bool) {
        match self {
            Self::Optional(inner) => (inner, true),
            other => (other, false),
        }
    }

    /// Whether the types are equal.
    pub(super) fn same(&self, other: &Ty) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.same(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.same(c) && b.same(d),
            (Self::Type(a), Self::Type(b)) => match (a, b) {
                (Some(a), Some(b)) => a.same(b),
                (None, None) => true,
                _ => false,
            },
            (Self::Object(a, _), Self::Object(b, _)) => a == b,
            (Self::Library(a), Self::Library(b)) => a == b,
            (Self::Open(a), Self::Open(b)) => a == b,
            (Self::Parameter(a), Self::Parameter(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && self.is_simple(),
        }
    }

    fn is_simple(&self) -> bool {
        use Ty::{Bool, Bytes, Double, Duration, Dyn, Error, Int, Null, Text, Time, UInt};
        matches!(self, Dyn | Error | Null | Bool | Int | UInt | Double | Text | Bytes | Duration | Time)
    }

    /// Whether null is assignable.
    fn nullable(&self) -> bool {
        matches!(
            self,
            Self::Optional(_) | Self::Library(_) | Self::Object(..) | Self::Duration | Self::Time | Self::Null
        )
    }

    /// Whether it equals or is more general than the other type.
    fn says_less(&self, other: &Ty) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Open(_), _) => true,
            (_, Self::Dyn | Self::Open(_)) => false,
            (Self::Optional(a), Self::Optional(b)) | (Self::List(a), Self::List(b)) => a.says_less(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.says_less(c) && b.says_less(d),
            (Self::Type(_), Self::Type(_)) => true,
            _ => self.same(other),
        }
    }

    /// Parses a declared type: `map(string, A)`.
    pub(super) fn declared(text: &'static str) -> Self {
        let inner = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')'));
        if let Some(of) = inner("list(") {
            return Self::list(Self::declared(of));
        }
        if let Some(of) = inner("optional_type(") {
            return Self::optional(Self::declared(of));
        }
        if let Some(of) = inner("type(") {
            return Self::Type(Some(Rc::new(Self::declared(of))));
        }
        if let Some((key, value)) = inner("map(").and_then(|of| of.split_once(", ")) {
            return Self::Map(Rc::new(Self::declared(key)), Rc::new(Self::declared(value)));
        }
        match text {
            "dyn" => Self::Dyn,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::UInt,
            "double" => Self::Double,
            "string" => Self::Text,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Time,
            _ => match text.chars().next() {
                Some(letter) if text.len() == 1 => Self::Parameter(letter),
                _ => Self::Library(text),
            },
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::UInt => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Time => f.write_str("timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Type(None) => f.write_str("type"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::Object(name, _) => f.write_str(name),
            Self::Library(name) => f.write_str(name),
            Self::Open(number) => write!(f, "_var{number}"),
            Self::Parameter(letter) => write!(f, "{letter}"),
        }
    }
}

/// Substitutions of type variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Substitutions(Vec<Option<Ty>>);

impl Substitutions {
    /// A new type variable.
    pub(super) fn open(&mut self) -> Ty {
        self.0.push(None);
        Ty::Open(self.0.len() - 1)
    }

    fn get(&self, ty: &Ty) -> Option<&Ty> {
        match ty {
            Ty::Open(number) => self.0.get(*number).and_then(Option::as_ref),
            _ => None,
        }
    }

    fn set(&mut self, ty: &Ty, to: Ty) {
        if let Ty::Open(number) = ty {
            self.0[*number] = Some(to);
        }
    }

    /// The type with all substitutions applied; at the end, unbound variables become `dyn`.
    pub(super) fn resolved(&self, ty: &Ty, end: bool) -> Ty {
        if let Some(known) = self.get(ty) {
            return self.resolved(known, end);
        }
        let inner = |ty: &Rc<Ty>| Rc::new(self.resolved(ty, end));
        match ty {
            Ty::Open(_) if end => Ty::Dyn,
            Ty::List(of) => Ty::List(inner(of)),
            Ty::Optional(of) => Ty::Optional(inner(of)),
            Ty::Map(key, value) => Ty::Map(inner(key), inner(value)),
            Ty::Type(Some(of)) => Ty::Type(Some(inner(of))),
            other => other.clone(),
        }
    }

    /// Whether one type is assignable to the other; keeps the resulting substitutions if so.
    pub(super) fn fits(&mut self, one: &Ty, other: &Ty) -> bool {
        self.all_fit(&[(one, other)])
    }

    pub(super) fn all_fit(&mut self, pairs: &[(&Ty, &Ty)]) -> bool {
        let before = self.0.clone();
        let fits = pairs.iter().all(|(one, other)| self.fit(one, other));
        if !fits {
            self.0 = before;
        }
        fits
    }

    fn fit(&mut self, one: &Ty, other: &Ty) -> bool {
        if matches!(other, Ty::Open(_)) {
            match self.stands_for(one, other) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(one, Ty::Open(_)) {
            return self.stands_for(other, one).0;
        }
        match (one, other) {
            (Ty::Dyn | Ty::Error, _) | (_, Ty::Dyn | Ty::Error) => true,
            (Ty::Null, ty) | (ty, Ty::Null) => ty.nullable(),
            (Ty::Type(_), Ty::Type(_)) => true,
            (Ty::List(a), Ty::List(b)) | (Ty::Optional(a), Ty::Optional(b)) => self.fit(a, b),
            (Ty::Map(a, b), Ty::Map(c, d)) => self.fit(a, c) && self.fit(b, d),
            _ => one.same(other),
        }
    }

    /// Whether a type variable can be bound to this type, and whether it already was.
    fn stands_for(&mut self, ty: &Ty, open: &Ty) -> (bool, bool) {
        if ty.same(open) {
            return (true, true);
        }
        if let Some(known) = self.get(open).cloned() {
            if ty.same(&known) {
                return (true, true);
            }
            if !self.fit(ty, &known) {
                return (false, true);
            }
            let general = if ty.says_less(&known) { ty.clone() } else { known };
            if !self.occurs(open, &general) {
                self.set(open, general);
            }
            return (true, true);
        }
        if self.occurs(open, ty) {
            return (false, false);
        }
        self.set(open, ty.clone());
        (true, false)
    }

    /// Whether a type variable occurs in the other type.
    fn occurs(&self, open: &Ty, within: &Ty) -> bool {
        if open.same(within) {
            return true;
        }
        match within {
            Ty::Open(_) => self.get(within).is_some_and(|known| self.occurs(open, known)),
            Ty::List(of) | Ty::Optional(of) | Ty::Type(Some(of)) => self.occurs(open, of),
            Ty::Map(key, value) => self.occurs(open, key) || self.occurs(open, value),
            _ => false,
        }
    }

    /// The more general of two compatible types.
    pub(super) fn general(one: &Ty, other: &Ty) -> Ty {
        if one.says_less(other) { one.clone() } else { other.clone() }
    }
}
