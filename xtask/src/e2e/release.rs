//! The chart: install, upgrade, rollback and uninstall. Objects before and after are compared.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use super::{RELEASE, Suite, examples};

/// Kinds whose objects change by themselves.
const VOLATILE_KINDS: &[&str] = &["events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses"];

fn chart(suite: &Suite) -> String {
    suite.root.join("charts/capstan").display().to_string()
}

pub(super) fn install(suite: &Suite) -> Result<String> {
    suite.helm(&["install", RELEASE, &chart(suite), "--create-namespace", "--wait", "--timeout=3m"])?;
    suite.two_operators()?;
    Ok("two operators are ready".into())
}

/// Asserts what must not change with the release.
fn assert_unchanged(suite: &Suite, what: &[&str]) -> Result<()> {
    let (objects, pods) = (examples::versions(suite, "resourceVersion")?, suite.restarts()?);
    suite.helm(what)?;
    suite.two_operators()?;
    if suite.restarts()?.iter().any(|(name, _)| pods.iter().any(|(before, _)| before == name)) {
        bail!("an operator of the old revision still runs");
    }
    let after = examples::versions(suite, "resourceVersion")?;
    match after.iter().find(|object| !objects.contains(object)) {
        Some(changed) => bail!("changed: {changed}"),
        None => Ok(()),
    }
}

pub(super) fn upgrade(suite: &Suite) -> Result<String> {
    let chart = chart(suite);
    assert_unchanged(
        suite,
        &["upgrade", RELEASE, &chart, "--set", "operator.log.level=debug", "--wait", "--timeout=3m"],
    )?;
    Ok("new operators, the same objects".into())
}

pub(super) fn rollback(suite: &Suite) -> Result<String> {
    assert_unchanged(suite, &["rollback", RELEASE, "1", "--wait", "--timeout=3m"])?;
    Ok("new operators, the same objects".into())
}

/// All objects in the cluster, as `RESOURCE NAMESPACE/NAME`.
pub(super) fn everything(suite: &Suite) -> Result<BTreeSet<String>> {
    let resources = suite.kubectl(&["api-resources", "--verbs=list", "-o", "name", "--cached=false"])?;
    let mut all = BTreeSet::new();
    for resource in resources.lines().filter(|resource| !VOLATILE_KINDS.contains(resource)) {
        let columns = "custom-columns=:.metadata.namespace,:.metadata.name";
        let text = suite.kubectl(&["get", resource, "-A", "--no-headers", "-o", columns, "--ignore-not-found"])?;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (namespace, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            all.insert(format!("{resource} {namespace}/{name}"));
        }
    }
    // Only our own lease is compared.
    let ours = suite.kubectl(&["get", "leases", "-n", RELEASE, "-o", "name", "--ignore-not-found"])?;
    all.extend(ours.lines().map(|name| format!("lease {RELEASE}/{name}")));
    Ok(all)
}

/// What happens to CRDs, which hold user data, on uninstall.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Crds {
    /// They are kept, by default.
    Keep,
    /// They are deleted, with all their objects.
    Delete,
}

/// What `helm uninstall` may leave: CRDs, unless they are deleted, and the namespace, which Helm never deletes.
fn may_remain(object: &str, crds: Crds) -> bool {
    let (resource, name) = object.split_once(' ').unwrap_or_default();
    match resource {
        "customresourcedefinitions.apiextensions.k8s.io" | "apiservices.apiregistration.k8s.io" => crds == Crds::Keep,
        "namespaces" => name.ends_with(&format!("/{RELEASE}")),
        "serviceaccounts" => name == format!("{RELEASE}/default"),
        "configmaps" => name == format!("{RELEASE}/kube-root-ca.crt"),
        _ => false,
    }
}

/// Installs the chart again with CRDs to be deleted on uninstall, as documented.
pub(super) fn install_with_crd_deletion(suite: &Suite) -> Result<String> {
    install(suite)?;
    let chart = chart(suite);
    suite.helm(&[
        "upgrade",
        RELEASE,
        &chart,
        "--reuse-values",
        "--set",
        "crds.keep=false",
        "--wait",
        "--timeout=3m",
    ])?;
    suite.wait("CRDs have no owner", || {
        let list = suite.json(&["get", "customresourcedefinitions"])?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        Ok(all.iter().all(|crd| crd["metadata"]["ownerReferences"][0]["name"] == format!("{RELEASE}-anchor")))
    })?;
    Ok("CRDs go with the release".into())
}

pub(super) fn uninstall(suite: &Suite, before: &BTreeSet<String>, crds: Crds) -> Result<String> {
    suite.helm(&["uninstall", RELEASE, "--wait", "--timeout=3m"])?;
    let mut left = Vec::new();
    let gone = suite.wait("objects are left", || {
        left = everything(suite)?.difference(before).filter(|object| !may_remain(object, crds)).cloned().collect();
        Ok(left.is_empty())
    });
    gone.with_context(|| left.join(", "))?;
    let count = suite.kubectl(&["get", "customresourcedefinitions", "-o", "name"])?.lines().count();
    let after = everything(suite)?;
    if let Some(lost) = before.iter().find(|object| !after.contains(*object)) {
        bail!("{lost} was there before and is gone");
    }
    Ok(format!("{count} CRDs stay, and nothing else"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_leaves_crds_and_its_namespace() {
        for stays in [
            "customresourcedefinitions.apiextensions.k8s.io <none>/nimservices.apps.nvidia.com",
            "namespaces <none>/capstan",
            "configmaps capstan/kube-root-ca.crt",
        ] {
            assert!(may_remain(stays, Crds::Keep), "{stays}");
        }
        for goes in ["secrets capstan/capstan-webhook-cert", "namespaces <none>/nim", "lease capstan/a"] {
            assert!(!may_remain(goes, Crds::Keep), "{goes}");
        }
        let crd = "customresourcedefinitions.apiextensions.k8s.io <none>/nimservices.apps.nvidia.com";
        assert!(!may_remain(crd, Crds::Delete));
    }
}
