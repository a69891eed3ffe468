//! The export's container: turns the report into text and tables, without a GPU. The parser in it reads a hostile file.

use std::path::{Path, PathBuf};

use ncu_runner::protocol::{self, ExportRequest, Request, Step};

use super::blocking;
use super::capture::{Captured, outcome};
use super::judge::no_kernel;
use super::shape::{RUNNER_GRACE, ShapeRun};
use crate::capture::command::ExportCommands;
use crate::collect::{CollectError, CollectedFile, OutputDir, TakenDir};
use crate::digest::Pages;
use crate::queue::ErrorKind;
use crate::report::{self, ReportSummary};
use crate::sandbox::{ContainerSpec, How, Inputs};
use crate::{Error, Result};

/// The report's name in a folder of ours.
pub(super) const REPORT_NAME: &str = "profile.ncu-rep";

/// The exports, open, and what was read of them.
#[derive(Debug)]
pub(super) struct Exports {
    pub text: CollectedFile,
    pub csv: CollectedFile,
    /// Every metric; the digest says less without it.
    pub raw: Option<CollectedFile>,
    pub summary: ReportSummary,
    pub pages: Pages,
}

/// What could not be done for the report's own sake, in words that end a sentence.
type Why = &'static str;

impl ShapeRun<'_> {
    /// Moves the report into a folder of ours, where the export can have it without whatever else lies beside it.
    pub(super) async fn take_report(&self, captured: &Captured) -> Result<Result<PathBuf, (ErrorKind, String)>> {
        let (folder, output) = (self.folder.clone(), captured.output.clone());
        let max_bytes = self.worker.config.sandbox.limits.output_bytes;
        let nothing = no_kernel(self.command().kernel_name.as_deref());
        blocking(move || {
            let report = folder.report()?;
            if TakenDir(&report).has(REPORT_NAME) {
                // An earlier holder of the attempt took it.
                return Ok(Ok(report));
            }
            match output.move_file(protocol::REPORT_FILE, &report, max_bytes) {
                Ok(()) => Ok(Ok(report)),
                Err(CollectError::Io(source)) => Err(Error::Io { action: "collecting the report".to_owned(), source }),
                // ncu leaves no file where it captured nothing.
                Err(CollectError::Missing) => Ok(Err((ErrorKind::EmptyCapture, nothing))),
                Err(refused) => {
                    let sentence = format!("The profiler left no usable report: {refused}.");
                    Ok(Err((ErrorKind::Submission, sentence)))
                }
            }
        })
        .await
    }

    /// Exports the report and reads what it holds. `None` when it was stopped for the attempt's sake.
    pub(super) async fn export(&self, report: &Path) -> Result<Option<Result<Exports, Why>>> {
        let limits = self.worker.config.limits;
        let ExportCommands { text, csv, raw } = ExportCommands::new(self.worker.config.sandbox.ncu_program());
        let request = Request::Export(ExportRequest {
            text,
            csv,
            raw,
            landlock: limits.landlock,
            timeout_secs: limits.export.as_secs(),
            max_bytes: limits.max_export_bytes,
        });
        let (input, output) = {
            let (folder, user) = (self.folder.clone(), self.worker.config.sandbox.user);
            blocking(move || Ok((folder.export_input(&request)?, folder.export_output(user)?))).await?
        };
        let spec = ContainerSpec {
            labels: self.labels(),
            inputs: Inputs::Export { input: &input, report },
            output: &output,
            command: Vec::new(),
            limit: limits.export * 3 + RUNNER_GRACE,
        };
        let ended = self.worker.sandbox.run(&spec, self.stop).await?;
        match ended.how {
            How::Cancelled => return Ok(None),
            How::TimedOut => return Ok(Some(Err("it took too long"))),
            How::OutputLimit => return Ok(Some(Err("it is too large"))),
            How::DiskFull => return Err(Error::Capture("the disk of the jobs folder is nearly full".to_owned())),
            How::Exited { .. } => {}
        }
        let log_tail = ended.log_tail;
        let exported = blocking(move || {
            // No submission runs here: without an account, or with trouble in it, the fault is ours.
            let Some(outcome) = outcome(&output)? else {
                return Err(Error::Capture(format!("the export left no outcome: {log_tail}")));
            };
            if let Some(trouble) = outcome.error {
                return Err(Error::Capture(format!("export runner: {trouble}")));
            }
            if !outcome.steps.iter().filter(|step| step.name != protocol::RAW_STEP).all(succeeded) {
                return Ok(Err("its parser refused it"));
            }
            let has_raw = outcome.steps.iter().any(|step| step.name == protocol::RAW_STEP && succeeded(step));
            read(&output, limits.max_export_bytes, has_raw)
        });
        exported.await.map(Some)
    }
}

/// Opens the exports and reads the tables among them.
fn read(output: &OutputDir, max_bytes: u64, has_raw: bool) -> Result<Result<Exports, Why>> {
    let open = |name| match output.open_file(name, max_bytes) {
        Ok(file) => Ok(Some(file)),
        Err(CollectError::Io(source)) => Err(Error::Io { action: "collecting an export".to_owned(), source }),
        Err(_) => Ok(None),
    };
    let table = || open(protocol::DETAILS_CSV_FILE);
    let (Some(text), Some(csv), Some(counted), Some(digested)) =
        (open(protocol::DETAILS_TEXT_FILE)?, table()?, table()?, table()?)
    else {
        return Ok(Err("its parser refused it"));
    };
    let (Ok(summary), Ok(mut pages)) = (report::summarise(counted), Pages::read(digested)) else {
        return Ok(Err("its table cannot be read"));
    };
    // Once for the archive and once to be read.
    let twice = if has_raw { open(protocol::RAW_CSV_FILE)?.zip(open(protocol::RAW_CSV_FILE)?) } else { None };
    let raw = twice.and_then(|(kept, table)| pages.read_raw(table).ok().map(|()| kept));
    if raw.is_none() {
        tracing::warn!("the report's raw page could not be exported; the digest has no stall reasons and no pipes");
    }
    Ok(Ok(Exports { text, csv, raw, summary, pages }))
}

fn succeeded(step: &Step) -> bool {
    step.exit_code == Some(0) && !step.timed_out
}
