//! Pools: nodes that can share one DaemonSet.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::Driver;
use crate::gpu::components::driver::Flavour;
use crate::gpu::fleet::{KERNEL, OS_ID, OS_VERSION, OSTREE, Os};

/// Common properties of the nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pool {
    pub(super) os: Os,
    /// For precompiled drivers.
    pub(super) kernel: Option<String>,
    /// For drivers built with the OpenShift driver toolkit.
    pub(super) rhcos: Option<String>,
}

impl Pool {
    /// The driver variant of this pool.
    pub(super) fn flavour(&self) -> Flavour {
        match (&self.kernel, &self.rhcos) {
            (Some(kernel), _) => Flavour::Kernel(kernel.clone(), self.os.clone()),
            (None, Some(version)) => Flavour::Rhcos(version.clone(), self.os.clone()),
            (None, None) => Flavour::Plain(self.os.clone()),
        }
    }

    /// Its node selector.
    pub(super) fn selector(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([(OS_ID.to_owned(), self.os.id.clone())]);
        let tag = self.os.tag();
        let version = tag.trim_start_matches(&self.os.id);
        if version == self.os.version {
            labels.insert(OS_VERSION.into(), version.into());
        } else {
            labels.insert(format!("{OS_VERSION}.major"), version.into());
        }
        labels.extend(self.kernel.iter().map(|kernel| (KERNEL.to_owned(), kernel.clone())));
        labels.extend(self.rhcos.iter().map(|version| (OSTREE.to_owned(), version.clone())));
        labels
    }
}

/// The pools of a driver, from the nodes that it owns. Nodes with missing labels are in none.
pub(super) fn pools(one: &Driver<'_>) -> Vec<Pool> {
    let precompiled = one.driver.spec.use_precompiled == Some(true);
    let toolkits = one.cx.cluster.openshift.as_ref().and_then(|openshift| openshift.toolkits.as_ref());
    let built_by_toolkit = !precompiled && toolkits.is_some_and(|images| !images.is_empty());
    let mut pools: BTreeMap<(String, Option<String>, Option<String>), Pool> = BTreeMap::new();
    for place in one.cx.cluster.fleet.owned_by(&one.driver.name_any()) {
        let kernel = place.kernel.clone().filter(|_| precompiled);
        let rhcos = place.rhcos.clone().filter(|_| built_by_toolkit);
        if (precompiled && kernel.is_none()) || (built_by_toolkit && rhcos.is_none()) {
            continue;
        }
        let pool = Pool { os: place.os.clone(), kernel, rhcos };
        pools.entry((pool.os.tag(), pool.kernel.clone(), pool.rhcos.clone())).or_insert(pool);
    }
    pools.into_values().collect()
}
