//! The page's HTML. Everything in it goes through `maud`, which escapes: names of leaderboards and files are what clients sent.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use jobs::queue::{EndedLine, OwnJob, OwnShape, RunningLine, State, WorkerLine};
use maud::{DOCTYPE, Markup, html};

use super::assets::{SCRIPT, STYLE};
use super::board::Look;
use super::visitor::{SESSION_LIFETIME, Visitor};

/// Earlier jobs that a job offers for a comparison.
const MAX_COMPARED: usize = 8;

/// What a visitor is shown below the queue.
pub enum Own<'a> {
    /// The form to sign in, and why the last try failed.
    SignIn {
        /// The sentence.
        refusal: Option<&'a str>,
        /// Whether there is an id to give at all.
        is_checked: bool,
    },
    /// The jobs of who is signed in.
    Jobs(Vec<OwnJob>),
    /// They cannot be read.
    Away,
}

/// The whole page.
pub fn page(look: Option<&Look>, visitor: &Visitor, own: &Own<'_>) -> Markup {
    document(
        "Queue",
        &html! {
            header {
                h1 { "ncu-service" }
                p.lead { "Nsight Compute reports for GPU-kernel competitions." }
                p #liveness role="status" { "" }
            }
            main {
                section #queue aria-label="Queue" {
                    @match look {
                        Some(look) => (board(look)),
                        None => p.notice { "The queue cannot be read at this moment: load the page again in a minute." },
                    }
                }
                section #own aria-label="Your jobs" data-signed-in[matches!(own, Own::Jobs(_))] {
                    (own_part(visitor, own))
                }
            }
            footer {
                p { "For clients: " a href="/openapi.yaml" { "the API" } ", " a href="/health" { "health" } "." }
            }
        },
    )
}

/// A page for one sentence.
pub fn refusal(sentence: &str) -> Markup {
    document(
        "Not done",
        &html! {
            header { h1 { "Not done" } }
            main { p.notice role="alert" { (sentence) } p { a href="/" { "Back to the queue" } } }
        },
    )
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · ncu-service" }
                link rel="stylesheet" href=(STYLE.path);
                script src=(SCRIPT.path) defer {}
            }
            body { (body) }
        }
    }
}

/// The queue, for everybody.
pub fn board(look: &Look) -> Markup {
    let (board, now) = (&*look.board, look.at);
    let busy = board.workers.iter().filter(|worker| worker.state == "busy").count();
    html! {
        p.summary data-now=(datetime(now)) {
            strong { (board.running.len()) } " running, " strong { (board.queued_count) } " waiting, "
            strong { (busy) " of " (board.workers.len()) } " workers busy"
        }
        @if look.is_late {
            p.notice { "The database does not answer: this is how it was " (age(now, Utc::now())) " ago." }
        }
        @if board.is_paused {
            p.notice { "The queue is paused by its operator: jobs keep their places and start when it is resumed." }
        }
        @if board.workers.is_empty() {
            p.notice { "No worker is there: jobs are accepted and wait for one." }
        }
        (table("Running", &["Leaderboard", "Phase", "GPU", "Runs for", "Age"], "Nothing runs.", board.running.iter().map(|job| {
            html! {
                td { (job.leaderboard) }
                td { (phase(job)) }
                td { (gpus(job.gpus.as_deref())) }
                td { @if let Some(at) = job.started_at { (since(at, now)) } }
                td { (since(job.submitted_at, now)) }
            }
        })))
        (table("Waiting", &["Position", "Leaderboard", "Shapes", "Age"], "Nothing waits.", board.queued.iter().enumerate().map(|(before, job)| {
            html! {
                td { (before + 1) }
                td { (job.leaderboard) @if job.is_again { " " small { "begins again" } } }
                td { (job.shapes) }
                td { (since(job.submitted_at, now)) }
            }
        })))
        @if usize::try_from(board.queued_count).is_ok_and(|count| count > board.queued.len()) {
            p { "These are the first " (board.queued.len()) " of " (board.queued_count) "." }
        }
        (table("Ended last", &["Leaderboard", "Outcome", "Shapes", "Waited", "Took", "Ended"], "Nothing has ended yet.", board.ended.iter().map(|job| {
            html! {
                td { (job.leaderboard) }
                td { (outcome(job)) }
                td { (job.shapes) }
                td { (age(job.submitted_at, job.started_at.unwrap_or(job.ended_at))) }
                td { @if let Some(at) = job.started_at { (age(at, job.ended_at)) } }
                td { (since(job.ended_at, now)) " ago" }
            }
        })))
        (table("Workers", &["Worker", "GPU", "State"], "No worker is there.", board.workers.iter().enumerate().map(|(before, worker)| {
            html! { td { (before + 1) } td { (gpus(worker.gpus.as_deref())) } td { (worker_state(worker)) } }
        })))
    }
}

