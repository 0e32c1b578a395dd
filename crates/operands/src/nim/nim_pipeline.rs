//! NIMPipeline: a group of services.
//!
//! Each enabled service of the pipeline is a NIMService; its controller does the rest.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::nim::pipeline::{PipelineService, ServiceDependency};
use capstan_api::nim::{NimPipeline, NimPipelineStatus, NimService};
use capstan_plan::kit::{env, merge_env};
use capstan_plan::{Facts, Object, Plan};
use kube::{Resource, ResourceExt};

use super::status_report::{About, StatusReport};

const READY: &str = "Ready";
const NOT_READY: &str = "NotReady";
const FAILED: &str = "Failed";

/// Plans a pipeline.
pub fn plan(pipeline: &NimPipeline, facts: &Facts) -> Plan<NimPipelineStatus> {
    let faults = faults(pipeline);
    if !faults.is_empty() {
        return blocked(pipeline, facts, "InvalidSpec", &faults.join("; "));
    }
    let objects = enabled(pipeline).map(|service| object(pipeline, service)).collect();
    let states: BTreeMap<String, String> =
        enabled(pipeline).map(|service| (name(service).to_owned(), state(pipeline, facts, name(service)))).collect();
    let with = |state: &str| states.iter().filter(|(_, is)| *is == state).map(|(name, _)| name.as_str()).collect();
    let (failed, ready): (Vec<&str>, Vec<&str>) = (with(FAILED), with(READY));
    let counts = format!("{} of {} services are ready", ready.len(), states.len());
    let report = if !failed.is_empty() {
        let message = format!("failed: {}; see the conditions of these NIMServices", failed.join(", "));
        StatusReport::new(FAILED).with(READY, false, FAILED, counts).problem(FAILED, "ServiceFailed", message)
    } else if ready.len() == states.len() {
        StatusReport::new(READY).with(FAILED, false, READY, "").with(READY, true, READY, counts)
    } else {
        let waiting: Vec<&str> = states.keys().map(String::as_str).filter(|name| !ready.contains(name)).collect();
        let message = format!("{counts}, waiting for {}", waiting.join(", "));
        StatusReport::new(NOT_READY).with(FAILED, false, "Progressing", "").with(READY, false, NOT_READY, message)
    };
    Plan { objects: Some(objects), ..show(pipeline, facts, &report, states) }
}

/// The plan while blocked: no objects are written.
pub fn blocked(pipeline: &NimPipeline, facts: &Facts, reason: &str, message: &str) -> Plan<NimPipelineStatus> {
    let report = StatusReport::new(FAILED).with(READY, false, reason, message).problem(FAILED, reason, message);
    let states = pipeline.status.as_ref().and_then(|status| status.states.clone()).unwrap_or_default();
    show(pipeline, facts, &report, states)
}

/// Validates a pipeline for admission.
pub fn check(pipeline: &NimPipeline, facts: &Facts) -> Vec<String> {
    let mut faults = faults(pipeline);
    for (index, service) in services(pipeline).iter().enumerate() {
        let Some(spec) = service.spec.clone() else { continue };
        let service = NimService::new(service.name.as_deref().unwrap_or_default(), spec);
        let errors = super::nim_service::check(&service, None, facts).errors;
        faults.extend(errors.into_iter().map(|error| format!("spec.services[{index}].{error}")));
    }
    faults
}

fn services(pipeline: &NimPipeline) -> &[PipelineService] {
    pipeline.spec.services.as_deref().unwrap_or_default()
}

fn enabled(pipeline: &NimPipeline) -> impl Iterator<Item = &PipelineService> {
    services(pipeline).iter().filter(|service| service.enabled == Some(true))
}

fn name(service: &PipelineService) -> &str {
    service.name.as_deref().unwrap_or_default()
}

fn faults(pipeline: &NimPipeline) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, service) in services(pipeline).iter().enumerate() {
        let field = format!("spec.services[{index}]");
        let name = name(service);
        if name.is_empty() {
            faults.push(format!("{field}.name is empty: give the service a name"));
        } else if !seen.insert(name) {
            faults.push(format!("{field}.name is {name:?}, as in an earlier entry: give each service its own name"));
        }
        if service.spec.is_none() && service.enabled == Some(true) {
            faults.push(format!("{field}.spec is absent: say what to serve, or set enabled: false"));
        }
        for (nth, dependency) in service.dependencies.iter().flatten().enumerate() {
            let value = dependency.env_value.as_deref().unwrap_or_default();
            if !value.is_empty() && dependency.env_name.as_deref().unwrap_or_default().is_empty() {
                faults.push(format!(
                    "{field}.dependencies[{nth}].envValue is {value:?} without envName: name the variable"
                ));
            }
        }
    }
    faults
}

