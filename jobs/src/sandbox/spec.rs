//! What one container is for: its labels, its name, its folders.

use std::collections::HashMap;
use std::path::Path;

use uuid::Uuid;

use crate::collect::OutputDir;
use crate::ids::JobId;

const JOB: &str = "ncu-service.job";
const BENCHMARK: &str = "ncu-service.benchmark";
const ATTEMPT: &str = "ncu-service.attempt";
const TOKEN: &str = "ncu-service.token";
const ROLE: &str = "ncu-service.role";
const SCOPE: &str = "ncu-service.worker-scope";

/// Whose container it is. A worker that finds it after a crash needs nothing else to decide about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Labels {
    /// The job.
    pub job: JobId,
    /// Index of the shape in task.yml.
    pub benchmark: u32,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// The attempt's run token.
    pub token: Uuid,
}

impl Labels {
    /// As the engine stores them.
    fn to_map(self) -> HashMap<String, String> {
        HashMap::from([
            (JOB.to_owned(), self.job.to_string()),
            (BENCHMARK.to_owned(), self.benchmark.to_string()),
            (ATTEMPT.to_owned(), self.attempt.to_string()),
            (TOKEN.to_owned(), self.token.to_string()),
        ])
    }

    /// Reads them back; `None` if one is missing or malformed.
    pub(super) fn from_map(map: &HashMap<String, String>) -> Option<Self> {
        Some(Self {
            job: map.get(JOB)?.parse().ok()?,
            benchmark: map.get(BENCHMARK)?.parse().ok()?,
            attempt: map.get(ATTEMPT)?.parse().ok()?,
            token: map.get(TOKEN)?.parse().ok()?,
        })
    }
}

/// The engine's filter for the containers of one scope.
pub(super) fn scope_filter(scope: &str) -> String {
    format!("{SCOPE}={scope}")
}

/// The folders of this host that a container may read. They must exist.
#[derive(Debug, Clone, Copy)]
pub enum Inputs<'a> {
    /// A capture: the request and the submission, and the problems of reference-kernels.
    Capture {
        /// Mounted at `/in`.
        input: &'a Path,
        /// Mounted at `/problems`.
        problems: &'a Path,
    },
    /// An export: the request, and the folder with the report. It gets no GPU.
    Export {
        /// Mounted at `/in`.
        input: &'a Path,
        /// Mounted at `/report`.
        report: &'a Path,
    },
}

impl Inputs<'_> {
    /// As labels and names spell what the container does.
    fn role(&self) -> &'static str {
        match self {
            Self::Capture { .. } => "capture",
            Self::Export { .. } => "export",
        }
    }
}

/// One container to run.
#[derive(Debug, Clone)]
pub struct ContainerSpec<'a> {
    /// Whose it is, for which shape and attempt.
    pub labels: Labels,
    /// What it may read.
    pub inputs: Inputs<'a>,
    /// The only folder it may write, mounted at `/out`. Empty when the container starts.
    pub output: &'a OutputDir,
    /// Program and arguments; empty for the runner, which reads `/in/request.json`.
    pub command: Vec<String>,
}

impl ContainerSpec<'_> {
    /// `ncu-<job>-<index>-<attempt>-<role>`: an operator who reads `docker ps` sees what runs.
    #[must_use]
    pub fn container_name(&self) -> String {
        let Labels { job, benchmark, attempt, .. } = self.labels;
        format!("ncu-{job}-{benchmark}-{attempt}-{}", self.inputs.role())
    }

    /// Everything that the engine stores beside the container.
    pub(super) fn label_map(&self, scope: &str) -> HashMap<String, String> {
        let mut map = self.labels.to_map();
        map.insert(ROLE.to_owned(), self.inputs.role().to_owned());
        map.insert(SCOPE.to_owned(), scope.to_owned());
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_back_as_they_were_written() {
        let labels = Labels { job: JobId::random(), benchmark: 3, attempt: 2, token: Uuid::new_v4() };
        assert_eq!(Labels::from_map(&labels.to_map()), Some(labels));
    }

    #[test]
    fn labels_that_are_missing_or_malformed_are_not_guessed() {
        let labels = Labels { job: JobId::random(), benchmark: 0, attempt: 1, token: Uuid::new_v4() };
        for key in [JOB, BENCHMARK, ATTEMPT, TOKEN] {
            let mut map = labels.to_map();
            map.insert(key.to_owned(), "?".to_owned());
            assert_eq!(Labels::from_map(&map), None, "{key}");
            map.remove(key);
            assert_eq!(Labels::from_map(&map), None, "{key}");
        }
    }
}
