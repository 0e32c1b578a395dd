//! Derives the failure cause of a pod from its status only.

use capstan_plan::Tree;
use jiff::Timestamp;

use super::{Cause, Class, words};

/// Label of driver pods whose driver was compiled for one kernel: `true`.
const PRECOMPILED: &str = "nvidia.com/precompiled";

/// The component of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The driver.
    Driver,
    /// The validator.
    Validator,
}

/// An unhealthy pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnhealthyPod {
    /// The node.
    pub node: String,
    /// UID of its DaemonSet.
    pub owner: String,
    /// Its component.
    pub part: Part,
    /// Its state.
    pub state: State,
}

/// The state of an unhealthy pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It fails.
    Failing(Cause),
    /// An init container is still running.
    Waiting {
        /// The init container.
        container: String,
        /// Since when.
        since: Option<Timestamp>,
    },
    /// It is not ready yet.
    Starting {
        /// Its creation time.
        since: Option<Timestamp>,
    },
}

impl UnhealthyPod {
    /// The state of a cached pod; `None` if it is healthy, unscheduled or terminating.
    pub fn of<T: Tree>(pod: &T, part: Part) -> Option<Self> {
        let (meta, status) = (pod.at("metadata"), pod.at("status"));
        let node = pod.at("spec").at("nodeName").text().filter(|node| !node.is_empty())?;
        let main = status.at("containerStatuses").items();
        let well =
            status.at("phase").says("Running") && !main.is_empty() && main.iter().all(|one| one.at("ready").is_true());
        if well || meta.at("deletionTimestamp").text().is_some() {
            return None;
        }
        let owner = meta.at("ownerReferences").items().first().and_then(|one| one.at("uid").text());
        let state = match (cause(pod, part), waiting(pod)) {
            (Some(cause), _) => State::Failing(cause),
            (None, Some(state)) if part == Part::Validator => state,
            _ => State::Starting { since: time(meta.at("creationTimestamp")) },
        };
        Some(Self { node: node.into(), owner: owner.unwrap_or_default().into(), part, state })
    }

    /// The cause, if it fails.
    pub fn failing(&self) -> Option<&Cause> {
        match &self.state {
            State::Failing(cause) => Some(cause),
            _ => None,
        }
    }
}

/// Init containers first.
fn containers<T: Tree>(pod: &T) -> impl Iterator<Item = &T> {
    let status = pod.at("status");
    status.at("initContainerStatuses").items().iter().chain(status.at("containerStatuses").items())
}

/// The last failure of a container that has not recovered: exit code and terminated state.
fn failure<T: Tree>(container: &T) -> Option<(u64, &T)> {
    let ends = ["state", "lastState"].map(|state| container.at(state).at("terminated"));
    let (code, end) = ends.into_iter().find_map(|end| Some((end.at("exitCode").count()?, end)))?;
    (code != 0 && !container.at("ready").is_true()).then_some((code, end))
}

fn name<T: Tree>(container: &T) -> &str {
    container.at("name").text().unwrap_or_default()
}

/// Image pull or runtime handler errors of a pod.
pub fn unstarted<T: Tree>(pod: &T) -> Option<Cause> {
    let text = |one: &T, field: &str| one.at("state").at("waiting").at(field).text().unwrap_or_default().to_owned();
    containers(pod).find_map(|one| {
        let (reason, message) = (text(one, "reason"), text(one, "message"));
        if words::UNPULLED.contains(&reason.as_str()) {
            let class = if words::is_refused(&message) { Class::RegistrySecret } else { Class::ImagePull };
            return Some(Cause::of(class, one.at("image").text().unwrap_or_default()));
        }
        words::handler(&message).map(|handler| Cause::of(Class::RuntimeHandler, handler))
    })
}

/// The failure cause of a pod, if it fails.
fn cause<T: Tree>(pod: &T, part: Part) -> Option<Cause> {
    if let Some(cause) = unstarted(pod) {
        let compiled = part == Part::Driver && pod.at("metadata").at("labels").at(PRECOMPILED).says("true");
        let absent = compiled && cause.class == Class::ImagePull;
        return Some(if absent { Cause::of(Class::NoPrecompiled, "") } else { cause });
    }
    let failing = || containers(pod).filter_map(|one| Some((one, failure(one)?)));
    let matches_any = |patterns: &[&str]| {
        let mut messages = failing().filter_map(|(_, (_, end))| end.at("message").text());
        messages.any(|message| words::says(message, patterns))
    };
    let known = match part {
        Part::Driver => words::DRIVER.iter().find(|(_, patterns)| matches_any(patterns)).map(|(class, _)| *class),
        Part::Validator if matches_any(words::NOT_LOADED) => Some(Class::NotLoaded),
        Part::Validator if matches_any(words::FABRIC) => Some(Class::FabricManager),
        Part::Validator => None,
    };
    let (container, (code, end)) = failing().next()?;
    let class = match part {
        _ if known.is_some() => return known.map(|class| Cause::of(class, "")),
        Part::Driver => Class::DriverCrashes,
        Part::Validator if end.at("reason").says("OOMKilled") => Class::OutOfMemory,
        Part::Validator => Class::Crashes,
    };
    Some(Cause::crash(class, name(container), if part == Part::Driver { 0 } else { code }))
}

