//! A start that names what is wrong, and a stop that lets the requests in progress end.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use reqwest::StatusCode;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::support::{Form, Service};

#[tokio::test]
async fn a_submission_in_progress_is_answered_after_the_stop_and_no_new_connection_is_taken() {
    let mut service = Service::start().await;
    let stop = service.stop.take().unwrap();
    let submission = service.submit("held-id", Form::usual());
    let rest = async {
        service.kernelbot.questions(1).await;
        stop.send(()).unwrap();
        // The port closes while the submission is still held.
        while TcpStream::connect(service.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        service.kernelbot.release();
    };
    let (answer, ()) = tokio::join!(submission, rest);
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    service.served.await.unwrap();
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_off() {
    let mut service = Service::start_with(&[("NCU_SERVICE_API_STOP_TIMEOUT_SECS", "1")]).await;
    let stop = service.stop.take().unwrap();
    let request = service.request(reqwest::Method::POST, "/profile", Some("held-id"));
    let submission = tokio::spawn(Form::usual().onto(request).send());
    service.kernelbot.questions(1).await;
    stop.send(()).unwrap();
    service.served.await.unwrap();
    submission.abort();
}

/// The program itself, with a database that is not there.
fn program(folder: &tempfile::TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncu-api"));
    command
        .arg("serve")
        .env_clear()
        .env("NCU_SERVICE_LISTEN", "127.0.0.1:0")
        .env("NCU_SERVICE_DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing")
        .env("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", folder.path())
        .env("NCU_SERVICE_ARTIFACTS_URL", format!("file://{}", folder.path().join("artifacts").display()))
        .env("KERNELBOT_API_URL", "http://127.0.0.1:1")
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn the_program_serves_without_its_database_and_ends_well_on_sigterm() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let mut program = program(&folder).env("NCU_SERVICE_LOG_FORMAT", "json").spawn().unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap()).lines();
    let line = log.next_line().await.unwrap().unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = line["fields"]["listen"].as_str().unwrap();
    let health = reqwest::get(format!("http://{address}/health")).await.unwrap();
    assert_eq!(health.status(), StatusCode::OK);

    let pid = program.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert!(program.wait().await.unwrap().success());
}

/// The program with a socket that was there before it, as systemd passes one.
fn program_with_socket(folder: &tempfile::TempDir, socket: &TcpListener, listen: &str) -> Command {
    let plain = program(folder);
    let mut command = Command::new("sh");
    command
        .args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve 3<&0 </dev/null"])
        .arg(plain.as_std().get_program())
        .env_clear()
        .envs(plain.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("NCU_SERVICE_LISTEN", listen)
        .stdin(OwnedFd::from(socket.try_clone().unwrap()))
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn a_request_that_comes_while_the_program_is_replaced_is_answered_by_the_next_one() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let ask = || tokio::spawn(reqwest::get(format!("http://{address}/health")));
    for _ in 0..2 {
        // Nobody serves now.
        let asked = ask();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut program = program_with_socket(&folder, &socket, &address).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
        let pid = program.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        assert!(program.wait().await.unwrap().success());
    }
}

#[tokio::test]
async fn a_socket_on_another_address_than_the_settings_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = program_with_socket(&folder, &socket, "127.0.0.1:1").output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let address = socket.local_addr().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "ncu-api: systemd passes a socket on {address}, but NCU_SERVICE_LISTEN is 127.0.0.1:1: give both the same address\n"
    );
    assert_eq!(message, expected);
}

#[tokio::test]
async fn a_setting_that_cannot_be_used_stops_the_start_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = program(&folder).env("NCU_SERVICE_REQUIRE_CLI_ID", "yes").output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message, "ncu-api: NCU_SERVICE_REQUIRE_CLI_ID=\"yes\" cannot be used: a switch is 1 or 0\n");
}
