//! Who gets in, and who sees which job.

use reqwest::{Method, StatusCode};

use crate::support::{Form, Service, send};

const SOME_ID: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn a_request_without_a_usable_cli_id_is_refused_before_anything_else() {
    let service = Service::start().await;
    let long = "x".repeat(257);
    let paths = [(Method::GET, format!("/jobs/{SOME_ID}")), (Method::GET, format!("/jobs/{SOME_ID}/artifacts/a.zip"))];
    for (method, path) in [(Method::POST, "/profile".to_owned())].into_iter().chain(paths) {
        for (cli_id, sentence) in [
            (None, "No CLI id was sent in the X-Popcorn-Cli-Id header: run `popcorn register` and submit again."),
            (Some(""), "No CLI id was sent in the X-Popcorn-Cli-Id header: run `popcorn register` and submit again."),
            (
                Some("two words"),
                "The X-Popcorn-Cli-Id header does not hold a CLI id: run `popcorn reregister` and submit again.",
            ),
            (
                Some(long.as_str()),
                "The X-Popcorn-Cli-Id header does not hold a CLI id: run `popcorn reregister` and submit again.",
            ),
        ] {
            let answer = send(Form::usual().onto(service.request(method.clone(), &path, cli_id))).await;
            assert_eq!((answer.status, answer.detail().as_str()), (StatusCode::UNAUTHORIZED, sentence), "{path}");
        }
    }
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn a_submission_is_accepted_only_when_kernelbot_says_so() {
    let service = Service::start_with(&[("NCU_SERVICE_KERNELBOT_TIMEOUT_SECS", "1")]).await;
    let refused = "KernelBot does not accept this CLI id: run `popcorn reregister` and submit again.";
    let unknown = "KernelBot could not be asked about your CLI id: submit again in a minute.";
    for (cli_id, status, sentence) in [
        ("bad-id", 401, refused),
        ("odd-id", 401, refused),
        ("ill-id", 503, unknown),
        ("page-id", 503, unknown),
        ("moved-id", 503, unknown),
        ("silent-id", 503, unknown),
    ] {
        let answer = service.submit(cli_id, Form::usual()).await;
        assert_eq!((answer.status.as_u16(), answer.detail().as_str()), (status, sentence), "{cli_id}");
        // A redirect was not followed with the credential.
        assert_eq!(service.kernelbot.asked(cli_id), 1, "{cli_id}");
    }
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn unknown_malformed_and_foreign_jobs_cannot_be_told_apart() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    assert_eq!(service.get(&format!("/jobs/{id}"), "good-alice").await.status, StatusCode::OK);

    let upper = id.to_uppercase();
    for path in [id.as_str(), SOME_ID, "x", "%ff", "%00", "..%2f..%2fetc", upper.as_str()] {
        let answer = service.get(&format!("/jobs/{path}"), "good-mallory").await;
        let sentence = "There is no job of this id that belongs to your CLI id.";
        assert_eq!((answer.status, answer.detail().as_str()), (StatusCode::NOT_FOUND, sentence), "{path}");
    }
    // Nor by anything else in an answer, for a job or for a file of it.
    let everything = async |path: String| {
        let mut answer = service.get(&path, "good-mallory").await;
        answer.headers.remove("date");
        format!("{answer:?}")
    };
    for file in ["", "/artifacts/a.zip"] {
        let foreign = everything(format!("/jobs/{id}{file}")).await;
        assert_eq!(foreign, everything(format!("/jobs/{SOME_ID}{file}")).await);
        assert_eq!(foreign, everything(format!("/jobs/x{file}")).await);
    }
    // Nobody who only guesses makes us ask KernelBot.
    assert_eq!(service.kernelbot.asked("good-mallory"), 0);
}

#[tokio::test]
async fn a_poll_goes_on_while_kernelbot_is_away_and_ends_when_it_refuses() {
    let service = Service::start_with(&[("NCU_SERVICE_KERNELBOT_TIMEOUT_SECS", "1")]).await;
    let id = service.accepted("good-alice").await;
    for (cli_id, status) in [("ill-id", 200), ("silent-id", 200), ("bad-id", 401)] {
        let owner = jobs::ids::Owner::from_credential(cli_id);
        sqlx::query("UPDATE jobs SET owner = $1").bind(owner.as_bytes()).execute(&service.pool).await.unwrap();
        let answer = service.get(&format!("/jobs/{id}"), cli_id).await;
        assert_eq!(answer.status.as_u16(), status, "{cli_id}");
    }
}

#[tokio::test]
async fn without_the_check_the_header_is_optional_and_kernelbot_is_not_asked() {
    let service = Service::start_with(&[("NCU_SERVICE_REQUIRE_CLI_ID", "0")]).await;
    let answer = send(Form::usual().onto(service.request(Method::POST, "/profile", None))).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    let path = format!("/jobs/{}", answer.json()["job_id"].as_str().unwrap());
    assert_eq!(send(service.request(Method::GET, &path, None)).await.status, StatusCode::OK);

    // Who does send an id has jobs of their own.
    assert_eq!(service.get(&path, "bad-id").await.status, StatusCode::NOT_FOUND);
    let own = service.accepted("bad-id").await;
    assert_eq!(service.get(&format!("/jobs/{own}"), "bad-id").await.status, StatusCode::OK);
    assert_eq!(service.kernelbot.asked("bad-id"), 0);
}

#[tokio::test]
async fn without_the_check_no_web_page_submits_in_its_readers_place() {
    let service = Service::start_with(&[("NCU_SERVICE_REQUIRE_CLI_ID", "0")]).await;
    let request = |cli_id| Form::usual().onto(service.request(Method::POST, "/profile", cli_id));
    let answer = send(request(None).header("Origin", "https://a-page.example")).await;
    let sentence = "Submissions are not taken from web pages: submit with popcorn-cli or scripts/ncu-client.";
    assert_eq!((answer.status, answer.detail().as_str()), (StatusCode::FORBIDDEN, sentence));
    assert_eq!(service.jobs().await, 0);
    // No page can add this header without being let, and nothing here lets it.
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
    let answer = send(request(Some("any-id")).header("Origin", "https://a-page.example")).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
}
