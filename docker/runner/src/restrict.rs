//! What the runner takes away from itself, and so from everything it starts.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};
use ncu_runner::protocol::LandlockState;
use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, umask};

use crate::layout::Layout;
use crate::trouble::{Result, Trouble};

/// The newest ABI that adds a restriction we use; older kernels enforce what they know of it.
const LANDLOCK_ABI: ABI = ABI::V6;

/// Keeps others of our user from tracing the runner and from opening its files through `/proc`.
pub fn harden_self() -> Result<()> {
    umask(Mode::from_raw_mode(0o022));
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| Trouble::new(format!("switching off core dumps and tracing: {errno}")))
}

/// Applies Landlock to this process and to all that it starts. Call it before the first thread.
///
/// Everything can be read and executed. Only `/out`, `/tmp`, `/dev` and `/proc` can be written: CUDA writes below
/// `/proc`, and the devices are below `/dev`. No TCP port can be bound or connected to, and neither signals nor abstract
/// Unix sockets reach anything outside.
pub fn landlock(layout: &Layout) -> Result<LandlockState> {
    let writable = [layout.out.as_path(), &layout.tmp, Path::new("/dev"), Path::new("/proc")];
    let status = enforce(&writable).map_err(|error| Trouble::new(format!("applying Landlock: {error}")))?;
    Ok(match status {
        RulesetStatus::FullyEnforced => LandlockState::Full,
        RulesetStatus::PartiallyEnforced => LandlockState::Partial,
        RulesetStatus::NotEnforced => LandlockState::Unavailable,
    })
}

fn enforce(writable: &[&Path]) -> std::result::Result<RulesetStatus, RulesetError> {
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
        .handle_access(AccessNet::from_all(LANDLOCK_ABI))?
        .scope(Scope::from_all(LANDLOCK_ABI))?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(writable, AccessFs::from_all(LANDLOCK_ABI)))?
        .restrict_self()?;
    Ok(status.ruleset)
}
