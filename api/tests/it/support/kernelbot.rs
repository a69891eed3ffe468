//! `KernelBot`, played: the first word of a CLI id says how it answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub struct FakeKernelBot {
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    asked: Mutex<HashMap<String, usize>>,
    /// Number of questions so far.
    questions: watch::Sender<usize>,
    /// Whether those who are held get their answer.
    released: watch::Sender<bool>,
}

impl FakeKernelBot {
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            asked: Mutex::default(),
            questions: watch::Sender::new(0),
            released: watch::Sender::new(false),
        });
        let router = Router::new().route("/api/user/submissions", get(answer)).with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The path and the slash at its end are part of the test.
        let url = format!("http://{}/api/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared }
    }

    /// How often it was asked about this id.
    pub fn asked(&self, cli_id: &str) -> usize {
        self.shared.asked.lock().unwrap().get(cli_id).copied().unwrap_or_default()
    }

    /// Resolves when so many questions have arrived.
    pub async fn questions(&self, count: usize) {
        self.shared.questions.subscribe().wait_for(|&asked| asked >= count).await.unwrap();
    }

    /// Answers those who are held, now and from now on.
    pub fn release(&self) {
        self.shared.released.send_replace(true);
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: axum::http::Uri, headers: HeaderMap) -> Response {
    assert_eq!(uri.query(), Some("limit=1"));
    let cli_id = headers["x-popcorn-cli-id"].to_str().unwrap();
    *shared.asked.lock().unwrap().entry(cli_id.to_owned()).or_default() += 1;
    shared.questions.send_modify(|asked| *asked += 1);
    match cli_id.split('-').next().unwrap() {
        "good" => Json(json!([{"id": 1}])).into_response(),
        "new" => Json(json!([])).into_response(),
        "held" => {
            shared.released.subscribe().wait_for(|&released| released).await.unwrap();
            Json(json!([])).into_response()
        }
        "bad" => {
            (StatusCode::UNAUTHORIZED, Json(json!({"detail": "Invalid or unauthorized auth header"}))).into_response()
        }
        "odd" => StatusCode::BAD_REQUEST.into_response(),
        "ill" => {
            let detail = "Database error during validation: connection already closed";
            (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({"detail": detail}))).into_response()
        }
        "page" => "<html>a page of something else</html>".into_response(),
        "moved" => Redirect::temporary("/api/user/submissions?limit=1&moved").into_response(),
        "silent" => std::future::pending().await,
        other => panic!("a test sent the CLI id {other}"),
    }
}
