//! Values of an installed Helm release of our chart: Helm stores them, compressed, in a Secret.

use std::io::Read;

use flate2::read::GzDecoder;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::Value;

use super::values;
use crate::doctor::finding::{Finding, Scope};
use crate::doctor::index::{Index, label, text};
use crate::snapshot::named;

/// Type of the Secrets in which Helm stores releases.
const TYPE: &str = "helm.sh/release.v1";
/// The name of our chart.
const CHART: &str = "capstan";
/// Size limit of a decompressed release: a Secret is small, but its content may expand without bound.
const LIMIT: u64 = 64 << 20;

/// The fields of a release that are read; templates and files are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Release {
    chart: Chart,
    /// User-supplied values, without the chart's defaults.
    config: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chart {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

/// Errors in the values of installed releases. Without Secrets (no permission, or redacted) there is nothing to check.
pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let secrets = index.snapshot.of("", "Secret").iter();
    let deployed = secrets.filter(|secret| secret["type"] == TYPE && label(secret, "status") == "deployed");
    deployed.flat_map(wrong).collect()
}

fn wrong(secret: &Value) -> Vec<Finding> {
    let release = unpack(text(&secret["data"]["release"])).filter(|release| release.chart.metadata.name == CHART);
    let Some(release) = release else { return Vec::new() };
    let (namespace, name) = named(secret);
    let (title, object) = (label(secret, "name"), format!("Secret {namespace}/{name}"));
    let finding = |(what, fix): (String, String)| {
        let finding = Finding::new(format!("Helm release {namespace}/{title}"), what, Scope::Objects);
        let line = format!("{object}: values of revision {}", label(secret, "version"));
        finding.object(object.clone()).evidence(line).fix(format!("{fix}; then helm upgrade {title} -n {namespace}"))
    };
    values::mistakes(&release.config).into_iter().map(finding).collect()
}

/// JSON in gzip in base64 in base64: Kubernetes and Helm both encode it.
fn unpack(data: &str) -> Option<Release> {
    let inner = String::from_utf8(decode(data)?).ok()?;
    let mut json = Vec::new();
    GzDecoder::new(decode(&inner)?.as_slice()).take(LIMIT).read_to_end(&mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    serde_json::from_value::<ByteString>(text.into()).ok().map(|bytes| bytes.0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;
    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn encode(bytes: Vec<u8>) -> String {
        serde_json::to_value(ByteString(bytes)).unwrap().as_str().unwrap().to_owned()
    }

    fn release(chart: &str, status: &str, config: Value) -> Value {
        let release =
            json!({"name": "ours", "chart": {"metadata": {"name": chart}, "templates": []}, "config": config});
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(release.to_string().as_bytes()).unwrap();
        let data = encode(encode(gzip.finish().unwrap()).into_bytes());
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": TYPE, "data": {"release": data},
            "metadata": {"name": "sh.helm.release.v1.ours.v2", "namespace": "capstan", "labels": {
                "owner": "helm", "name": "ours", "status": status, "version": "2",
            }},
        })
    }

    #[test]
    fn mistakes_in_an_installed_release_are_named() {
        let cluster = Cluster::healthy().add(release(CHART, "deployed", json!({"imagePullSecret": []})));
        let report = assert_only(&cluster, "helm-values");
        assert_eq!(report.causes[0].title, "Helm release capstan/ours: imagePullSecret is not known to the chart");
        assert!(report.causes[0].fix.starts_with("did you mean imagePullSecrets?"), "{report:?}");
    }

    #[test]
    fn right_values_old_revisions_and_other_charts_are_none_of_our_business() {
        let wrong = json!({"imagePullSecret": []});
        assert_healthy(
            &Cluster::healthy()
                .add(release(CHART, "deployed", json!({"image": {"tag": "1"}})))
                .add(release(CHART, "deployed", Value::Null))
                .add(release(CHART, "superseded", wrong.clone()))
                .add(release("other", "deployed", wrong)),
        );
    }

    #[test]
    fn what_cannot_be_unpacked_is_no_finding() {
        let mut redacted = release(CHART, "deployed", json!({"imagePullSecret": []}));
        redacted["data"]["release"] = "REDACTED".into();
        assert_healthy(&Cluster::healthy().add(redacted));
    }
}
