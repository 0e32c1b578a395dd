//! Groups the failure causes of many pods: each cause once, with example nodes, and without its consequences.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use capstan_plan::{LiveObjects, Note, Severity, Tree};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Cause, Class, Part, State, UnhealthyPod, words};

/// Timeout of a driver build.
pub const BUILD_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Timeout of a validation, including image pulls and the components it waits for.
pub const VALIDATION_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Number of example nodes.
const EXAMPLES: usize = 3;
/// Maximum number of causes in one condition.
const CAUSES: usize = 5;
/// Above this, node counts are rounded, so that messages do not change with each node.
const MANY: usize = 20;

/// A cause with its affected nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// UID of the DaemonSet whose pods have it.
    pub owner: String,
    /// Its class.
    pub class: Class,
    /// The message, with the nodes.
    pub title: String,
}

/// All diagnoses.
#[derive(Clone, Debug, Default)]
pub struct Diagnoses {
    list: Vec<Diagnosis>,
    /// When a wait exceeds its timeout, if nothing changes until then.
    pub again: Option<Duration>,
}

/// Diagnoses unhealthy pods. `kernel` returns the kernel of a node, `offers` whether its kubelet advertises GPUs.
pub fn diagnose<'a>(
    seen: impl IntoIterator<Item = &'a UnhealthyPod>,
    now: Timestamp,
    kernel: impl Fn(&str) -> String,
    offers: impl Fn(&str) -> bool,
) -> Diagnoses {
    let seen: Vec<&UnhealthyPod> = seen.into_iter().collect();
    let drivers = seen.iter().filter(|one| one.part == Part::Driver);
    let drivers: BTreeMap<&str, &State> = drivers.map(|one| (one.node.as_str(), &one.state)).collect();
    let mut found: BTreeMap<(&str, Class, String), BTreeSet<&str>> = BTreeMap::new();
    let mut again: Option<Duration> = None;
    for one in seen {
        let driver = drivers.get(one.node.as_str()).filter(|_| one.part == Part::Validator);
        let plugged = |container: &str| container == "plugin-validation" && !offers(&one.node);
        let cause = match &one.state {
            // Without a driver all later components fail.
            _ if matches!(driver, Some(State::Failing(_))) => continue,
            State::Failing(cause) if cause.class == Class::Crashes && plugged(&cause.subject) => {
                Cause::of(Class::PluginNotRunning, "")
            }
            State::Failing(cause) => cause.clone(),
            State::Starting { .. } => continue,
            State::Waiting { container, since } => {
                let building = driver.filter(|_| words::place(container) <= words::place("driver-validation"));
                let left = match building {
                    Some(State::Starting { since }) => left(*since, BUILD_TIMEOUT, now),
                    _ => left(*since, VALIDATION_TIMEOUT, now),
                };
                if let Some(left) = left {
                    again = Some(again.map_or(left, |again| again.min(left)));
                    continue;
                }
                let class = if plugged(container) { Class::PluginNotRunning } else { Class::Barrier };
                Cause::of(class, container)
            }
        };
        let what = cause.what(&kernel(&one.node));
        found.entry((one.owner.as_str(), cause.class, what)).or_default().insert(one.node.as_str());
    }
    let tell = |((owner, class, what), nodes): ((&str, Class, String), BTreeSet<&str>)| Diagnosis {
        owner: owner.into(),
        class,
        title: title(&what, &nodes.into_iter().collect::<Vec<_>>()),
    };
    Diagnoses { list: found.into_iter().map(tell).collect(), again }
}

/// Whether the kubelet of a cached node advertises GPUs or MIG devices.
pub fn offers<T: Tree>(node: &T) -> bool {
    let mut offered = false;
    let see = |name: &str, count: &str| offered |= name.starts_with("nvidia.com/") && count != "0";
    node.at("status").at("allocatable").entries().each(see);
    offered
}

/// The remaining time; `None` if it is over, or its start is unknown.
fn left(since: Option<Timestamp>, time: Duration, now: Timestamp) -> Option<Duration> {
    let waited = Duration::try_from(now.duration_since(since?)).unwrap_or_default();
    time.checked_sub(waited).filter(|left| !left.is_zero())
}

/// The message of a cause, with example nodes.
pub fn title(what: &str, nodes: &[&str]) -> String {
    if let [node] = nodes {
        return format!("node {node}: {what}");
    }
    let names = nodes.iter().take(EXAMPLES).copied().collect::<Vec<_>>().join(", ");
    let such = if nodes.len() > EXAMPLES { "such as " } else { "" };
    format!("{what}: {} nodes, {such}{names}", count(nodes.len()))
}

/// `7`, or `at least 200`.
fn count(number: usize) -> String {
    if number <= MANY {
        return number.to_string();
    }
    let step = 10_usize.pow(number.ilog10());
    format!("at least {}", number / step * step)
}

impl Diagnoses {
    /// The diagnoses of the pods of these DaemonSets (by uid).
    fn of<'a>(&'a self, owners: &'a [&str]) -> impl Iterator<Item = &'a Diagnosis> {
        self.list.iter().filter(|diagnosis| owners.contains(&diagnosis.owner.as_str()))
    }

