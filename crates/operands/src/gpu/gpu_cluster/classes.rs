//! DeviceClasses, and the admission policy that restricts each node to its own ResourceSlices.

use capstan_plan::Object;
use capstan_plan::kit::admission::{self, WRITER_NODE, written_by};
use k8s_openapi::api::resource::v1::DeviceClass;
use serde_json::json;

use super::Dra;
use crate::gpu::components::Cx;

/// DeviceClass of whole GPUs.
pub(super) const GPU: &str = crate::gpu::nodes::claims::DRIVER;
const DOMAIN: &str = "compute-domain.nvidia.com";
const POLICY: &str = "resourceslices-policy-nvidia-dra-driver";

/// The DeviceClasses: name, driver, and device type.
pub(super) fn classes(dra: &Dra<'_>) -> Vec<Object> {
    let class = |name: &str, driver: &str, type_: &str, more: &str| {
        let expression =
            format!("device.driver == '{driver}' && device.attributes['{driver}'].type == '{type_}'{more}");
        let spec = serde_json::from_value(json!({"selectors": [{"cel": {"expression": expression}}]}));
        Object::new(&DeviceClass {
            metadata: dra.cx.scope.cluster_meta(name),
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

/// Admission policy: a plugin may only write the ResourceSlices of its own node, so that a compromised node cannot
/// advertise GPUs for others.
pub(super) fn policy(cx: &Cx<'_>, account: &str) -> Vec<Object> {
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["resource.k8s.io"], "apiVersions": ["v1", "v1beta1", "v1beta2"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["resourceslices"],
        }]},
        "matchConditions": [{"name": "plugin", "expression": written_by(&cx.scope, account)}],
        "variables": [
            {"name": "here", "expression": WRITER_NODE},
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
    admission::policy(&cx.scope, POLICY, spec).into()
}
