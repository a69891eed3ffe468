//! The digest of a captured shape: what its exports and the overview's table say, and what it was made with.

use std::mem;

use ncu_runner::protocol;
use sha2::{Digest as _, Sha256};

use super::blocking;
use super::capture::{Captured, MAX_LAUNCHES_BYTES};
use super::export::Exports;
use super::shape::{ShapeRun, seen};
use crate::Result;
use crate::artifacts::manifest::Manifest;
use crate::digest::{Digest, Overview, Provenance};
use crate::gpu::GpuIdentity;
use crate::text::is_shown;

/// Longest version line of `ncu` that is kept, in characters.
const MAX_VERSION_CHARS: usize = 120;

impl ShapeRun<'_> {
    /// Makes the digest of what the exports hold. A table of launches that cannot be read is none.
    pub(super) async fn digest(
        &self,
        captured: &Captured,
        mut exports: Exports,
        gpus: &[GpuIdentity],
    ) -> Result<(Exports, Digest)> {
        let (provenance, simulated) = (self.origin_of_numbers(captured, gpus), self.origin.image.simulated);
        let output = captured.output.clone();
        blocking(move || {
            let table = output.open_file(protocol::LAUNCHES_FILE, MAX_LAUNCHES_BYTES);
            let overview = table.map(Overview::read).unwrap_or_default();
            let (pages, launches) = (mem::take(&mut exports.pages), exports.summary.launches);
            let digest = Digest::new(pages, &overview, launches, simulated, provenance);
            Ok((exports, digest))
        })
        .await
    }

    fn origin_of_numbers(&self, captured: &Captured, gpus: &[GpuIdentity]) -> Provenance {
        let outcome = captured.outcome.as_ref();
        // It crossed the container's border.
        let version = outcome.and_then(|outcome| outcome.ncu_version.as_ref());
        let version =
            version.map(|line| line.chars().filter(|&c| is_shown(c)).take(MAX_VERSION_CHARS).collect::<String>());
        Provenance {
            job_id: self.claim.id.to_string(),
            leaderboard: self.claim.leaderboard.clone(),
            benchmark_index: self.lease.benchmark_index,
            benchmark: self.shape.clone(),
            file_name: self.claim.file_name.clone(),
            submission_sha256: hex::encode(Sha256::digest(self.claim.source.as_bytes())),
            reference_kernels: self.origin.revision.commit.clone(),
            gpus: gpus.iter().filter_map(|gpu| gpu.name.clone()).collect(),
            driver_version: gpus.first().and_then(|gpu| gpu.driver_version.clone()),
            clock_control: self.origin.clock_control,
            capture_mode: outcome.and_then(|outcome| Some(outcome.choice.as_ref()?.mode)),
            coverage: seen(outcome).1,
            warm_calls: captured.request.warm_calls,
            ncu_version: version,
            service: Manifest::SERVICE.to_owned(),
            captured_at: captured.ended.ended_at,
        }
    }
}