/// A list under its heading. On a narrow screen it scrolls by itself, with the keyboard too.
fn table(title: &str, columns: &[&str], empty: &str, rows: impl ExactSizeIterator<Item = Markup>) -> Markup {
    html! {
        h2 { (title) }
        @if rows.len() == 0 {
            p.empty { (empty) }
        } @else {
            div.scroll role="region" aria-label=(title) tabindex="0" {
                table {
                    thead { tr { @for column in columns { th scope="col" { (column) } } } }
                    tbody { @for row in rows { tr { (row) } } }
                }
            }
        }
    }
}

fn phase(job: &RunningLine) -> Markup {
    html! {
        @if job.is_cancelled {
            "being cancelled"
        } @else if !job.is_held {
            "waits for a worker to take it over"
        } @else if let Some(shape) = &job.shape {
            "profiles shape " (job.shapes_ended + 1) " of " (job.shapes) ": " span.shape { (shape.spec()) }
        } @else {
            (job.shapes_ended) " of " (job.shapes) " shapes have ended"
        }
    }
}

fn gpus(names: Option<&str>) -> &str {
    names.unwrap_or("–")
}

fn worker_state(worker: &WorkerLine) -> &str {
    match worker.state.as_str() {
        "idle" => "waits for work",
        "busy" => "runs a job",
        "draining" => "ends after its shape",
        "quarantined" => "takes no job: its GPU is in quarantine",
        _ => "takes no job: something on its host is missing",
    }
}

fn outcome(job: &EndedLine) -> Markup {
    let words = match (job.state, job.error_kind.as_deref()) {
        (State::Succeeded, _) => "profiled",
        (_, Some("submission")) => "the submission failed",
        (_, Some("wrong_answer")) => "the answer was wrong",
        (_, Some("empty_capture")) => "no kernel was captured",
        (_, Some("limit")) => "a limit was hit",
        (State::TimedOut, _) | (_, Some("timeout")) => "timed out",
        (_, Some("cancelled")) => "cancelled",
        (_, Some("service_fault")) => "a fault of the service",
        _ => "failed",
    };
    badge(job.state, words)
}

/// A state by its words; the colour only repeats them.
fn badge(state: State, words: &str) -> Markup {
    html! { span class={ "state " (state.as_str()) } { (words) } }
}

fn own_part(visitor: &Visitor, own: &Own<'_>) -> Markup {
    match own {
        Own::SignIn { refusal, is_checked } => sign_in(visitor, *refusal, *is_checked),
        Own::Away => html! {
            h2 { "Your jobs" }
            p.notice { "Your jobs cannot be read at this moment: load the page again in a minute." }
        },
        Own::Jobs(jobs) => html! {
            h2 { "Your jobs" }
            form.sign-out method="post" action="/sign-out" { (token(visitor)) button { "Sign out" } }
            @if jobs.is_empty() {
                p.empty { "You have no job yet: submit one with " code { "popcorn submit --profile-brev" } "." }
            } @else {
                ol.jobs {
                    @for (index, job) in jobs.iter().enumerate() { li { (own_job(visitor, job, &jobs[index + 1..])) } }
                }
            }
        },
    }
}

fn sign_in(visitor: &Visitor, refusal: Option<&str>, is_checked: bool) -> Markup {
    html! {
        h2 { "Your jobs" }
        @if let Some(sentence) = refusal {
            p.notice #refusal role="alert" { (sentence) }
        }
        form.sign-in method="post" action="/sign-in" {
            (token(visitor))
            label for="cli_id" { "popcorn CLI id" }
            input #cli_id name="cli_id" type="password" autocomplete="current-password" maxlength="256" spellcheck="false"
                required[is_checked] aria-describedby=(if refusal.is_some() { "cli_id_help refusal" } else { "cli_id_help" });
            button { "Sign in" }
        }
        p #cli_id_help {
            @if is_checked {
                "The " code { "cli_id" } " in " code { "~/.popcorn.yaml" } ", as " code { "popcorn register" } " has written it. It is \
                checked with KernelBot and not kept; you stay signed in for " (SESSION_LIFETIME.as_secs() / 3600) " hours."
            } @else {
                "This service checks no id: leave it empty for the jobs that were submitted without one."
            }
        }
    }
}

fn token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="token" value=(visitor.secret.form_token()); }
}