/// The NIMService of one entry, with the addresses of what it depends on in its environment.
fn object(pipeline: &NimPipeline, service: &PipelineService) -> Object {
    let mut spec = service.spec.clone().unwrap_or_default();
    let addresses: Vec<_> = service.dependencies.iter().flatten().filter_map(address).collect();
    if !addresses.is_empty() {
        spec.env = Some(merge_env(spec.env.unwrap_or_default(), addresses));
    }
    let mut child = NimService::new(name(service), spec);
    child.metadata.namespace = pipeline.namespace();
    child.metadata.labels = pipeline.metadata.labels.clone();
    let object = Object::new(&child);
    match pipeline.controller_owner_ref(&()) {
        Some(owner) => object.owned_by(&owner),
        None => object,
    }
}

/// The environment variable with the address of a dependency: the user's, or from name and port.
fn address(dependency: &ServiceDependency) -> Option<k8s_openapi::api::core::v1::EnvVar> {
    let variable = dependency.env_name.as_deref().filter(|name| !name.is_empty())?;
    let value = dependency.env_value.clone().filter(|value| !value.is_empty());
    Some(env(variable, value.unwrap_or_else(|| format!("http://{}:{}", dependency.name, dependency.port))))
}

/// The state of the NIMService, if the pipeline owns it.
fn state(pipeline: &NimPipeline, facts: &Facts, name: &str) -> String {
    let live: Option<NimService> = facts.live.typed(&pipeline.namespace().unwrap_or_default(), name);
    let uid = pipeline.uid().unwrap_or_default();
    let ours = |service: &NimService| service.owner_references().iter().any(|owner| owner.uid == uid);
    let state = live.filter(ours).and_then(|service| service.status).and_then(|status| status.state);
    state.filter(|state| !state.is_empty()).unwrap_or_else(|| NOT_READY.into())
}

