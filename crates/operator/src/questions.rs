//! How the questions of plans are asked.

use std::sync::Arc;

use capstan_operands::inference::nim_service::discovery;
use capstan_plan::{Answer, Question};
use capstan_runtime::ask::How;
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

async fn answer(question: Question) -> Result<Answer, String> {
    match question {
        Question::Model { url, .. } => model(url.trim_end_matches('/')).await.map(|name| Answer::Model(Ok(name))),
        Question::PrivateKey { .. } => keys::private_key().map(Answer::PrivateKey).map_err(|error| error.to_string()),
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
