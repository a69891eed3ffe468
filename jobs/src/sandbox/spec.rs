//! What one container is for: its labels, its name, its folders.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use crate::collect::OutputDir;
use crate::ids::JobId;

const JOB: &str = "ncu-service.job";
const BENCHMARK: &str = "ncu-service.benchmark";
const ATTEMPT: &str = "ncu-service.attempt";
const TOKEN: &str = "ncu-service.token";
const ADOPTION: &str = "ncu-service.adoption";
const ROLE: &str = "ncu-service.role";
const SCOPE: &str = "ncu-service.worker-scope";
const LIMIT: &str = "ncu-service.limit-secs";

/// Whose container it is. A worker that finds it after a crash needs nothing else to decide about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Labels {
    /// The job.
    pub job: JobId,
    /// Index of the shape in task.yml.
    pub benchmark: u32,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// The token of the attempt's claim.
    pub token: Uuid,
    /// How often the attempt had been taken over when the container was made.
    pub adoption: i32,
}

impl Labels {
    /// As the engine stores them.
    fn to_map(self) -> HashMap<String, String> {
        HashMap::from([
            (JOB.to_owned(), self.job.to_string()),
            (BENCHMARK.to_owned(), self.benchmark.to_string()),
            (ATTEMPT.to_owned(), self.attempt.to_string()),
            (TOKEN.to_owned(), self.token.to_string()),
            (ADOPTION.to_owned(), self.adoption.to_string()),
        ])
    }

    /// Reads them back; `None` if one is missing or malformed.
    pub(super) fn from_map(map: &HashMap<String, String>) -> Option<Self> {
        Some(Self {
            job: map.get(JOB)?.parse().ok()?,
            benchmark: map.get(BENCHMARK)?.parse().ok()?,
            attempt: map.get(ATTEMPT)?.parse().ok()?,
            token: map.get(TOKEN)?.parse().ok()?,
            adoption: map.get(ADOPTION)?.parse().ok()?,
        })
    }
}

/// What a container does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs a submission under the profiler, on the GPU.
    Capture,
    /// Turns a report into text, without a GPU.
    Export,
}

impl Role {
    /// As labels and names spell it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Export => "export",
        }
    }
}

/// Everything that labels say about a container; what is missing or malformed is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marks {
    pub labels: Option<Labels>,
    pub role: Option<Role>,
    pub scope: Option<String>,
    pub limit: Option<Duration>,
}

impl Marks {
    pub(super) fn from_map(map: &HashMap<String, String>) -> Self {
        let role = map.get(ROLE).map(String::as_str);
        Self {
            labels: Labels::from_map(map),
            role: [Role::Capture, Role::Export].into_iter().find(|known| Some(known.as_str()) == role),
            scope: map.get(SCOPE).cloned(),
            limit: map.get(LIMIT).and_then(|secs| secs.parse().ok()).map(Duration::from_secs),
        }
    }
}

/// The engine's filter for the containers of one scope.
pub(super) fn scope_filter(scope: &str) -> String {
    format!("{SCOPE}={scope}")
}

/// The engine's filter for the containers of one attempt.
pub(super) fn token_filter(token: Uuid) -> String {
    format!("{TOKEN}={token}")
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
    /// What the container does.
    fn role(&self) -> Role {
        match self {
            Self::Capture { .. } => Role::Capture,
            Self::Export { .. } => Role::Export,
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
    /// How long its program may run. The container carries it, so that whoever finds it knows.
    pub limit: Duration,
}

impl ContainerSpec<'_> {
    /// `ncu-<job>-<index>-<attempt>.<adoption>-<role>`: an operator who reads `docker ps` sees what runs, and no holder of an
    /// attempt has a container of another's name.
    #[must_use]
    pub fn container_name(&self) -> String {
        let Labels { job, benchmark, attempt, adoption, .. } = self.labels;
        format!("ncu-{job}-{benchmark}-{attempt}.{adoption}-{}", self.inputs.role().as_str())
    }

    /// Everything that the engine stores beside the container.
    pub(super) fn label_map(&self, scope: &str) -> HashMap<String, String> {
        let mut map = self.labels.to_map();
        map.insert(ROLE.to_owned(), self.inputs.role().as_str().to_owned());
        map.insert(SCOPE.to_owned(), scope.to_owned());
        map.insert(LIMIT.to_owned(), self.limit.as_secs().to_string());
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_back_as_they_were_written() {
        let labels = Labels { job: JobId::random(), benchmark: 3, attempt: 2, token: Uuid::new_v4(), adoption: 1 };
        assert_eq!(Labels::from_map(&labels.to_map()), Some(labels));
    }

    #[test]
    fn labels_that_are_missing_or_malformed_are_not_guessed() {
        let labels = Labels { job: JobId::random(), benchmark: 0, attempt: 1, token: Uuid::new_v4(), adoption: 0 };
        for key in [JOB, BENCHMARK, ATTEMPT, TOKEN, ADOPTION] {
            let mut map = labels.to_map();
            map.insert(key.to_owned(), "?".to_owned());
            assert_eq!(Labels::from_map(&map), None, "{key}");
            map.remove(key);
            assert_eq!(Labels::from_map(&map), None, "{key}");
        }
    }
}
