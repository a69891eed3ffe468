//! Profiles one shape: the evaluator with every launch noted, then the evaluator under `ncu`.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ncu_runner::protocol::{self, CaptureRequest, Outcome, Stuck};

use crate::assemble;
use crate::environment::Environment;
use crate::files;
use crate::launches;
use crate::layout::Layout;
use crate::probe;
use crate::progress::{Reporter, Watched};
use crate::selection;
use crate::step::{self, Sinks, Spec};
use crate::streams::CappedStream;
use crate::trace::Trace;
use crate::tracer;
use crate::trouble::{Result, Trouble};

/// Runs the capture, and writes everything but the outcome; `outcome` holds what is known so far even in trouble.
pub fn run(request: &CaptureRequest, layout: &Layout, outcome: &mut Outcome) -> Result<()> {
    let mut streams = Streams::new(request.max_stream_bytes);
    let trace = steps(request, layout, outcome, &mut streams);
    layout.reopen_out()?;
    // Also in trouble: the logs may say why.
    streams.write(&layout.out, outcome)?;
    let trace = trace?;
    if outcome.overview.is_some() {
        // Not before the capture, in which the submission could write another.
        launches::write_table(&trace, &layout.out.join(protocol::LAUNCHES_FILE))?;
    }
    Ok(())
}

struct Streams {
    stdout: CappedStream,
    stderr: CappedStream,
    popcorn: CappedStream,
}

/// Tells an evaluator that it is profiled.
fn profiling() -> (OsString, OsString) {
    ("POPCORN_NCU".into(), "1".into())
}

/// Options that choose launches already; what is left then is a window over what they match.
const FILTERS: [&str; 4] = ["--kernel-name", "--kernel-id", "--launch-skip", "--launch-skip-before-match"];

/// What the overview saw.
fn steps(request: &CaptureRequest, layout: &Layout, outcome: &mut Outcome, streams: &mut Streams) -> Result<Trace> {
    let ncu = request.ncu.first().ok_or_else(|| Trouble::new("the request names no ncu"))?;
    let environment = Environment::new(layout)?;
    outcome.ncu_version = probe::ncu_version(ncu, layout, &environment)?;
    let python = probe::python(layout, &environment)?;
    outcome.versions = python.versions;
    let evaluator = ["python3", &request.main, "profile", assemble::CASES_FILE].map(str::to_owned);

    let mut reporter = Reporter::new(&layout.out);
    reporter.begin(protocol::OVERVIEW_STEP, None);
    let trace = overview(request, layout, &environment, &evaluator, &python.packages, outcome, streams)?;
    if outcome.stuck == Some(Stuck::InRange) {
        // The profiler makes nothing faster: under it the submission would hold the GPU for another limit.
        return Ok(trace);
    }
    outcome.overview = launches::summary(&trace);
    let filtered = request.ncu.iter().any(|word| FILTERS.contains(&word.as_str()));
    let (options, choice) = selection::choose(request.selection, filtered, &trace);
    outcome.choice = Some(choice);

    if let Err(trouble) = start_afresh(request, layout) {
        // It worked before the submission ran.
        outcome.spoiled = Some(trouble.to_string());
        return Ok(trace);
    }
    streams.mark(&format!("capture: {ncu} … {}", evaluator.join(" ")));
    streams.begin_capture();
    let argv = [request.ncu.as_slice(), &options, &evaluator].concat();
    let limit = Duration::from_secs(request.capture_timeout_secs);
    let env = [environment.for_next_step()?, &[profiling()]].concat();
    let spec = Spec { name: protocol::CAPTURE_STEP, argv: &argv, dir: &layout.work, env: &env, limit, at_limit: None };
    reporter.begin(protocol::CAPTURE_STEP, Some(request.selection.max_launches));
    let mut stdout = Watched::new(&mut streams.stdout, &mut reporter);
    let sinks = Sinks { stdout: &mut stdout, stderr: &mut streams.stderr, popcorn: Some(&mut streams.popcorn) };
    outcome.steps.push(step::run(&spec, sinks)?);
    Ok(trace)
}

/// What ran before could have changed the evaluator, and could have left a report of its own.
fn start_afresh(request: &CaptureRequest, layout: &Layout) -> Result<()> {
    layout.reopen_out()?;
    assemble::work_dir(request, layout)?;
    let report = layout.out.join(protocol::REPORT_FILE);
    files::fresh_dir(report.parent().unwrap_or(&layout.out))
}

/// Runs the evaluator once without the profiler: inline extensions are compiled then and not in the capture, and every
/// launch is noted. Its failure is not held against the submission, because the capture will say more; only a hang in the
/// range is its own for sure.
fn overview(
    request: &CaptureRequest,
    layout: &Layout,
    environment: &Environment,
    evaluator: &[String],
    python_packages: &[PathBuf],
    outcome: &mut Outcome,
    streams: &mut Streams,
) -> Result<Trace> {
    assemble::work_dir(request, layout)?;
    files::fresh_dir(&layout.launches)?;
    streams.mark(&format!("overview: {}", evaluator.join(" ")));
    let limit = Duration::from_secs(request.warmup_timeout_secs);
    let tracing = tracer::variables(&layout.launches, python_packages);
    let env = [environment.for_next_step()?, &[profiling()], &tracing].concat();
    let stuck = Cell::new(None);
    let look = || stuck.set(Trace::read(&layout.launches).ok().and_then(|trace| trace.stuck(request.warm_calls > 0)));
    let spec = Spec {
        name: protocol::OVERVIEW_STEP,
        argv: evaluator,
        dir: &layout.work,
        env: &env,
        limit,
        at_limit: Some(&look),
    };
    // Its verdict is not wanted: the capture has its own.
    let mut verdict = io::sink();
    let sinks = Sinks { stdout: &mut streams.stdout, stderr: &mut streams.stderr, popcorn: Some(&mut verdict) };
    outcome.steps.push(step::run(&spec, sinks)?);
    outcome.stuck = stuck.get();
    Trace::read(&layout.launches)
}

impl Streams {
    fn new(max_bytes: u64) -> Self {
        let stream = || CappedStream::new(max_bytes);
        Self { stdout: stream(), stderr: stream(), popcorn: stream() }
    }

    fn mark(&mut self, text: &str) {
        self.stdout.mark(text);
        self.stderr.mark(text);
    }

    fn begin_capture(&mut self) {
        self.stdout.begin_capture();
        self.stderr.begin_capture();
    }

    fn write(&self, out: &Path, outcome: &mut Outcome) -> Result<()> {
        let files = [
            (protocol::POPCORN_LOG_FILE, &self.popcorn),
            (protocol::STDOUT_FILE, &self.stdout),
            (protocol::STDERR_FILE, &self.stderr),
        ];
        for (name, stream) in files {
            outcome.streams.insert(name.to_owned(), stream.stats());
            let path = out.join(name);
            let mut file: BufWriter<File> = BufWriter::new(files::create_new(&path)?);
            stream
                .write_to(&mut file)
                .and_then(|()| file.flush())
                .map_err(|error| Trouble::at("writing", &path, error))?;
        }
        Ok(())
    }
}
