//! Timeline: events and condition transitions of nodes, pods and custom resources, in order.

use serde_json::Value;

use crate::snapshot::{Snapshot, named};

/// One line per entry.
pub(super) fn of(snapshot: &Snapshot) -> String {
    let mut lines: Vec<(String, String)> = snapshot.of("", "Event").iter().filter_map(event).collect();
    for (kind, objects) in snapshot.objects.iter().filter(|(kind, _)| kind.as_str() != "Event") {
        lines.extend(objects.iter().flat_map(|object| transitions(kind, object)));
    }
    lines.sort();
    lines.iter().map(|(time, text)| format!("{time}  {text}\n")).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn event(event: &Value) -> Option<(String, String)> {
    let times =
        [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"], &event["firstTimestamp"]];
    let time = times.iter().map(|time| text(time)).find(|time| !time.is_empty())?;
    let about = &event["involvedObject"];
    let (namespace, name) = (text(&about["namespace"]), text(&about["name"]));
    let place = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let count = event["count"].as_i64().or_else(|| event["series"]["count"].as_i64()).unwrap_or(1);
    let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
    let (type_, reason, message) = (text(&event["type"]), text(&event["reason"]), text(&event["message"]));
    Some((second(time), format!("{type_:<7}  {} {place}  {reason}: {}{times}", text(&about["kind"]), line(message))))
}

fn transitions<'a>(kind: &'a str, object: &'a Value) -> impl Iterator<Item = (String, String)> + 'a {
    let (namespace, name) = named(object);
    let place = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let kind = kind.split('.').next().unwrap_or(kind);
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter_map(move |one| {
        let time = Some(text(&one["lastTransitionTime"])).filter(|time| !time.is_empty())?;
        let why = [text(&one["reason"]), text(&one["message"])].into_iter().filter(|part| !part.is_empty());
        let why = why.map(line).collect::<Vec<_>>().join(": ");
        let (type_, status) = (text(&one["type"]), text(&one["status"]));
        Some((second(time), format!("Changed  {kind} {place}  {type_}={status} {why}").trim_end().to_owned()))
    })
}

/// Makes times with and without fractions comparable.
fn second(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}

/// Joins an entry to one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
