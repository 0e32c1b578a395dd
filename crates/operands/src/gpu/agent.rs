//! The operator's own image: `capstan agent` replaces the upstream images on a node.
//!
//! It is the default where neither the custom resource nor the environment sets an image and the agent has a role for
//! it.

/// Annotation of a ClusterPolicy that says how the roles of a node are put into pods.
pub const LAYOUT: &str = "capstan.dev/node-layout";

/// How the roles of a node are grouped into pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One shared pod, where possible.
    #[default]
    Combined,
    /// A DaemonSet for each component.
    PerComponent,
}

impl Layout {
    /// The layout of that name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "combined" => Ok(Self::Combined),
            "per-component" => Ok(Self::PerComponent),
            _ => Err(format!("{text:?} is no layout: write combined or per-component")),
        }
    }
}

/// Settings of the operator's own image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// The image; empty if unset.
    pub image: String,
    /// Its pull policy.
    pub pull_policy: Option<String>,
    /// Its pull secrets.
    pub pull_secrets: Vec<String>,
    /// Default grouping of roles, unless a ClusterPolicy sets it.
    pub layout: Layout,
}

impl Agent {
    /// From the operator's environment.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let secrets = set("CAPSTAN_IMAGE_PULL_SECRETS").unwrap_or_default();
        Self {
            image: set("CAPSTAN_IMAGE").unwrap_or_default(),
            pull_policy: set("CAPSTAN_IMAGE_PULL_POLICY"),
            pull_secrets: secrets.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            layout: Layout::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_comes_from_the_operators_variables() {
        let all = |name: &str| Some(if name.ends_with("SECRETS") { "a,b".into() } else { name.to_lowercase() });
        let agent = Agent::of(all);
        assert_eq!((agent.image.as_str(), agent.pull_secrets.len()), ("capstan_image", 2));
        assert_eq!(Agent::of(|_| Some(String::new())), Agent::default());
    }

    #[test]
    fn a_layout_that_is_not_known_is_named() {
        assert_eq!(Layout::parse("per-component"), Ok(Layout::PerComponent));
        let error = Layout::parse("Combined").unwrap_err();
        assert_eq!(error, "\"Combined\" is no layout: write combined or per-component");
    }
}
