//! Pods as components share them: most changes are of the status, and the spec is far larger.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod as Plain, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A pod whose clones share its spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Spec.
    pub spec: Option<Arc<PodSpec>>,
    /// Status.
    pub status: Option<PodStatus>,
}

impl Pod {
    /// The spec, mutable.
    pub fn spec_mut(&mut self) -> &mut PodSpec {
        Arc::make_mut(self.spec.get_or_insert_default())
    }

    /// Whether both specs are equal: usually a pointer comparison.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        match (&self.spec, &other.spec) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs) || mine == theirs,
            (mine, theirs) => mine == theirs,
        }
    }
}

impl From<Plain> for Pod {
    fn from(Plain { metadata, spec, status }: Plain) -> Self {
        Self { metadata, spec: spec.map(Arc::new), status }
    }
}

impl Resource for Pod {
    const API_VERSION: &'static str = Plain::API_VERSION;
    const GROUP: &'static str = Plain::GROUP;
    const KIND: &'static str = Plain::KIND;
    const VERSION: &'static str = Plain::VERSION;
    const URL_PATH_SEGMENT: &'static str = Plain::URL_PATH_SEGMENT;
    type Scope = NamespaceResourceScope;
}

impl Metadata for Pod {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Plain::deserialize(deserializer).map(Into::into)
    }
}

impl Serialize for Pod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Borrowed<'a> {
            api_version: &'static str,
            kind: &'static str,
            metadata: &'a ObjectMeta,
            #[serde(skip_serializing_if = "Option::is_none")]
            spec: Option<&'a PodSpec>,
            #[serde(skip_serializing_if = "Option::is_none")]
            status: Option<&'a PodStatus>,
        }
        let Self { metadata, spec, status } = self;
        let (spec, status) = (spec.as_deref(), status.as_ref());
        Borrowed { api_version: Self::API_VERSION, kind: Self::KIND, metadata, spec, status }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_written_as_it_was_read() {
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": "n"});
        let text = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Running"},
        });
        let pod: Pod = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&pod).unwrap(), text);
        let plain: Plain = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(Pod::from(plain), pod);
        let empty = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}});
        assert_eq!(serde_json::to_value(Pod::default()).unwrap(), empty);
    }

    #[test]
    fn who_changes_a_spec_that_is_shared_changes_his_own() {
        let mut pod = Pod::default();
        pod.spec_mut().node_name = Some("a".to_owned());
        let mut copy = pod.clone();
        assert!(pod.is_alike(&copy));
        copy.spec_mut().node_name = Some("b".to_owned());
        assert!(!pod.is_alike(&copy));
        assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("a"));
    }
}
