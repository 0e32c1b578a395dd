//! How an image downloads its model, by its labels.

use capstan_api::common::Proxy;
use capstan_plan::QueryResult;
use capstan_plan::kit::proxy;
use capstan_plan::{Facts, Image, Labels, Proxies, Query, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

/// The label, and its value on images that download models themselves.
const LABEL: &str = "com.nvidia.nim.model_download_protocol";
const NATIVE: &str = "native-v1";

/// How an image downloads its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The serving engine downloads into a directory; there are no profiles.
    Native,
    /// Programs in the image download profiles of a manifest.
    Legacy,
}

/// The result of a registry query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImageProtocol {
    /// Not queried, because it cannot or need not be.
    NotQueried,
    /// Pending.
    Pending,
    /// Known.
    Known(Protocol),
    /// Failed, or without a usable label.
    Unknown(String),
}

/// The query for an image.
pub(super) fn query<'a>(
    namespace: &str,
    image: &str,
    secrets: impl IntoIterator<Item = &'a str>,
    proxy: Option<&Proxy>,
) -> Query {
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let own = |field: fn(&Proxy) -> Option<&String>| text(proxy.and_then(field));
    Query::Image(Image {
        name: image.into(),
        secrets: secrets.into_iter().map(|name| Ref::of::<Secret>(namespace, name)).collect(),
        proxy: Proxies {
            http: own(|proxy| proxy.http_proxy.as_ref()),
            https: own(|proxy| proxy.https_proxy.as_ref()),
            none: own(|proxy| proxy.no_proxy.as_ref()),
        },
        certificates: proxy::certificates(proxy).map(|name| Ref::of::<ConfigMap>(namespace, name)),
    })
}

/// What is known, where `query` is the one that matters.
pub(super) fn image_protocol(facts: &Facts, query: Option<&Query>) -> ImageProtocol {
    let Some(query) = query.filter(|_| facts.registries) else { return ImageProtocol::NotQueried };
    match facts.query_results.get(query) {
        Some(QueryResult::Image(Ok(platforms))) => match protocol(platforms) {
            Ok(protocol) => ImageProtocol::Known(protocol),
            Err(why) => ImageProtocol::Unknown(why),
        },
        Some(QueryResult::Image(Err(why))) => ImageProtocol::Unknown(why.clone()),
        _ => ImageProtocol::Pending,
    }
}

/// The protocol that all platforms of an image have.
fn protocol(platforms: &[Labels]) -> Result<Protocol, String> {
    let native = |labels: &&Labels| labels.get(LABEL).is_some_and(|value| value == NATIVE);
    match platforms.iter().filter(native).count() {
        _ if platforms.is_empty() => Err("the image has no platform whose labels can be read".into()),
        0 => Ok(Protocol::Legacy),
        all if all == platforms.len() => Ok(Protocol::Native),
        some => Err(format!(
            "{some} of the {} platforms of the image have the label {LABEL}={NATIVE}, the others do not",
            platforms.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(value: &str) -> Labels {
        Labels::from([(LABEL.to_owned(), value.to_owned())])
    }

    #[test]
    fn all_platforms_of_an_image_must_agree() {
        assert_eq!(protocol(&[labelled(NATIVE), labelled(NATIVE)]), Ok(Protocol::Native));
        assert_eq!(protocol(&[Labels::new()]), Ok(Protocol::Legacy));
        assert_eq!(protocol(&[labelled("native-v2")]), Ok(Protocol::Legacy));
        assert!(protocol(&[labelled(NATIVE), Labels::new()]).unwrap_err().contains("1 of the 2 platforms"));
        assert!(protocol(&[]).is_err());
    }
}
