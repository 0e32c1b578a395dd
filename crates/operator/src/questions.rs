//! How the questions of plans are asked.

use std::sync::Arc;

use capstan_operands::nim::nim_service::discovery;
use capstan_plan::{Answer, Question, Sensitive};
use capstan_runtime::ask::{How, Known, Silence};
use capstan_runtime::registry::Registries;
use capstan_runtime::{Runtime, fetch, keys};

use crate::Options;

/// How questions are asked.
#[derive(Clone)]
pub struct Ask(pub How);

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ask")
    }
}

impl Ask {
    /// Over the network of the cluster that we run in.
    pub fn network() -> Self {
        Self(Arc::new(|question| Box::pin(answer(question))))
    }

    /// Without a network: virtual pods tell nothing.
    pub fn offline() -> Self {
        Self(Arc::new(|question| {
            Box::pin(async move {
                match question {
                    Question::Model { .. } => Ok(Answer::Model(Ok(String::new()))),
                    other => answer(other).await,
                }
            })
        }))
    }
}

/// How plans find out what the caches do not tell.
#[derive(Clone)]
pub(crate) struct Asking {
    /// How questions are asked.
    pub(crate) how: How,
    /// What can be told without asking anybody.
    pub(crate) known: Known,
    /// Whether registries are asked.
    pub(crate) registries: bool,
}

impl Asking {
    /// As the options say. Logs of pods and Secrets are always read from the cluster that we work on.
    pub(crate) fn new(runtime: &Runtime, options: &Options) -> Self {
        let registries = options.registries.map(|timeout| Registries::new(runtime.client.clone(), timeout));
        let (known_to, runtime, other) = (registries.clone(), runtime.clone(), options.ask.0.clone());
        Self {
            registries: registries.is_some(),
            // What registries have told lately about the same image.
            known: Arc::new(move |question| match question {
                Question::Image(image) => {
                    known_to.as_ref()?.known_labels(image).map(|labels| Answer::Image(Ok(labels)))
                }
                _ => None,
            }),
            how: Arc::new(move |question| match (question, registries.clone()) {
                (Question::Image(image), Some(registries)) => Box::pin(async move {
                    let labels = registries.labels(&image).await?;
                    Ok(Answer::Image(Ok(labels)))
                }),
                (Question::PodLog { pod, part, .. }, _) => {
                    let runtime = runtime.clone();
                    Box::pin(async move {
                        let log = runtime.pod_log(&pod, part).await.map_err(|error| error.chain())?;
                        Ok(Answer::PodLog(Ok(log.into())))
                    })
                }
                (Question::SecretValue { secret, key, .. }, _) => {
                    let runtime = runtime.clone();
                    Box::pin(async move {
                        let value = runtime.secret_value(&secret, &key).await.map_err(|error| error.chain())?;
                        let absent = || format!("{secret} has no key {key:?} with text in it");
                        Ok(Answer::SecretValue(Ok(Sensitive(value.ok_or_else(absent)?))))
                    })
                }
                (question, _) => other(question),
            }),
        }
    }
}

async fn answer(question: Question) -> Result<Answer, Silence> {
    match question {
        Question::Model { url, .. } => Ok(Answer::Model(Ok(model(url.trim_end_matches('/')).await?))),
        Question::Image(image) => Err(format!("no registry is asked about image {}", image.name).into()),
        Question::PodLog { pod, .. } => Err(format!("nobody reads the log of {pod}").into()),
        Question::SecretValue { secret, .. } => Err(format!("nobody reads {secret}").into()),
        Question::PrivateKey { .. } => {
            let key = keys::private_key().map_err(|error| Silence::Ours(error.to_string()))?;
            Ok(Answer::PrivateKey(key))
        }
    }
}

async fn model(url: &str) -> Result<String, String> {
    let (status, body) = fetch::get(&format!("{url}{}", discovery::MODELS)).await?;
    if let Some(name) = discovery::from_models(status, &body)? {
        return Ok(name);
    }
    let (status, body) = fetch::get(&format!("{url}{}", discovery::METADATA)).await?;
    discovery::from_metadata(status, &body)
}
