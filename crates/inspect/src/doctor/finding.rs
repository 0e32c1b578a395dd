//! What a rule found at one place, before places with the same cause are told together.

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something may not work, or not for long.
    Warning,
    /// Follows from something else; alone it is nothing to tell.
    Note,
}

/// How far the trouble goes, and so what it explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The GPUs of these nodes.
    Nodes(Vec<String>),
    /// Nothing but the objects that are named.
    Objects,
    /// Everything.
    Cluster,
}

impl Reach {
    /// Less goes less far.
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
    /// The rule; whoever runs it fills it in.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where: `node gpu-1`, `NIMCache nim/llama`.
    pub at: String,
    /// The cause, in words that are the same wherever it shows.
    pub what: String,
    /// Lines with an object and what it says.
    pub evidence: Vec<String>,
    /// A command, or a field to change.
    pub fix: String,
    /// What is concerned: `Pod capstan/driver`.
    pub objects: Vec<String>,
    /// How far the trouble goes.
    pub reach: Reach,
    /// The node that a pod runs on; empty for what is on none.
    pub runs_on: String,
}

impl Finding {
    pub(super) fn new(at: impl Into<String>, what: impl Into<String>, reach: Reach) -> Self {
        Self {
            rule: "",
            severity: Severity::Error,
            at: at.into(),
            what: what.into(),
            evidence: Vec::new(),
            fix: String::new(),
            objects: Vec::new(),
            reach,
            runs_on: String::new(),
        }
    }

    /// About a node.
    pub(super) fn on_node(node: &str, what: impl Into<String>) -> Self {
        Self::new(format!("node {node}"), what, Reach::Nodes(vec![node.into()])).object(format!("Node {node}"))
    }

    /// About one object.
    pub(super) fn about(object: &serde_json::Value, what: impl Into<String>) -> Self {
        let name = super::index::reference(object);
        Self::new(name.clone(), what, Reach::Objects).object(name)
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

    pub(super) fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Whether this, when its rule explains the other's rule, explains the other here.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.reach, &other.reach) {
            (Reach::Cluster, _) => true,
            (Reach::Nodes(mine), Reach::Nodes(theirs)) => mine.iter().any(|node| theirs.contains(node)),
            // Whatever is on no node may miss the GPUs of this one.
            (Reach::Nodes(mine), _) => other.runs_on.is_empty() || mine.contains(&other.runs_on),
            (Reach::Objects, _) => self.objects.iter().any(|object| other.objects.contains(object)),
        }
    }
}
