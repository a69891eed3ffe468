//! Asks `KernelBot` whether a CLI id is good, as seldom as possible.
//!
//! `KernelBot` answers about ten questions a second for everyone together. So a verdict is kept for a while, many
//! simultaneous requests with one id ask one question, and only a few questions are open at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jobs::ids::Owner;
use jobs::telemetry::metrics;
use reqwest::{StatusCode, Url};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::auth::{CLI_ID_HEADER, Credential};

/// Owners whose verdict is kept at a time; each takes about 200 bytes.
const MAX_VERDICTS: usize = 10_000;
/// Longest answer that is read, in bytes: one submission in a list.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// What `KernelBot` says of a CLI id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The id is good.
    Valid,
    /// The id is not good.
    Invalid,
    /// `KernelBot` could not say: neither of the two.
    Unknown,
}

impl Verdict {
    /// As metrics spell it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Unknown => "unknown",
        }
    }
}

/// How long each verdict is kept.
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    /// A good id rarely stops being one.
    pub valid: Duration,
    /// Short, so that somebody who registers can submit soon after.
    pub invalid: Duration,
    /// Just long enough to keep a crowd off a `KernelBot` in trouble.
    pub unknown: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { valid: Duration::from_mins(10), invalid: Duration::from_secs(30), unknown: Duration::from_secs(5) }
    }
}

impl Lifetimes {
    fn of(&self, verdict: Verdict) -> Duration {
        match verdict {
            Verdict::Valid => self.valid,
            Verdict::Invalid => self.invalid,
            Verdict::Unknown => self.unknown,
        }
    }
}

/// A verdict and when it stops counting. The lock is held while `KernelBot` is asked, so the others wait for the answer.
type Slot = tokio::sync::Mutex<Option<(Verdict, Instant)>>;

/// The client, with its memory.
#[derive(Debug)]
pub struct KernelBot {
    http: reqwest::Client,
    url: Url,
    timeout: Duration,
    lifetimes: Lifetimes,
    questions: Semaphore,
    slots: Mutex<HashMap<Owner, Arc<Slot>>>,
}

impl KernelBot {
    /// A client of the `KernelBot` at `base`. `timeout` bounds a question with its wait for its turn; `max_questions`
    /// are open at a time.
    pub fn new(
        base: &Url,
        timeout: Duration,
        max_questions: usize,
        lifetimes: Lifetimes,
    ) -> Result<Self, reqwest::Error> {
        // A redirect would carry the credential to a host that the operator did not name.
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        let mut url = base.clone();
        url.set_path(&format!("{}/user/submissions", base.path().trim_end_matches('/')));
        url.set_query(Some("limit=1"));
        Ok(Self { http, url, timeout, lifetimes, questions: Semaphore::new(max_questions), slots: Mutex::default() })
    }

    /// What `KernelBot` says of a CLI id, or said a little while ago.
    pub async fn verdict(&self, credential: &Credential) -> Verdict {
        let Some(slot) = self.slot(credential.owner()) else {
            tracing::warn!(owners = MAX_VERDICTS, "too many CLI ids are being checked at once");
            return Verdict::Unknown;
        };
        let mut slot = slot.lock().await;
        match *slot {
            Some((verdict, until)) if Instant::now() < until => {
                metrics().remembered_verdict(verdict.as_str());
                verdict
            }
            _ => {
                let span = tracing::info_span!(
                    "KernelBot",
                    otel.name = "GET",
                    otel.kind = "client",
                    "http.request.method" = "GET"
                );
                let asked_at = Instant::now();
                let verdict = self.ask(credential).instrument(span).await;
                metrics().asked_kernelbot(verdict.as_str(), asked_at.elapsed());
                *slot = Some((verdict, Instant::now() + self.lifetimes.of(verdict)));
                verdict
            }
        }
    }

    /// The owner's slot, made if need be; `None` when every slot is taken and in use.
    fn slot(&self, owner: Owner) -> Option<Arc<Slot>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if !slots.contains_key(&owner) && slots.len() >= MAX_VERDICTS {
            let now = Instant::now();
            slots.retain(|_, slot| slot.try_lock().map_or(true, |state| state.is_some_and(|(_, until)| now < until)));
            if slots.len() >= MAX_VERDICTS {
                // Any will do: its owner costs one more question.
                let idle = slots.iter().find(|(_, slot)| slot.try_lock().is_ok()).map(|(&owner, _)| owner)?;
                slots.remove(&idle);
            }
        }
        Some(Arc::clone(slots.entry(owner).or_default()))
    }

    async fn ask(&self, credential: &Credential) -> Verdict {
        let question = async {
            // The semaphore is never closed; if it were, asking without a turn is no harm.
            let _turn = self.questions.acquire().await.ok();
            self.question(credential).await
        };
        match tokio::time::timeout(self.timeout, question).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(why)) => {
                tracing::warn!(cause = why, "KernelBot could not say whether a CLI id is good");
                Verdict::Unknown
            }
            Err(_) => {
                tracing::warn!(timeout_secs = self.timeout.as_secs(), "KernelBot did not answer in time");
                Verdict::Unknown
            }
        }
    }

    /// One question; the error says why there is no verdict.
    async fn question(&self, credential: &Credential) -> Result<Verdict, String> {
        let describe = |error: reqwest::Error| chain(&error.without_url());
        let mut response = self
            .http
            .get(self.url.clone())
            .header(CLI_ID_HEADER, credential.header())
            .send()
            .await
            .map_err(describe)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED => return Ok(Verdict::Invalid),
            other => return Err(format!("it answered {}", other.as_u16())),
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(describe)? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(format!("it answered more than {MAX_ANSWER_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        match serde_json::from_slice(&body) {
            Ok(serde_json::Value::Array(_)) => Ok(Verdict::Valid),
            _ => Err("it answered 200 with something that is no list".to_owned()),
        }
    }
}

/// An error with its causes: reqwest's own text leaves out why a connection failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
