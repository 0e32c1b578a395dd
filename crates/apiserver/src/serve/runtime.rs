//! Container runtime interface of the API: logs, and streams for exec, attach and port forwarding.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::Response;
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::api::{Call, Inner};
use super::body::Body;
use super::respond;
use crate::error::{Result, Status};
use crate::ops::{GetOptions, Target};
use crate::store::Object;

/// Runs the containers of pods: implemented by the node simulator.
pub trait Runtime: Send + Sync + 'static {
    /// The log of a container.
    fn logs<'a>(&'a self, pod: &'a Object, options: LogOptions) -> BoxFuture<'a, Result<BoxStream<'static, Bytes>>>;

    /// Runs a command in a container. Returns its exit code, which is reported once the output streams are dropped.
    fn exec<'a>(&'a self, pod: &'a Object, options: ExecOptions, streams: Streams) -> BoxFuture<'a, Result<i32>> {
        let _ = (pod, options, streams);
        Box::pin(std::future::ready(Err(no_runtime())))
    }

    /// Attaches to the main process of a container, until it exits. Returns its exit code.
    fn attach<'a>(&'a self, pod: &'a Object, options: ExecOptions, streams: Streams) -> BoxFuture<'a, Result<i32>> {
        let _ = (pod, options, streams);
        Box::pin(std::future::ready(Err(no_runtime())))
    }

    /// Copies bytes to and from a port of a pod, until one side closes.
    fn port_forward<'a>(&'a self, pod: &'a Object, port: u16, stream: DuplexStream) -> BoxFuture<'a, Result<()>> {
        let _ = (pod, port, stream);
        Box::pin(std::future::ready(Err(no_runtime())))
    }
}

/// Options of exec and attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOptions {
    /// Container; the server has checked that it exists.
    pub container: String,
    /// Program and arguments; empty for attach.
    pub command: Vec<String>,
    /// Whether stdin is attached.
    pub stdin: bool,
    /// Whether stdout is attached.
    pub stdout: bool,
    /// Whether stderr is attached.
    pub stderr: bool,
    /// Whether it is a TTY.
    pub tty: bool,
}

/// The streams of a command. Streams that the client did not request exist, but are discarded.
#[derive(Debug)]
pub struct Streams {
    /// Input; ends when the client closes it.
    pub stdin: DuplexStream,
    /// Output.
    pub stdout: DuplexStream,
    /// Error output.
    pub stderr: DuplexStream,
    /// Terminal resizes, in columns and rows.
    pub resize: mpsc::Receiver<(u16, u16)>,
}

/// Options of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Container; the server has checked that it exists.
    pub container: String,
    /// Whether to stream new lines.
    pub follow: bool,
    /// The log of the previous container instance.
    pub previous: bool,
    /// Only lines of the last seconds.
    pub since_seconds: Option<i64>,
    /// Only lines since this time.
    pub since_time: Option<jiff::Timestamp>,
    /// Whether each line starts with its timestamp.
    pub timestamps: bool,
    /// Only this many lines from the end.
    pub tail_lines: Option<usize>,
    /// Only this many bytes.
    pub limit_bytes: Option<usize>,
}

/// The error if no runtime is set.
pub(super) fn no_runtime() -> Status {
    Status::new(501, "NotImplemented", "nothing runs containers on this server")
}

/// `pods/NAME/log`.
pub(super) async fn log(inner: &Inner, call: &Call, target: &Target) -> Result<Response<Body>> {
    let pod_target = Target { subresource: None, ..target.clone() };
    let pod = inner.server.get(&call.caller, &pod_target, &GetOptions::default()).await?;
    let query = &call.query;
    let number = |key: &str| query.first(key).and_then(|text| text.parse::<i64>().ok());
    let options = LogOptions {
        container: container(&pod.value(), query.first("container").unwrap_or_default())?,
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        since_seconds: number("sinceSeconds"),
        since_time: query.first("sinceTime").and_then(|text| text.parse().ok()),
        timestamps: query.flag("timestamps"),
        tail_lines: number("tailLines").and_then(|lines| usize::try_from(lines).ok()),
        limit_bytes: number("limitBytes").and_then(|bytes| usize::try_from(bytes).ok()),
    };
    let runtime = inner.runtime.get().ok_or_else(no_runtime)?;
    let stream = runtime.logs(&pod, options).await?;
    Ok(respond::answer(200, "text/plain", Body::stream(stream)))
}

/// `…/proxy`: simulated services and pods have no HTTP endpoints.
pub(super) async fn proxy(inner: &Inner, call: &Call, target: &Target) -> Result<Response<Body>> {
    let name = target.name.as_deref().unwrap_or_default();
    if &*target.resource.plural == "services" {
        let message = format!("no endpoints available for service {name:?}");
        return Err(Status::new(503, "ServiceUnavailable", message));
    }
    let object = Target { subresource: None, ..target.clone() };
    inner.server.get(&call.caller, &object, &GetOptions::default()).await?;
    Err(no_runtime())
}

/// The requested container, or the only one.
pub(super) fn container(pod: &Value, wanted: &str) -> Result<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let names = |field: &str| -> Vec<String> {
        let list = pod["spec"][field].as_array().into_iter().flatten();
        list.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
    };
    let (plain, init, ephemeral) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    if wanted.is_empty() {
        return match plain.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
            many => {
                let mut message =
                    format!("a container name must be specified for pod {name}, choose one of: [{}]", many.join(" "));
                if !init.is_empty() {
                    message += &format!(" or one of the init containers: [{}]", init.join(" "));
                }
                Err(Status::bad_request(message))
            }
        };
    }
    if [plain, init, ephemeral].concat().iter().any(|name| name == wanted) {
        return Ok(wanted.to_owned());
    }
    Err(Status::bad_request(format!("container {wanted} is not valid for pod {name}")))
}
