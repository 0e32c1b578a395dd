//! How the questions of plans are asked.

use std::sync::Arc;

use capstan_operands::nim::nim_service::discovery;
use capstan_plan::{Answer, Question};
use capstan_runtime::ask::{How, Known, Silence};
use capstan_runtime::registry::Registries;
use capstan_runtime::{fetch, keys};

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

/// The same, with registries to ask about images; without, nobody asks about them.
pub(crate) fn with_registries(ask: &Ask, registries: Option<Registries>) -> How {
    let how = ask.0.clone();
    Arc::new(move |question| match (question, registries.clone()) {
        (Question::Image(image), Some(registries)) => Box::pin(async move {
            let labels = registries.labels(&image).await?;
            Ok(Answer::Image(Ok(labels)))
        }),
        (Question::Image(image), None) => {
            Box::pin(async move { Err(format!("no registry is asked about image {}", image.name).into()) })
        }
        (other, _) => how(other),
    })
}

/// What registries have told lately about the same image.
pub(crate) fn known_to(registries: Option<Registries>) -> Known {
    Arc::new(move |question| match question {
        Question::Image(image) => registries.as_ref()?.known_labels(image).map(|labels| Answer::Image(Ok(labels))),
        _ => None,
    })
}

async fn answer(question: Question) -> Result<Answer, Silence> {
    match question {
        Question::Model { url, .. } => Ok(Answer::Model(Ok(model(url.trim_end_matches('/')).await?))),
        Question::Image(image) => Err(format!("no registry is asked about image {}", image.name).into()),
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
