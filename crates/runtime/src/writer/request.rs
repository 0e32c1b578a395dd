//! One request: through the gate if it writes, counted by metrics, with verb and target in its error.

use std::time::Duration;

use capstan_plan::Ref;
use http::Request;
use kube::api::GetParams;
use serde_json::Value;
use tokio::time::timeout;

use super::Writer;
use crate::cache::uid;
use crate::error::{Class, Error};
use crate::kinds::Kind;

/// Timeout of a read.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);

type Built = Result<Request<Vec<u8>>, kube::core::request::Error>;

pub(super) async fn send(
    writer: &Writer,
    verb: &'static str,
    kind: &'static Kind,
    what: &Ref,
    request: Built,
) -> Result<Value, Error> {
    let request = request.map_err(|error| Error::request(verb, what, kube::Error::BuildRequest(error)))?;
    // Skip `managedFields`: half of the response, and unused.
    let response = async {
        let text = writer.client.request_text(request).await?;
        kind.read(&text).map_err(kube::Error::SerdeError)
    };
    let response = writer.gate.pass(verb, what, response).await;
    if !matches!(response, Err(Error::NotLeader)) {
        writer.metrics.request(verb, kind.label(), response.is_ok());
    }
    match &response {
        Ok(_) => tracing::debug!(verb, object = %what, "write succeeded"),
        Err(error) => tracing::debug!(verb, object = %what, error = error.chain(), "write failed"),
    }
    response
}

/// Whether the response to a deletion is the terminating object, not a `Status`, which has no uid.
pub(super) fn is_object(response: &Value) -> bool {
    !uid(response).is_empty()
}

pub(super) async fn get(writer: &Writer, kind: &'static Kind, what: &Ref) -> Result<Option<Value>, Error> {
    let path = kube::core::Request::new(kind.path(&what.namespace));
    let request = path.get(&what.name, &GetParams::default());
    let request = request.map_err(|error| Error::request("get", what, kube::Error::BuildRequest(error)))?;
    let response = timeout(READ_TIMEOUT, writer.client.request::<Value>(request)).await;
    writer.metrics.request("get", kind.label(), matches!(response, Ok(Ok(_))));
    match response {
        Err(_) => Err(Error::Timeout { verb: "get", what: what.to_string() }),
        Ok(Ok(object)) => Ok(Some(object)),
        Ok(Err(error)) => match Error::request("get", what, error) {
            error if error.class() == Class::NotFound => Ok(None),
            error => Err(error),
        },
    }
}
