//! Connection upgrades for in-process clients, over an in-memory connection.

use bytes::Bytes;
use http::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;

use super::body::Body;
use super::media::Media;
use super::{Api, respond};
use crate::error::Status;

/// Buffer size of the connection.
const BUFFER: usize = 64 << 10;

/// Handles a request over an in-memory connection.
pub(super) async fn answer<B>(api: Api, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (here, there) = tokio::io::duplex(BUFFER);
    let service = TowerToHyperService::new(api);
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(there), service);
    tokio::spawn(serving.with_upgrades());
    let (mut sender, connection) = match hyper::client::conn::http1::handshake(TokioIo::new(here)).await {
        Ok(pair) => pair,
        Err(error) => return failure(&error),
    };
    tokio::spawn(connection.with_upgrades());
    // Upgrade requests have no body.
    let (mut head, _) = request.into_parts();
    if let Some(path) = head.uri.path_and_query() {
        head.uri = http::Uri::from(path.clone());
    }
    head.headers.entry(http::header::HOST).or_insert(http::HeaderValue::from_static("127.0.0.1"));
    match sender.send_request(Request::from_parts(head, Body::empty())).await {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let body = futures::StreamExt::filter_map(http_body_util::BodyStream::new(body), |frame| {
                std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok()))
            });
            Response::from_parts(head, Body::stream(body))
        }
        Err(error) => failure(&error),
    }
}

fn failure(error: &hyper::Error) -> Response<Body> {
    respond::failure(Media::default(), &Status::internal(error))
}
