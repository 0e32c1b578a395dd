//! The Grafana operator's dashboards.

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::{Kind, Namespaced, NoStatus, Resource};

/// A dashboard that the Grafana operator loads.
pub type GrafanaDashboard = Resource<GrafanaDashboardSpec>;

/// What is shown, and in which Grafana.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrafanaDashboardSpec {
    /// Which Grafana objects load it.
    pub instance_selector: LabelSelector,
    /// Folder in Grafana.
    pub folder: Option<String>,
    /// The dashboard, as JSON text.
    pub json: Option<String>,
    /// ConfigMap that holds the JSON text.
    pub config_map_ref: Option<ConfigMapKey>,
    /// Which data source stands for which input of the dashboard.
    pub datasources: Option<Vec<Datasource>>,
    /// Whether Grafanas of other namespaces may load it.
    pub allow_cross_namespace_import: Option<bool>,
    /// How often it is loaded again, such as `10m`.
    pub resync_period: Option<String>,
}

/// One key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKey {
    /// ConfigMap.
    pub name: String,
    /// Key.
    pub key: String,
}

/// A data source behind an input of the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Datasource {
    /// Input, as the JSON calls it.
    pub input_name: String,
    /// Data source in Grafana.
    pub datasource_name: String,
}

impl Kind for GrafanaDashboardSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = "grafana.integreatly.org";
    const VERSION: &'static str = "v1beta1";
    const KIND: &'static str = "GrafanaDashboard";
    const PLURAL: &'static str = "grafanadashboards";
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_dashboard_survives_and_unknown_fields_are_skipped() {
        let mut object = json!({
            "apiVersion": "grafana.integreatly.org/v1beta1", "kind": "GrafanaDashboard", "metadata": {"name": "gpus"},
            "spec": {
                "instanceSelector": {"matchLabels": {"dashboards": "grafana"}},
                "configMapRef": {"name": "gpus", "key": "gpus.json"},
                "datasources": [{"inputName": "DS_PROMETHEUS", "datasourceName": "prometheus"}],
                "resyncPeriod": "10m",
            },
        });
        let known = object.clone();
        object["spec"]["uid"] = "added-later".into();
        let read: GrafanaDashboard = serde_json::from_value(object).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), known as Value);
    }
}
