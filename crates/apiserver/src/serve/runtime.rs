//! What runs containers, as far as the API needs it: logs, and streams for exec, attach and port forwarding.

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

/// What runs the containers of pods: supplied by whoever simulates nodes.
pub trait Runtime: Send + Sync + 'static {
    /// The log of a container.
    fn logs<'a>(&'a self, pod: &'a Object, options: LogOptions) -> BoxFuture<'a, Result<BoxStream<'static, Bytes>>>;

    /// Runs a command in a container. The answer is its exit code; it counts once the output streams are dropped.
    fn exec<'a>(&'a self, pod: &'a Object, options: ExecOptions, streams: Streams) -> BoxFuture<'a, Result<i32>> {
        let _ = (pod, options, streams);
        Box::pin(std::future::ready(Err(no_runtime())))
    }

    /// Joins the streams of the main process of a container, until it ends. The answer is its exit code.
    fn attach<'a>(&'a self, pod: &'a Object, options: ExecOptions, streams: Streams) -> BoxFuture<'a, Result<i32>> {
        let _ = (pod, options, streams);
        Box::pin(std::future::ready(Err(no_runtime())))
    }

    /// Carries bytes to and from a port of a pod, until one side ends.
    fn port_forward<'a>(&'a self, pod: &'a Object, port: u16, stream: DuplexStream) -> BoxFuture<'a, Result<()>> {
        let _ = (pod, port, stream);
        Box::pin(std::future::ready(Err(no_runtime())))
    }
}

/// What to run in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOptions {
    /// Container; the server has checked that the pod has it.
    pub container: String,
    /// Program and arguments; empty for attach.
    pub command: Vec<String>,
    /// Whether there is input.
    pub stdin: bool,
    /// Whether output is wanted.
    pub stdout: bool,
    /// Whether error output is wanted.
    pub stderr: bool,
    /// Whether it is a terminal.
    pub tty: bool,
}

/// The streams of a command. What the client did not ask for is there as well, but leads nowhere.
#[derive(Debug)]
pub struct Streams {
    /// To read from; it ends when the client says so.
    pub stdin: DuplexStream,
    /// To write to.
    pub stdout: DuplexStream,
    /// To write to.
    pub stderr: DuplexStream,
    /// New sizes of the terminal, in columns and rows.
    pub resize: mpsc::Receiver<(u16, u16)>,
}

/// Which part of a log is wanted, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Container; the server has checked that the pod has it.
    pub container: String,
    /// Whether to wait for more.
    pub follow: bool,
    /// The log of the instance before the last restart.
    pub previous: bool,
    /// Only lines since so many seconds.
    pub since_seconds: Option<i64>,
    /// Only lines since this time.
    pub since_time: Option<jiff::Timestamp>,
    /// Whether each line starts with its time.
    pub timestamps: bool,
    /// Only so many lines from the end.
    pub tail_lines: Option<usize>,
    /// Only so many bytes.
    pub limit_bytes: Option<usize>,
}

/// The answer where nothing runs containers.
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

/// `…/proxy`: there is nothing behind services and pods that could be reached.
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

/// The container that is meant: the one that is named, or the only one.
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
