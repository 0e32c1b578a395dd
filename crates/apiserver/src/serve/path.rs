//! Request info: what a method and path refer to.

use http::Method;

use super::query::{Query, percent_decode};
use crate::auth::Attributes;

/// A parsed request path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The full path.
    pub full: String,
    /// `/api/VERSION/…` or `/apis/GROUP/VERSION/…` with a resource in it.
    pub is_resource: bool,
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Object name, or empty.
    pub name: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// What follows the subresource, as in `…/proxy/some/path`.
    pub rest: String,
    /// Whether the deprecated `/watch/` prefix was used.
    pub watch_prefix: bool,
}

impl Path {
    /// Parses a path.
    pub fn parse(full: &str) -> Self {
        let mut path = Self { full: full.to_owned(), ..Self::default() };
        let parts: Vec<String> = full.split('/').filter(|part| !part.is_empty()).map(percent_decode).collect();
        let mut parts = parts.into_iter();
        match parts.next().as_deref() {
            Some("api") => {}
            Some("apis") => path.group = parts.next().unwrap_or_default(),
            _ => return path,
        }
        path.version = parts.next().unwrap_or_default();
        let mut parts: Vec<String> = parts.collect();
        if path.version.is_empty() || parts.is_empty() {
            return path;
        }
        if parts.len() > 1 && parts[0] == "watch" {
            path.watch_prefix = true;
            parts.remove(0);
        }
        path.is_resource = true;
        let namespaced = parts[0] == "namespaces" && parts.len() > 1;
        if namespaced {
            path.namespace = parts[1].clone();
            // `namespaces/NAME` and its subresources refer to the namespace itself.
            let own = parts.len() == 2 || matches!(parts[2].as_str(), "status" | "finalize") && parts.len() == 3;
            if !own {
                parts.drain(..2);
            }
        }
        let mut parts = parts.into_iter();
        path.resource = parts.next().unwrap_or_default();
        path.name = parts.next().unwrap_or_default();
        path.subresource = parts.next().unwrap_or_default();
        path.rest = parts.collect::<Vec<_>>().join("/");
        path
    }

    /// The API verb; `watch` and `list` differ by the query.
    pub(crate) fn verb(&self, method: &Method, query: &Query) -> &'static str {
        let one = !self.name.is_empty();
        match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if one => "delete",
            Method::DELETE => "deletecollection",
            Method::GET | Method::HEAD if self.watch_prefix => "watch",
            Method::GET | Method::HEAD if !one && query.flag("watch") => "watch",
            Method::GET | Method::HEAD if one => "get",
            Method::GET | Method::HEAD => "list",
            _ => "",
        }
    }

    /// The authorization attributes.
    pub(crate) fn attributes(&self, method: &Method, query: &Query) -> Attributes {
        if !self.is_resource {
            return Attributes {
                verb: method.as_str().to_ascii_lowercase(),
                path: self.full.clone(),
                ..Attributes::default()
            };
        }
        let verb = self.verb(method, query);
        // A list with a field selector for one name is authorized as a request for that object.
        let listed = matches!(verb, "list" | "watch" | "deletecollection") && self.name.is_empty();
        let name = if listed { named(query).unwrap_or_default() } else { self.name.clone() };
        Attributes {
            verb: verb.to_owned(),
            is_resource: true,
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name,
            path: self.full.clone(),
        }
    }
}

/// The name that a field selector requires.
fn named(query: &Query) -> Option<String> {
    let selector = query.first("fieldSelector")?;
    let name = selector.split(',').find_map(|term| term.trim().strip_prefix("metadata.name="))?;
    let name = name.trim_start_matches('=');
    (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_path_is_too_odd(text in r"(/(api|apis|v1|watch|namespaces|a|%2F|%|))*") {
            let path = Path::parse(&text);
            for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
                path.attributes(&method, &Query::parse("watch=1"));
            }
        }
    }

    #[test]
    fn paths_mean_what_they_mean_to_a_real_server() {
        let cases = [
            ("/api/v1/pods", ["", "v1", "", "pods", "", ""]),
            ("/api/v1/namespaces/a/pods/b/log", ["", "v1", "a", "pods", "b", "log"]),
            ("/api/v1/namespaces/a", ["", "v1", "a", "namespaces", "a", ""]),
            ("/api/v1/namespaces/a/finalize", ["", "v1", "a", "namespaces", "a", "finalize"]),
            ("/apis/apps/v1/namespaces/a/deployments/b/scale", ["apps", "v1", "a", "deployments", "b", "scale"]),
            ("/apis/apps/v1/deployments", ["apps", "v1", "", "deployments", "", ""]),
            ("/api/v1/watch/namespaces/a/pods", ["", "v1", "a", "pods", "", ""]),
            ("/apis/x.y/v1/things/a%2Fb", ["x.y", "v1", "", "things", "a/b", ""]),
        ];
        for (text, expected) in cases {
            let path = Path::parse(text);
            let got = [&path.group, &path.version, &path.namespace, &path.resource, &path.name, &path.subresource];
            assert_eq!(got.map(String::as_str), expected, "{text}");
            assert!(path.is_resource);
        }
        let query = Query::parse("fieldSelector=metadata.name%3Da");
        assert_eq!(Path::parse("/api/v1/pods").attributes(&Method::GET, &query).name, "a");
        for text in ["/", "/api", "/apis/apps", "/apis/apps/v1", "/healthz", "/openapi/v2"] {
            assert!(!Path::parse(text).is_resource, "{text}");
        }
    }
}
