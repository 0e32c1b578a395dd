//! How the external queries of plans run.

use std::sync::Arc;

use capstan_operands::nim::nim_service::discovery;
use capstan_plan::{Query, QueryResult, Sensitive};
use capstan_runtime::query::{CachedFn, QueryError, QueryFn};
use capstan_runtime::registry::Registries;
use capstan_runtime::{Runtime, fetch, keys};

use crate::Options;

/// The backend of external queries.
#[derive(Clone)]
pub struct QueryBackend(pub QueryFn);

impl std::fmt::Debug for QueryBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ask")
    }
}

impl QueryBackend {
    /// Over the network of the cluster that we run in.
    pub fn network() -> Self {
        Self(Arc::new(|query| Box::pin(run_query(query))))
    }

    /// Without a network: virtual pods report no model.
    pub fn offline() -> Self {
        Self(Arc::new(|query| {
            Box::pin(async move {
                match query {
                    Query::Model { .. } => Ok(QueryResult::Model(Ok(String::new()))),
                    other => run_query(other).await,
                }
            })
        }))
    }
}

/// Sources of query results.
#[derive(Clone)]
pub(crate) struct QuerySources {
    /// Runs a query.
    pub(crate) run: QueryFn,
    /// Looks up a cached result.
    pub(crate) cached: CachedFn,
    /// Whether registries are queried.
    pub(crate) registries: bool,
}

impl QuerySources {
    /// From the options. Pod logs and Secrets are always read from the cluster that we reconcile.
    pub(crate) fn new(runtime: &Runtime, options: &Options) -> Self {
        let registries = options.registries.map(|timeout| Registries::new(runtime.client.clone(), timeout));
        let (image_cache, runtime, other) = (registries.clone(), runtime.clone(), options.query_backend.0.clone());
        Self {
            registries: registries.is_some(),
            // Labels that were read lately for the same image.
            cached: Arc::new(move |query| match query {
                Query::Image(image) => {
                    image_cache.as_ref()?.known_labels(image).map(|labels| QueryResult::Image(Ok(labels)))
                }
                _ => None,
            }),
            run: Arc::new(move |query| match (query, registries.clone()) {
                (Query::Image(image), Some(registries)) => Box::pin(async move {
                    let labels = registries.labels(&image).await?;
                    Ok(QueryResult::Image(Ok(labels)))
                }),
                (Query::PodLog { pod, part, .. }, _) => {
                    let runtime = runtime.clone();
                    Box::pin(async move {
                        let log = runtime.pod_log(&pod, part).await.map_err(|error| error.chain())?;
                        Ok(QueryResult::PodLog(Ok(log.into())))
                    })
                }
                (Query::SecretValue { secret, key, .. }, _) => {
                    let runtime = runtime.clone();
                    Box::pin(async move {
                        let value = runtime.secret_value(&secret, &key).await.map_err(|error| error.chain())?;
                        let absent = || format!("{secret} has no key {key:?} with text in it");
                        Ok(QueryResult::SecretValue(Ok(Sensitive(value.ok_or_else(absent)?))))
                    })
                }
                (query, _) => other(query),
            }),
        }
    }
}

async fn run_query(query: Query) -> Result<QueryResult, QueryError> {
    match query {
        Query::Model { url, .. } => Ok(QueryResult::Model(Ok(model(url.trim_end_matches('/')).await?))),
        Query::Image(image) => Err(format!("no registry is asked about image {}", image.name).into()),
        Query::PodLog { pod, .. } => Err(format!("nobody reads the log of {pod}").into()),
        Query::SecretValue { secret, .. } => Err(format!("nobody reads {secret}").into()),
        Query::PrivateKey { .. } => {
            let key = keys::private_key().map_err(|error| QueryError::NotSent(error.to_string()))?;
            Ok(QueryResult::PrivateKey(key))
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
