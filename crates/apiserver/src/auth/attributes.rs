//! Authorization attributes of a request.

use serde_json::json;

use super::UserInfo;
use crate::error::Status;

/// Authorization attributes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or the HTTP method in lower
    /// case for a non-resource path.
    pub verb: String,
    /// Whether this is a resource request; otherwise only `verb` and `path` are set.
    pub is_resource: bool,
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Object name, or empty.
    pub name: String,
    /// The request path.
    pub path: String,
}

impl Attributes {
    /// `pods` or `pods/log`.
    pub fn qualified(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// The 403 for `user`, with the authorizer's reason.
    pub fn forbidden(&self, user: &UserInfo, why: &str) -> Status {
        let what = self.refusal(user);
        let what = if why.is_empty() { what } else { format!("{what}: {why}") };
        let mut details = json!({});
        for (key, value) in [("name", &self.name), ("group", &self.group), ("kind", &self.resource)] {
            if !value.is_empty() {
                details[key] = value.as_str().into();
            }
        }
        let subject = match (self.resource.as_str(), self.group.as_str()) {
            ("", _) => String::new(),
            (resource, "") => resource.to_owned(),
            (resource, group) => format!("{resource}.{group}"),
        };
        let message = match (subject.as_str(), self.name.as_str()) {
            ("", _) => format!("forbidden: {what}"),
            (subject, "") => format!("{subject} is forbidden: {what}"),
            (subject, name) => format!("{subject} {name:?} is forbidden: {what}"),
        };
        Status::new(403, "Forbidden", message).with_details(details)
    }

    fn refusal(&self, user: &UserInfo) -> String {
        let (name, verb) = (&user.name, &self.verb);
        if !self.is_resource {
            return format!("User {name:?} cannot {verb} path {:?}", self.path);
        }
        let (resource, group) = (self.qualified(), &self.group);
        let scope = match self.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_worded_like_the_real_one() {
        let eve = UserInfo::new("eve", &[]);
        let pods =
            Attributes { verb: "list".into(), is_resource: true, resource: "pods".into(), ..Attributes::default() };
        let scale = Attributes {
            verb: "update".into(),
            group: "apps".into(),
            resource: "deployments".into(),
            subresource: "scale".into(),
            namespace: "shop".into(),
            name: "web".into(),
            ..pods.clone()
        };
        let path = Attributes { verb: "get".into(), path: "/metrics".into(), ..Attributes::default() };
        let cases = [
            (pods, r#"pods is forbidden: User "eve" cannot list resource "pods" in API group "" at the cluster scope"#),
            (
                scale,
                r#"deployments.apps "web" is forbidden: User "eve" cannot update resource "deployments/scale" in API group "apps" in the namespace "shop""#,
            ),
            (path, r#"forbidden: User "eve" cannot get path "/metrics""#),
        ];
        for (attributes, message) in cases {
            assert_eq!(attributes.forbidden(&eve, "").message, message);
        }
    }
}
