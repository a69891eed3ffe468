//! The instruments, in one place: names, units and attributes are what dashboards and alerts rely on.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};
use opentelemetry::{KeyValue, global};

use super::SCOPE;

/// From a fast answer to a slow one, in seconds.
const ANSWER_SECS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0];
/// From a phase of no account to the limit of a capture, in seconds.
const WORK_SECS: [f64; 12] = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0];
/// From no wait to half a day, in seconds.
const WAIT_SECS: [f64; 12] = [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 43200.0];

/// All instruments of both programs; each uses its own.
#[derive(Debug)]
pub struct Metrics {
    http: Histogram<f64>,
    kernelbot: Histogram<f64>,
    verdicts: Counter<u64>,
    submitted: Counter<u64>,
    wait: Histogram<f64>,
    phases: Histogram<f64>,
    shapes: Counter<u64>,
    faults: Counter<u64>,
    gpu_busy: Counter<f64>,
    renewals: Counter<u64>,
    adoptions: Counter<u64>,
    disk_free: Gauge<u64>,
}

/// The process's instruments. Before telemetry starts they measure nothing, so they are made when they are first used.
#[must_use]
pub fn metrics() -> &'static Metrics {
    static METRICS: LazyLock<Metrics> = LazyLock::new(|| {
        let metrics = Metrics::new(&global::meter(SCOPE));
        metrics.begin();
        metrics
    });
    &METRICS
}

impl Metrics {
    fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, what: &'static str, bounds: [f64; 12]| {
            meter.f64_histogram(name).with_unit("s").with_description(what).with_boundaries(bounds.to_vec()).build()
        };
        let count = |name: &'static str, unit: &'static str, what: &'static str| {
            meter.u64_counter(name).with_unit(unit).with_description(what).build()
        };
        Self {
            http: seconds("http.server.request.duration", "Time to answer a request", ANSWER_SECS),
            kernelbot: seconds("ncu_service.kernelbot.duration", "Time of a question to KernelBot", ANSWER_SECS),
            verdicts: count(
                "ncu_service.kernelbot.verdicts",
                "{verdict}",
                "Verdicts on a CLI id, asked for or remembered",
            ),
            submitted: count("ncu_service.jobs.submitted", "{job}", "Jobs that were queued"),
            wait: seconds("ncu_service.job.wait", "Time from a job's submission to its first claim", WAIT_SECS),
            phases: seconds("ncu_service.shape.phase.duration", "Time of a part of a shape's work", WORK_SECS),
            shapes: count("ncu_service.shapes.ended", "{shape}", "Shapes that ended"),
            faults: count("ncu_service.attempts.failed", "{attempt}", "Attempts that failed by a fault of ours"),
            gpu_busy: meter
                .f64_counter("ncu_service.gpu.busy")
                .with_unit("s")
                .with_description("Time for which captures held a GPU")
                .build(),
            renewals: count("ncu_service.lease.renewals", "{renewal}", "Renewals of a job's lease"),
            adoptions: count("ncu_service.jobs.adopted", "{job}", "Jobs that were taken over from another worker"),
            disk_free: meter
                .u64_gauge("ncu_service.disk.free")
                .with_unit("By")
                .with_description("Free space of a folder that the worker writes to")
                .build(),
        }
    }

    /// What an alert looks at is there from the start: a rise from nothing to one is none otherwise.
    fn begin(&self) {
        self.faults.add(0, &[]);
        self.adoptions.add(0, &[]);
        for result in ["renewed", "failed", "lost"] {
            self.renewals.add(0, &[KeyValue::new("result", result)]);
        }
    }

    /// A request was answered.
    pub fn answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        let attributes = [
            KeyValue::new("http.request.method", method.to_owned()),
            KeyValue::new("http.route", route.to_owned()),
            KeyValue::new("http.response.status_code", i64::from(status)),
        ];
        self.http.record(took.as_secs_f64(), &attributes);
    }

    /// `KernelBot` was asked; `verdict` is what it said.
    pub fn asked_kernelbot(&self, verdict: &'static str, took: Duration) {
        self.kernelbot.record(took.as_secs_f64(), &[KeyValue::new("verdict", verdict)]);
        self.verdicts.add(1, &[KeyValue::new("verdict", verdict), KeyValue::new("source", "kernelbot")]);
    }

    /// A verdict was remembered.
    pub fn remembered_verdict(&self, verdict: &'static str) {
        self.verdicts.add(1, &[KeyValue::new("verdict", verdict), KeyValue::new("source", "cache")]);
    }

    /// A job was queued.
    pub fn submitted(&self, leaderboard: &str) {
        self.submitted.add(1, &[KeyValue::new("leaderboard", leaderboard.to_owned())]);
    }

    /// A job was claimed for the first time.
    pub fn waited(&self, wait: Duration) {
        self.wait.record(wait.as_secs_f64(), &[]);
    }

    pub(super) fn phase(&self, name: &'static str, took: Duration) {
        self.phases.record(took.as_secs_f64(), &[KeyValue::new("phase", name)]);
    }

    /// A shape ended; `error` is the kind of what went wrong.
    pub fn shape_ended(&self, state: &'static str, error: Option<&'static str>) {
        self.shapes.add(1, &[KeyValue::new("state", state), KeyValue::new("error", error.unwrap_or("none"))]);
    }

    /// An attempt failed by a fault of ours.
    pub fn attempt_failed(&self) {
        self.faults.add(1, &[]);
    }

    /// A capture had these GPUs for so long.
    pub fn gpu_was_busy(&self, gpus: &str, took: Duration) {
        self.gpu_busy.add(took.as_secs_f64(), &[KeyValue::new("gpu", gpus.to_owned())]);
    }

    /// A lease was renewed, or not.
    pub fn renewed(&self, result: &'static str) {
        self.renewals.add(1, &[KeyValue::new("result", result)]);
    }

    /// A folder of the worker's has so much free space.
    pub fn disk_has(&self, free_bytes: u64, folder: &str) {
        self.disk_free.record(free_bytes, &[KeyValue::new("folder", folder.to_owned())]);
    }

    /// A job was taken over from another worker.
    pub fn adopted(&self) {
        self.adoptions.add(1, &[]);
    }
}

