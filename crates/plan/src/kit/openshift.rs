//! OpenShift's security context constraints.

use capstan_api::foreign::SecurityContextConstraints;
use capstan_api::foreign::openshift::{SecurityContextConstraintsSpec, Strategy};

use super::Scope;
use crate::Object;

/// What host namespaces pods may share.
#[derive(Clone, Copy, Default)]
pub struct Shares {
    /// Processes.
    pub pid: bool,
    /// Inter-process communication.
    pub ipc: bool,
    /// Network.
    pub network: bool,
    /// Ports.
    pub ports: bool,
    /// Whether any capability and sysctl may be asked for.
    pub anything: bool,
}

/// Constraints for privileged pods of an account of the namespace.
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
