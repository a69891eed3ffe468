//! The queue: every SQL statement of the service, and the design in `docs/queue.md`.

mod model;

pub use model::{Claim, JobView, NewJob, RunView, State, StoredArtifact, UnknownState};
