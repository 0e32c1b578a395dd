//! A finding of a rule at one place, before findings with the same cause are merged.

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something may stop working.
    Warning,
    /// Only reported as a consequence of another finding.
    Note,
}

/// Scope of a finding: what it can explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The GPUs of these nodes.
    Nodes(Vec<String>),
    /// Only the named objects.
    Objects,
    /// The whole cluster.
    Cluster,
}

impl Scope {
    /// Width of the scope; a narrower scope is smaller.
    pub(super) fn width(&self) -> u8 {
        match self {
            Self::Objects => 0,
            Self::Nodes(_) => 1,
            Self::Cluster => 2,
        }
    }
}

/// A cause at one place.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule; set by the code that runs it.
    pub rule: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Place: `node gpu-1`, `NIMCache nim/llama`.
    pub at: String,
    /// The cause, with the same text at every place.
    pub what: String,
    /// Evidence: lines with an object and its message.
    pub evidence: Vec<String>,
    /// A command, or a field to change.
    pub fix: String,
    /// Affected objects: `Pod capstan/driver`.
    pub objects: Vec<String>,
    /// Scope.
    pub scope: Scope,
    /// The node of a pod; empty if it has none.
    pub runs_on: String,
}

impl Finding {
    pub(super) fn new(at: impl Into<String>, what: impl Into<String>, scope: Scope) -> Self {
        Self {
            rule: "",
            severity: Severity::Error,
            at: at.into(),
            what: what.into(),
            evidence: Vec::new(),
            fix: String::new(),
            objects: Vec::new(),
            scope,
            runs_on: String::new(),
        }
    }

    /// A finding about a node.
    pub(super) fn on_node(node: &str, what: impl Into<String>) -> Self {
        Self::new(format!("node {node}"), what, Scope::Nodes(vec![node.into()])).object(format!("Node {node}"))
    }

    /// A finding about an object.
    pub(super) fn about(object: &serde_json::Value, what: impl Into<String>) -> Self {
        let name = super::index::reference(object);
        Self::new(name.clone(), what, Scope::Objects).object(name)
    }

    pub(super) fn object(mut self, object: impl Into<String>) -> Self {
        let object = object.into();
        if !self.objects.contains(&object) {
            self.objects.push(object);
        }
        self
    }

    pub(super) fn evidence(mut self, line: impl Into<String>) -> Self {
        let line = line.into();
        if !self.evidence.contains(&line) {
            self.evidence.push(line);
        }
        self
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    pub(super) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    pub(super) fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Whether this finding explains the other at this place, given that its rule explains the other's rule.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.scope, &other.scope) {
            (Scope::Cluster, _) => true,
            (Scope::Nodes(mine), Scope::Nodes(theirs)) => mine.iter().any(|node| theirs.contains(node)),
            // An object without a node may lack the GPUs of this one.
            (Scope::Nodes(mine), _) => other.runs_on.is_empty() || mine.contains(&other.runs_on),
            (Scope::Objects, _) => self.objects.iter().any(|object| other.objects.contains(object)),
        }
    }
}
