//! The export's container: turns the report into text and CSV, without a GPU. The parser in it reads a hostile file.

use std::path::{Path, PathBuf};

use ncu_runner::protocol::{self, ExportRequest, Request, Step};

use super::blocking;
use super::capture::{Captured, outcome};
use super::judge::no_kernel;
use super::shape::{RUNNER_GRACE, ShapeRun};
use crate::capture::command::export_argv;
use crate::collect::{CollectError, CollectedFile, TakenDir};
use crate::queue::ErrorKind;
use crate::report::{self, ReportSummary};
use crate::sandbox::{ContainerSpec, How, Inputs};
use crate::{Error, Result};

/// The report's name in a folder of ours.
pub(super) const REPORT_NAME: &str = "profile.ncu-rep";

/// Both exports, open.
#[derive(Debug)]
pub(super) struct Exports {
    pub text: CollectedFile,
    pub csv: CollectedFile,
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

    /// Exports the report and counts what it holds. `None` when it was stopped for the attempt's sake.
    pub(super) async fn export(&self, report: &Path) -> Result<Option<Result<(Exports, ReportSummary), Why>>> {
        let limits = self.worker.config.limits;
        let (text, csv) = export_argv(self.worker.config.sandbox.ncu_program());
        let request = Request::Export(ExportRequest {
            text,
            csv,
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
            limit: limits.export * 2 + RUNNER_GRACE,
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
            let open = |name| output.open_file(name, limits.max_export_bytes);
            let (text, csv) = (open(protocol::DETAILS_TEXT_FILE), open(protocol::DETAILS_CSV_FILE));
            let (text, csv, table) = match (text, csv, open(protocol::DETAILS_CSV_FILE)) {
                (Ok(text), Ok(csv), Ok(table)) if outcome.steps.iter().all(succeeded) => (text, csv, table),
                (Err(CollectError::Io(source)), ..) | (_, Err(CollectError::Io(source)), _) => {
                    return Err(Error::Io { action: "collecting an export".to_owned(), source });
                }
                _ => return Ok(Err("its parser refused it")),
            };
            Ok(report::summarise(table)
                .map(|summary| (Exports { text, csv }, summary))
                .map_err(|_| "its table cannot be read"))
        });
        exported.await.map(Some)
    }
}

fn succeeded(step: &Step) -> bool {
    step.exit_code == Some(0) && !step.timed_out
}
