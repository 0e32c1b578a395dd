//! Operators: arithmetic, comparison, membership.

use std::cmp::Ordering;

use jiff::SignedDuration;

use super::value::{Fault, Outcome, Val, join};

/// `one OPERATOR other`, for all operators that evaluate both operands.
pub(super) fn binary<'a>(operator: &str, one: &Val<'a>, other: &Val<'a>) -> Outcome<'a> {
    match operator {
        "_==_" => Ok(Val::Bool(one.equals(other))),
        "_!=_" => Ok(Val::Bool(!one.equals(other))),
        "_<_" => order(one, other).map(|order| Val::Bool(order == Some(Ordering::Less))),
        "_<=_" => order(one, other).map(|order| Val::Bool(matches!(order, Some(Ordering::Less | Ordering::Equal)))),
        "_>_" => order(one, other).map(|order| Val::Bool(order == Some(Ordering::Greater))),
        "_>=_" => order(one, other).map(|order| Val::Bool(matches!(order, Some(Ordering::Greater | Ordering::Equal)))),
        "_+_" => add(one, other),
        "_-_" => subtract(one, other),
        "_*_" => multiply(one, other),
        "_/_" => divide(one, other),
        "_%_" => remainder(one, other),
        "@in" => contains(one, other),
        _ => Err(Fault::Overload),
    }
}

fn overflow<T>() -> Result<T, Fault> {
    Fault::other("integer overflow")
}

/// Compares two values of one type; all numeric types are comparable.
fn order(one: &Val<'_>, other: &Val<'_>) -> Result<Option<Ordering>, Fault> {
    use Val::{Bool, Bytes, Double, Duration, Int, Text, Time, UInt};
    Ok(match (one, other) {
        (Bool(a), Bool(b)) => Some(a.cmp(b)),
        (Int(a), Int(b)) => Some(a.cmp(b)),
        (UInt(a), UInt(b)) => Some(a.cmp(b)),
        (Double(a), Double(b)) => a.partial_cmp(b),
        (Int(a), UInt(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (UInt(a), Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Int(a), Double(b)) => (*a as f64).partial_cmp(b),
        (Double(a), Int(b)) => a.partial_cmp(&(*b as f64)),
        (UInt(a), Double(b)) => (*a as f64).partial_cmp(b),
        (Double(a), UInt(b)) => a.partial_cmp(&(*b as f64)),
        (Text(a), Text(b)) => Some(a.cmp(b)),
        (Bytes(a), Bytes(b)) => Some(a.cmp(b)),
        (Duration(a), Duration(b)) => Some(a.cmp(b)),
        (Time(a), Time(b)) => Some(a.cmp(b)),
        _ => return Err(Fault::Overload),
    })
}

fn add<'a>(one: &Val<'a>, other: &Val<'a>) -> Outcome<'a> {
    use Val::{Bytes, Double, Duration, Int, Text, Time, UInt};
    match (one, other) {
        (Int(a), Int(b)) => a.checked_add(*b).map_or_else(overflow, |sum| Ok(Int(sum))),
        (UInt(a), UInt(b)) => {
            a.checked_add(*b).map_or_else(|| Fault::other("unsigned integer overflow"), |sum| Ok(UInt(sum)))
        }
        (Double(a), Double(b)) => Ok(Double(a + b)),
        (Text(a), Text(b)) => Ok(Text(format!("{a}{b}").into())),
        (Bytes(a), Bytes(b)) => Ok(Bytes([a.as_ref(), b.as_ref()].concat().into())),
        (Duration(a), Duration(b)) => {
            a.checked_add(*b).map_or_else(|| Fault::other("duration overflow"), |sum| Ok(Duration(sum)))
        }
        (Time(time), Duration(by)) | (Duration(by), Time(time)) => shifted(*time, *by),
        _ => join(one, other),
    }
}

fn shifted<'a>(time: jiff::Timestamp, by: i64) -> Outcome<'a> {
    let by = SignedDuration::from_nanos(by);
    time.checked_add(by).map_or_else(|_| Fault::other("timestamp overflow"), |time| Ok(Val::Time(time)))
}

fn subtract<'a>(one: &Val<'a>, other: &Val<'a>) -> Outcome<'a> {
    use Val::{Double, Duration, Int, Time, UInt};
    match (one, other) {
        (Int(a), Int(b)) => a.checked_sub(*b).map_or_else(overflow, |rest| Ok(Int(rest))),
        (UInt(a), UInt(b)) => {
            a.checked_sub(*b).map_or_else(|| Fault::other("unsigned integer overflow"), |rest| Ok(UInt(rest)))
        }
        (Double(a), Double(b)) => Ok(Double(a - b)),
        (Duration(a), Duration(b)) => {
            a.checked_sub(*b).map_or_else(|| Fault::other("duration overflow"), |rest| Ok(Duration(rest)))
        }
        (Time(a), Time(b)) => {
            let nanoseconds = a.duration_since(*b).as_nanos();
            i64::try_from(nanoseconds).map_or_else(|_| Fault::other("duration overflow"), |rest| Ok(Duration(rest)))
        }
        (Time(time), Duration(by)) => shifted(*time, by.saturating_neg()),
        _ => Err(Fault::Overload),
    }
}

fn multiply<'a>(one: &Val<'a>, other: &Val<'a>) -> Outcome<'a> {
    match (one, other) {
        (Val::Int(a), Val::Int(b)) => a.checked_mul(*b).map_or_else(overflow, |product| Ok(Val::Int(product))),
        (Val::UInt(a), Val::UInt(b)) => {
            a.checked_mul(*b).map_or_else(|| Fault::other("unsigned integer overflow"), |it| Ok(Val::UInt(it)))
        }
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a * b)),
        _ => Err(Fault::Overload),
    }
}

