//! The GPUs of this host: who may capture on them, and whether they are fit for it.
//!
//! This room knows the driver's files, the kernel's log and `nvidia-smi`; it knows no container, no SQL and no HTTP. Workers
//! of one host agree through files in one folder: a lock a GPU, and beside it a quarantine where a GPU is ill.

mod config;
mod devices;
mod health;
mod identity;
mod lock;
mod quarantine;
mod smi;
#[cfg(test)]
mod tests;
mod xid;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use config::GpuConfig;
pub use identity::GpuIdentity;
pub use lock::Turn;
pub use quarantine::Quarantine;

use crate::sandbox::GpuAccess;
use crate::{Error, Result};
use devices::Gpu;
use health::{Condition, Wait};
use smi::NvidiaSmi;
use xid::KernelLog;

/// The driver's folder.
pub const DRIVER_DIR: &str = "/proc/driver/nvidia";
/// The kernel's log.
const KERNEL_LOG: &str = "/dev/kmsg";
/// How long a capture waits for a GPU that somebody uses who takes no turns.
const BUSY_PATIENCE: Duration = Duration::from_secs(30);

/// The GPUs that a worker's captures get.
#[derive(Debug)]
pub struct Gpus {
    config: GpuConfig,
    access: GpuAccess,
    driver: PathBuf,
    smi: NvidiaSmi,
    kernel_log: Mutex<KernelLog>,
    patience: Duration,
    told_of_missing_smi: AtomicBool,
}

impl Gpus {
    /// The GPUs that `access` names. Nothing is asked yet, but from here on the kernel's log is watched.
    #[must_use]
    pub fn new(config: GpuConfig, access: GpuAccess) -> Self {
        Self {
            smi: NvidiaSmi::new(&config.nvidia_smi),
            config,
            access,
            driver: DRIVER_DIR.into(),
            kernel_log: Mutex::new(KernelLog::open(KERNEL_LOG.as_ref())),
            patience: BUSY_PATIENCE,
            told_of_missing_smi: AtomicBool::new(false),
        }
    }

    /// Asked anew each time: a driver can be loaded late.
    fn gpus(&self) -> Vec<Gpu> {
        devices::in_use(&self.access, &self.driver)
    }

    /// Waits for a turn on all of them; `None` when `stop` fires first.
    pub async fn turn(&self, stop: &CancellationToken) -> Result<Option<Turn>> {
        Turn::take(&self.config.lock_dir, &self.gpus(), stop).await
    }

    /// Makes sure that they are free and well, and waits a while for that. To be asked within a turn.
    ///
    /// An error means that no capture can be made now; a GPU that is ill is in quarantine from then on.
    pub async fn settle(&self) -> Result<()> {
        if self.access == GpuAccess::None {
            return Ok(());
        }
        match self.condition(Wait::UntilFree).await {
            Condition::Fit => Ok(()),
            Condition::Unknown => {
                if !self.told_of_missing_smi.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        program = self.config.nvidia_smi,
                        "nvidia-smi is not there: GPUs are not checked before a capture"
                    );
                }
                Ok(())
            }
            Condition::Busy(why) => Err(Error::Gpu(format!("not free: {why}"))),
            Condition::Failing(why) | Condition::Ill(why) => self.give_up(&why),
        }
    }

    /// Makes sure that none of them has fallen ill, whoever uses them now. Goes by what is seen from outside alone, so nothing
    /// that runs in a container can make a well GPU ill.
    ///
    /// An error means that one has, and is in quarantine from then on.
    pub async fn check(&self) -> Result<()> {
        if self.access == GpuAccess::None {
            return Ok(());
        }
        match self.condition(Wait::WhileFailing).await {
            Condition::Fit | Condition::Unknown | Condition::Busy(_) => Ok(()),
            Condition::Failing(why) | Condition::Ill(why) => self.give_up(&why),
        }
    }

    async fn condition(&self, wait: Wait) -> Condition {
        let gpus = self.gpus();
        let xids = self.kernel_log.lock().unwrap_or_else(PoisonError::into_inner).new_xids();
        for xid in &xids {
            tracing::warn!(gpu = xid.address, xid = xid.number, text = xid.text, "the driver reported an Xid");
        }
        match health::illness(&gpus, &xids) {
            Some(why) => Condition::Ill(why),
            None => health::settle(&self.smi, &gpus, self.config.max_used_bytes, self.patience, wait).await,
        }
    }

    fn give_up(&self, why: &str) -> Result<()> {
        self.begin_quarantine(why)?;
        Err(Error::Gpu(format!("in quarantine: {why}")))
    }

    /// How they are, in one look; outside a turn it may find another worker's capture. `None` without `nvidia-smi`; the error
    /// says what is wrong.
    pub async fn look(&self) -> Result<Option<&'static str>, String> {
        match health::look(&self.smi, &self.gpus(), self.config.max_used_bytes).await {
            Condition::Fit => Ok(Some("free")),
            Condition::Busy(_) => Ok(Some("in use")),
            Condition::Unknown => Ok(None),
            Condition::Failing(why) | Condition::Ill(why) => Err(why),
        }
    }

    /// Which devices they are, for the record. Empty where there is none, and where nobody can tell.
    pub async fn identities(&self) -> Vec<GpuIdentity> {
        if self.access == GpuAccess::None {
            return Vec::new();
        }
        self.smi.identities(&self.gpus()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "which GPU was measured cannot be told");
            Vec::new()
        })
    }

    /// The PCI addresses of these GPUs, or what stands for them.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.gpus().into_iter().map(|gpu| gpu.address).collect()
    }

    /// The first of them that is in quarantine.
    pub fn quarantine(&self) -> Result<Option<Quarantine>> {
        quarantine::find(&self.config.lock_dir, &self.gpus())
    }

    /// Puts them into quarantine until a person lifts it.
    pub fn begin_quarantine(&self, reason: &str) -> Result<()> {
        quarantine::begin(&self.config.lock_dir, &self.gpus(), reason)
    }

    /// Lifts their quarantine; says which there was.
    pub fn lift_quarantine(&self) -> Result<Vec<Quarantine>> {
        quarantine::lift(&self.config.lock_dir, &self.gpus())
    }
}
