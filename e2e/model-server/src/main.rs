//! A model server without a model: answers the requests that probes and users of a NIM send. For tests only.
//!
//! It stands in for every NIM image on a test cluster.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    // As the first process of a container it would ignore the signal, and every deletion would take half a minute.
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let server = tokio::task::spawn_blocking(listen);
    tokio::select! {
        ended = server => ended?,
        _ = terminated.recv() => std::process::exit(0),
    }
}

fn listen() -> std::io::Result<()> {
    let port = std::env::var("NIM_HTTP_API_PORT").or_else(|_| std::env::var("NIM_SERVER_PORT"));
    let address = format!("0.0.0.0:{}", port.as_deref().unwrap_or("8000"));
    let listener = TcpListener::bind(&address)?;
    println!("listening on {address}");
    for stream in listener.incoming().flatten() {
        // One thread per connection: probes are few. A client that goes away is no failure.
        std::thread::spawn(move || drop(serve(&stream)));
    }
    Ok(())
}

fn serve(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let (code, body) = answer(&path);
    write!(
        stream,
        "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Status and body of a GET.
fn answer(path: &str) -> (&'static str, &'static str) {
    match path.split('?').next().unwrap_or_default() {
        "/v1/health/ready" | "/v1/health/live" => ("200 OK", r#"{"object":"health.response","message":"ready"}"#),
        "/v1/models" => ("200 OK", r#"{"object":"list","data":[{"id":"example/model","object":"model"}]}"#),
        "/v1/metadata" => ("200 OK", r#"{"version":"1.0.0","modelInfo":[{"shortName":"example/model"}]}"#),
        _ => ("404 Not Found", r#"{"detail":"Not Found"}"#),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_lists_of_models_are_answered() {
        for path in ["/v1/health/ready", "/v1/health/live", "/v1/models?x=1"] {
            assert_eq!(answer(path).0, "200 OK", "{path}");
        }
        assert_eq!(answer("/").0, "404 Not Found");
    }
}
