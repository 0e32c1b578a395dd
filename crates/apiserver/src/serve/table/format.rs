//! Formatting of cells: ages, labels, selectors, truncated lists.

use jiff::Timestamp;
use serde_json::Value;

/// Placeholder for an empty value.
pub(super) const NONE: &str = "<none>";
/// Placeholder for an unset field.
pub(super) const UNSET: &str = "<unset>";
/// Placeholder for an unknown value.
pub(super) const UNKNOWN: &str = "<unknown>";

/// A string field, empty if absent.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A string field, or `otherwise` if it is empty.
pub(super) fn text_or<'a>(value: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    let found = text(value, pointer);
    if found.is_empty() { otherwise } else { found }
}

/// A number field, 0 if absent.
pub(super) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// A list field, empty if absent.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The length of a list or map.
pub(super) fn count(value: &Value, pointer: &str) -> i64 {
    let found = value.pointer(pointer);
    let members = found.map_or(0, |found| match found {
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    });
    i64::try_from(members).unwrap_or(i64::MAX)
}

/// The age of a timestamp.
pub(super) fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => duration(now.as_second() - time.as_second()),
        None => UNKNOWN.to_owned(),
    }
}

/// A duration with at most two units.
pub(super) fn duration(seconds: i64) -> String {
    let two = |first: i64, unit: char, second: i64, smaller: char| {
        if second == 0 { format!("{first}{unit}") } else { format!("{first}{unit}{second}{smaller}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        i64::MIN..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(value: Option<&Value>) -> String {
    let pairs: Vec<String> = value
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") }
}

/// A label selector: `a=b,c in (d,e),!f`, or `<none>`.
pub(super) fn selector(value: Option<&Value>) -> String {
    let Some(value) = value.filter(|value| value.is_object()) else { return NONE.to_owned() };
    let mut terms: Vec<(String, String)> = Vec::new();
    for (key, value) in value["matchLabels"].as_object().into_iter().flatten() {
        terms.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list(value, "/matchExpressions") {
        let key = text(expression, "/key").to_owned();
        let mut values: Vec<&str> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        };
        terms.push((key, term));
    }
    terms.sort();
    if terms.is_empty() {
        return NONE.to_owned();
    }
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// Names and images of the containers of a pod spec.
pub(super) fn containers(spec: Option<&Value>) -> (String, String) {
    let containers = spec.map(|spec| list(spec, "/containers")).unwrap_or_default();
    let join = |field: &str| containers.iter().map(|container| text(container, field)).collect::<Vec<_>>().join(",");
    (join("/name"), join("/image"))
}

/// At most `most` items, and the number of the rest.
pub(super) fn some_of(items: &[String], most: usize, otherwise: &str) -> String {
    if items.is_empty() {
        return otherwise.to_owned();
    }
    let shown = items[..items.len().min(most)].join(",");
    if items.len() > most { format!("{shown} + {} more...", items.len() - most) } else { shown }
}

/// `RWO,ROX`.
pub(super) fn access_modes(modes: &[Value]) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| modes.iter().any(|given| given == mode);
    known.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// Whether a condition of that type is true.
pub(super) fn has_condition(value: &Value, kind: &str) -> bool {
    let conditions = list(value, "/status/conditions");
    conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// `True`, `False` or `<unset>`.
pub(super) fn boolean(value: Option<&Value>) -> String {
    match value.and_then(Value::as_bool) {
        Some(true) => "True".to_owned(),
        Some(false) => "False".to_owned(),
        None => UNSET.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 300, "3h5m"),
            (8 * 3600 + 300, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (2 * 365 * 86400, "2y"),
            (2 * 365 * 86400 + 86400, "2y1d"),
            (9 * 365 * 86400, "9y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn selectors_are_written_in_the_order_of_their_keys() {
        let value = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]});
        assert_eq!(selector(Some(&value)), "a in (x,y),b=1,!c");
        assert_eq!(selector(Some(&json!({}))), "<none>");
    }

    #[test]
    fn long_lists_are_cut_off() {
        let items: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(some_of(&items, 3, NONE), "a,b,c + 1 more...");
        assert_eq!(some_of(&[], 3, NONE), "<none>");
    }
}
