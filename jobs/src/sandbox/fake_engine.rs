//! A container engine that only says that it does things, and does not answer where a test wants it silent.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::{Deadlines, Sandbox, SandboxConfig};
use crate::config::Reader;

/// What it does not answer: beginnings of requests, behind the version (`POST /containers/x/kill`).
pub(crate) type Silent = fn(&str) -> bool;

/// Serves at this socket until the handle is aborted.
pub(crate) fn serve(socket: &Path, silent: Silent) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move { drop(answer(stream, silent).await) });
        }
    })
}

/// A sandbox on the engine at this socket, which does not wait long for it.
pub(crate) async fn sandbox(socket: &Path) -> Sandbox {
    let host = format!("unix://{}", socket.display());
    let settings = [("NCU_SERVICE_GPUS", "none"), ("NCU_SERVICE_DOCKER_HOST", host.as_str())];
    let config = SandboxConfig::read(&mut Reader::from_pairs(settings)).unwrap();
    let deadlines = Deadlines { call: Duration::from_secs(2), container: Duration::from_secs(2) };
    Sandbox::connect_within(config, deadlines).await.unwrap()
}

async fn answer(stream: UnixStream, silent: Silent) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await?;
            match header.trim().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        stream.read_exact(&mut vec![0; length]).await?;
        let request = unversioned(&first);
        if silent(&request) {
            std::future::pending::<()>().await;
        }
        let (status, body) = match request.as_str() {
            "GET /version" => ("200 OK", r#"{"ApiVersion": "1.41", "MinAPIVersion": "1.12"}"#),
            "GET /info" => ("200 OK", r#"{"NCPU": 4}"#),
            "POST /containers/create" => ("201 Created", r#"{"Id": "x", "Warnings": []}"#),
            "GET /_ping" => ("200 OK", "OK"),
            _ => ("204 No Content", ""),
        };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).await?;
    }
}

/// `POST /v1.41/containers/x/kill?signal=SIGKILL HTTP/1.1` -> `POST /containers/x/kill`.
fn unversioned(request: &str) -> String {
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let rest = path.strip_prefix("/v1.").and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    format!("{method} {}", rest.unwrap_or(path))
}