/// The init container that is running.
fn waiting<T: Tree>(pod: &T) -> Option<State> {
    let init = pod.at("status").at("initContainerStatuses").items();
    init.iter().find_map(|one| {
        let since = one.at("state").at("running").at("startedAt");
        since.text()?;
        Some(State::Waiting { container: name(one).into(), since: time(since) })
    })
}

fn time<T: Tree>(value: &T) -> Option<Timestamp> {
    value.text()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(container: &str, state: Value, last: Value) -> Value {
        let status = json!({"name": container, "image": "r.io/a:1", "ready": false, "state": state, "lastState": last});
        json!({
            "metadata": {"labels": {}, "ownerReferences": [{"uid": "set"}], "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "gpu-1"},
            "status": {"phase": "Pending", "initContainerStatuses": [status], "containerStatuses": [{"ready": false}]},
        })
    }

    fn ended(message: &str) -> Value {
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}});
        pod("c", waiting, json!({"terminated": {"exitCode": 1, "message": message}}))
    }

    fn told(pod: &Value, part: Part) -> String {
        let seen = UnhealthyPod::of(pod, part).unwrap();
        assert_eq!((seen.node.as_str(), seen.owner.as_str()), ("gpu-1", "set"));
        seen.failing().map(|cause| cause.what("6.8.0")).unwrap_or_default()
    }

    #[test]
    fn the_last_words_of_a_driver_name_the_cause() {
        for (line, what) in [
            ("Could not resolve Linux kernel version", "the headers of kernel 6.8.0 cannot be had"),
            ("modprobe: Required key not available\nUnable to build the NVIDIA kernel module", "Secure Boot rejects"),
            ("nobody knows this", "the driver fails in container c"),
        ] {
            let told = told(&ended(&format!("starting\n{line}\n")), Part::Driver);
            assert!(told.starts_with(what), "{line}: {told}");
        }
    }

    #[test]
    fn a_check_that_fails_names_the_cause_or_itself() {
        for (line, what) in [
            (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
                "the driver is installed",
            ),
            ("error code system not yet initialized", "fabric manager does not run"),
            ("nobody knows this", "container c fails with exit code 1"),
        ] {
            let told = told(&ended(line), Part::Validator);
            assert!(told.starts_with(what), "{line}: {told}");
        }
    }

    #[test]
    fn what_is_never_started_says_why() {
        let waits = |reason: &str, message: &str| {
            pod("c", json!({"waiting": {"reason": reason, "message": message}}), Value::Null)
        };
        let missing = waits("ImagePullBackOff", "r.io/a:1: not found");
        assert_eq!(told(&missing, Part::Validator), "image r.io/a:1 cannot be pulled");
        let refused = waits("ErrImagePull", "unexpected status: 401 Unauthorized");
        assert!(told(&refused, Part::Driver).starts_with("the registry r.io refuses image r.io/a:1"));
        let handler = waits("CreateContainerError", "no runtime for \"nvidia\" is configured");
        assert_eq!(told(&handler, Part::Validator), "the container runtime has no handler \"nvidia\"");
        let mut compiled = missing;
        compiled["metadata"]["labels"][PRECOMPILED] = "true".into();
        assert_eq!(told(&compiled, Part::Driver), "there is no precompiled driver for kernel 6.8.0");
    }

    #[test]
    fn who_waits_or_starts_fails_not_and_who_is_well_is_not_seen() {
        let waits = pod("driver-validation", json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}), Value::Null);
        let since = "2026-01-01T00:00:00Z".parse().ok();
        let waiting = State::Waiting { container: "driver-validation".into(), since };
        assert_eq!(UnhealthyPod::of(&waits, Part::Validator).unwrap().state, waiting);
        assert_eq!(UnhealthyPod::of(&waits, Part::Driver).unwrap().state, State::Starting { since });
        let mut well = waits;
        well["status"] = json!({"phase": "Running", "containerStatuses": [{"ready": true}]});
        assert_eq!(UnhealthyPod::of(&well, Part::Validator), None);
    }
}
