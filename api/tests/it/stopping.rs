//! A stop lets the requests in progress end.

use reqwest::StatusCode;
use tokio::net::TcpStream;

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
