//! Functions of expressions: the standard ones; those of Kubernetes' libraries come from kube-cel.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::objects::{Key as CelKey, Map as CelMap};
use kube_cel::cel::{self, Context, ExecutionError, IdedExpr};

use super::value::{Fault, Key, Outcome, Val};
use crate::golang;
use crate::schema::format;

thread_local! {
    /// All functions of Kubernetes' libraries. Thread-local, as a context is not Sync.
    static LIBRARIES: Context<'static> = Context::default().with_all();
}

/// Calls a function; the target of a method is the first argument.
pub(super) fn call<'a>(function: &str, method: bool, args: &[Val<'a>]) -> Outcome<'a> {
    if let Some(outcome) = standard(function, args) {
        return outcome;
    }
    let outcome = library(function, method, args)?;
    Ok(match (function, outcome) {
        // kube-cel returns the format itself.
        ("format.named", format @ Val::Foreign(_)) => Val::Optional(Some(Rc::new(format))),
        (_, outcome) => outcome,
    })
}

/// Calls a standard function; `None` if it is not one.
fn standard<'a>(function: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let outcome = match (function, args) {
        ("size", [value]) => match value {
            Val::Optional(_) => Err(Fault::Overload),
            value => value.size().map(|size| Val::Int(size as i64)).ok_or(Fault::Overload),
        },
        ("contains", [Val::Text(text), Val::Text(part)]) => Ok(Val::Bool(text.contains(&**part))),
        ("startsWith", [Val::Text(text), Val::Text(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::Text(text), Val::Text(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("matches", [Val::Text(text), Val::Text(pattern)]) => match golang::regex(pattern) {
            Ok(regex) => Ok(Val::Bool(regex.is_match(text))),
            Err(error) => Fault::other(format!("error parsing regexp: {error}")),
        },
        ("type", [value]) => Ok(Val::Type(value.type_name().into())),
        ("dyn", [value]) => Ok(value.clone()),
        ("bool", [value]) => to_bool(value),
        ("int", [value]) => to_int(value),
        ("uint", [value]) => to_uint(value),
        ("double", [value]) => to_double(value),
        ("bytes", [Val::Text(text)]) => Ok(Val::Bytes(text.as_bytes().into())),
        ("bytes", [Val::Bytes(bytes)]) => Ok(Val::Bytes(bytes.clone())),
        ("string", [value]) => return to_text(value),
        ("duration", [Val::Text(text)]) => match format::go_duration(text) {
            Some(nanoseconds) => Ok(Val::Duration(nanoseconds)),
            None => conversion("google.protobuf.Duration"),
        },
        ("duration", [value @ Val::Duration(_)]) | ("timestamp", [value @ Val::Time(_)]) => Ok(value.clone()),
        ("timestamp", [Val::Int(seconds)]) => match Timestamp::from_second(*seconds) {
            Ok(time) => Ok(Val::Time(time)),
            Err(_) => Fault::other("timestamp overflow"),
        },
        ("timestamp", [Val::Text(text)]) => match text.parse() {
            Ok(time) => Ok(Val::Time(time)),
            Err(_) => conversion("google.protobuf.Timestamp"),
        },
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.of", [value]) => Ok(Val::Optional(Some(Rc::new(value.clone())))),
        ("optional.ofNonZeroValue", [value]) => Ok(Val::Optional((!is_zero(value)).then(|| Rc::new(value.clone())))),
        ("hasValue", [Val::Optional(value)]) => Ok(Val::Bool(value.is_some())),
        ("value", [Val::Optional(value)]) => match value {
            Some(value) => Ok((**value).clone()),
            None => Fault::other("optional.none() dereference"),
        },
        ("or", [Val::Optional(value), other]) => Ok(match value {
            Some(_) => Val::Optional(value.clone()),
            None => other.clone(),
        }),
        ("orValue", [Val::Optional(value), other]) => {
            Ok(value.as_ref().map_or_else(|| other.clone(), |it| (**it).clone()))
        }
        (name, [Val::Time(time), zone @ ..]) if name.starts_with("get") => time_part(name, *time, zone),
        ("getHours", [Val::Duration(span)]) => Ok(Val::Int(span / 3_600_000_000_000)),
        ("getMinutes", [Val::Duration(span)]) => Ok(Val::Int(span / 60_000_000_000)),
        ("getSeconds", [Val::Duration(span)]) => Ok(Val::Int(span / 1_000_000_000)),
        ("getMilliseconds", [Val::Duration(span)]) => Ok(Val::Int(span / 1_000_000)),
        ("includes", [list, item]) => match list.items() {
            Some(items) => Ok(Val::Bool(items.into_iter().any(|it| it.is_ok_and(|it| it.equals(item))))),
            None => Err(Fault::Overload),
        },
        _ => return None,
    };
    Some(outcome)
}

/// The error for a string that cannot be converted.
fn conversion<T>(wanted: &str) -> Result<T, Fault> {
    Fault::other(format!("type conversion error from 'string' to '{wanted}'"))
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(value) => !value,
        Val::Int(value) | Val::Duration(value) => *value == 0,
        Val::UInt(value) => *value == 0,
        Val::Double(value) => *value == 0.0,
        Val::Optional(value) => value.is_none(),
        value => value.size() == Some(0),
    }
}

fn to_bool<'a>(value: &Val<'a>) -> Outcome<'a> {
    match value {
        Val::Bool(value) => Ok(Val::Bool(*value)),
        Val::Text(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Val::Bool(false)),
            _ => conversion("bool"),
        },
        _ => Err(Fault::Overload),
    }
}

