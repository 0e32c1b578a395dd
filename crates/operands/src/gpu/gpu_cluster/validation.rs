//! Validator: asks for a GPU through a claim and looks at it.

use std::collections::BTreeMap;

use capstan_plan::Object;
use serde_json::json;

use super::plugin::{all_at_once, on_nodes};
use super::{Dra, Part, claim_template};
use crate::gpu::components::Outcome;
use crate::gpu::components::access::{Rights, Shares, access, constraints};
use crate::gpu::components::daemon::Daemon;
use crate::gpu::components::own::own_hold;
use crate::gpu::components::pod::{Build, container};
use crate::gpu::image;

pub(super) const PART: Part =
    Part { name: "state-dra-validation", condition: "Validation", deploy: "dra-validator", enabled: |_| true, objects };

const NAME: &str = "nvidia-dra-validator";
const CHECK: &str = "gpu-validation";
const TEMPLATE: &str = "nvidia-dra-validator-gpu";
const CLAIM: &str = "validation-gpu";

fn objects(dra: &Dra<'_>) -> Outcome<Vec<Object>> {
    let cx = &dra.cx();
    let mut objects = access(cx, NAME, Rights::default());
    objects.push(claim_template(cx, TEMPLATE, CLAIM, json!({"allocationMode": "ExactCount", "count": 1})));
    objects.extend(constraints(cx, NAME, Shares::default()));
    objects.push(daemon(dra)?.object(cx));
    Ok(objects)
}

fn daemon(dra: &Dra<'_>) -> Outcome<Daemon> {
    let cx = &dra.cx();
    let validator = cx.validator().image;
    let found = cx.found(&validator, "VALIDATOR_IMAGE")?;
    let mut check = container(CHECK).runs(&["nvidia-smi", "-L"], &[]);
    let mut main = container(NAME).runs(&["sh", "-c"], &["echo a GPU was used through a claim; sleep infinity"]);
    for container in [&mut check, &mut main] {
        container.image = Some(found.path.clone());
        container.image_pull_policy = Some(image::pull_policy(&validator).into());
    }
    if found.own {
        check.image_pull_policy = Some(cx.own_pull_policy(&validator));
        own_hold(cx, &validator, &mut main, "-ready");
    }
    let mut daemon =
        Daemon::new(NAME, NAME, PART.deploy).without_defaults().constrained(NAME).with(vec![check], vec![main], vec![]);
    daemon.pod.volumes = None;
    daemon.selector = BTreeMap::from([("app.kubernetes.io/name".to_owned(), NAME.to_owned())]);
    // Upgrades of drivers look for validators by this label, whatever made them.
    daemon.pod_labels = daemon.selector.clone();
    daemon.pod_labels.insert("app".into(), "nvidia-operator-validator".into());
    daemon.strategy = all_at_once();
    daemon.pod.affinity = Some(on_nodes(&[("nvidia.com/gpu.present", "true")]));
    daemon.common(cx)?;
    daemon.pull_with(validator.image_pull_secrets.as_ref());
    if found.own {
        daemon.pull_own(cx);
    }
    daemon.claims(CHECK, CLAIM, TEMPLATE);
    Ok(daemon)
}
