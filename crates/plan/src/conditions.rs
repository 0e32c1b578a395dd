//! Conditions: set in place, with a transition time that moves only when the status does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// One condition to set.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Type: `Ready` …
    pub type_: &'a str,
    /// Status.
    pub status: bool,
    /// Stable, machine-readable reason.
    pub reason: &'a str,
    /// Sentence for people.
    pub message: &'a str,
}

/// Sets `wanted` in `conditions`, replacing the condition of that type in place.
pub fn set(conditions: &mut Vec<Condition>, wanted: Wanted<'_>, generation: Option<i64>, now: Timestamp) {
    let status = if wanted.status { "True" } else { "False" };
    let old = conditions.iter().position(|condition| condition.type_ == wanted.type_);
    let since = old.map(|index| &conditions[index]).filter(|old| old.status == status);
    let condition = Condition {
        type_: wanted.type_.into(),
        status: status.into(),
        reason: wanted.reason.into(),
        message: wanted.message.into(),
        observed_generation: generation,
        last_transition_time: since.map_or(Time(whole_seconds(now)), |old| old.last_transition_time.clone()),
    };
    match old {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}

/// The message of a condition that is True for this generation: it stays until its controller knows better, for example
/// right after a restart.
pub fn current_message(conditions: Option<&Vec<Condition>>, type_: &str, generation: Option<i64>) -> Option<String> {
    let is_current =
        |one: &&Condition| one.type_ == type_ && one.status == "True" && one.observed_generation == generation;
    conditions?.iter().find(is_current).map(|one| one.message.clone())
}

/// Removes the condition of that type.
pub fn clear(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

/// Kubernetes stores whole seconds: anything finer would differ on the next read.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Wanted<'_> = Wanted { type_: "Ready", status: true, reason: "Ready", message: "" };

    #[test]
    fn what_was_said_of_another_generation_no_longer_stands() {
        let mut conditions = Vec::new();
        set(&mut conditions, Wanted { message: "well", ..READY }, Some(2), Timestamp::UNIX_EPOCH);
        assert_eq!(current_message(Some(&conditions), "Ready", Some(2)), Some("well".into()));
        assert_eq!(current_message(Some(&conditions), "Ready", Some(3)), None);
        set(&mut conditions, Wanted { status: false, ..READY }, Some(2), Timestamp::UNIX_EPOCH);
        assert_eq!(current_message(Some(&conditions), "Ready", Some(2)), None);
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let (first, later) = (Timestamp::from_second(100).unwrap(), Timestamp::from_second(200).unwrap());
        let mut conditions = Vec::new();
        set(&mut conditions, READY, Some(1), first);
        set(&mut conditions, Wanted { message: "again", ..READY }, Some(2), later);
        assert_eq!(conditions[0].last_transition_time, Time(first));
        assert_eq!((conditions[0].message.as_str(), conditions[0].observed_generation), ("again", Some(2)));
        set(&mut conditions, Wanted { status: false, ..READY }, Some(2), later);
        assert_eq!(conditions[0].last_transition_time, Time(later));
    }
}
