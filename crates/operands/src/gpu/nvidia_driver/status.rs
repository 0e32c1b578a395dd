//! Status of an NVIDIADriver.

use capstan_api::gpu::driver_parts::KernelModuleType;
use capstan_api::gpu::nvidia_driver::{NvidiaDriverState, NvidiaDriverStatus};
use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Note, Object, Plan, Severity, is_current};

use super::{Driver, Operand};
use crate::causes;
use crate::common_conditions;
use crate::gpu::components::Outcome;
use crate::gpu::{kernels, upgrade};

/// The plan for a driver that is not active or invalid, with the reason.
pub(super) fn refused(one: &Driver<'_>) -> Option<Plan<NvidiaDriverStatus>> {
    let spec = &one.driver.spec;
    if one.context.disabled {
        let message = "useNvidiaDriverCRD is not enabled in ClusterPolicy";
        return Some(show(one, NvidiaDriverState::Disabled, Err(("Reconciled", message.into()))));
    }
    if let Some((reason, message)) = &one.context.refusal {
        return Some(failed(one, reason, message));
    }
    let on = |sidecar: &Option<capstan_api::gpu::driver_parts::DriverSidecar>| {
        sidecar.as_ref().is_some_and(|sidecar| sidecar.enabled == Some(true))
    };
    if spec.use_precompiled == Some(true) && (on(&spec.gds) || on(&spec.gdrcopy)) {
        let message = "GPUDirect Storage driver (nvidia-fs) and/or GDRCopy driver is not supported along with \
                       pre-compiled NVIDIA drivers";
        return Some(failed(one, "ReconcileFailed", message));
    }
    let version = spec.gds.as_ref().and_then(|gds| gds.image.version.as_deref()).unwrap_or_default();
    if on(&spec.gds) && needs_open_modules(version) && spec.kernel_module_type != Some(KernelModuleType::Open) {
        let message = format!(
            "spec.gds.version is {version:?}, which needs open kernel modules: set spec.kernelModuleType to open"
        );
        return Some(failed(one, "ReconcileFailed", &message));
    }
    image_fault(one).map(|fault| failed(one, "ReconcileFailed", &fault))
}

/// GPUDirect Storage needs open kernel modules from 2.17.5 on; a digest may be any version.
fn needs_open_modules(version: &str) -> bool {
    if version.starts_with("sha256:") {
        return true;
    }
    let numbers: Vec<u32> =
        version.trim_start_matches('v').split(['.', '-']).take(3).map_while(|part| part.parse().ok()).collect();
    numbers.len() == 3 && numbers >= vec![2, 17, 5]
}

/// An invalid image reference.
fn image_fault(one: &Driver<'_>) -> Option<String> {
    let spec = &one.driver.spec;
    let sidecars = [("spec.gds", &spec.gds), ("spec.gdrcopy", &spec.gdrcopy)].into_iter().filter_map(|(field, one)| {
        let one = one.as_ref().filter(|one| one.enabled == Some(true))?;
        Some((field, &one.image.repository, one.image.image.as_deref()?, &one.image.version))
    });
    let driver = ("spec", &spec.repository, spec.image.as_str(), &spec.version);
    for (field, repository, image, version) in std::iter::once(driver).chain(sidecars) {
        let set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let name = image.rsplit('/').next().unwrap_or_default();
        let whole = !set(repository) && !set(version) && (field == "spec" || !image.is_empty());
        if whole && !name.contains(':') && !name.contains('@') {
            return Some(format!(
                "{field}.image is {image:?}, without a tag: give {field}.repository, {field}.image and {field}.version, or \
                 a whole reference"
            ));
        }
    }
    let digest = spec.image.contains("sha256:") || spec.version.as_deref().is_some_and(|v| v.starts_with("sha256:"));
    (spec.use_precompiled == Some(true) && digest).then(|| {
        "Error syncing state state-driver: failed to create k8s objects from manifests: failed to construct driver spec: \
         failed to get driver image path: specifying image digest is not supported when precompiled is enabled"
            .into()
    })
}

