//! Reads that no watch covers: pod logs, and values of Secrets, of which caches hold hashes only.

use std::future::Future;

use capstan_plan::{LogPart, Ref};
use http::Request;
use k8s_openapi::api::core::v1::Secret;
use tokio::time::timeout;

use crate::Runtime;
use crate::error::Error;
use crate::writer::READ_TIMEOUT;

impl Runtime {
    /// The log of the only container of a pod.
    pub async fn pod_log(&self, pod: &Ref, part: LogPart) -> Result<String, Error> {
        let query = match part {
            LogPart::Head(bytes) => format!("limitBytes={bytes}"),
            LogPart::Tail(lines) => format!("tailLines={lines}"),
        };
        let path = self.cache.kind(&pod.gvk)?.path(&pod.namespace);
        let request = Request::get(format!("{path}/{}/log?{query}", pod.name));
        let request = request.body(Vec::new()).map_err(kube::core::request::Error::BuildRequest);
        let request =
            request.map_err(|error| Error::request("read the log of", pod, kube::Error::BuildRequest(error)))?;
        self.read("log", pod, self.client.request_text(request)).await
    }

    /// The value of a key of a Secret; `None` if there is no such key, or no text in it.
    pub async fn secret_value(&self, secret: &Ref, key: &str) -> Result<Option<String>, Error> {
        let path = self.cache.kind(&secret.gvk)?.path(&secret.namespace);
        let request = Request::get(format!("{path}/{}", secret.name));
        let request = request.body(Vec::new()).map_err(kube::core::request::Error::BuildRequest);
        let request = request.map_err(|error| Error::request("get", secret, kube::Error::BuildRequest(error)))?;
        let read: Secret = self.read("get", secret, self.client.request(request)).await?;
        let value = read.data.and_then(|mut data| data.remove(key));
        Ok(value.and_then(|value| String::from_utf8(value.0).ok()))
    }

    async fn read<T>(
        &self,
        verb: &'static str,
        what: &Ref,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        let response = timeout(READ_TIMEOUT, request).await;
        let kind = self.cache.kind(&what.gvk).map_or("", |kind| kind.kind);
        self.metrics.request(verb, kind, matches!(response, Ok(Ok(_))));
        match response {
            Err(_) => Err(Error::Timeout { verb, what: what.to_string() }),
            Ok(response) => response.map_err(|error| Error::request(verb, what, error)),
        }
    }
}