fn own_job(visitor: &Visitor, job: &OwnJob, older: &[OwnJob]) -> Markup {
    let id = job.id;
    let has_archives = job.shapes.iter().any(|shape| shape.archive.is_some());
    let is_open = matches!(job.state, State::Queued | State::Running);
    html! {
        h3 { (job.leaderboard) " " small { (job.file_name) } }
        p {
            (badge(job.state, &own_state(job))) " "
            (moment(job.submitted_at))
            @if let Some(at) = job.ended_at { ", took " (age(job.submitted_at, at)) " with its wait" }
        }
        @if let Some(error) = &job.error { p.error { (error) } }
        ul.shapes { @for shape in &job.shapes { li { (own_shape(&id.to_string(), shape)) } } }
        p.actions {
            a href={ "/jobs/" (id) } { "JSON" }
            @if has_archives { " " a href={ "/jobs/" (id) "/report" } { "Report" } }
        }
        @if has_archives { (comparisons(job, older)) }
        @if is_open && !job.is_cancelled {
            form method="post" action={ "/jobs/" (id) "/cancel" } {
                (token(visitor))
                button aria-label={ "Cancel the job of " (job.file_name) } { "Cancel" }
            }
        }
    }
}

fn own_state(job: &OwnJob) -> String {
    match (job.state, job.queue_position) {
        (State::Queued | State::Running, _) if job.is_cancelled => "being cancelled".to_owned(),
        (State::Queued, Some(position)) => format!("waits at position {position}"),
        (state, _) => state.as_str().replace('_', " "),
    }
}

fn own_shape(id: &str, shape: &OwnShape) -> Markup {
    html! {
        span.shape { (shape.shape.spec()) } " "
        @match &shape.archive {
            Some((name, bytes)) => {
                a href={ "/jobs/" (id) "/artifacts/" (name) } { "Archive" } " " small { (size(*bytes)) }
                " " a href={ "/jobs/" (id) "/artifacts/" (name) "/ncu-details.txt" } { "Text" }
            }
            None => small { (shape.state.as_str().replace('_', " ")) },
        }
    }
}

/// The earlier jobs that are worth a comparison: of the same leaderboard, with a profile.
fn comparisons(job: &OwnJob, older: &[OwnJob]) -> Markup {
    let is_alike = |other: &&OwnJob| {
        other.leaderboard == job.leaderboard && other.shapes.iter().any(|shape| shape.archive.is_some())
    };
    let alike: Vec<_> = older.iter().filter(is_alike).take(MAX_COMPARED).collect();
    html! {
        @if !alike.is_empty() {
            details {
                summary { "Compare with an earlier job" }
                ul {
                    @for other in alike {
                        li {
                            a href={ "/jobs/" (other.id) "/compare/" (job.id) } { (other.file_name) " " (moment(other.submitted_at)) }
                        }
                    }
                }
            }
        }
    }
}

/// A time as a point in time.
fn moment(at: DateTime<Utc>) -> Markup {
    html! { time datetime=(datetime(at)) { (at.format("%Y-%m-%d %H:%M:%S UTC")) } }
}

/// A time as an age, which the script keeps up to date.
fn since(at: DateTime<Utc>, now: DateTime<Utc>) -> Markup {
    html! { time.age datetime=(datetime(at)) { (age(at, now)) } }
}

fn datetime(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A span of time in its largest unit. The script has the same function.
fn age(from: DateTime<Utc>, to: DateTime<Utc>) -> String {
    let span = (to - from).max(TimeDelta::zero());
    match span.num_seconds() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7200 => format!("{} min", seconds / 60),
        seconds if seconds < 172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86400),
    }
}

fn size(bytes: i64) -> String {
    match bytes {
        bytes if bytes < 1000 => format!("{bytes} B"),
        bytes if bytes < 1_000_000 => format!("{} kB", bytes / 1000),
        bytes => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use jobs::queue;

    use super::*;

    #[test]
    fn ages_are_told_in_their_largest_unit() {
        let now = Utc::now();
        for (seconds, expected) in
            [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172_800, "2 d")]
        {
            assert_eq!(age(now - TimeDelta::seconds(seconds), now), expected);
        }
    }

    #[test]
    fn what_clients_sent_is_shown_as_text() {
        let board = queue::Board {
            is_paused: false,
            queued_count: 1,
            queued: vec![queue::QueuedLine {
                leaderboard: "<script>alert(1)</script>".to_owned(),
                shapes: 1,
                submitted_at: Utc::now(),
                is_again: false,
            }],
            running: Vec::new(),
            ended: Vec::new(),
            workers: Vec::new(),
        };
        let look = Look { board: board.into(), at: Utc::now(), is_late: false };
        let html = super::board(&look).into_string();
        assert!(html.contains("&lt;script&gt;alert(1)") && !html.contains("<script>"), "{html}");
    }
}
