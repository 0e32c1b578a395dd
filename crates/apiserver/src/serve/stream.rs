//! Exec, attach and port forwarding over WebSocket with Kubernetes' channel protocols: the first byte of each message
//! is the channel.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::api::{Call, Inner};
use super::body::Body;
use super::media::header;
use super::runtime::{self, ExecOptions, Runtime, Streams};
use crate::error::{Result, Status};
use crate::ops::{GetOptions, Target};
use crate::store::Object;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Buffer size of a stream.
const BUFFER: usize = 64 << 10;
const V4: &str = "v4.channel.k8s.io";
/// v4 plus closing of individual streams.
const V5: &str = "v5.channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// A streaming request.
enum StreamRequest {
    Exec(ExecOptions),
    Attach(ExecOptions),
    Forward(Vec<u16>),
}

/// `pods/NAME/exec`, `attach` and `portforward`.
pub(super) async fn connect(inner: &Inner, call: &Call, target: &Target) -> Result<Response<Body>> {
    let pod_target = Target { subresource: None, ..target.clone() };
    let pod = inner.server.get(&call.caller, &pod_target, &GetOptions::default()).await?;
    let subresource = target.subresource.as_deref().unwrap_or_default();
    let wish = wish(subresource, call, &pod)?;
    let runtime = inner.runtime.get().ok_or_else(runtime::no_runtime)?.clone();
    let upgrade = call.extensions.get::<OnUpgrade>().cloned();
    let key = header(&call.headers, SEC_WEBSOCKET_KEY.as_str());
    let (Some(upgrade), false) = (upgrade, key.is_empty()) else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let offered = header(&call.headers, SEC_WEBSOCKET_PROTOCOL.as_str());
    let known: &[&'static str] = if matches!(wish, StreamRequest::Forward(_)) { &[V4] } else { &[V5, V4] };
    let protocol = known.iter().find(|known| offered.split(',').any(|offered| offered.trim() == **known));
    let Some(protocol) = protocol else {
        return Err(Status::new(403, "Forbidden", format!("none of the protocols is served: {offered}")));
    };
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        match wish {
            StreamRequest::Exec(options) => run(socket, runtime, pod, options, false).await,
            StreamRequest::Attach(options) => run(socket, runtime, pod, options, true).await,
            StreamRequest::Forward(ports) => forward(socket, runtime, pod, ports).await,
        }
    });
    Ok(switching(&key, protocol))
}

