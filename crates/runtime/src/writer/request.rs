//! One request: through the gate if it writes, counted, with an error that says what was tried.

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

/// No read waits longer than this for its answer.
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
    // Who manages which field is half of an answer, and nobody reads it.
    let answer = async {
        let text = writer.client.request_text(request).await?;
        kind.read(&text).map_err(kube::Error::SerdeError)
    };
    let answer = writer.gate.pass(verb, what, answer).await;
    if !matches!(answer, Err(Error::NotLeader)) {
        writer.metrics.request(verb, kind.label(), answer.is_ok());
    }
    match &answer {
        Ok(_) => tracing::debug!(verb, object = %what, "wrote"),
        Err(error) => tracing::debug!(verb, object = %what, error = error.chain(), "write failed"),
    }
    answer
}

/// Whether an answer to a deletion is the object, which stays for a while: a status has no identity.
pub(super) fn stays(answer: &Value) -> bool {
    !uid(answer).is_empty()
}

pub(super) async fn get(writer: &Writer, kind: &'static Kind, what: &Ref) -> Result<Option<Value>, Error> {
    let path = kube::core::Request::new(kind.path(&what.namespace));
    let request = path.get(&what.name, &GetParams::default());
    let request = request.map_err(|error| Error::request("get", what, kube::Error::BuildRequest(error)))?;
    let answer = timeout(READ_TIMEOUT, writer.client.request::<Value>(request)).await;
    writer.metrics.request("get", kind.label(), matches!(answer, Ok(Ok(_))));
    match answer {
        Err(_) => Err(Error::Timeout { verb: "get", what: what.to_string() }),
        Ok(Ok(object)) => Ok(Some(object)),
        Ok(Err(error)) => match Error::request("get", what, error) {
            error if error.class() == Class::NotFound => Ok(None),
            error => Err(error),
        },
    }
}