    /// Appends the diagnoses of the pods of these DaemonSets to `message`.
    pub fn add_to(&self, message: String, owners: &[&str]) -> String {
        let titles: Vec<&str> = self.of(owners).map(|diagnosis| diagnosis.title.as_str()).collect();
        let more = titles.len().saturating_sub(CAUSES);
        let more = (more > 0).then(|| format!("and {more} more causes"));
        let parts = [message.as_str()].into_iter().chain(titles.into_iter().take(CAUSES)).chain(more.as_deref());
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// Events for causes that the conditions did not contain before.
pub fn new_events(
    diagnoses: &Diagnoses,
    live: &LiveObjects,
    before: Option<&Vec<Condition>>,
    now: &[Condition],
) -> Vec<Note> {
    let owners: Vec<&str> = live.iter().filter_map(|(_, object)| object["metadata"]["uid"].as_str()).collect();
    let tells = |list: &[Condition], title: &str| list.iter().any(|one| one.message.contains(title));
    let new_diagnoses = diagnoses.of(&owners).filter(|diagnosis| {
        tells(now, &diagnosis.title) && !before.is_some_and(|before| tells(before, &diagnosis.title))
    });
    let note = |diagnosis: &Diagnosis| Note {
        severity: Severity::Warning,
        reason: diagnosis.class.reason(),
        message: diagnosis.title.clone(),
    };
    new_diagnoses.map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(node: &str, part: Part, state: State) -> UnhealthyPod {
        let owner = if part == Part::Driver { "drivers" } else { "validators" };
        UnhealthyPod { node: node.into(), owner: owner.into(), part, state }
    }

    fn failing(node: &str, part: Part, class: Class) -> UnhealthyPod {
        seen(node, part, State::Failing(Cause::of(class, "plugin-validation")))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn waiting(node: &str, container: &str) -> UnhealthyPod {
        seen(node, Part::Validator, State::Waiting { container: container.into(), since: Some(at(0)) })
    }

    fn told(seen: &[UnhealthyPod], second: i64) -> (Vec<String>, Option<u64>) {
        let diagnoses = diagnose(seen, at(second), |_| "6.8.0".into(), |node| node == "offers");
        let titles = diagnoses.list.into_iter().map(|diagnosis| diagnosis.title).collect();
        (titles, diagnoses.again.map(|again| again.as_secs()))
    }

    #[test]
    fn one_cause_on_many_nodes_is_told_once() {
        let pods: Vec<UnhealthyPod> =
            (0..4).map(|node| failing(&format!("gpu-{node}"), Part::Driver, Class::Headers)).collect();
        let what = "the headers of kernel 6.8.0 cannot be had, so the driver cannot be built";
        assert_eq!(told(&pods, 0).0, [format!("{what}: 4 nodes, such as gpu-0, gpu-1, gpu-2")]);
        assert_eq!(told(&pods[..1], 0).0, [format!("node gpu-0: {what}")]);
        let names: Vec<String> = (100..334).map(|node| format!("gpu-{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(title("it fails", &names), "it fails: at least 200 nodes, such as gpu-100, gpu-101, gpu-102");
    }

    #[test]
    fn what_follows_from_a_driver_that_fails_is_not_told() {
        let pods = [failing("a", Part::Driver, Class::Nouveau), waiting("a", "driver-validation")];
        let (titles, again) = told(&pods, 10_000);
        assert_eq!((titles.len(), again), (1, None));
    }

    #[test]
    fn a_wait_is_told_when_it_is_too_long_and_looked_at_then() {
        let pods = [waiting("a", "toolkit-validation")];
        assert_eq!(told(&pods, 100), (Vec::new(), Some(200)));
        let stuck = "node a: stuck at toolkit-validation, which waits for the container toolkit";
        assert_eq!(told(&pods, 300), (vec![stuck.to_owned()], None));
    }

    #[test]
    fn a_driver_that_is_being_built_may_take_its_time() {
        let building = seen("a", Part::Driver, State::Starting { since: Some(at(0)) });
        let pods = [building, waiting("a", "driver-validation")];
        assert_eq!(told(&pods, 600), (Vec::new(), Some(600)));
        assert_eq!(told(&pods, 1200).0, ["node a: stuck at driver-validation, which waits for the driver"]);
    }

    #[test]
    fn a_check_of_the_plugin_on_a_node_without_gpus_names_the_plugin() {
        let absent = "node a: the device plugin does not run, so no GPUs are offered";
        assert_eq!(told(&[waiting("a", "plugin-validation")], 300).0, [absent]);
        assert_eq!(told(&[failing("a", Part::Validator, Class::Crashes)], 0).0, [absent]);
        let stuck = "node offers: stuck at plugin-validation, which waits for the device plugin";
        assert_eq!(told(&[waiting("offers", "plugin-validation")], 300).0, [stuck]);
    }

    #[test]
    fn conditions_name_some_causes_and_count_the_rest() {
        let classes =
            [Class::Headers, Class::Nouveau, Class::SecureBoot, Class::InUse, Class::Kernel, Class::DriverCrashes];
        let pods: Vec<UnhealthyPod> = classes.iter().map(|class| failing("a", Part::Driver, *class)).collect();
        let diagnoses = diagnose(&pods, at(0), |_| String::new(), |_| false);
        let text = diagnoses.add_to("1 of 2 nodes".into(), &["drivers"]);
        assert!(text.starts_with("1 of 2 nodes; node a: ") && text.ends_with("; and 1 more causes"), "{text}");
        assert_eq!(diagnoses.add_to("1 of 2 nodes".into(), &["others"]), "1 of 2 nodes");
    }
}
