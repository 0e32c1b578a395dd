//! What users ask for, and who may offer it: device classes, and the policy that keeps each node to its own slices.

use capstan_plan::Object;
use k8s_openapi::api::resource::v1::DeviceClass;
use serde_json::json;

use super::Dra;
use crate::gpu::components::Cx;
use crate::gpu::components::access::{HERE, admission, meta, written_by};

/// Class of whole GPUs.
pub(super) const GPU: &str = crate::gpu::nodes::claims::DRIVER;
const DOMAIN: &str = "compute-domain.nvidia.com";
const POLICY: &str = "resourceslices-policy-nvidia-dra-driver";

/// Every class: its name, the driver, and what the device is.
pub(super) fn classes(dra: &Dra<'_>) -> Vec<Object> {
    let cx = dra.cx();
    let class = |name: &str, driver: &str, type_: &str, more: &str| {
        let expression =
            format!("device.driver == '{driver}' && device.attributes['{driver}'].type == '{type_}'{more}");
        let spec = serde_json::from_value(json!({"selectors": [{"cel": {"expression": expression}}]}));
        Object::new(&DeviceClass {
            metadata: meta(&cx, name, false),
            spec: Some(spec.expect("the class is written here")),
        })
    };
    let mut classes = vec![
        class(GPU, GPU, "gpu", ""),
        class("mig.nvidia.com", GPU, "mig", ""),
        class("vfio.gpu.nvidia.com", GPU, "vfio", ""),
    ];
    if dra.compute_domains().is_some() {
        let first = format!(" && device.attributes['{DOMAIN}'].id == 0");
        classes.push(class("compute-domain-daemon.nvidia.com", DOMAIN, "daemon", ""));
        classes.push(class("compute-domain-default-channel.nvidia.com", DOMAIN, "channel", &first));
    }
    classes
}

/// A plugin may only write the slices of the node that it runs on, whatever its rights: who takes over one node must not
/// offer GPUs in the name of another.
pub(super) fn policy(cx: &Cx<'_>, account: &str) -> Vec<Object> {
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["resource.k8s.io"], "apiVersions": ["v1", "v1beta1", "v1beta2"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["resourceslices"],
        }]},
        "matchConditions": [{"name": "plugin", "expression": written_by(cx, account)}],
        "variables": [
            {"name": "here", "expression": HERE},
            {"name": "slice", "expression": "request.operation == 'DELETE' ? oldObject : object"},
            {
                "name": "everywhere",
                "expression": "has(variables.slice.spec.allNodes) && variables.slice.spec.allNodes \
                               || has(variables.slice.spec.nodeSelector)",
            },
        ],
        "validations": [
            {
                "expression": "variables.here != ''",
                "message": "the token does not say on which node its pod runs",
            },
            {
                "expression": "variables.everywhere || has(variables.slice.spec.nodeName) \
                               && variables.slice.spec.nodeName == variables.here",
                "message": "a plugin may only write the slices of its own node",
            },
        ],
    });
    admission(cx, POLICY, spec)
}
