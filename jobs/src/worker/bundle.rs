//! Zips one shape's results and stores the zip.

use std::path::Path;
use std::slice;

use ncu_runner::protocol;
use serde_json::json;

use super::capture::Captured;
use super::export::{Exports, REPORT_NAME};
use super::persist::persist;
use super::shape::ShapeRun;
use super::{blocking, provenance};
use crate::artifacts::archive::{self, Content, Entry};
use crate::artifacts::manifest::{ContainerTimes, Image, Manifest, MeasuredClocks, Submission};
use crate::collect::TakenDir;
use crate::digest::{Digest, markdown};
use crate::gpu::GpuIdentity;
use crate::page;
use crate::queue::{ErrorKind, StoredArtifact};
use crate::telemetry::phase;
use crate::{Error, Result};

/// Writes the archive and puts it into the store. Returns its file name and place.
pub(super) async fn store(
    run: &ShapeRun<'_>,
    captured: Captured,
    report: &Path,
    exports: Exports,
    digest: &Digest,
    gpus: &[GpuIdentity],
    complaint: Option<&(ErrorKind, String)>,
) -> Result<(String, StoredArtifact)> {
    let outcome = captured.outcome.unwrap_or_default();
    let spec = run.shape.spec();
    let summary = exports.summary;
    let (phases, limits_hit) = (provenance::phases(run, &captured.ended), provenance::limits_hit(&outcome));
    let manifest = Manifest {
        schema: Manifest::SCHEMA,
        service: Manifest::SERVICE,
        simulated: run.origin.image.simulated,
        job_id: run.claim.id.to_string(),
        attempt: run.claim.attempt,
        leaderboard: &run.claim.leaderboard,
        problem_dir: &run.claim.problem_dir,
        reference_kernels: &run.origin.revision,
        benchmark_index: run.lease.benchmark_index,
        benchmark: run.shape,
        problem_files: &run.origin.problem_files,
        spec: &spec,
        submission: Submission {
            file_name: &run.claim.file_name,
            bytes: run.claim.source.len(),
            sha256: digest.provenance.submission_sha256.clone(),
        },
        options: &run.claim.options,
        clock_control: run.origin.clock_control,
        warm_calls: captured.request.warm_calls,
        image: Image { id: &run.origin.image.id, digest: run.origin.image.digest.as_deref() },
        gpus,
        measured_clocks: MeasuredClocks { sm: summary.sm_clock, memory: summary.memory_clock },
        ncu_version: outcome.ncu_version.as_deref(),
        versions: &outcome.versions,
        landlock: outcome.landlock,
        steps: &outcome.steps,
        streams: &outcome.streams,
        container: ContainerTimes { started_at: captured.ended.started_at, ended_at: captured.ended.ended_at },
        phases: &phases,
        limits: &run.origin.limits,
        limits_hit: &limits_hit,
        captured_launches: summary.launches,
        capture: outcome.choice.as_ref(),
        overview: outcome.overview.as_ref(),
        evaluator_error: complaint.map(|(_, sentence)| sentence.as_str()),
        note: Manifest::NOTE,
    };
    // The runner adds the options that choose launches.
    let evaluator = ["python3", &captured.request.main, "profile", "cases.txt"];
    let ncu = outcome.steps.iter().find(|step| step.name == protocol::CAPTURE_STEP).map(|step| step.argv.as_slice());
    let ncu = ncu.and_then(|argv| argv.get(..argv.len().checked_sub(evaluator.len())?));
    let command = json!({
        "ncu": ncu.unwrap_or(&captured.request.ncu),
        "evaluator": evaluator,
        "cases.txt": spec,
        "warm_calls": captured.request.warm_calls,
        "simulated": run.origin.image.simulated,
    });
    let mut entries = vec![
        Entry::json("manifest.json", &manifest)?,
        Entry::json("benchmark.json", run.shape)?,
        Entry::json("command.json", &command)?,
        Entry { name: "digest.md", content: Content::Bytes(markdown(digest).into_bytes()) },
        Entry::json("digest.json", digest)?,
        Entry { name: "report.html", content: Content::Bytes(page::report(slice::from_ref(digest)).into_bytes()) },
        Entry { name: protocol::DETAILS_TEXT_FILE, content: Content::Collected(exports.text) },
        Entry { name: protocol::DETAILS_CSV_FILE, content: Content::Collected(exports.csv) },
        Entry { name: protocol::POPCORN_LOG_FILE, content: Content::Bytes(captured.popcorn_log) },
        Entry { name: protocol::STDOUT_FILE, content: Content::Bytes(captured.stdout) },
        Entry { name: protocol::STDERR_FILE, content: Content::Bytes(captured.stderr) },
    ];
    let tables = [(protocol::LAUNCHES_FILE, captured.launches), (protocol::RAW_CSV_FILE, exports.raw)];
    entries
        .extend(tables.into_iter().filter_map(|(name, file)| Some(Entry { name, content: Content::Collected(file?) })));

    let name = run.shape.artifact_name(run.lease.benchmark_index);
    let path = run.folder.archive();
    let (report, max_bytes) = (report.to_owned(), run.worker.config.sandbox.limits.output_bytes);
    let zipped = blocking(move || {
        let file = TakenDir(&report).open_file(REPORT_NAME, max_bytes).map_err(|error| Error::Io {
            action: "opening the collected report".to_owned(),
            source: std::io::Error::other(error),
        })?;
        entries.push(Entry { name: protocol::REPORT_FILE, content: Content::Collected(file) });
        archive::write(&path, entries)?;
        Ok(path)
    });
    let archive = phase("zip", zipped).await?;
    // The attempt and its holder stand in the object's name, so a stale worker overwrites nothing.
    let object = format!("jobs/{}/{}/{name}", run.claim.id, run.claim.holder());
    let stored = persist("storing an archive", || run.worker.store.put_file(&object, &archive));
    let stored = phase("store", stored).await?;
    Ok((name, stored))
}