/// The plan while blocked.
pub(super) fn failed(one: &Driver<'_>, reason: &str, message: &str) -> Plan<NvidiaDriverStatus> {
    show(one, NvidiaDriverState::NotReady, Err((reason, message.into())))
}

/// The plan from the live objects.
pub(super) fn observed(one: &Driver<'_>, parts: &[(&Operand, Outcome<Vec<Object>>)]) -> Plan<NvidiaDriverStatus> {
    let error = parts.iter().find_map(|(operand, part)| Some((operand.name, part.as_ref().err()?)));
    if let Some((name, error)) = error {
        return failed(one, "ReconcileFailed", &format!("Error syncing state {name}: {error}"));
    }
    let live = &one.cx.facts.live;
    let mut objects = parts.iter().filter_map(|(_, part)| part.as_ref().ok()).flatten();
    let waits = objects.any(|object| {
        let there = live.get(&object.reference);
        let status = |field: &str| there.and_then(|there| there["status"][field].as_i64()).unwrap_or_default();
        let generation = there.and_then(|there| there["metadata"]["generation"].as_i64()).unwrap_or(1);
        let desired = status("desiredNumberScheduled");
        !is_current(object, live)
            || object.reference.gvk.kind == "DaemonSet"
                && (status("observedGeneration") < generation
                    || status("updatedNumberScheduled") < desired
                    || status("numberAvailable") < desired)
    });
    if waits {
        let owners: Vec<&str> = live.iter().filter_map(|(_, there)| there["metadata"]["uid"].as_str()).collect();
        let message = one.cx.cluster.diagnoses.add_to("Waiting for driver pod to be ready".into(), &owners);
        return show(one, NvidiaDriverState::NotReady, Err(("DriverNotReady", message)));
    }
    show(one, NvidiaDriverState::Ready, Ok(("Reconciled", "All resources have been successfully reconciled")))
}

fn show(
    one: &Driver<'_>,
    state: NvidiaDriverState,
    verdict: Result<(&str, &str), (&str, String)>,
) -> Plan<NvidiaDriverStatus> {
    let before = one.driver.status.clone();
    let old = before.as_ref().and_then(|status| status.conditions.clone());
    let mut list = old.clone().unwrap_or_default();
    let previous_error = list.iter().find(|one| one.type_ == "Error").map(|one| one.message.clone());
    let (generation, now) = (one.driver.metadata.generation, one.cx.facts.now);
    let (ready, error) = match &verdict {
        Ok((reason, message)) => ((true, *reason, *message), (false, "Ready", "")),
        Err((reason, message)) => ((false, "Error", ""), (true, *reason, message.as_str())),
    };
    for (type_, (status, reason, message)) in [("Ready", ready), ("Error", error)] {
        conditions::set(&mut list, Wanted { type_, status, reason, message }, generation, now);
    }
    let name = one.driver.metadata.name.as_deref().unwrap_or_default();
    kernels::show(&mut list, &one.cx.cluster.unsupported, &one.cx.facts.live, generation, now);
    let upgrade = upgrade::show(&mut list, one.cx.cluster.upgrade(name), generation, now);
    let causes = causes::new_events(&one.cx.cluster.diagnoses, &one.cx.facts.live, old.as_ref(), &list);
    common_conditions::set_common(&mut list, "NVIDIADriver", &one.driver.spec, one.cx.facts, generation);
    let event = match &verdict {
        Ok((_, message)) if before.is_none_or(|status| status.state != state) => {
            Some(Note { severity: Severity::Normal, reason: "Reconciled", message: (*message).into() })
        }
        Err((reason, message)) if *reason != "DriverNotReady" && previous_error.as_deref() != Some(message) => {
            Some(Note { severity: Severity::Warning, reason: "ReconcileFailed", message: message.clone() })
        }
        _ => None,
    };
    let transient = upgrade::is_under_way(&list);
    Plan {
        objects: None,
        status: NvidiaDriverStatus { state, namespace: Some(one.cx.cluster.namespace.clone()), conditions: Some(list) },
        events: event.into_iter().chain(upgrade).chain(causes).collect(),
        requeue: one.cx.cluster.diagnoses.again,
        queries: Vec::new(),
        transient,
    }
}
