//! RuntimeClasses of GPU-aware runtimes.

use std::collections::BTreeMap;

use capstan_plan::Object;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::{Operand, Outcome, PolicyCx};

pub(crate) const OPERAND: Operand = Operand {
    name: "pre-requisites",
    condition: "RuntimeClasses",
    deploy: None,
    // The NRI plugin works with any runtime.
    enabled: |cx| !cx.runtime.nri,
    objects,
};

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let mut names = vec![cx.runtime.class];
    if cx.runtime.cdi {
        names.extend(["nvidia-cdi", "nvidia-legacy"].into_iter().filter(|name| *name != cx.runtime.class));
    }
    Ok(names.into_iter().map(|name| class(cx, name)).collect())
}

fn class(cx: &PolicyCx<'_>, name: &str) -> Object {
    let mut metadata = cx.scope.cluster_meta(name);
    let labels: &mut BTreeMap<_, _> = metadata.labels.get_or_insert_default();
    labels.insert("app.kubernetes.io/component".into(), "gpu-operator".into());
    // Some distributions install one of that name, which works as well; its handler is immutable.
    Object::new(&RuntimeClass { metadata, handler: name.into(), ..RuntimeClass::default() }).create_once()
}