fn divide<'a>(one: &Val<'a>, other: &Val<'a>) -> Outcome<'a> {
    match (one, other) {
        (Val::Int(_), Val::Int(0)) | (Val::UInt(_), Val::UInt(0)) => Fault::other("division by zero"),
        (Val::Int(a), Val::Int(b)) => a.checked_div(*b).map_or_else(overflow, |quotient| Ok(Val::Int(quotient))),
        (Val::UInt(a), Val::UInt(b)) => Ok(Val::UInt(a / b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a / b)),
        _ => Err(Fault::Overload),
    }
}

fn remainder<'a>(one: &Val<'a>, other: &Val<'a>) -> Outcome<'a> {
    match (one, other) {
        (Val::Int(_), Val::Int(0)) | (Val::UInt(_), Val::UInt(0)) => Fault::other("modulus by zero"),
        (Val::Int(a), Val::Int(b)) => a.checked_rem(*b).map_or_else(overflow, |rest| Ok(Val::Int(rest))),
        (Val::UInt(a), Val::UInt(b)) => Ok(Val::UInt(a % b)),
        _ => Err(Fault::Overload),
    }
}

/// `one in other`.
fn contains<'a>(one: &Val<'a>, other: &Val<'a>) -> Outcome<'a> {
    if let Some(items) = other.items() {
        let found = items.into_iter().any(|item| item.is_ok_and(|item| item.equals(one)));
        return Ok(Val::Bool(found));
    }
    match other {
        Val::Map(_) | Val::Object(..) => Ok(Val::Bool(one.as_key().is_some_and(|key| other.get(&key).is_some()))),
        _ => Err(Fault::Overload),
    }
}

/// `-one` and `!one`.
pub(super) fn unary<'a>(operator: &str, one: &Val<'a>) -> Outcome<'a> {
    match (operator, one) {
        ("!_", Val::Bool(value)) => Ok(Val::Bool(!value)),
        ("-_", Val::Int(value)) => value.checked_neg().map_or_else(overflow, |value| Ok(Val::Int(value))),
        ("-_", Val::Double(value)) => Ok(Val::Double(-value)),
        ("-_", Val::Duration(value)) => {
            value.checked_neg().map_or_else(|| Fault::other("duration overflow"), |value| Ok(Val::Duration(value)))
        }
        _ => Err(Fault::Overload),
    }
}

/// `list[index]` and `map[key]`.
pub(super) fn index<'a>(container: &Val<'a>, key: &Val<'a>) -> Outcome<'a> {
    if let Some(items) = container.items() {
        let at = match key {
            Val::Int(at) => *at,
            Val::UInt(at) => i64::try_from(*at).unwrap_or(i64::MAX),
            Val::Double(at) if at.fract() == 0.0 => *at as i64,
            _ => return Fault::other(format!("unsupported index type '{}' in list", key.type_name())),
        };
        let found = usize::try_from(at).ok().and_then(|at| items.into_iter().nth(at));
        return found.unwrap_or_else(|| Fault::other(format!("index out of bounds: {at}")));
    }
    match container {
        Val::Map(_) | Val::Object(..) => {
            let Some(key) = key.as_key() else { return Err(Fault::Overload) };
            container.get(&key).unwrap_or_else(|| Fault::other(format!("no such key: {}", shown(&key))))
        }
        Val::Optional(_) => Err(Fault::Overload),
        _ => Err(Fault::Overload),
    }
}

pub(super) fn shown(key: &super::value::Key) -> String {
    use super::value::Key;
    match key {
        Key::Bool(value) => value.to_string(),
        Key::Int(value) => value.to_string(),
        Key::UInt(value) => value.to_string(),
        Key::Text(text) => text.to_string(),
    }
}
