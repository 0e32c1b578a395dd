//! A model server without a model: responds to the requests that probes and clients of a NIM send. For tests only.
//!
//! It replaces every NIM image on a test cluster. Under the name of a download program it writes a file in place of the
//! model, and as an engine builder a list of built engines. It also serves the health probe of an endpoint picker.

mod grpc;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

/// Port of the endpoint picker's health service.
const PICKER_HEALTH: u16 = 9003;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let store = PathBuf::from(std::env::var("NIM_CACHE_PATH").unwrap_or_else(|_| "/model-store".into()));
    if !std::env::args().next().is_some_and(|program| program.ends_with("model-server")) {
        return download(&store);
    }
    if let Ok(model) = std::env::var("NIM_CUSTOM_MODEL_NAME") {
        build(&store, &model)?;
    }
    // PID 1 ignores SIGTERM by default, and every deletion would take the full grace period.
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::task::spawn_blocking(|| grpc::listen(PICKER_HEALTH));
    let server = tokio::task::spawn_blocking(listen);
    tokio::select! {
        ended = server => ended?,
        _ = terminated.recv() => std::process::exit(0),
    }
}

fn download(store: &Path) -> std::io::Result<()> {
    std::fs::write(store.join("model"), "weights")?;
    println!("Fetching 1 files: 100%|##########| 1/1");
    Ok(())
}

/// Output of a build: a profile that serves the model under another name.
fn build(store: &Path, model: &str) -> std::io::Result<()> {
    let folder = store.join("local_cache");
    std::fs::create_dir_all(&folder)?;
    let manifest = format!("built:\n  tags: {{model_name: {model}, llm_engine: tensorrt_llm, tp: 1}}\n");
    std::fs::write(folder.join("local_manifest.yaml"), manifest)
}

fn listen() -> std::io::Result<()> {
    let port = std::env::var("NIM_HTTP_API_PORT").or_else(|_| std::env::var("NIM_SERVER_PORT"));
    let address = format!("0.0.0.0:{}", port.as_deref().unwrap_or("8000"));
    let listener = match TcpListener::bind(&address) {
        Ok(listener) => listener,
        // A sidecar: another container of this pod is the server.
        Err(error) => loop {
            println!("not listening on {address}: {error}");
            std::thread::park();
        },
    };
    println!("listening on {address}");
    for stream in listener.incoming().flatten() {
        // One thread per connection: probes are few. A disconnecting client is no failure.
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

/// Status and body of a GET response.
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
    fn downloads_and_builds_leave_files() {
        let store = std::env::temp_dir().join(format!("model-server-{}", std::process::id()));
        std::fs::create_dir_all(&store).unwrap();
        download(&store).unwrap();
        build(&store, "tuned").unwrap();
        assert!(store.join("model").is_file());
        let built = std::fs::read_to_string(store.join("local_cache/local_manifest.yaml")).unwrap();
        assert!(built.contains("model_name: tuned"), "{built}");
        std::fs::remove_dir_all(&store).unwrap();
    }

    #[test]
    fn probes_and_lists_of_models_are_answered() {
        for path in ["/v1/health/ready", "/v1/health/live", "/v1/models?x=1"] {
            assert_eq!(answer(path).0, "200 OK", "{path}");
        }
        assert_eq!(answer("/").0, "404 Not Found");
    }
}
