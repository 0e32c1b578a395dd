//! Behaviour of simulated containers: rules match by image, name or label, and set how long each step takes and how it
//! ends.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

use super::body::Body;
use crate::Pod;
use crate::informer::controller_of;

/// Behaviour of a container. Defaults: images are present, containers start at once, are ready when they run, and run
/// for ever; init containers succeed at once, and those of Jobs after a second.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// Time to pull an image that is not present.
    pub pull_time: Option<Duration>,
    /// The image pull fails.
    pub pull_failure: Option<PullFailure>,
    /// Time from the pulled image to a running container.
    pub start_time: Option<Duration>,
    /// The container start fails.
    pub start_failure: Option<StartFailure>,
    /// When the startup probe succeeds, after the start.
    pub started_after: Option<Duration>,
    /// When the readiness probe succeeds, after startup.
    pub ready_after: Option<Duration>,
    /// Whether it ever becomes ready.
    pub ready: Option<bool>,
    /// The liveness probe fails after this time, and the container is restarted.
    pub unhealthy_after: Option<Duration>,
    /// How it exits by itself.
    pub exit: Option<Exit>,
    /// Time from the stop signal to the exit.
    pub stop_time: Option<Duration>,
    /// Log lines at the start.
    pub log: Option<Vec<String>>,
    /// Responses to `exec` commands.
    pub commands: Vec<Command>,
    /// The code that it runs.
    pub body: Option<Body>,
}

/// An image pull that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// The registry's message; if empty, that of a missing image.
    pub message: String,
    /// Number of failures before it succeeds; `None` for ever.
    pub times: Option<u32>,
}

/// A container start that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// Reason, such as `CreateContainerError` or `RunContainerError`.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Number of failures before it succeeds; `None` for ever.
    pub times: Option<u32>,
}

/// How a container exits by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It runs for ever.
    Never,
    /// It exits after a time.
    After {
        /// Run time.
        time: Duration,
        /// Exit code.
        code: i32,
        /// Reason, such as `OOMKilled`; `Completed` or `Error` by default.
        reason: Option<String>,
        /// Number of runs that exit like this before one runs for ever; `None` for all.
        times: Option<u32>,
    },
}

impl Exit {
    /// Exits after `time` with a code.
    pub fn after(time: Duration, code: i32) -> Self {
        Self::After { time, code, reason: None, times: None }
    }
}

/// Response to an `exec` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command, its words joined with spaces; `*` matches anything.
    pub pattern: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code.
    pub code: i32,
}

impl Behaviour {
    /// Merges two behaviours: `other` fills the unset fields.
    fn over(self, other: &Self) -> Self {
        let mut commands = self.commands;
        commands.extend(other.commands.iter().cloned());
        Self {
            pull_time: self.pull_time.or(other.pull_time),
            pull_failure: self.pull_failure.or_else(|| other.pull_failure.clone()),
            start_time: self.start_time.or(other.start_time),
            start_failure: self.start_failure.or_else(|| other.start_failure.clone()),
            started_after: self.started_after.or(other.started_after),
            ready_after: self.ready_after.or(other.ready_after),
            ready: self.ready.or(other.ready),
            unhealthy_after: self.unhealthy_after.or(other.unhealthy_after),
            exit: self.exit.or_else(|| other.exit.clone()),
            stop_time: self.stop_time.or(other.stop_time),
            log: self.log.or_else(|| other.log.clone()),
            commands,
            body: self.body.or_else(|| other.body.clone()),
        }
    }
}

/// Selects containers: all given fields must match. In patterns, `*` matches anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Image.
    pub image: Option<String>,
    /// Name of the container.
    pub container: Option<String>,
    /// Name of the pod.
    pub pod: Option<String>,
    /// Namespace.
    pub namespace: Option<String>,
    /// Name of the node.
    pub node: Option<String>,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
}

impl Match {
    /// Containers with an image.
    pub fn image(pattern: &str) -> Self {
        Self { image: Some(pattern.to_owned()), ..Self::default() }
    }

    /// Containers with a name.
    pub fn container(pattern: &str) -> Self {
        Self { container: Some(pattern.to_owned()), ..Self::default() }
    }

    /// Containers of pods with a name.
    pub fn pod(namespace: &str, pattern: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), pod: Some(pattern.to_owned()), ..Self::default() }
    }

    /// Containers of pods with a label.
    pub fn label(key: &str, value: &str) -> Self {
        Self { labels: [(key.to_owned(), value.to_owned())].into(), ..Self::default() }
    }

    /// Only those on nodes with a name.
    pub fn on_node(self, pattern: &str) -> Self {
        Self { node: Some(pattern.to_owned()), ..self }
    }

    fn covers(&self, pod: &Pod, container: &Container) -> bool {
        let fits = |pattern: &Option<String>, text: Option<&str>| {
            pattern.as_deref().is_none_or(|pattern| glob(pattern, text.unwrap_or_default()))
        };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let label = |key: &String| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        fits(&self.image, container.image.as_deref())
            && fits(&self.container, Some(&container.name))
            && fits(&self.pod, pod.metadata.name.as_deref())
            && fits(&self.namespace, pod.metadata.namespace.as_deref())
            && fits(&self.node, node)
            && self.labels.iter().all(|(key, value)| label(key).is_some_and(|have| glob(value, have)))
    }
}

/// Whether a text matches a pattern in which `*` matches anything.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// Identifies a rule, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

/// Rules; later ones take precedence. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Arc<RwLock<Vec<(RuleId, Match, Behaviour)>>>,
}

impl Rules {
    /// Adds a rule. It applies from the next step of a container.
    pub fn add(&self, which: Match, behaviour: Behaviour) -> RuleId {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let id = RuleId(rules.last().map_or(1, |(RuleId(last), ..)| last + 1));
        rules.push((id, which, behaviour));
        id
    }

    /// Removes a rule.
    pub fn remove(&self, id: RuleId) {
        self.rules.write().unwrap_or_else(PoisonError::into_inner).retain(|(mine, ..)| *mine != id);
    }

    /// The merged behaviour of a container.
    pub fn behaviour(&self, pod: &Pod, container: &Container) -> Behaviour {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let matching = rules.iter().rev().filter(|(_, which, _)| which.covers(pod, container));
        matching.fold(Behaviour::default(), |all, (_, _, behaviour)| all.over(behaviour))
    }
}

/// Whether a pod is controlled by a Job.
pub(super) fn is_of_job(pod: &Pod) -> bool {
    controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "Job")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_match() {
        let cases = [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("nvcr.io/*", "nvcr.io/x:1", true),
            ("*driver*", "nvcr.io/nvidia/driver:580", true),
            ("*/driver:*-ubuntu", "nvcr.io/driver:580-ubuntu", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn later_rules_count_more_and_can_be_taken_back() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "img:1"}]},
        }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let (rules, second) = (Rules::default(), Duration::from_secs(1));
        rules.add(
            Match::image("img:*"),
            Behaviour { pull_time: Some(second), ready: Some(false), ..Default::default() },
        );
        let id = rules.add(Match::label("app", "web"), Behaviour { pull_time: Some(2 * second), ..Default::default() });
        rules.add(Match::label("app", "db"), Behaviour { pull_time: Some(3 * second), ..Default::default() });
        let behaviour = rules.behaviour(&pod, container);
        assert_eq!((behaviour.pull_time, behaviour.ready), (Some(2 * second), Some(false)));
        rules.remove(id);
        assert_eq!(rules.behaviour(&pod, container).pull_time, Some(second));
    }
}
