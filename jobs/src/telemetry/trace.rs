//! Spans, and how a trace crosses from one process to the next.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{SCOPE, metrics};

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";
/// Longest state that is passed on, in characters; W3C asks for 512 at least.
const MAX_STATE_CHARS: usize = 512;

/// A trace's context as it travels: W3C's `traceparent`, with a `tracestate` where there is one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteContext {
    parent: Option<String>,
    state: Option<String>,
}

impl RemoteContext {
    /// What a peer sent or a row holds. Nothing is believed yet: what is no context counts as none.
    #[must_use]
    pub fn new(parent: Option<&str>, state: Option<&str>) -> Self {
        let state = state.filter(|state| state.len() <= MAX_STATE_CHARS);
        Self { parent: parent.map(str::to_owned), state: state.map(str::to_owned) }
    }

    /// The context of a span of this process.
    #[must_use]
    pub fn of(span: &Span) -> Self {
        let mut carrier = HashMap::new();
        TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
        let mut taken = |name| carrier.remove(name).filter(|value: &String| !value.is_empty());
        Self { parent: taken(PARENT), state: taken(STATE) }
    }

    /// `traceparent`; none where there is no trace.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// As the parent of a span of this process.
    #[must_use]
    pub fn context(&self) -> Context {
        let carrier: HashMap<String, String> = [(PARENT, &self.parent), (STATE, &self.state)]
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
            .collect();
        // Without the current context: a span of this process is no parent of a request from elsewhere.
        TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
    }
}

/// Makes a new span, which must have an empty field `trace_id`, a child of what came from elsewhere, and notes its trace for
/// the log.
pub fn note_trace(span: &Span, parent: &RemoteContext) {
    // It fails where the span is not traced, and then there is nothing to note.
    if span.set_parent(parent.context()).is_ok() {
        let context = span.context();
        let id = context.span().span_context().trace_id();
        span.record("trace_id", tracing::field::display(id));
    }
}

/// A part of a shape's work: a span, and its duration among the metrics.
pub async fn phase<T>(name: &'static str, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let span = tracing::info_span!("phase", otel.name = name, name);
    // Large futures within large ones would be moved about.
    let done = Box::pin(work.instrument(span)).await;
    metrics().phase(name, started.elapsed());
    done
}

/// Something that is known only when it is over, below the present span.
pub fn past_span(name: &'static str, started: SystemTime, took: Duration, attributes: Vec<KeyValue>) {
    let tracer = global::tracer(SCOPE);
    let builder = tracer.span_builder(name).with_start_time(started).with_attributes(attributes);
    builder.start_with_context(&tracer, &Span::current().context()).end_with_timestamp(started + took);
}

/// The time that a job waited in the queue, from its submission to now, below the request that brought it.
pub fn queue_span(parent: &RemoteContext, waited: Duration) {
    let (tracer, now) = (global::tracer(SCOPE), SystemTime::now());
    let start = now.checked_sub(waited).unwrap_or(now);
    let builder = tracer.span_builder("queue").with_start_time(start);
    builder.start_with_context(&tracer, &parent.context()).end_with_timestamp(now);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_survives_its_travel() {
        let context = RemoteContext::new(Some(PARENT), Some("vendor=1")).context();
        let seen = context.span().span_context().clone();
        assert_eq!(seen.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(seen.is_remote() && seen.is_sampled() && seen.trace_state().get("vendor") == Some("1"));
    }

    #[test]
    fn what_is_no_context_is_none() {
        let long = format!("a={}", "x".repeat(600));
        for parent in
            ["", "00-zz-b7ad6b7169203331-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01", &long]
        {
            let context = RemoteContext::new(Some(parent), None).context();
            assert!(!context.span().span_context().is_valid(), "{parent}");
        }
        assert_eq!(RemoteContext::new(Some(PARENT), Some(&long)).state, None);
    }
}
