//! `nvidia-smi`: asked with a deadline, since it never answers when a GPU fell off the bus.

use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::devices::{Gpu, address};
use super::identity::{self, GpuIdentity};

/// How long an answer may take. Without the persistence daemon the driver starts every GPU anew for it.
const DEADLINE: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SmiError {
    /// There is no such program.
    #[error("nvidia-smi is not there")]
    Missing,
    /// It did not end.
    #[error("nvidia-smi did not answer within {0} s")]
    Silent(u64),
    /// It says that it cannot tell.
    #[error("nvidia-smi: {0}")]
    Failed(String),
}

/// A GPU as `nvidia-smi` sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// PCI address.
    pub address: String,
    /// Memory in use, in bytes; `None` where this GPU does not tell.
    pub used_bytes: Option<u64>,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeProcess {
    /// PCI address of the GPU.
    pub address: String,
    /// Its id on the host.
    pub pid: String,
}

/// The program.
#[derive(Debug, Clone)]
pub struct NvidiaSmi {
    program: String,
    deadline: Duration,
}

impl NvidiaSmi {
    /// `program` is a path, or a name on PATH.
    #[must_use]
    pub fn new(program: &str) -> Self {
        Self { program: program.to_owned(), deadline: DEADLINE }
    }

    #[cfg(test)]
    pub(super) fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Memory in use on every GPU that it sees.
    pub async fn memory(&self) -> Result<Vec<Memory>, SmiError> {
        Ok(parse_memory(&self.ask("--query-gpu=pci.bus_id,memory.used").await?))
    }

    /// Which devices `gpus` are.
    pub async fn identities(&self, gpus: &[Gpu]) -> Result<Vec<GpuIdentity>, SmiError> {
        Ok(identity::parse(&self.ask(identity::QUERY).await?, gpus))
    }

    /// Who computes on any GPU.
    pub async fn compute_processes(&self) -> Result<Vec<ComputeProcess>, SmiError> {
        Ok(parse_processes(&self.ask("--query-compute-apps=gpu_bus_id,pid").await?))
    }

    async fn ask(&self, query: &str) -> Result<String, SmiError> {
        let mut command = Command::new(&self.program);
        command.args([query, "--format=csv,noheader,nounits"]).stdin(Stdio::null()).kill_on_drop(true);
        let output = match timeout(self.deadline, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => return Err(SmiError::Missing),
            Ok(Err(error)) => return Err(SmiError::Failed(error.to_string())),
            Err(_) => return Err(SmiError::Silent(self.deadline.as_secs())),
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        // It prints its complaints on standard output.
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed without a word");
        Err(SmiError::Failed(first.trim().to_owned()))
    }
}

fn parse_memory(text: &str) -> Vec<Memory> {
    text.lines()
        .filter_map(|line| {
            let (bus, used) = line.split_once(',')?;
            let used_bytes = used.trim().parse::<u64>().ok().map(|mebibytes| mebibytes.saturating_mul(1 << 20));
            Some(Memory { address: address(bus)?, used_bytes })
        })
        .collect()
}

fn parse_processes(text: &str) -> Vec<ComputeProcess> {
    text.lines()
        .filter_map(|line| {
            let (bus, pid) = line.split_once(',')?;
            Some(ComputeProcess { address: address(bus)?, pid: pid.trim().to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes_and_what_is_no_number_is_not_known() {
        let text = "00000000:00:06.0, 621\n00000000:19:00.0, [N/A]\n00000000:AB:00.0, 0\n";
        let gpu = |address: &str, used_bytes| Memory { address: address.to_owned(), used_bytes };
        assert_eq!(
            parse_memory(text),
            [gpu("0000:00:06.0", Some(621 << 20)), gpu("0000:19:00.0", None), gpu("0000:ab:00.0", Some(0))]
        );
    }

    #[test]
    fn processes_come_with_their_gpu() {
        let found = parse_processes("00000000:00:06.0, 418\n00000000:19:00.0, [Not Found]\n");
        assert_eq!((found[0].address.as_str(), found[0].pid.as_str()), ("0000:00:06.0", "418"));
        assert_eq!(found.len(), 2);
        assert_eq!(parse_processes("\n"), []);
    }
}