fn to_int<'a>(value: &Val<'a>) -> Outcome<'a> {
    match value {
        Val::Int(value) => Ok(Val::Int(*value)),
        Val::UInt(value) => {
            i64::try_from(*value).map_or_else(|_| Fault::other("integer overflow"), |it| Ok(Val::Int(it)))
        }
        Val::Double(value) if value.abs() < 9.223_372_036_854_775e18 => Ok(Val::Int(*value as i64)),
        Val::Double(_) => Fault::other("integer overflow"),
        Val::Text(text) => match text.parse() {
            Ok(number) => Ok(Val::Int(number)),
            Err(_) => conversion("int"),
        },
        Val::Time(time) => Ok(Val::Int(time.as_second())),
        Val::Duration(span) => Ok(Val::Int(*span)),
        _ => Err(Fault::Overload),
    }
}

fn to_uint<'a>(value: &Val<'a>) -> Outcome<'a> {
    let overflow = || Fault::other("unsigned integer overflow");
    match value {
        Val::UInt(value) => Ok(Val::UInt(*value)),
        Val::Int(value) => u64::try_from(*value).map_or_else(|_| overflow(), |it| Ok(Val::UInt(it))),
        Val::Double(value) if (0.0..1.8e19).contains(value) => Ok(Val::UInt(*value as u64)),
        Val::Double(_) => overflow(),
        Val::Text(text) => match text.parse() {
            Ok(number) => Ok(Val::UInt(number)),
            Err(_) => conversion("uint"),
        },
        _ => Err(Fault::Overload),
    }
}

fn to_double<'a>(value: &Val<'a>) -> Outcome<'a> {
    match value {
        Val::Double(value) => Ok(Val::Double(*value)),
        Val::Int(value) => Ok(Val::Double(*value as f64)),
        Val::UInt(value) => Ok(Val::Double(*value as f64)),
        Val::Text(text) => match text.parse() {
            Ok(number) => Ok(Val::Double(number)),
            Err(_) => conversion("double"),
        },
        _ => Err(Fault::Overload),
    }
}

/// Converts a value to a string; library types have their own format.
fn to_text<'a>(value: &Val<'a>) -> Option<Outcome<'a>> {
    Some(Ok(match value {
        Val::Text(text) => Val::Text(text.clone()),
        Val::Bool(value) => Val::text(&value.to_string()),
        Val::Int(value) => Val::text(&value.to_string()),
        Val::UInt(value) => Val::text(&value.to_string()),
        Val::Double(value) => Val::text(&golang::float(*value)),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Val::text(text),
            Err(_) => return Some(Fault::other("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Val::Time(time) => Val::text(&time.to_string()),
        Val::Duration(span) => Val::text(&format!("{}s", golang::plain_float(*span as f64 / 1e9))),
        Val::Foreign(_) => return None,
        _ => return Some(Err(Fault::Overload)),
    }))
}

fn time_part<'a>(name: &str, time: Timestamp, zone: &[Val<'a>]) -> Outcome<'a> {
    let zone = match zone {
        [] => TimeZone::UTC,
        [Val::Text(zone)] => match time_zone(zone) {
            Some(zone) => zone,
            None => return Fault::other(format!("unknown time zone {zone}")),
        },
        _ => return Err(Fault::Overload),
    };
    let at = time.to_zoned(zone);
    Ok(Val::Int(match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return Err(Fault::Overload),
    }))
}

/// A time zone by name or offset: `+02:00`.
fn time_zone(text: &str) -> Option<TimeZone> {
    if let Some((hours, minutes)) = text.split_once(':') {
        let negative = hours.starts_with('-');
        let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
        let seconds = hours * 3600 + if negative { -minutes } else { minutes } * 60;
        return Some(TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).ok()?));
    }
    TimeZone::get(text).ok()
}

/// Calls a function of kube-cel: its arguments are bound to variables, as it evaluates expressions.
fn library<'a>(function: &str, method: bool, args: &[Val<'a>]) -> Outcome<'a> {
    let mut values = Vec::with_capacity(args.len());
    for value in args {
        values.push(to_cel(value)?);
    }
    LIBRARIES.with(|libraries| {
        let mut scope = libraries.new_inner_scope();
        let mut names = Vec::with_capacity(values.len());
        for (at, value) in values.into_iter().enumerate() {
            let name = format!("@{at}");
            scope.add_variable_from_value(name.clone(), value);
            names.push(IdedExpr { id: 0, expr: Expr::Ident(name) });
        }
        let mut names = names.into_iter();
        let target = if method { names.next().map(Box::new) } else { None };
        let call = CallExpr { func_name: function.to_owned(), target, args: names.collect() };
        let result = scope.resolve(&IdedExpr { id: 0, expr: Expr::Call(call) });
        result.map_err(fault_of).and_then(|value| from_cel(&value))
    })
}

