//! `ncu-worker doctor`: looks at everything that a capture needs and says what to do where something is missing.
//!
//! Each check is one function that returns one [`Finding`]. The quick half, [`readiness`], is asked by a running worker
//! before it takes a job.

mod capture;
mod engine;
mod gpu;
mod host;
mod services;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::gpu::Gpus;
use crate::problems::Catalog;
use crate::sandbox::Sandbox;
use crate::worker::WorkerConfig;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Captures can be made; a person should still look at it.
    Warning,
    /// No capture can be made.
    Failed,
    /// It does not apply here, or something before it failed.
    Skipped,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What the operator should do; `None` where nothing is to be done.
    pub advice: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, status: Status::Ok, found: found.into(), advice: None }
    }

    fn skipped(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, status: Status::Skipped, found: why.into(), advice: None }
    }

    fn warning(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, status: Status::Warning, found: found.into(), advice: Some(advice.into()) }
    }

    fn failed(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, status: Status::Failed, found: found.into(), advice: Some(advice.into()) }
    }
}

/// Everything that was found, in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether a capture can be made.
    pub fit: bool,
    /// One a check.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
        for Finding { what, status, found, advice } in &self.findings {
            writeln!(f, "{:<8} {what:<width$}  {found}", status.as_str())?;
            if let Some(advice) = advice {
                writeln!(f, "{:<8} {:<width$}  -> {advice}", "", "")?;
            }
        }
        let verdict = if self.fit { "Captures can be made." } else { "No capture can be made before this is mended." };
        write!(f, "\n{verdict}")
    }
}

/// Everything, a real capture of a tiny kernel included. Takes some seconds, and up to minutes where things hang.
pub async fn examine(config: &WorkerConfig) -> Report {
    let gpus = Gpus::new(config.gpu.clone(), config.sandbox.gpus.clone());
    let catalog = Arc::new(Catalog::new(config.problems_dir.clone()));
    let mut findings = Vec::new();

    let mut sandbox_config = config.sandbox.clone();
    // No worker's sweep takes these containers for its own.
    "doctor".clone_into(&mut sandbox_config.scope);
    match Sandbox::connect(sandbox_config).await {
        Ok(sandbox) => {
            if let Err(error) = capture::clear(config, &sandbox).await {
                tracing::warn!(%error, "what an earlier doctor left could not be removed");
            }
            findings.extend(engine::versions(&sandbox).await);
            findings.push(engine::toolkit(&config.sandbox.gpus).await);
            let image = engine::image(&sandbox).await;
            let can_run = image.status != Status::Failed;
            findings.extend([image, gpu::counters(config), gpu::care(config, &gpus).await]);
            if can_run {
                findings.push(gpu::in_container(config, &sandbox, &gpus).await);
                findings.extend(capture::tiny(config, &sandbox, &gpus).await);
            } else {
                findings.push(Finding::skipped(capture::WHAT, "there is no image to run it in"));
            }
        }
        Err(error) => {
            findings.push(engine::unreachable(&error));
            findings.extend([gpu::counters(config), gpu::care(config, &gpus).await]);
            findings.push(Finding::skipped(capture::WHAT, "the engine cannot be reached"));
        }
    }
    findings.push(host::problems(catalog).await);
    findings.extend(services::database(config).await);
    findings.push(services::store(config).await);
    findings.push(services::kernelbot());
    findings.extend([host::jobs_dir(config), host::lock_dir(config)]);
    findings.extend(host::disk(config));
    Report { fit: is_fit(&findings), findings }
}

/// The quick half: what can break while a worker runs, and would fail every job that it takes.
pub async fn readiness(config: &WorkerConfig, sandbox: &Sandbox, catalog: Arc<Catalog>) -> Report {
    let mut findings = vec![engine::reachable(sandbox).await, engine::image(sandbox).await, gpu::counters(config)];
    findings.push(host::problems(catalog).await);
    findings.push(services::store(config).await);
    findings.extend([host::jobs_dir(config), host::lock_dir(config)]);
    findings.extend(host::disk(config));
    Report { fit: is_fit(&findings), findings }
}

fn is_fit(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.status != Status::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_what_found_and_what_to_do() {
        let findings = vec![
            Finding::ok("engine", "26.1.5"),
            Finding::warning("runc", "1.1.5", "upgrade it"),
            Finding::failed("worker image", "not there", "build it"),
        ];
        let report = Report { fit: is_fit(&findings), findings };
        assert_eq!(
            report.to_string(),
            "ok       engine        26.1.5\n\
             warning  runc          1.1.5\n         \x20             -> upgrade it\n\
             FAILED   worker image  not there\n         \x20             -> build it\n\n\
             No capture can be made before this is mended."
        );
        assert_eq!(
            serde_json::to_string(&report.findings[1]).unwrap(),
            r#"{"what":"runc","status":"warning","found":"1.1.5","advice":"upgrade it"}"#
        );
    }

    #[test]
    fn only_a_failure_makes_unfit() {
        assert!(is_fit(&[Finding::warning("a", "", ""), Finding::skipped("b", "")]));
        assert!(!is_fit(&[Finding::ok("a", ""), Finding::failed("b", "", "")]));
    }
}
