//! The table: what Kubernetes says about its own types and k8s-openapi does not pass on.
//!
//! A row holds for every place where the type is embedded, in our CRDs as well as in the embedded API server.

use Fact::{Atomic, AtomicList, Bound, Default, MapList};

/// One thing that holds for a type or for a field of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fact {
    /// The object merges as one value.
    Atomic,
    /// These lists merge as one value.
    AtomicList(&'static [&'static str]),
    /// This list merges by these keys of its items.
    MapList(&'static str, &'static [&'static str]),
    /// This field is optional and has this value, in JSON, when it is absent.
    Default(&'static str, &'static str),
    /// This field has this keyword with this value, in JSON.
    Bound(&'static str, &'static str, &'static str),
}

/// Types by short name: `core.v1.X` is `io.k8s.api.core.v1.X`, `meta.v1.X` is of the API machinery.
pub(crate) const FACTS: &[(&str, &[Fact])] = &[
    ("autoscaling.v2.HPAScalingRules", &[AtomicList(&["policies"])]),
    ("core.v1.ConfigMapKeySelector", &[Atomic, Default("name", r#""""#)]),
    ("core.v1.ContainerPort", &[Default("protocol", r#""TCP""#)]),
    ("core.v1.ExecAction", &[AtomicList(&["command"])]),
    ("core.v1.FileKeySelector", &[Atomic, Default("optional", "false")]),
    ("core.v1.GRPCAction", &[Default("service", r#""""#)]),
    ("core.v1.HTTPGetAction", &[AtomicList(&["httpHeaders"])]),
    ("core.v1.LocalObjectReference", &[Atomic, Default("name", r#""""#)]),
    ("core.v1.NodeAffinity", &[AtomicList(&["preferredDuringSchedulingIgnoredDuringExecution"])]),
    ("core.v1.NodeSelector", &[Atomic, AtomicList(&["nodeSelectorTerms"])]),
    ("core.v1.NodeSelectorRequirement", &[AtomicList(&["values"])]),
    ("core.v1.NodeSelectorTerm", &[Atomic, AtomicList(&["matchExpressions", "matchFields"])]),
    ("core.v1.ObjectFieldSelector", &[Atomic]),
    ("core.v1.PodAffinity", AFFINITY_LISTS),
    ("core.v1.PodAffinityTerm", &[AtomicList(&["matchLabelKeys", "mismatchLabelKeys", "namespaces"])]),
    ("core.v1.PodAntiAffinity", AFFINITY_LISTS),
    ("core.v1.PodSecurityContext", &[AtomicList(&["supplementalGroups", "sysctls"])]),
    ("core.v1.ResourceFieldSelector", &[Atomic]),
    ("core.v1.ResourceRequirements", &[MapList("claims", &["name"])]),
    ("core.v1.SecretKeySelector", &[Atomic, Default("name", r#""""#)]),
    ("core.v1.TypedLocalObjectReference", &[Atomic]),
    (
        "meta.v1.Condition",
        &[
            Bound("message", "maxLength", "32768"),
            Bound("observedGeneration", "minimum", "0"),
            Bound("reason", "minLength", "1"),
            Bound("reason", "maxLength", "1024"),
            Bound("reason", "pattern", r#""^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$""#),
            Bound("status", "enum", r#"["True", "False", "Unknown"]"#),
            Bound("type", "maxLength", "316"),
            Bound("type", "pattern", CONDITION_TYPE),
        ],
    ),
    ("meta.v1.LabelSelector", &[Atomic, AtomicList(&["matchExpressions"])]),
    ("meta.v1.LabelSelectorRequirement", &[AtomicList(&["values"])]),
    ("networking.v1.HTTPIngressRuleValue", &[AtomicList(&["paths"])]),
    ("networking.v1.IngressSpec", &[AtomicList(&["rules", "tls"])]),
    ("networking.v1.IngressTLS", &[AtomicList(&["hosts"])]),
    ("networking.v1.ServiceBackendPort", &[Atomic]),
];

const AFFINITY_LISTS: &[Fact] = &[AtomicList(&[
    "preferredDuringSchedulingIgnoredDuringExecution",
    "requiredDuringSchedulingIgnoredDuringExecution",
])];

const CONDITION_TYPE: &str = r#""^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$""#;