fn show(
    pipeline: &NimPipeline,
    facts: &Facts,
    report: &StatusReport,
    states: BTreeMap<String, String>,
) -> Plan<NimPipelineStatus> {
    let mut status = pipeline.status.clone().unwrap_or_default();
    let list = status.conditions.get_or_insert_default();
    let about = About { kind: "NIMPipeline", spec: &pipeline.spec, generation: pipeline.metadata.generation, facts };
    let note = report.apply(status.state.as_deref(), list, &about);
    status.state = Some(report.state.into());
    status.states = Some(states).filter(|states| !states.is_empty());
    Plan {
        objects: None,
        status,
        events: note.into_iter().collect(),
        requeue: None,
        queries: Vec::new(),
        transient: false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_plan::{LiveObjects, Ref, diff};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn pipeline(services: Value) -> NimPipeline {
        let object = json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMPipeline",
            "metadata": {"name": "rag", "namespace": "nim", "uid": "u-rag", "labels": {"team": "a"}},
            "spec": {"services": services},
        });
        serde_json::from_value(object).unwrap()
    }

    fn spec() -> Value {
        json!({"image": {"repository": "r", "tag": "t"}, "storage": {"emptyDir": {}}, "env": [{"name": "A", "value": "1"}]})
    }

    /// Name, owner and state of a live service.
    type Service = (&'static str, &'static str, &'static str);

    fn facts(states: &[Service]) -> Facts {
        let mut live = LiveObjects::default();
        for (name, owner, state) in states {
            let object = json!({
                "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService",
                "metadata": {"name": name, "namespace": "nim", "uid": format!("u-{name}"), "ownerReferences": [{
                    "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMPipeline", "name": "rag", "uid": owner,
                    "controller": true,
                }]},
                "spec": spec(), "status": {"state": state},
            });
            live.insert(Ref::of::<NimService>("nim", name), Arc::new(object));
        }
        Facts { live, ..Facts::at(Timestamp::from_second(1_800_000_000).unwrap()) }
    }

    fn names(plan: &Plan<NimPipelineStatus>) -> Vec<String> {
        plan.objects.iter().flatten().map(|object| object.reference.name.clone()).collect()
    }

    #[test]
    fn only_enabled_services_are_made() {
        let pipeline = pipeline(json!([
            {"name": "llm", "enabled": true, "spec": spec()},
            {"name": "rerank", "enabled": false, "spec": spec()},
            {"name": "embed", "spec": spec()},
        ]));
        assert_eq!(names(&plan(&pipeline, &facts(&[]))), ["llm"]);
    }

    #[test]
    fn a_service_that_is_disabled_later_is_deleted() {
        let pipeline = pipeline(json!([{"name": "llm", "enabled": false, "spec": spec()}]));
        let facts = facts(&[("llm", "u-rag", "Ready")]);
        let plan = plan(&pipeline, &facts);
        let diff = diff("u-rag", plan.objects.as_deref().unwrap(), &facts.live);
        assert_eq!(diff.delete.iter().map(|deletion| deletion.reference.name.as_str()).collect::<Vec<_>>(), ["llm"]);
    }

    #[test]
    fn a_service_that_is_enabled_later_is_made() {
        let two = |second: bool| json!([{"name": "llm", "enabled": true, "spec": spec()}, {"name": "embed", "enabled": second, "spec": spec()}]);
        let facts = facts(&[("llm", "u-rag", "Ready")]);
        let made = |second: bool| {
            let plan = plan(&pipeline(two(second)), &facts);
            let diff = diff("u-rag", plan.objects.as_deref().unwrap(), &facts.live);
            diff.apply.iter().any(|write| write.object.reference.name == "embed")
        };
        assert_eq!((made(false), made(true)), (false, true));
    }

    #[test]
    fn an_edit_of_the_pipeline_reaches_the_service() {
        let mut changed = spec();
        changed["replicas"] = 3.into();
        let pipeline = pipeline(json!([{"name": "llm", "enabled": true, "spec": changed}]));
        let facts = facts(&[("llm", "u-rag", "Ready")]);
        let plan = plan(&pipeline, &facts);
        let diff = diff("u-rag", plan.objects.as_deref().unwrap(), &facts.live);
        assert_eq!(diff.apply[0].object.body["spec"]["replicas"], 3);
    }

    #[test]
    fn dependencies_are_in_the_environment() {
        let pipeline = pipeline(json!([{"name": "llm", "enabled": true, "spec": spec(), "dependencies": [
            {"name": "embed", "port": 8000, "envName": "EMBED", "envValue": "embed.other:80"},
            {"name": "rerank", "port": 8001, "envName": "RERANK"},
            {"name": "silent", "port": 8002},
        ]}]));
        let plan = plan(&pipeline, &facts(&[]));
        let object = &plan.objects.as_ref().unwrap()[0].body;
        let expected = json!([
            {"name": "EMBED", "value": "embed.other:80"},
            {"name": "RERANK", "value": "http://rerank:8001"},
            {"name": "A", "value": "1"},
        ]);
        assert_eq!(object["spec"]["env"], expected);
        assert_eq!(object["metadata"]["labels"], json!({"team": "a"}));
    }

    #[test]
    fn the_state_is_that_of_the_services() {
        let two =
            json!([{"name": "a", "enabled": true, "spec": spec()}, {"name": "b", "enabled": true, "spec": spec()}]);
        let cases: [(&[Service], &str, &str); 5] = [
            (&[("a", "u-rag", "Ready"), ("b", "u-rag", "Ready")], "Ready", "2 of 2 services are ready"),
            (&[("a", "u-rag", "Ready")], "NotReady", "1 of 2 services are ready, waiting for b"),
            (&[("a", "u-rag", "Ready"), ("b", "u-rag", "")], "NotReady", "1 of 2 services are ready, waiting for b"),
            (&[("a", "u-rag", "Ready"), ("b", "u-rag", "Failed")], "Failed", "1 of 2 services are ready"),
            (
                &[("a", "u-rag", "Ready"), ("b", "other", "Ready")],
                "NotReady",
                "1 of 2 services are ready, waiting for b",
            ),
        ];
        for (states, state, message) in cases {
            let plan = plan(&pipeline(two.clone()), &facts(states));
            assert_eq!(plan.status.state.as_deref(), Some(state));
            let conditions = plan.status.conditions.unwrap();
            let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
            assert_eq!(ready.message, message);
        }
        assert_eq!(plan(&pipeline(json!([])), &facts(&[])).status.state.as_deref(), Some("Ready"));
    }

    #[test]
    fn mistakes_name_field_value_and_fix_and_stop_everything() {
        let pipeline = pipeline(json!([
            {"name": "llm", "enabled": true, "spec": spec()},
            {"name": "llm", "enabled": true},
            {"enabled": false, "dependencies": [{"name": "x", "port": 1, "envValue": "v"}]},
        ]));
        let plan = plan(&pipeline, &facts(&[]));
        assert!(plan.objects.is_none());
        let conditions = plan.status.conditions.unwrap();
        let failed = conditions.iter().find(|condition| condition.type_ == "Failed").unwrap();
        assert_eq!(
            failed.message,
            "spec.services[1].name is \"llm\", as in an earlier entry: give each service its own name; \
             spec.services[1].spec is absent: say what to serve, or set enabled: false; \
             spec.services[2].name is empty: give the service a name; \
             spec.services[2].dependencies[0].envValue is \"v\" without envName: name the variable"
        );
    }

    #[test]
    fn mistakes_of_a_service_are_refused_with_their_place_in_the_pipeline() {
        let mut bad = spec();
        bad["image"]["tag"] = "".into();
        let pipeline = pipeline(
            json!([{"name": "a", "enabled": true, "spec": spec()}, {"name": "b", "enabled": false, "spec": bad}]),
        );
        let errors = check(&pipeline, &facts(&[]));
        assert!(errors.len() == 1 && errors[0].starts_with("spec.services[1].spec.image.tag is empty"), "{errors:?}");
    }

    #[test]
    fn an_event_is_told_once_per_change() {
        let mut pipeline = pipeline(json!([{"name": "a", "enabled": true, "spec": spec()}]));
        let facts = facts(&[("a", "u-rag", "Ready")]);
        let first = plan(&pipeline, &facts);
        assert_eq!(first.events.len(), 1);
        pipeline.status = Some(first.status);
        assert_eq!(plan(&pipeline, &facts).events, []);
    }
}
