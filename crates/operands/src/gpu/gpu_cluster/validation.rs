//! Validator: gets a GPU by a claim and validates it.

use std::collections::BTreeMap;

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, container, on_nodes};
use capstan_plan::kit::rbac::Rights;
use serde_json::json;

use super::plugin::all_at_once;
use super::{Dra, Operand, claim_template};
use crate::gpu::components::Outcome;
use crate::gpu::components::access::{access, constraints};
use crate::gpu::components::daemon::{GpuDaemon, deployed};
use crate::gpu::components::own::{OwnImage, own_hold};
use crate::gpu::image;

pub(super) const OPERAND: Operand =
    Operand { name: "state-dra-validation", condition: "Validation", deploy: Some(DEPLOY), enabled: |_| true, objects };

const DEPLOY: &str = "dra-validator";
const NAME: &str = "nvidia-dra-validator";
const CHECK: &str = "gpu-validation";
const TEMPLATE: &str = "nvidia-dra-validator-gpu";
const CLAIM: &str = "validation-gpu";

fn objects(dra: &Dra<'_>) -> Outcome<Vec<Object>> {
    let cx = &dra.cx;
    let mut objects = access(cx, NAME, Rights::default());
    objects.push(claim_template(cx, TEMPLATE, CLAIM, json!({"allocationMode": "ExactCount", "count": 1})));
    objects.extend(constraints(cx, NAME, Shares::default()));
    objects.push(daemon(dra)?.object(&cx.scope));
    Ok(objects)
}

fn daemon(dra: &Dra<'_>) -> Outcome<Daemon> {
    let cx = &dra.cx;
    let validator = &cx.validator.image;
    let found = cx.found(validator, "VALIDATOR_IMAGE")?;
    let mut check = container(CHECK).runs(&["nvidia-smi", "-L"], &[]);
    let mut main = container(NAME).runs(&["sh", "-c"], &["echo a GPU was used through a claim; sleep infinity"]);
    for container in [&mut check, &mut main] {
        container.image = Some(found.path.clone());
        container.image_pull_policy = Some(image::pull_policy(validator).into());
    }
    if found.own {
        check.image_pull_policy = Some(cx.own_pull_policy(validator));
        own_hold(cx, validator, &mut main, "-ready");
    }
    let mut daemon = Daemon::new(NAME, NAME, deployed(DEPLOY)).with_scc(NAME).with(vec![check], vec![main], vec![]);
    daemon.pod.volumes = None;
    daemon.selector = BTreeMap::from([("app.kubernetes.io/name".to_owned(), NAME.to_owned())]);
    // Driver upgrades find validators by this label.
    daemon.pod_labels = daemon.selector.clone();
    daemon.pod_labels.insert("app".into(), "nvidia-operator-validator".into());
    daemon.strategy = all_at_once();
    daemon.pod.affinity = Some(on_nodes(&[("nvidia.com/gpu.present", "true")]));
    daemon.common(cx)?;
    daemon.add_pull_secrets(validator.image_pull_secrets.as_ref());
    if found.own {
        daemon.pull_own(cx);
    }
    daemon.claims(CHECK, CLAIM, TEMPLATE);
    Ok(daemon)
}
