//! The gRPC health service of an endpoint picker, just enough for a probe: every call returns SERVING.
//!
//! A full gRPC server would be the largest part of this program. A probe makes one call per connection and reads only
//! the response, so requests are read frame by frame and never decoded.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// Flag of SETTINGS and PING.
const ACK: u8 = 1;
/// Flag of DATA and HEADERS.
const END_STREAM: u8 = 1;
/// Flag of HEADERS.
const END_HEADERS: u8 = 4;

/// `:status: 200` and `content-type: application/grpc`.
const BEGIN: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// A HealthCheckResponse with `status` 1 (SERVING), length-prefixed.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
/// `grpc-status: 0`.
const END: &[u8] = b"\x00\x0bgrpc-status\x010";

/// Serves on this port until the process exits; not if another container has bound it.
pub(crate) fn listen(port: u16) {
    let Ok(listener) = TcpListener::bind(("0.0.0.0", port)) else { return };
    for stream in listener.incoming().flatten() {
        // A disconnecting client is no failure.
        std::thread::spawn(move || drop(serve(stream)));
    }
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface)?;
    if preface != PREFACE {
        return Err(Error::new(ErrorKind::InvalidData, "not HTTP/2"));
    }
    send(&mut stream, SETTINGS, 0, 0, &[])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream_id @ ..] = head;
        let mut body = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
        stream.read_exact(&mut body)?;
        match kind {
            SETTINGS if flags & ACK == 0 => send(&mut stream, SETTINGS, ACK, 0, &[])?,
            PING if flags & ACK == 0 => send(&mut stream, PING, ACK, 0, &body)?,
            DATA | HEADERS if flags & END_STREAM != 0 => {
                let call = u32::from_be_bytes(stream_id);
                send(&mut stream, HEADERS, END_HEADERS, call, BEGIN)?;
                send(&mut stream, DATA, 0, call, SERVING)?;
                send(&mut stream, HEADERS, END_HEADERS | END_STREAM, call, END)?;
            }
            _ => {}
        }
    }
}

/// Sends one frame.
fn send(stream: &mut TcpStream, kind: u8, flags: u8, call: u32, body: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &call.to_be_bytes()].concat();
    stream.write_all(&[&head, body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_answered_with_serving() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let server = std::thread::spawn(move || serve(server));
        client.write_all(PREFACE).unwrap();
        send(&mut client, SETTINGS, 0, 0, &[]).unwrap();
        send(&mut client, HEADERS, END_HEADERS, 1, b"").unwrap();
        send(&mut client, DATA, END_STREAM, 1, &[0; 5]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.windows(SERVING.len()).any(|bytes| bytes == SERVING));
        assert!(answer.ends_with(END));
        assert_eq!(server.join().unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
