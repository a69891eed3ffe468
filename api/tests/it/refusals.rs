//! `POST /profile`, refused: each case with its status and its sentence, and nothing queued.

use reqwest::{Method, StatusCode};

use crate::support::{Form, Service, send};

const SOURCE: &[u8] = b"def custom_kernel(data): return data\n";

fn form() -> Form {
    Form::new().text("leaderboard", "qr_v2")
}

#[tokio::test]
async fn a_file_that_is_no_submission_is_refused() {
    let service = Service::start().await;
    let long_name = format!("{}.py", "n".repeat(253));
    let cases: Vec<(Form, u16, &str)> = vec![
        (form(), 422, "No file was sent: the form field \"file\" is missing."),
        (Form::new(), 422, "No file was sent: the form field \"file\" is missing."),
        (form().file("submission.py", b""), 422, "The submitted file is empty."),
        (
            form().file("s.py", &vec![b'#'; 1_000_001]),
            413,
            "The submission is larger than 1000000 bytes: submit a smaller file.",
        ),
        (
            form().file("s.py", &vec![b'#'; 9 << 20]),
            413,
            "The submission is larger than 1000000 bytes: submit a smaller file.",
        ),
        (form().file("s.py", b"\xff\xfe"), 422, "The submitted file is not UTF-8 text."),
        (form().file("s.py", b"a\0b"), 422, "The submitted file holds a NUL character, which Python does not accept."),
        (
            form().file("s.tar.gz", SOURCE),
            422,
            "Only Python submissions can be profiled: the file's name must end in .py.",
        ),
        (form().file(".py", SOURCE), 422, "Only Python submissions can be profiled: the file's name must end in .py."),
        (
            form().file("s.py/", SOURCE),
            422,
            "Only Python submissions can be profiled: the file's name must end in .py.",
        ),
        (form().text("file", SOURCE), 422, "Only Python submissions can be profiled: the file's name must end in .py."),
        (form().file(&long_name, SOURCE), 422, "The file's name is longer than 255 bytes: rename it."),
        (form().file("a\tb.py", SOURCE), 422, "The file's name holds control characters: rename it."),
        (form().file("s.py", SOURCE).file("t.py", SOURCE), 422, "Two files were sent: submit exactly one."),
        (
            form()
                .file("s.py", SOURCE)
                .part("Content-Disposition: form-data; name=\"extra\"; filename=\"t.py\"", SOURCE),
            422,
            "The submission is expected in the form field \"file\", and no other file is taken.",
        ),
    ];
    refused(&service, cases).await;
}

#[tokio::test]
async fn a_field_that_cannot_be_used_is_refused() {
    let service = Service::start().await;
    let with = |name: &str, value: &[u8]| Form::usual().text(name, value);
    let file = || Form::new().file("s.py", SOURCE);
    let parts = (0..40).fold(Form::usual(), |form, n| form.text(&format!("field{n}"), "x"));
    let cases: Vec<(Form, u16, &str)> = vec![
        (file(), 422, "No leaderboard was named: give one with --leaderboard."),
        (file().text("leaderboard", " "), 422, "No leaderboard was named: give one with --leaderboard."),
        (
            file().text("leaderboard", "a\0b"),
            422,
            "The leaderboard's name is longer than 255 bytes or holds control characters.",
        ),
        (file().text("leaderboard", "qr_v3"), 404, "There is no leaderboard \"qr_v3\"; did you mean qr_v2?"),
        (file().text("leaderboard", "../../etc"), 404, "There is no leaderboard \"../../etc\"; check its name."),
        (
            with("benchmark_index", b"3"),
            422,
            "benchmark_index 3 is out of range: leaderboard \"qr_v2\" has benchmarks 0 to 2.",
        ),
        (
            with("benchmark_index", b"-1"),
            422,
            "benchmark_index -1 is out of range: leaderboard \"qr_v2\" has benchmarks 0 to 2.",
        ),
        (
            with("benchmark_index", &[b'9'; 40]),
            422,
            "benchmark_index 99999999999999999999… is out of range: leaderboard \"qr_v2\" has benchmarks 0 to 2.",
        ),
        (
            with("benchmark_index", b"1.0"),
            422,
            "benchmark_index must be a whole number: leaderboard \"qr_v2\" has benchmarks 0 to 2.",
        ),
        (
            with("benchmark_index", b""),
            422,
            "benchmark_index must be a whole number: leaderboard \"qr_v2\" has benchmarks 0 to 2.",
        ),
        (
            with("benchmark_index", b"0").text("benchmark_index", "1"),
            422,
            "The form field \"benchmark_index\" was sent twice: send it once.",
        ),
        (with("ncu_kernel_name", b"--help"), 422, "ncu_kernel_name: a kernel name starts with neither - nor @."),
        (with("ncu_kernel_name", b"\xff"), 422, "The form field \"ncu_kernel_name\" is not UTF-8 text."),
        (
            with("ncu_kernel_name_base", b"Function"),
            422,
            "ncu_kernel_name_base: function, demangled or mangled is expected.",
        ),
        (with("ncu_launch_count", b"0"), 422, "ncu_launch_count: a whole number of at least 1 is expected."),
        (with("ncu_clock_control", b"boost"), 422, "ncu_clock_control: base or none is expected."),
        (with("ncu_clock_control", b""), 422, "ncu_clock_control: base or none is expected."),
        (with("ncu_warm_calls", b"11"), 422, "ncu_warm_calls: a whole number from 0 to 10 is expected."),
        (with("ncu_warm_calls", b"-1"), 422, "ncu_warm_calls: a whole number from 0 to 10 is expected."),
        (
            with("ncu_warm_calls", b"1").text("ncu_warm_calls", "2"),
            422,
            "The form field \"ncu_warm_calls\" was sent twice: send it once.",
        ),
        (
            with("ncu_launch_skip", b"1"),
            422,
            "The option \"ncu_launch_skip\" is not known: the options are ncu_capture, ncu_clock_control, ncu_kernel_name, ncu_kernel_name_base, ncu_launch_count, ncu_warm_calls.",
        ),
        (with("note", &[b'x'; 9 << 10]), 422, "The form field \"note\" is longer than 8192 bytes."),
        (with("", b"x"), 422, "A part of the form has no usable name."),
        (parts, 422, "The form has more than 32 parts."),
    ];
    refused(&service, cases).await;
}

