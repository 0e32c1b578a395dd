//! OpenShift SecurityContextConstraints.

use capstan_api::foreign::SecurityContextConstraints;
use capstan_api::foreign::openshift::{SecurityContextConstraintsSpec, Strategy};

use super::Scope;
use crate::Object;

/// Host namespaces and ports that pods may use.
#[derive(Clone, Copy, Default)]
pub struct Shares {
    /// `hostPID`.
    pub pid: bool,
    /// `hostIPC`.
    pub ipc: bool,
    /// `hostNetwork`.
    pub network: bool,
    /// `hostPorts`.
    pub ports: bool,
    /// Whether all capabilities and unsafe sysctls are allowed.
    pub anything: bool,
}

/// SecurityContextConstraints for privileged pods of a ServiceAccount of the namespace.
pub fn constraints(scope: &Scope, account: &str, shares: Shares) -> Object {
    let strategy = || Some(Strategy { type_: Some("RunAsAny".into()) });
    let any = || Some(vec!["*".to_owned()]);
    let spec = SecurityContextConstraintsSpec {
        allow_host_dir_volume_plugin: Some(true),
        allow_host_ipc: Some(shares.ipc),
        allow_host_network: Some(shares.network),
        allow_host_pid: Some(shares.pid),
        allow_host_ports: Some(shares.ports),
        allow_privilege_escalation: Some(true),
        allow_privileged_container: Some(true),
        allowed_capabilities: any().filter(|_| shares.anything),
        allowed_unsafe_sysctls: any().filter(|_| shares.anything),
        read_only_root_filesystem: Some(false),
        fs_group: strategy(),
        run_as_user: strategy(),
        se_linux_context: strategy(),
        supplemental_groups: strategy(),
        seccomp_profiles: any(),
        volumes: any(),
        groups: Some(["system:cluster-admins", "system:nodes", "system:masters"].map(Into::into).to_vec()),
        users: Some(vec![format!("system:serviceaccount:{}:{account}", scope.namespace)]),
        ..SecurityContextConstraintsSpec::default()
    };
    let mut constraints = SecurityContextConstraints::new(account, spec);
    constraints.metadata = scope.cluster_meta(account);
    Object::new(&constraints)
}
