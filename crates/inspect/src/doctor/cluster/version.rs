//! Kubernetes versions that this build does not support.

use crate::doctor::finding::{Finding, Scope, Severity};
use crate::doctor::index::{Index, text};
use crate::snapshot::named;

/// Oldest and newest supported minor version; the chart has the same range.
const OLDEST: u32 = 33;
const NEWEST: u32 = 37;
/// Maximum version skew of a kubelet behind its API server.
const MAX_KUBELET_SKEW: u32 = 3;
/// First version with stable ResourceClaims.
const FIRST_WITH_CLAIMS: u32 = 34;

/// The minor version in `v1.37.1-eks-1`.
fn minor(version: &str) -> Option<u32> {
    let rest = version.trim_start_matches('v').strip_prefix("1.")?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let version = &index.snapshot.server_version;
    let Some(server) = minor(version) else { return Vec::new() };
    let mut all = Vec::new();
    let cluster = |what: String, severity: Severity, fix: String| {
        let finding = Finding::new("API server", what, Scope::Cluster).severity(severity).object("API server");
        finding.evidence(format!("the API server says {version}")).fix(fix)
    };
    if server < OLDEST {
        let what = format!("Kubernetes {version} is too old: 1.{OLDEST} is the oldest that is supported");
        all.push(cluster(what, Severity::Error, format!("upgrade the cluster to 1.{OLDEST} or newer")));
    }
    if server > NEWEST {
        let what = format!("Kubernetes {version} is newer than 1.{NEWEST}, the newest that was tested");
        let finding = cluster(what, Severity::Warning, "upgrade Capstan".into()).scope(Scope::Objects);
        all.push(finding);
    }
    for claims in index.snapshot.of("nvidia.com", "GPUCluster").iter().filter(|_| server < FIRST_WITH_CLAIMS) {
        let what = format!("claims on devices need Kubernetes 1.{FIRST_WITH_CLAIMS}, and this is {version}");
        all.push(Finding::about(claims, what).fix("use a ClusterPolicy, or upgrade the cluster"));
    }
    for node in index.nodes() {
        let (name, kubelet) = (named(node).1, text(&node["status"]["nodeInfo"]["kubeletVersion"]));
        let Some(own) = minor(kubelet) else { continue };
        let why = if own > server {
            "newer than"
        } else if own + MAX_KUBELET_SKEW < server {
            "too old for"
        } else {
            continue;
        };
        all.push(
            Finding::on_node(name, format!("kubelet {kubelet} is {why} the API server {version}"))
                .scope(Scope::Objects)
                .evidence(format!("Node {name}: kubelet {kubelet}"))
                .fix(format!(
                    "upgrade one of the two: a kubelet may be up to {MAX_KUBELET_SKEW} minor versions older, never newer"
                )),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{Cluster, assert_only};

    #[test]
    fn minor_versions_are_read_from_what_vendors_write() {
        let cases = [("v1.37.1", Some(37)), ("v1.33.4-eks-8ccc7ba", Some(33)), ("1.34+", Some(34)), ("", None)];
        for (text, expected) in cases {
            assert_eq!(minor(text), expected, "{text}");
        }
    }

    #[test]
    fn servers_that_are_too_old() {
        let mut cluster = Cluster::healthy();
        cluster.snapshot.server_version = "v1.29.3".into();
        for node in cluster.snapshot.objects.get_mut("Node").unwrap() {
            node["status"]["nodeInfo"]["kubeletVersion"] = "v1.29.3".into();
        }
        let report = assert_only(&cluster, "kubernetes-version");
        assert!(report.causes[0].title.contains("v1.29.3 is too old: 1.33 is the oldest"), "{report:?}");
    }

    #[test]
    fn kubelets_that_do_not_fit_their_server() {
        for version in ["v1.33.9", "v1.38.0"] {
            let cluster = Cluster::healthy()
                .edit("Node", "gpu-1", |node| node["status"]["nodeInfo"]["kubeletVersion"] = version.into());
            assert_only(&cluster, "kubernetes-version");
        }
    }
}
