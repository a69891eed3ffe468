//! `GET /health`.

use serde_json::json;

use crate::support::outage::Wire;
use crate::support::{Service, send};
use reqwest::{Method, StatusCode};

#[tokio::test]
async fn health_needs_no_cli_id_and_lists_the_capture_options() {
    let service = Service::start().await;
    let answer = send(service.request(Method::GET, "/health", None)).await;
    assert_eq!(answer.status, StatusCode::OK);
    let expected = json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": {"request_capture_options": [
            "ncu_capture", "ncu_clock_control", "ncu_kernel_name", "ncu_kernel_name_base", "ncu_launch_count", "ncu_warm_calls",
        ]},
        // A temporary folder is no checkout.
        "problems": {"revision": null, "dirty": null},
        "database": "ok",
    });
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn health_still_answers_200_with_the_capabilities_when_the_database_is_away() {
    let wire = Wire::to("127.0.0.1:1".to_owned()).await;
    let url = format!("postgres://nobody@{}/nothing", wire.address);
    let service = Service::start_with(&[("NCU_SERVICE_DATABASE_URL", &url)]).await;
    let answer = send(service.request(Method::GET, "/health", None)).await;
    assert_eq!(answer.status, StatusCode::OK);
    let body = answer.json();
    assert_eq!((&body["status"], &body["database"]), (&json!("degraded"), &json!("unavailable")));
    assert_eq!(body["capabilities"]["request_capture_options"].as_array().unwrap().len(), 6);
}
