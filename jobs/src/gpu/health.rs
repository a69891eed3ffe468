//! Whether a GPU may be captured on: nobody else computes there, its memory is free, and the driver did not give it up.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::devices::Gpu;
use super::smi::{ComputeProcess, Memory, NvidiaSmi, SmiError};
use super::xid::Xid;

/// How often a GPU that is not free is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How GPUs were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Free and well.
    Fit,
    /// Nobody can tell: there is no `nvidia-smi`.
    Unknown,
    /// In use by somebody who takes no turns.
    Busy(String),
    /// `nvidia-smi` has trouble, which may pass.
    Failing(String),
    /// Not to be used before a person has seen to it.
    Ill(String),
}

/// What a look is repeated for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// That they are free.
    UntilFree,
    /// That `nvidia-smi` has no trouble any more.
    WhileFailing,
}

/// Looks at these GPUs until they are as wanted, at most for `patience`. Trouble that does not pass is an illness.
pub async fn settle(smi: &NvidiaSmi, gpus: &[Gpu], max_used_bytes: u64, patience: Duration, wait: Wait) -> Condition {
    let began = Instant::now();
    loop {
        let condition = look(smi, gpus, max_used_bytes).await;
        let passes = match condition {
            Condition::Busy(_) => wait == Wait::UntilFree,
            Condition::Failing(_) => true,
            _ => false,
        };
        if !passes || began.elapsed() >= patience {
            return match condition {
                Condition::Failing(why) => Condition::Ill(why),
                other => other,
            };
        }
        sleep(LOOK_EVERY.min(patience)).await;
    }
}

/// One look.
pub async fn look(smi: &NvidiaSmi, gpus: &[Gpu], max_used_bytes: u64) -> Condition {
    let seen = async { Ok::<_, SmiError>((smi.memory().await?, smi.compute_processes().await?)) };
    match seen.await {
        Ok((memory, processes)) => judge(gpus, &memory, &processes, max_used_bytes),
        Err(SmiError::Missing) => Condition::Unknown,
        Err(error @ SmiError::Silent(_)) => Condition::Ill(error.to_string()),
        Err(SmiError::Failed(text)) if is_lost(&text) => Condition::Ill(text),
        Err(error) => Condition::Failing(error.to_string()),
    }
}

/// The illness that the driver reported of one of these GPUs.
#[must_use]
pub fn illness(gpus: &[Gpu], xids: &[Xid]) -> Option<String> {
    let ours = |xid: &&Xid| gpus.iter().any(|gpu| gpu.address == xid.address);
    xids.iter().filter(ours).find(|xid| xid.is_illness()).map(|xid| xid.text.clone())
}

fn judge(gpus: &[Gpu], memory: &[Memory], processes: &[ComputeProcess], max_used_bytes: u64) -> Condition {
    // A GPU without an address can be any.
    let is_ours = |address: &str| gpus.iter().any(|gpu| gpu.address == address) || !gpus.iter().any(Gpu::is_addressed);
    let mut ours = memory.iter().filter(|memory| is_ours(&memory.address)).peekable();
    if ours.peek().is_none() {
        let names: Vec<&str> = gpus.iter().map(|gpu| gpu.address.as_str()).collect();
        return Condition::Failing(format!("nvidia-smi does not list GPU {}", names.join(", ")));
    }
    if let Some(process) = processes.iter().find(|process| is_ours(&process.address)) {
        return Condition::Busy(format!("process {} computes on GPU {}", process.pid, process.address));
    }
    let full = ours.find(|memory| memory.used_bytes.is_some_and(|used| used > max_used_bytes));
    full.map_or(Condition::Fit, |memory| {
        let used_mib = memory.used_bytes.unwrap_or_default() >> 20;
        Condition::Busy(format!("{used_mib} MiB are in use on GPU {}", memory.address))
    })
}

/// `GPU is lost. Reboot the system to recover this GPU`, in the words of several versions.
fn is_lost(text: &str) -> bool {
    let text = text.to_lowercase();
    ["is lost", "fallen off the bus", "requires reset"].iter().any(|words| text.contains(words))
}
