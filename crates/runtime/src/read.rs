//! Reads that no watch serves: what pods print.

use std::future::Future;

use capstan_plan::Ref;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::timeout;

use crate::Runtime;
use crate::error::Error;
use crate::writer::PATIENCE;

/// Which part of a log to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// At most this many bytes from its beginning.
    Head(u32),
    /// At most this many lines from its end.
    Tail(u16),
}

impl Runtime {
    /// What the only container of a pod has printed.
    pub async fn pod_log(&self, namespace: &str, pod: &str, part: Part) -> Result<String, Error> {
        let query = match part {
            Part::Head(bytes) => format!("limitBytes={bytes}"),
            Part::Tail(lines) => format!("tailLines={lines}"),
        };
        let what = Ref::of::<Pod>(namespace, pod);
        let request = Request::get(format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?{query}"));
        let request = request.body(Vec::new()).map_err(kube::core::request::Error::BuildRequest);
        let request =
            request.map_err(|error| Error::request("read the log of", &what, kube::Error::BuildRequest(error)))?;
        self.answered("log", &what, self.client.request_text(request)).await
    }

    async fn answered<T>(
        &self,
        verb: &'static str,
        what: &Ref,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        let answer = timeout(PATIENCE, request).await;
        let kind = self.cache.kind(&what.gvk).map_or("", |kind| kind.kind);
        self.metrics.request(verb, kind, matches!(answer, Ok(Ok(_))));
        match answer {
            Err(_) => Err(Error::Timeout { verb, what: what.to_string() }),
            Ok(answer) => answer.map_err(|error| Error::request(verb, what, error)),
        }
    }
}
