//! Authentication of requests: bearer tokens and impersonation.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::query::percent_decode;
use crate::auth::{ANONYMOUS, AUTHENTICATED, Attributes, Auth, UNAUTHENTICATED, UserInfo};
use crate::error::{Result, Status};

const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
const NODE: &str = "system:node:";

/// The user of a request with the attributes `request`. `default` is the user without a token.
pub(crate) fn user(auth: &Auth, headers: &HeaderMap, default: &UserInfo, request: &Attributes) -> Result<UserInfo> {
    let user = match bearer(headers) {
        Some(token) => auth.identify(&token, &[]).ok_or_else(unauthorized)?.user,
        None => default.clone(),
    };
    match impersonated_user(headers)? {
        Some(wanted) => impersonate(auth, &user, &wanted, request),
        None => Ok(user),
    }
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// 401 for an invalid token.
pub(crate) fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

/// The impersonated user, from the headers.
fn impersonated_user(headers: &HeaderMap) -> Result<Option<UserInfo>> {
    let values = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let first = |name: &str| values(name).into_iter().next().unwrap_or_default();
    let mut wanted = UserInfo {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: values("impersonate-group"),
        ..UserInfo::default()
    };
    for name in headers.keys().filter(|name| name.as_str().starts_with(EXTRA)) {
        let key = percent_decode(&name.as_str()[EXTRA.len()..]).to_lowercase();
        wanted.extra.insert(key, values(name.as_str()));
    }
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == UserInfo::default() {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", go_syntax(&wanted))))
}

/// A user as Go's `%#v` prints it.
fn go_syntax(user: &UserInfo) -> String {
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
    let (name, uid) = (&user.name, &user.uid);
    format!("&user.DefaultInfo{{Name:{name:?}, UID:{uid:?}, Groups:{groups}, Extra:map[string][]string{extra}}}")
}

/// Impersonation mode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Constrained impersonation, for one kind of user and request: `impersonate:NAME` and `impersonate-on:NAME:VERB`.
    Constrained(&'static str),
    /// Legacy impersonation, for all requests: `impersonate`.
    Legacy,
}

/// The applicable modes, in order.
fn modes(user: &UserInfo, wanted: &UserInfo) -> Vec<Mode> {
    let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
    let node = wanted.name.strip_prefix(NODE).filter(|node| !node.is_empty());
    let mut modes = Vec::new();
    if let (Some(node), true) = (node, only_name) {
        let own = user.extra.get("authentication.kubernetes.io/node-name");
        if service_account(&user.name).is_some() && own.is_some_and(|own| own.len() == 1 && own[0] == node) {
            modes.push(Mode::Constrained("associated-node"));
        }
        modes.push(Mode::Constrained("arbitrary-node"));
    }
    let account = service_account(&wanted.name).is_some();
    if account && only_name {
        modes.push(Mode::Constrained("serviceaccount"));
    }
    if node.is_none() && !account {
        modes.push(Mode::Constrained("user-info"));
    }
    modes.push(Mode::Legacy);
    modes
}

/// The impersonated user, if one of the modes is authorized. Otherwise the error of the first mode.
fn impersonate(auth: &Auth, user: &UserInfo, wanted: &UserInfo, request: &Attributes) -> Result<UserInfo> {
    let mut refusal = None;
    for mode in modes(user, wanted) {
        let checked = needed(mode, wanted, request).iter().try_for_each(|needed| auth.authorize(user, needed));
        match checked {
            Ok(()) => return Ok(complete(mode, wanted)),
            Err(status) => refusal = refusal.or(Some(status)),
        }
    }
    Err(refusal.expect("at least one impersonation mode applies"))
}

/// The permissions that impersonation requires.
fn needed(mode: Mode, wanted: &UserInfo, request: &Attributes) -> Vec<Attributes> {
    let (verb, group) = match mode {
        Mode::Constrained(name) => (format!("impersonate:{name}"), AUTHENTICATION),
        Mode::Legacy => ("impersonate".to_owned(), ""),
    };
    let about = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| Attributes {
        verb: verb.clone(),
        is_resource: true,
        group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
        subresource: subresource.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..Attributes::default()
    };
    let mut needed = Vec::new();
    if let Mode::Constrained(name) = mode {
        needed.push(Attributes { verb: format!("impersonate-on:{name}:{}", request.verb), ..request.clone() });
    }
    let node = wanted.name.strip_prefix(NODE).filter(|_| mode != Mode::Legacy);
    needed.push(match (service_account(&wanted.name), node) {
        (Some((namespace, name)), _) => about(group, "serviceaccounts", "", namespace, name),
        (None, Some(_)) if mode == Mode::Constrained("associated-node") => about(group, "nodes", "", "", "*"),
        (None, Some(node)) => about(group, "nodes", "", "", node),
        (None, None) => about(group, "users", "", "", &wanted.name),
    });
    if !wanted.uid.is_empty() {
        needed.push(about(AUTHENTICATION, "uids", "", "", &wanted.uid));
    }
    needed.extend(wanted.groups.iter().map(|name| about(group, "groups", "", "", name)));
    for (key, values) in &wanted.extra {
        needed.extend(values.iter().map(|value| about(AUTHENTICATION, "userextras", key, "", value)));
    }
    needed
}

/// The user with the implied groups.
fn complete(mode: Mode, wanted: &UserInfo) -> UserInfo {
    let mut user = wanted.clone();
    if let (Some((namespace, _)), true) = (service_account(&user.name), user.groups.is_empty()) {
        user.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    }
    if mode != Mode::Legacy && user.name.starts_with(NODE) {
        user.groups = vec!["system:nodes".into()];
    }
    let everybody = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    let has_group = user.is_in(everybody) || everybody == AUTHENTICATED && user.is_in(UNAUTHENTICATED);
    if !has_group {
        user.groups.push(everybody.into());
    }
    user
}

/// Namespace and name of a service account, from its user name.
fn service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn list_pods() -> Attributes {
        Attributes { verb: "list".into(), is_resource: true, resource: "pods".into(), ..Attributes::default() }
    }

    fn seen(user: UserInfo, pairs: &[(&'static str, &'static str)]) -> Result<UserInfo> {
        super::user(&Auth::default(), &headers(pairs), &user, &list_pods())
    }

    #[test]
    fn an_administrator_may_be_anybody() {
        let seen = |pairs: &[(&'static str, &'static str)]| seen(UserInfo::admin(), pairs).unwrap();
        assert_eq!(seen(&[]), UserInfo::admin());
        let ann = seen(&[("impersonate-user", "ann"), ("impersonate-group", "a"), ("impersonate-group", "b")]);
        assert_eq!(
            (ann.name.as_str(), ann.groups.as_slice()),
            ("ann", &["a", "b", AUTHENTICATED].map(String::from)[..])
        );
        let bot = seen(&[("impersonate-user", "system:serviceaccount:ci:bot")]);
        assert!(bot.is_in("system:serviceaccounts:ci"));
        let node = seen(&[("impersonate-user", "system:node:n")]);
        assert_eq!(node.groups, ["system:nodes", AUTHENTICATED]);
        let tagged = seen(&[("impersonate-user", "ann"), ("impersonate-extra-acme.com%2fproject", "x")]);
        assert_eq!(tagged.extra["acme.com/project"], ["x"]);
    }

    #[test]
    fn others_may_not() {
        let refused = seen(UserInfo::new("eve", &[]), &[("impersonate-user", "system:serviceaccount:ci:bot")]);
        assert_eq!(
            refused.unwrap_err().message,
            r#"pods is forbidden: User "eve" cannot impersonate-on:serviceaccount:list resource "pods" in API group "" at the cluster scope"#
        );
    }

    #[test]
    fn the_old_permission_is_enough() {
        let auth = Auth::default();
        let mut policy = crate::auth::Policy::default();
        policy.add_role(
            br#"{"metadata":{"name":"r"},"rules":[{"apiGroups":[""],"resources":["users"],"verbs":["impersonate"]}]}"#,
        );
        policy.add_binding(
            br#"{"metadata":{"name":"b"},"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"eve"}]}"#,
        );
        auth.rbac.replace(policy);
        let (eve, wanted) = (UserInfo::new("eve", &[]), headers(&[("impersonate-user", "bob")]));
        assert_eq!(user(&auth, &wanted, &eve, &list_pods()).unwrap().name, "bob");
        let with_group = headers(&[("impersonate-user", "bob"), ("impersonate-group", "g")]);
        assert_eq!(user(&auth, &with_group, &eve, &list_pods()).unwrap_err().code, 403);
    }

    #[test]
    fn a_group_needs_a_user() {
        let refused = seen(UserInfo::admin(), &[("impersonate-group", "g")]).unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (
                400,
                r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)} without impersonating a user name"#
            )
        );
    }

    #[test]
    fn an_unknown_token_is_nobody() {
        assert_eq!(seen(UserInfo::admin(), &[("authorization", "Bearer nonsense")]).unwrap_err().code, 401);
    }
}