#[tokio::test]
async fn a_leaderboard_that_cannot_be_profiled_is_refused_with_its_reason() {
    let service = Service::start().await;
    let form = |leaderboard| Form::new().file("s.py", SOURCE).text("leaderboard", leaderboard);
    let answer = service.submit("good-alice", form("sort")).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.detail().starts_with("Leaderboard \"sort\" cannot be profiled: "), "{answer:?}");

    // Its folder is missing: the operator's fault, not the user's.
    let answer = service.submit("good-alice", form("gone")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    let sentence = "The files of leaderboard \"gone\" are broken on the profiling host: tell its operator.";
    assert_eq!(answer.detail(), sentence);
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn a_body_that_is_no_form_is_refused() {
    let service = Service::start().await;
    let cases = [
        (None, StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (Some("application/json"), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (Some("multipart/mixed; boundary=x"), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (Some("multipart/form-data"), StatusCode::BAD_REQUEST),
        (Some("multipart/form-data; boundary=another"), StatusCode::BAD_REQUEST),
    ];
    for (kind, status) in cases {
        let mut request = service.request(Method::POST, "/profile", Some("good-alice")).body(Form::usual().bytes());
        if let Some(kind) = kind {
            request = request.header("Content-Type", kind);
        }
        let answer = send(request).await;
        assert_eq!(answer.status, status, "{kind:?}");
        assert!(answer.detail().ends_with('.'), "{answer:?}");
    }
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn an_upload_beyond_the_places_there_are_is_told_to_come_back() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_UPLOADS", "1")]).await;
    let bob = jobs::ids::Owner::from_credential("good-bob");
    let place = service.app.uploads.take(bob, std::time::Duration::ZERO).await.unwrap();
    let answer = service.submit("good-alice", Form::usual()).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.detail(), "Too many submissions are being uploaded at this moment: submit again in a minute.");
    assert_eq!(service.jobs().await, 0);
    drop(place);
    service.accepted("good-alice").await;
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_refused_in_the_same_shape() {
    let service = Service::start().await;
    for (method, path, status) in [
        (Method::GET, "/jobs/", 404),
        (Method::GET, "/profile", 405),
        (Method::PUT, "/jobs/0123456789abcdef0123456789abcdef", 405),
        (Method::POST, "/health", 405),
    ] {
        let answer = send(service.request(method.clone(), path, Some("good-alice"))).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.detail().ends_with('.'), "{answer:?}");
        assert_eq!(answer.headers.contains_key("allow"), status == 405, "{answer:?}");
    }
}

#[tokio::test]
async fn every_answer_tells_a_browser_to_make_nothing_of_it() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    for path in ["/health".to_owned(), format!("/jobs/{id}"), "/jobs/x".to_owned(), "/nothing".to_owned()] {
        let answer = service.get(&path, "good-alice").await;
        for (name, value) in [
            ("content-type", "application/json"),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'; sandbox"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.headers[name], value, "{path}");
        }
    }
}

async fn refused(service: &Service, cases: Vec<(Form, u16, &str)>) {
    for (form, status, sentence) in cases {
        let answer = service.submit("good-alice", form).await;
        assert_eq!((answer.status.as_u16(), answer.detail().as_str()), (status, sentence));
    }
    assert_eq!(service.jobs().await, 0);
    // The same service does accept what it should.
    service.accepted("good-alice").await;
}
