//! How seldom `KernelBot` is asked.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use futures_util::future::join_all;
use ncu_api::auth::{CLI_ID_HEADER, Credential};
use ncu_api::kernelbot::{KernelBot, Lifetimes, Verdict};
use reqwest::StatusCode;

use crate::support::{FakeKernelBot, Form, Service};

fn credential(cli_id: &str) -> Credential {
    let mut headers = HeaderMap::new();
    headers.insert(CLI_ID_HEADER, HeaderValue::from_str(cli_id).unwrap());
    Credential::from_headers(&headers).unwrap()
}

fn client(fake: &FakeKernelBot, max_questions: usize, lifetimes: Lifetimes) -> KernelBot {
    let _ = rustls::crypto::ring::default_provider().install_default();
    KernelBot::new(&fake.url.parse().unwrap(), Duration::from_secs(30), max_questions, lifetimes).unwrap()
}

#[tokio::test]
async fn fifty_simultaneous_submissions_with_one_id_ask_once() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_JOBS_PER_USER", "50")]).await;
    let submissions = join_all((0..50).map(|_| service.submit("held-crowd", Form::usual())));
    let release = async {
        service.kernelbot.questions(1).await;
        service.kernelbot.release();
    };
    let (answers, ()) = tokio::join!(submissions, release);
    assert!(answers.iter().all(|answer| answer.status == StatusCode::ACCEPTED));
    assert_eq!(service.kernelbot.asked("held-crowd"), 1);
    assert_eq!(service.jobs().await, 50);
}

#[tokio::test]
async fn everybody_who_waits_for_a_verdict_gets_the_one_answer() {
    let fake = FakeKernelBot::start().await;
    // No verdict outlives its question by any time worth naming, so only the waiting together can explain one question.
    let kernelbot = client(&fake, 4, Lifetimes { valid: Duration::from_millis(500), ..Lifetimes::default() });
    let credential = credential("held-crowd");
    // join_all polls each of them before the first answer can arrive.
    let crowd = join_all((0..50).map(|_| kernelbot.verdict(&credential)));
    let release = async {
        fake.questions(1).await;
        fake.release();
    };
    let (verdicts, ()) = tokio::join!(crowd, release);
    assert_eq!(verdicts, [Verdict::Valid; 50]);
    assert_eq!(fake.asked("held-crowd"), 1);
}

#[tokio::test]
async fn a_verdict_is_kept_for_its_lifetime_and_no_longer() {
    let fake = FakeKernelBot::start().await;
    let none = Lifetimes { valid: Duration::ZERO, invalid: Duration::ZERO, unknown: Duration::ZERO };
    for (cli_id, verdict) in [("good-id", Verdict::Valid), ("bad-id", Verdict::Invalid), ("ill-id", Verdict::Unknown)] {
        let (keeping, forgetting) = (client(&fake, 4, Lifetimes::default()), client(&fake, 4, none));
        let credential = credential(cli_id);
        for _ in 0..3 {
            assert_eq!(keeping.verdict(&credential).await, verdict);
        }
        assert_eq!(fake.asked(cli_id), 1, "{cli_id}");
        for _ in 0..3 {
            assert_eq!(forgetting.verdict(&credential).await, verdict);
        }
        assert_eq!(fake.asked(cli_id), 4, "{cli_id}");
    }
}

#[tokio::test]
async fn only_a_few_questions_are_open_at_a_time() {
    let fake = FakeKernelBot::start().await;
    let kernelbot = client(&fake, 3, Lifetimes::default());
    let credentials: Vec<_> = (0..20).map(|n| credential(&format!("held-{n}"))).collect();
    let all = join_all(credentials.iter().map(|credential| kernelbot.verdict(credential)));
    let watch = async {
        fake.questions(3).await;
        // The other 17 wait for a turn, and a turn is free only after an answer.
        let early = tokio::time::timeout(Duration::from_millis(200), fake.questions(4)).await;
        fake.release();
        early
    };
    let (verdicts, early) = tokio::join!(all, watch);
    assert!(early.is_err(), "a fourth question was asked before the first was answered");
    assert_eq!(verdicts, [Verdict::Valid; 20]);
}

#[tokio::test]
async fn a_question_that_its_asker_gave_up_is_asked_by_the_next() {
    let fake = FakeKernelBot::start().await;
    let kernelbot = client(&fake, 1, Lifetimes::default());
    let credential = credential("held-id");
    tokio::select! {
        _ = kernelbot.verdict(&credential) => panic!("the answer is held back"),
        () = fake.questions(1) => {}
    }
    fake.release();
    assert_eq!(kernelbot.verdict(&credential).await, Verdict::Valid);
}
