//! Runtime classes: names under which pods ask for a runtime that knows GPUs.

use std::collections::BTreeMap;

use capstan_plan::Object;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::access::meta;
use super::{Cx, Operand, Outcome};

pub(crate) const OPERAND: Operand = Operand {
    name: "pre-requisites",
    condition: "RuntimeClasses",
    deploy: None,
    // The NRI plugin gives GPUs to containers of any runtime.
    enabled: |cx| !cx.nri(),
    objects,
};

fn objects(cx: &Cx<'_>) -> Outcome<Vec<Object>> {
    let mut names = vec![cx.runtime_class()];
    if cx.cdi() {
        names.extend(["nvidia-cdi", "nvidia-legacy"].into_iter().filter(|name| *name != cx.runtime_class()));
    }
    Ok(names.into_iter().map(|name| class(cx, name)).collect())
}

fn class(cx: &Cx<'_>, name: &str) -> Object {
    let mut metadata = meta(cx, name, false);
    let labels: &mut BTreeMap<_, _> = metadata.labels.get_or_insert_default();
    labels.insert("app.kubernetes.io/component".into(), "gpu-operator".into());
    // Some distributions bring one of that name, which serves as well; its handler can never change.
    Object::new(&RuntimeClass { metadata, handler: name.into(), ..RuntimeClass::default() }).create_once()
}
