//! What a policy comes to in numbers.

use super::*;
use crate::gpu::cluster_policy::measures::{Measures, measures};

fn measured(more: Value, cluster: &Cluster) -> Measures {
    let policy = policy(more);
    measures(&policy, &fresh(&policy, cluster).status, cluster)
}

#[test]
fn what_is_not_ready_is_zero_and_what_cannot_be_done_is_less() {
    let cluster = ubuntu();
    assert_eq!(measured(json!({}), &cluster).reconciliation_status, 0);
    assert_eq!(measured(json!({"driver": {"repository": "r.io"}}), &cluster).reconciliation_status, 0);
    let nri = json!({"cdi": {"enabled": false, "nriPluginEnabled": true}});
    assert_eq!(measured(nri, &cluster).reconciliation_status, -1);
    assert_eq!(Measures::without_policy(&cluster).reconciliation_status, -1);
}

#[test]
fn everything_in_place_is_one() {
    let (policy, cluster) = (policy(json!({})), ubuntu());
    let live = applied(&fresh(&policy, &cluster), 1, 1);
    let status = plan(&policy, &live, &cluster).status;
    let measures = measures(&policy, &status, &cluster);
    assert_eq!((measures.reconciliation_status, measures.gpu_nodes_total), (1, 1));
    assert_eq!(measures.reconciliation_has_nfd_labels, 1);
}

#[test]
fn the_toolkit_of_openshift_is_asked_for_possible_or_not() {
    let dtk = |more: Value, cluster: &Cluster| measured(more, cluster).openshift_driver_toolkit_enabled;
    assert_eq!(dtk(json!({}), &ubuntu()), 0);
    let there = openshift(&["419.1"]);
    assert_eq!(dtk(json!({"operator": {"use_ocp_driver_toolkit": false}}), &there), 0);
    let none = Cluster { openshift: Some(OpenShift::default()), ..ubuntu() };
    let measures = measured(json!({}), &none);
    assert_eq!((measures.openshift_driver_toolkit_enabled, measures.openshift_driver_toolkit_nfd_too_old), (-1, 1));
    assert_eq!(measures.openshift_driver_toolkit_imagestream_missing, 1);
}

#[test]
fn a_version_without_a_toolkit_is_counted_by_what_nodes_run() {
    let mut cluster = openshift(&["419.1"]);
    let stream = |tag: &str| {
        Some(OpenShift { toolkits: Some([(tag.to_owned(), "image".to_owned())].into()), ..OpenShift::default() })
    };
    cluster.openshift = stream("419.1");
    assert_eq!(measured(json!({}), &cluster).openshift_driver_toolkit_rhcos_tags_missing, 0);
    cluster.openshift = stream("420.1");
    assert_eq!(measured(json!({}), &cluster).openshift_driver_toolkit_rhcos_tags_missing, 1);
}
