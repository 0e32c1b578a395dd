//! How an image gets its model: its labels say so.

use capstan_api::common::Proxy;
use capstan_plan::Answer;
use capstan_plan::kit::proxy;
use capstan_plan::{Facts, Image, Labels, Proxies, Question, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

/// The label, and its value on images that download by themselves.
const LABEL: &str = "com.nvidia.nim.model_download_protocol";
const NATIVE: &str = "native-v1";

/// How an image gets its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The serving engine downloads by itself into a folder; there are no profiles to choose from.
    Native,
    /// Programs in the image download profiles of a manifest.
    Legacy,
}

/// What is known about an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RegistryAnswer {
    /// The registry was not asked, because it cannot be or need not be.
    Unasked,
    /// It was asked and has not answered yet.
    Pending,
    /// It says so.
    As(Protocol),
    /// It does not say, or nothing that makes sense.
    Unknown(String),
}

/// The question about an image.
pub(super) fn question<'a>(
    namespace: &str,
    image: &str,
    secrets: impl IntoIterator<Item = &'a str>,
    proxy: Option<&Proxy>,
) -> Question {
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let own = |field: fn(&Proxy) -> Option<&String>| text(proxy.and_then(field));
    Question::Image(Image {
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

/// What is known, where `question` is the one that matters.
pub(super) fn told(facts: &Facts, question: Option<&Question>) -> RegistryAnswer {
    let Some(question) = question.filter(|_| facts.registries) else { return RegistryAnswer::Unasked };
    match facts.answers.get(question) {
        Some(Answer::Image(Ok(platforms))) => match protocol(platforms) {
            Ok(protocol) => RegistryAnswer::As(protocol),
            Err(why) => RegistryAnswer::Unknown(why),
        },
        Some(Answer::Image(Err(why))) => RegistryAnswer::Unknown(why.clone()),
        _ => RegistryAnswer::Pending,
    }
}

/// What the platforms of an image agree on.
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