fn fault_of(error: ExecutionError) -> Fault {
    match error {
        ExecutionError::FunctionError { message, .. } => Fault::Other(message),
        ExecutionError::UndeclaredReference(name) => Fault::Other(format!("no such function: {name}")),
        _ => Fault::Overload,
    }
}

fn to_cel(value: &Val<'_>) -> Result<cel::Value, Fault> {
    Ok(match value {
        Val::Null => cel::Value::Null,
        Val::Bool(value) => cel::Value::Bool(*value),
        Val::Int(value) => cel::Value::Int(*value),
        Val::UInt(value) => cel::Value::UInt(*value),
        Val::Double(value) => cel::Value::Float(*value),
        Val::Text(text) => cel::Value::String(Arc::new(text.to_string())),
        Val::Bytes(bytes) => cel::Value::Bytes(Arc::new(bytes.to_vec())),
        Val::Duration(span) => parsed("duration", format!("{span}ns"))?,
        Val::Time(time) => parsed("timestamp", time.to_string())?,
        Val::List(_) | Val::Items(..) => {
            let items = value.items().unwrap_or_default().into_iter();
            let items: Result<Vec<_>, _> = items.map(|item| to_cel(&item?)).collect();
            cel::Value::List(Arc::new(items?))
        }
        Val::Map(_) | Val::Object(..) => {
            let mut map = HashMap::new();
            for key in value.keys().unwrap_or_default() {
                if let Some(value) = value.get(&key) {
                    map.insert(cel_key(key), to_cel(&value?)?);
                }
            }
            cel::Value::Map(CelMap { map: Arc::new(map) })
        }
        Val::Foreign(value) => value.clone(),
        Val::Type(name) => cel::Value::String(Arc::new(name.to_string())),
        Val::Optional(_) | Val::Unknown(_) | Val::Named(_) | Val::Access(_) | Val::Constructed(..) => {
            return Err(Fault::Overload);
        }
    })
}

/// A duration or timestamp, parsed by the library.
fn parsed(function: &str, text: String) -> Result<cel::Value, Fault> {
    LIBRARIES.with(|libraries| {
        let mut scope = libraries.new_inner_scope();
        scope.add_variable_from_value("@0", cel::Value::String(Arc::new(text)));
        let args = vec![IdedExpr { id: 0, expr: Expr::Ident("@0".into()) }];
        let call = CallExpr { func_name: function.to_owned(), target: None, args };
        scope.resolve(&IdedExpr { id: 0, expr: Expr::Call(call) }).map_err(fault_of)
    })
}

fn cel_key(key: Key) -> CelKey {
    match key {
        Key::Bool(value) => CelKey::Bool(value),
        Key::Int(value) => CelKey::Int(value),
        Key::UInt(value) => CelKey::Uint(value),
        Key::Text(text) => CelKey::String(Arc::new(text.to_string())),
    }
}

fn from_cel<'a>(value: &cel::Value) -> Outcome<'a> {
    Ok(match value {
        cel::Value::Null => Val::Null,
        cel::Value::Bool(value) => Val::Bool(*value),
        cel::Value::Int(value) => Val::Int(*value),
        cel::Value::UInt(value) => Val::UInt(*value),
        cel::Value::Float(value) => Val::Double(*value),
        cel::Value::String(text) => Val::text(text),
        cel::Value::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
        cel::Value::Duration(span) => Val::Duration(span.num_nanoseconds().unwrap_or(i64::MAX)),
        cel::Value::Timestamp(time) => {
            let time = Timestamp::new(time.timestamp(), time.timestamp_subsec_nanos().cast_signed());
            Val::Time(time.map_err(|_| Fault::Other("timestamp overflow".into()))?)
        }
        cel::Value::List(items) => {
            let items: Result<Vec<_>, _> = items.iter().map(from_cel).collect();
            Val::List(Rc::new(items?))
        }
        cel::Value::Map(map) => {
            let mut out = BTreeMap::new();
            for (key, value) in map.map.iter() {
                let key = match key {
                    CelKey::Bool(value) => Key::Bool(*value),
                    CelKey::Int(value) => Key::Int(*value),
                    CelKey::Uint(value) => Key::UInt(*value),
                    CelKey::String(text) => Key::Text(text.as_str().into()),
                };
                out.insert(key, from_cel(value)?);
            }
            Val::Map(Rc::new(out))
        }
        other @ cel::Value::Opaque(_) => from_opaque(other)?,
        _ => return Err(Fault::Overload),
    })
}

/// Optional values are opaque in the library, but not here.
fn from_opaque<'a>(value: &cel::Value) -> Outcome<'a> {
    use kube_cel::cel::objects::OptionalValue;
    if let cel::Value::Opaque(opaque) = value
        && let Some(optional) = opaque.downcast_ref::<OptionalValue>()
    {
        let inner = optional.value().map(from_cel).transpose()?;
        return Ok(Val::Optional(inner.map(Rc::new)));
    }
    Ok(Val::Foreign(value.clone()))
}
