//! Who makes a request: bearer tokens and impersonation.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::json;

use super::query::percent_decode;
use crate::auth::{ANONYMOUS, AUTHENTICATED, Attributes, Auth, UNAUTHENTICATED, UserInfo};
use crate::error::{Result, Status};

const EXTRA: &str = "impersonate-extra-";

/// The user of a request. `default` is who it is without a token.
pub(crate) fn user(auth: &Auth, headers: &HeaderMap, default: &UserInfo) -> Result<UserInfo> {
    let user = match bearer(headers) {
        Some(token) => auth.identify(&token, &[]).ok_or_else(unauthorized)?.user,
        None => default.clone(),
    };
    impersonated(auth, user, headers)
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// The answer to a token that is not good.
pub(crate) fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

/// Whom the user wants to be seen as, if they may.
fn impersonated(auth: &Auth, user: UserInfo, headers: &HeaderMap) -> Result<UserInfo> {
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
    if wanted.name.is_empty() {
        if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
            return Ok(user);
        }
        return Err(without_user(&wanted));
    }
    for request in requests(&wanted) {
        auth.authorize(&user, &request)?;
    }
    complete(&mut wanted);
    Ok(wanted)
}

fn without_user(wanted: &UserInfo) -> Status {
    let what = if wanted.groups.is_empty() { &wanted.uid } else { &wanted.groups[0] };
    let message = format!("requested [{what}] without impersonating a user");
    Status::internal(message).with_details(json!({}))
}

/// What the user must be allowed to do in order to be seen as `wanted`.
fn requests(wanted: &UserInfo) -> Vec<Attributes> {
    let about = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| Attributes {
        verb: "impersonate".into(),
        is_resource: true,
        group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
        subresource: subresource.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..Attributes::default()
    };
    let authentication = "authentication.k8s.io";
    let mut requests = vec![match service_account(&wanted.name) {
        Some((namespace, name)) => about("", "serviceaccounts", "", namespace, name),
        None => about("", "users", "", "", &wanted.name),
    }];
    requests.extend(wanted.groups.iter().map(|group| about("", "groups", "", "", group)));
    for (key, values) in &wanted.extra {
        requests.extend(values.iter().map(|value| about(authentication, "userextras", key, "", value)));
    }
    if !wanted.uid.is_empty() {
        requests.push(about(authentication, "uids", "", "", &wanted.uid));
    }
    requests
}

/// Adds the groups that everybody of that name is in.
fn complete(wanted: &mut UserInfo) {
    if let (Some((namespace, _)), true) = (service_account(&wanted.name), wanted.groups.is_empty()) {
        let namespaced = format!("system:serviceaccounts:{namespace}");
        wanted.groups = vec!["system:serviceaccounts".into(), namespaced];
    }
    let everybody = if wanted.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !wanted.is_in(AUTHENTICATED) && !wanted.is_in(UNAUTHENTICATED) {
        wanted.groups.push(everybody.into());
    }
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

    #[test]
    fn an_administrator_may_be_anybody() {
        let auth = Auth::default();
        let seen = |pairs: &[(&'static str, &'static str)]| user(&auth, &headers(pairs), &UserInfo::admin()).unwrap();
        assert_eq!(seen(&[]), UserInfo::admin());
        let ann = seen(&[("impersonate-user", "ann"), ("impersonate-group", "a"), ("impersonate-group", "b")]);
        assert_eq!(
            (ann.name.as_str(), ann.groups.as_slice()),
            ("ann", &["a", "b", AUTHENTICATED].map(String::from)[..])
        );
        let bot = seen(&[("impersonate-user", "system:serviceaccount:ci:bot")]);
        assert!(bot.is_in("system:serviceaccounts:ci"));
        let tagged = seen(&[("impersonate-user", "ann"), ("impersonate-extra-acme.com%2fproject", "x")]);
        assert_eq!(tagged.extra["acme.com/project"], ["x"]);
    }

    #[test]
    fn others_may_not() {
        let pairs = [("impersonate-user", "system:serviceaccount:ci:bot")];
        let refused = user(&Auth::default(), &headers(&pairs), &UserInfo::new("eve", &[])).unwrap_err();
        assert_eq!(
            refused.message,
            r#"serviceaccounts "bot" is forbidden: User "eve" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "ci""#
        );
    }

    #[test]
    fn an_unknown_token_is_nobody() {
        let pairs = [("authorization", "Bearer nonsense")];
        assert_eq!(user(&Auth::default(), &headers(&pairs), &UserInfo::admin()).unwrap_err().code, 401);
    }
}
