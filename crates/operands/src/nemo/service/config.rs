//! The configuration file of a service, in a ConfigMap of its own.
//!
//! A text that says the same stays as it is, whoever wrote it, and so does the hash on the pods: only another content
//! replaces them.

use std::collections::BTreeMap;

use capstan_plan::{Object, Ref};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::yaml;
use super::description::{Form, Stop};
use super::{Cx, names};

/// The key of the ConfigMap.
pub(crate) const FILE: &str = "config.yaml";
/// On the pods: a hash of the configuration that they were started with.
const HASH: &str = "apps.nvidia.com/training-config-hash";

/// A configuration.
pub(super) struct Config {
    /// The ConfigMap.
    pub(super) object: Object,
    hash: String,
}

impl Config {
    /// Says in a pod template which configuration its pods read.
    pub(super) fn mark(&self, template: &mut Value) {
        template["metadata"]["annotations"][HASH] = self.hash.as_str().into();
    }
}

/// The configuration, where the kind has one; or why it cannot be made.
pub(super) fn made(cx: &Cx<'_>) -> Result<Option<Config>, Stop> {
    let wanted = |form: Form| cx.service.config(&cx.place(form), cx.live());
    let Some(own) = wanted(Form::Own) else { return Ok(None) };
    let own = own?;
    let there = cx.own(&Ref::of::<ConfigMap>(&cx.namespace, &cx.name)).and_then(|live| live["data"][FILE].as_str());
    let same = there.filter(|text| {
        let says = yaml::parse(text).ok();
        let reference = || wanted(Form::Reference).and_then(Result::ok);
        says.is_some_and(|says| says == own || reference().is_some_and(|reference| says == reference))
    });
    let text = same.map_or_else(|| yaml::text(&own), str::to_owned);
    let hash = same.and_then(|_| marked(cx)).unwrap_or_else(|| hex(&text));
    let map = ConfigMap {
        metadata: names::quiet(cx),
        data: Some(BTreeMap::from([(FILE.to_owned(), text)])),
        ..ConfigMap::default()
    };
    Ok(Some(Config { object: Object::new(&map), hash }))
}

/// What the pods that run were started with.
fn marked(cx: &Cx<'_>) -> Option<String> {
    let live = cx.own(&Ref::of::<Deployment>(&cx.namespace, &cx.name))?;
    live["spec"]["template"]["metadata"]["annotations"][HASH].as_str().map(str::to_owned)
}

fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