fn switching(key: &str, protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

fn wish(subresource: &str, call: &Call, pod: &Object) -> Result<StreamRequest> {
    let query = &call.query;
    if subresource == "portforward" {
        let ports = query.all("ports").flat_map(|ports| ports.split(','));
        let ports: Option<Vec<u16>> = ports.map(|port| port.trim().parse().ok()).collect();
        let ports = ports.filter(|ports| !ports.is_empty() && ports.len() < 127);
        return ports
            .map(StreamRequest::Forward)
            .ok_or_else(|| Status::bad_request("query parameter \"ports\" is required"));
    }
    let options = ExecOptions {
        container: runtime::container(&pod.value(), query.first("container").unwrap_or_default())?,
        command: query.all("command").map(str::to_owned).collect(),
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr"),
        tty: query.flag("tty"),
    };
    if !(options.stdin || options.stdout || options.stderr) {
        return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    if subresource == "attach" {
        return Ok(StreamRequest::Attach(options));
    }
    if options.command.is_empty() {
        return Err(Status::bad_request("you must specify at least 1 command for the container"));
    }
    Ok(StreamRequest::Exec(options))
}

/// Runs a command until it exits or the client disconnects.
async fn run(socket: Socket, runtime: Arc<dyn Runtime>, pod: Arc<Object>, options: ExecOptions, attach: bool) {
    let (sink, source) = socket.split();
    let (frames, outgoing) = mpsc::channel(16);
    let ((stdin_far, stdin), (stdout_far, stdout), (stderr_far, stderr)) =
        (tokio::io::duplex(BUFFER), tokio::io::duplex(BUFFER), tokio::io::duplex(BUFFER));
    let (resized, resize) = mpsc::channel(4);
    let (wants_out, wants_err, tty) = (options.stdout, options.stderr, options.tty);
    let streams = Streams { stdin, stdout, stderr, resize };
    let work = async move {
        let running = async {
            if attach {
                runtime.attach(&pod, options, streams).await
            } else {
                runtime.exec(&pod, options, streams).await
            }
        };
        // Read output until the command drops its streams, so that none is lost at the end.
        let (ended, (), ()) = tokio::join!(
            running,
            pump(stdout_far, wants_out.then_some(STDOUT), frames.clone()),
            pump(stderr_far, (wants_err && !tty).then_some(STDERR), frames.clone()),
        );
        let _ = frames.send(message(ERROR, outcome(ended).to_string().as_bytes())).await;
        // Clients treat any other close code as an error.
        let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let _ = frames.send(Message::Close(Some(end))).await;
    };
    let talk = async { tokio::join!(work, write(sink, outgoing)) };
    tokio::select! {
        _ = talk => {}
        () = listen(source, stdin_far, resized) => {}
    }
}

/// The exit status as a Status object.
fn outcome(ended: Result<i32>) -> Value {
    match ended {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(status) => status.to_json(),
    }
}

fn message(channel: u8, payload: &[u8]) -> Message {
    Message::Binary(Bytes::from([&[channel], payload].concat()))
}

/// Copies output to the client; output that was not requested is discarded.
async fn pump(mut from: DuplexStream, channel: Option<u8>, frames: mpsc::Sender<Message>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if let Some(channel) = channel
            && frames.send(message(channel, &buffer[..count])).await.is_err()
        {
            return;
        }
    }
}

async fn write(mut sink: SplitSink<Socket, Message>, mut outgoing: mpsc::Receiver<Message>) {
    while let Some(frame) = outgoing.recv().await {
        if sink.send(frame).await.is_err() {
            return;
        }
    }
}

/// Handles messages of the client, until it closes the connection.
async fn listen(mut source: SplitStream<Socket>, stdin: DuplexStream, resized: mpsc::Sender<(u16, u16)>) {
    let mut stdin = Some(stdin);
    while let Some(Ok(frame)) = source.next().await {
        if frame.is_close() {
            return;
        }
        let data = frame.into_data();
        match data.split_first() {
            Some((&STDIN, payload)) => {
                if let Some(stdin) = &mut stdin {
                    // A command that does not read its stdin is not an error.
                    let _ = stdin.write_all(payload).await;
                }
            }
            Some((&RESIZE, payload)) => {
                let size: Value = serde_json::from_slice(payload).unwrap_or_default();
                let side = |key: &str| size[key].as_u64().and_then(|side| u16::try_from(side).ok());
                if let (Some(width), Some(height)) = (side("Width"), side("Height")) {
                    let _ = resized.try_send((width, height));
                }
            }
            Some((&CLOSE, [STDIN])) => stdin = None,
            _ => {}
        }
    }
}

/// Forwards ports: two channels each, for data and errors.
async fn forward(socket: Socket, runtime: Arc<dyn Runtime>, pod: Arc<Object>, ports: Vec<u16>) {
    let (sink, mut source) = socket.split();
    let (frames, outgoing) = mpsc::channel(16);
    let mut inputs = Vec::new();
    let mut tasks = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let channel = u8::try_from(2 * index).expect("there are few ports");
        let (far, near) = tokio::io::duplex(BUFFER);
        let (from_pod, to_pod) = tokio::io::split(far);
        inputs.push(to_pod);
        tasks.push(one_port(runtime.clone(), pod.clone(), *port, channel, near, from_pod, frames.clone()));
    }
    drop(frames);
    let read = async {
        while let Some(Ok(frame)) = source.next().await {
            if frame.is_close() {
                return;
            }
            let data = frame.into_data();
            let Some((channel, payload)) = data.split_first() else { continue };
            if let Some(input) = inputs.get_mut(usize::from(*channel) / 2).filter(|_| channel % 2 == 0) {
                let _ = input.write_all(payload).await;
            }
        }
    };
    let work = async { tokio::join!(futures::future::join_all(tasks), write(sink, outgoing)) };
    tokio::select! {
        _ = work => {}
        () = read => {}
    }
}

async fn one_port(
    runtime: Arc<dyn Runtime>,
    pod: Arc<Object>,
    port: u16,
    channel: u8,
    near: DuplexStream,
    mut from_pod: ReadHalf<DuplexStream>,
    frames: mpsc::Sender<Message>,
) {
    // Both channels start with the port number.
    for channel in [channel, channel + 1] {
        let _ = frames.send(message(channel, &port.to_le_bytes())).await;
    }
    let output = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from_pod.read(&mut buffer).await {
            if frames.send(message(channel, &buffer[..count])).await.is_err() {
                return;
            }
        }
    };
    let (ended, ()) = tokio::join!(runtime.port_forward(&pod, port, near), output);
    if let Err(status) = ended {
        let text = format!("error forwarding port {port} to pod {}: {}", pod.name(), status.message);
        let _ = frames.send(message(channel + 1, text.as_bytes())).await;
    }
}
