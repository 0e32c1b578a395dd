//! Reset fields: those that an endpoint may not set. The main endpoint cannot change the status, the status subresource
//! nothing else; ignored fields are never recorded as owned.

use super::set::Set;

/// The reset fields of an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Reset {
    rule: Rule,
    /// Whether it is a custom resource: then the rule applies only to the version of the request.
    pub(crate) custom: bool,
}

#[derive(Clone, Debug, Default)]
enum Rule {
    #[default]
    Nothing,
    /// These fields, and everything below them.
    Fields(Set),
    /// Everything except these and what is below; `None` matches any item.
    AllBut(&'static [&'static [Option<&'static str>]]),
}

const RESIZE: &[&[Option<&str>]] = &[
    &[Some("spec"), Some("containers"), None, Some("resources")],
    &[Some("spec"), Some("containers"), None, Some("resizePolicy")],
    &[Some("spec"), Some("initContainers"), None, Some("resources")],
    &[Some("spec"), Some("initContainers"), None, Some("resizePolicy")],
];

/// Kinds whose status subresource may also change metadata.
const STATUS_KEEPS_METADATA: &[&str] = &[
    "apiservices",
    "devicetaintrules",
    "flowschemas",
    "podcertificaterequests",
    "podgroups",
    "prioritylevelconfigurations",
    "resourceclaims",
    "servicecidrs",
    "storageversionmigrations",
    "storageversions",
    "validatingadmissionpolicies",
    "volumeattachments",
];

impl Reset {
    /// For a built-in resource; `subresource` is empty for the main endpoint, `has_status` tells whether there is a
    /// status subresource.
    pub fn builtin(plural: &str, subresource: &str, has_status: bool) -> Self {
        let fields = |paths: &[&[&str]]| Rule::Fields(Set::of_fields(paths));
        let rule = match (plural, subresource) {
            ("certificatesigningrequests", "") => fields(&[&["spec"], &["status"]]),
            ("certificatesigningrequests", "status") => fields(&[&["spec"], &["status", "conditions"]]),
            ("certificatesigningrequests", "approval") => fields(&[&["spec"], &["status", "certificate"]]),
            ("csinodes", "") => fields(&[&["status"]]),
            ("deployments", "status") => fields(&[&["spec"], &["metadata", "labels"]]),
            ("namespaces", "finalize") => fields(&[&["status"]]),
            ("pods", "status") => {
                fields(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            ("pods", "ephemeralcontainers") => Rule::AllBut(&[&[Some("spec"), Some("ephemeralContainers")]]),
            ("pods", "resize") => Rule::AllBut(RESIZE),
            (plural, "status") if STATUS_KEEPS_METADATA.contains(&plural) => fields(&[&["spec"], &["metadata"]]),
            (_, "status") => fields(&[&["spec"]]),
            (_, "") if has_status => fields(&[&["status"]]),
            _ => Rule::Nothing,
        };
        Self { rule, custom: false }
    }

    /// For a custom resource.
    pub fn custom(subresource: &str, has_status: bool) -> Self {
        let rule = match subresource {
            "status" => Rule::Fields(Set::of_fields(&[&["metadata"], &["spec"]])),
            "" if has_status => Rule::Fields(Set::of_fields(&[&["status"]])),
            _ => Rule::Nothing,
        };
        Self { rule, custom: true }
    }

    /// `set` without the reset fields.
    pub(crate) fn filter(&self, set: &Set, same_version: bool) -> Set {
        match &self.rule {
            _ if self.custom && !same_version => set.clone(),
            Rule::Nothing => set.clone(),
            Rule::Fields(fields) => set.without_subtrees(fields),
            Rule::AllBut(prefixes) => set.matching(prefixes),
        }
    }
}