/// The queue as the database last showed it. Gauges are read when somebody asks for metrics, and may not wait then.
#[derive(Debug, Clone)]
pub struct QueueState {
    /// Jobs that wait.
    pub queued: i64,
    /// Jobs that run.
    pub running: i64,
    /// How long the oldest one has waited.
    pub oldest: Duration,
    /// Workers that are alive, by state.
    pub workers: Vec<(String, i64)>,
}

static QUEUE: Mutex<Option<QueueState>> = Mutex::new(None);

impl QueueState {
    /// Makes it what the gauges show; `None` when the database does not answer, so that nobody takes old numbers for new ones.
    pub fn show(state: Option<Self>) {
        static GAUGES: LazyLock<()> = LazyLock::new(|| gauges(&global::meter(SCOPE)));
        *QUEUE.lock().unwrap_or_else(PoisonError::into_inner) = state;
        LazyLock::force(&GAUGES);
    }
}

fn gauges(meter: &Meter) {
    fn seen<T>(read: impl FnOnce(&QueueState) -> T) -> Option<T> {
        QUEUE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(read)
    }
    meter
        .i64_observable_gauge("ncu_service.queue.jobs")
        .with_unit("{job}")
        .with_description("Jobs that wait or run")
        .with_callback(|gauge| {
            if let Some((queued, running)) = seen(|queue| (queue.queued, queue.running)) {
                gauge.observe(queued, &[KeyValue::new("state", "queued")]);
                gauge.observe(running, &[KeyValue::new("state", "running")]);
            }
        })
        .build();
    meter
        .f64_observable_gauge("ncu_service.queue.oldest_age")
        .with_unit("s")
        .with_description("Time for which the oldest waiting job has waited")
        .with_callback(|gauge| {
            if let Some(oldest) = seen(|queue| queue.oldest) {
                gauge.observe(oldest.as_secs_f64(), &[]);
            }
        })
        .build();
    meter
        .i64_observable_gauge("ncu_service.workers")
        .with_unit("{worker}")
        .with_description("Workers that are alive, by state")
        .with_callback(|gauge| {
            for (state, count) in seen(|queue| queue.workers.clone()).unwrap_or_default() {
                gauge.observe(count, &[KeyValue::new("state", state)]);
            }
        })
        .build();
}
