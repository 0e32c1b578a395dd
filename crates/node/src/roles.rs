//! The roles of the agent, one row each: the only source of their names and labels.

/// A role of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// Its name on the command line, `capstan agent NAME`, and in `--roles`.
    pub name: &'static str,
    /// The operand that deploys it, as in conditions and metrics; `None` if it runs in another's pod.
    pub operand: Option<&'static str>,
    /// The name of its deploy label, without the prefix.
    pub deploy: Option<&'static str>,
    /// The node label that enables the role; `None` if it always runs.
    pub deploy_label: Option<&'static str>,
}

impl Role {
    /// The operand of a role that has one.
    pub const fn operand(&self) -> &'static str {
        self.operand.expect("the role has an operand in its row")
    }

    /// The name of the deploy label of a role that has one.
    pub const fn deploy(&self) -> &'static str {
        self.deploy.expect("the role has a deploy label in its row")
    }

    /// The deploy label of a role that has one.
    pub const fn deploy_label(&self) -> &'static str {
        self.deploy_label.expect("the role has a deploy label in its row")
    }
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! roles {
    ($($(#[$doc:meta])* $id:ident: $name:literal $(, operand $operand:literal)? $(, deploy $deploy:literal)?;)+) => {
        $(
            $(#[$doc])*
            pub const $id: Role = Role {
                name: $name,
                operand: optional!($($operand)?),
                deploy: optional!($($deploy)?),
                deploy_label: optional!($($crate::deploy_label!($deploy))?),
            };
        )+

        /// Every role.
        pub const ROLES: &[Role] = &[$($id),+];
    };
}

roles! {
    /// Advertises GPUs to the kubelet and allocates them to containers.
    DEVICE_PLUGIN: "device-plugin", operand "state-device-plugin", deploy "device-plugin";
    /// Runs the MPS control daemons.
    MPS_CONTROL_DAEMON: "mps-control-daemon", operand "state-mps-control-daemon";
    /// Publishes node labels.
    FEATURE_DISCOVERY: "feature-discovery", operand "gpu-feature-discovery", deploy "gpu-feature-discovery";
    /// Maintains the node's CDI spec.
    CDI_SPECS: "cdi-specs";
    /// Serves GPU metrics.
    EXPORTER: "exporter", operand "state-dcgm-exporter", deploy "dcgm-exporter";
    /// Validates one component of the node, then exits.
    VALIDATOR: "validator", operand "state-operator-validation";
    /// Serves node status metrics.
    NODE_STATUS_EXPORTER: "node-status-exporter", operand "state-node-status-exporter", deploy "node-status-exporter";
    /// Copies the config that the node label selects.
    CONFIG_MANAGER: "config-manager";
}

/// A role by name.
pub fn role(name: &str) -> Option<&'static Role> {
    ROLES.iter().find(|role| role.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_labels_are_named_after_operands() {
        for (index, role) in ROLES.iter().enumerate() {
            assert!(ROLES[..index].iter().all(|other| other.name != role.name), "{} twice", role.name);
            let label = role.deploy.map(|deploy| format!("{}{deploy}", crate::labels::DEPLOY_PREFIX));
            assert_eq!(role.deploy_label.map(str::to_owned), label, "{}", role.name);
        }
        assert_eq!(role("exporter"), Some(&EXPORTER));
        assert_eq!(role("exportr"), None);
    }
}
