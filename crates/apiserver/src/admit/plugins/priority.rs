//! Priority: resolves the PriorityClass of pods.

use serde_json::Value;

use super::{Plugin, all, find, forbidden, is};
use crate::admit::json::{Fill, Read};
use crate::error::Result;
use crate::ops::{Operation, Request};

const GROUP: &str = "scheduling.k8s.io";
/// Built-in classes, in case their objects do not exist yet.
const SYSTEM: [(&str, i64); 2] = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Sets the priority of pods from their PriorityClass, and keeps the default class unique.
#[derive(Clone, Copy, Debug, Default)]
pub struct Priority;

impl Plugin for Priority {
    fn handles(&self, request: &Request) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update)
            && (is(request, "", "pods") || is(request, GROUP, "priorityclasses"))
    }

    fn mutate(&self, request: &Request, object: &mut Value) -> Result<()> {
        if !is(request, "", "pods") {
            return Ok(());
        }
        match &request.old {
            None => create(request, object),
            Some(old) => {
                // Both are immutable: an update from a client that does not know them must not clear them.
                let old = old["spec"].clone();
                if let Some(spec) = object.inner("spec") {
                    for key in ["priority", "preemptionPolicy"] {
                        if old.has(key) {
                            spec.fill(key, old[key].clone());
                        }
                    }
                }
                Ok(())
            }
        }
    }

    fn validate(&self, request: &Request, class: Option<&Value>) -> Result<()> {
        let Some(class) = class.filter(|class| class.flag("globalDefault") && is(request, GROUP, "priorityclasses"))
        else {
            return Ok(());
        };
        let name = class["metadata"].text("name");
        let other = all(request, GROUP, "priorityclasses").into_iter().find(|other| other.flag("globalDefault"));
        match other.as_ref().map(|other| other["metadata"].text("name")).filter(|other| *other != name) {
            Some(other) => {
                let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
                Err(forbidden(request, class, &why))
            }
            None => Ok(()),
        }
    }
}

/// A resolved PriorityClass.
struct Class {
    name: String,
    value: i64,
    preemption: String,
}

fn create(request: &Request, pod: &mut Value) -> Result<()> {
    let name = pod["spec"].text("priorityClassName").to_owned();
    let class = if name.is_empty() { default_class(request) } else { named(request, &name) };
    let Some(class) = class else {
        return Err(forbidden(request, pod, &format!("no PriorityClass with name {name} was found")));
    };
    let computed = "priority admission controller computed";
    if let Some(given) = pod["spec"].number("priority").filter(|given| *given != class.value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; {computed} {} from the given PriorityClass name",
            class.value
        );
        return Err(forbidden(request, pod, &why));
    }
    let given = pod["spec"].text("preemptionPolicy");
    if !given.is_empty() && given != class.preemption {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; {computed} {} from the given PriorityClass name",
            class.preemption
        );
        return Err(forbidden(request, pod, &why));
    }
    if let Some(spec) = pod.inner("spec") {
        if !class.name.is_empty() {
            spec.put("priorityClassName", class.name);
        }
        spec.put("priority", class.value);
        spec.put("preemptionPolicy", class.preemption);
    }
    Ok(())
}

fn read(class: &Value) -> Class {
    let preemption = match class.text("preemptionPolicy") {
        "" => "PreemptLowerPriority",
        policy => policy,
    };
    Class {
        name: class["metadata"].text("name").to_owned(),
        value: class.number("value").unwrap_or(0),
        preemption: preemption.to_owned(),
    }
}

fn named(request: &Request, name: &str) -> Option<Class> {
    if let Some(class) = find(request, GROUP, "priorityclasses", "", name) {
        return Some(read(&class.value()));
    }
    let (name, value) = SYSTEM.into_iter().find(|(system, _)| *system == name)?;
    Some(Class { name: name.into(), value, preemption: "PreemptLowerPriority".into() })
}

/// The default class with the lowest priority; without one, the priority is 0.
fn default_class(request: &Request) -> Option<Class> {
    let classes = all(request, GROUP, "priorityclasses");
    let lowest = classes.iter().filter(|class| class.flag("globalDefault")).min_by_key(|class| class.number("value"));
    Some(lowest.map_or_else(|| read(&Value::Null), read))
}
