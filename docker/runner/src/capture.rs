//! Profiles one shape: import outside the profiler, then the evaluator under `ncu`.

use std::fs::File;
use std::io::BufWriter;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ncu_runner::protocol::{self, CaptureRequest, Outcome};

use crate::assemble;
use crate::environment::Environment;
use crate::files;
use crate::layout::Layout;
use crate::probe;
use crate::step::{self, Sinks, Spec};
use crate::streams::CappedStream;
use crate::trouble::{Result, Trouble};

/// Runs the capture, and writes everything but the outcome; `outcome` holds what is known so far even in trouble.
pub fn run(request: &CaptureRequest, layout: &Layout, outcome: &mut Outcome) -> Result<()> {
    let mut streams = Streams::new(request.max_stream_bytes);
    let result = steps(request, layout, outcome, &mut streams);
    // Also in trouble: the logs may say why.
    streams.write(&layout.out, outcome)?;
    result
}

struct Streams {
    stdout: CappedStream,
    stderr: CappedStream,
    popcorn: CappedStream,
}

fn steps(request: &CaptureRequest, layout: &Layout, outcome: &mut Outcome, streams: &mut Streams) -> Result<()> {
    let ncu = request.ncu.first().ok_or_else(|| Trouble::new("the request names no ncu"))?;
    let environment = Environment::new(layout)?;
    outcome.ncu_version = probe::ncu_version(ncu, layout, &environment)?;
    outcome.versions = probe::versions(layout, &environment)?;
    let report = layout.out.join(protocol::REPORT_FILE);
    files::fresh_dir(report.parent().unwrap_or(&layout.out))?;

    // KernelBot does the same: inline extensions are compiled before the capture. Its failure is not held against the
    // submission, because the capture will say more.
    assemble::work_dir(request, layout)?;
    streams.mark("warm-up: python3 submission.py");
    let argv = ["python3", "submission.py"].map(str::to_owned);
    let limit = Duration::from_secs(request.warmup_timeout_secs);
    let env = environment.for_next_step()?;
    let spec = Spec { name: "warmup", argv: &argv, dir: &layout.work, env, limit };
    let sinks = Sinks { stdout: &mut streams.stdout, stderr: &mut streams.stderr, popcorn: None };
    outcome.steps.push(step::run(&spec, sinks)?);

    // The warm-up could have changed the evaluator.
    assemble::work_dir(request, layout)?;
    streams.mark(&format!("capture: {ncu} … python3 {} profile {}", request.main, assemble::CASES_FILE));
    let evaluator = ["python3", &request.main, "profile", assemble::CASES_FILE].map(str::to_owned);
    let argv = [request.ncu.as_slice(), &evaluator].concat();
    let limit = Duration::from_secs(request.capture_timeout_secs);
    let mut env = environment.for_next_step()?.to_vec();
    env.push(("POPCORN_NCU".into(), "1".into()));
    let spec = Spec { name: "capture", argv: &argv, dir: &layout.work, env: &env, limit };
    let sinks = Sinks { stdout: &mut streams.stdout, stderr: &mut streams.stderr, popcorn: Some(&mut streams.popcorn) };
    outcome.steps.push(step::run(&spec, sinks)?);
    Ok(())
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
