//! What this worker makes profiles with, in one word: where it is the same, and the submission, so is the profile, up to what
//! differs from one measurement to the next.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Worker;
use super::shape::ShapeRun;
use crate::Result;
use crate::problems;

/// Digest of the image, the kind of GPU, and everything that the operator has set about captures.
pub(super) async fn of(worker: &Worker) -> Result<String> {
    let image = worker.sandbox.image().await?;
    let kinds: BTreeSet<_> =
        worker.gpus.identities().await.into_iter().map(|gpu| (gpu.name, gpu.driver_version, gpu.mig)).collect();
    let (config, sandbox) = (&worker.config, &worker.config.sandbox);
    let mut hash = Sha256::new();
    // Debug tells each field apart, whatever stands in it.
    hash.update(format!(
        "{} {image:?} {kinds:?} {:?} {:?} {:?} {:?}",
        env!("CARGO_PKG_VERSION"),
        config.ncu,
        config.limits,
        sandbox.limits,
        sandbox.ncu_program(),
    ));
    Ok(hex::encode(hash.finalize()))
}

/// Tells it to whoever looks for a stored result.
pub(super) async fn publish(worker: Arc<Worker>) -> Result<()> {
    let setup = of(&worker).await?;
    // There may be no row yet.
    Arc::clone(&worker).beat().await?;
    worker.queue.note_setup(&worker.name, &setup).await
}

impl ShapeRun<'_> {
    /// Notes what the shape is made with. Where that cannot be noted its result answers for nothing but this job.
    pub(super) async fn note_made_with(&self) {
        let version = problems::version(&self.origin.revision, &self.origin.problem_files);
        let noted = async {
            let setup = of(self.worker).await?;
            self.worker.queue.note_made_with(self.lease, &setup, &version).await
        };
        if let Err(error) = noted.await {
            tracing::debug!(job = %self.claim.id, %error, "what a shape is made with could not be noted");
        }
    }
}
