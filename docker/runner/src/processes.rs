//! Ending and reaping processes. As PID 1 the runner is an init: orphans become its children.

use std::thread;
use std::time::{Duration, Instant};

use ncu_runner::protocol::KILL_SECS;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, wait};

use crate::trouble::{Result, Trouble};

/// Pause between two looks at processes that are about to be gone.
const KILL_TICK: Duration = Duration::from_millis(5);

/// What one round of reaping found.
#[derive(Debug)]
pub struct Reaped {
    /// The status of the child that was asked about, if it was among them.
    pub status: Option<WaitStatus>,
    /// Whether there are children that have not ended.
    pub some_left: bool,
}

/// Reaps every child that has ended, and keeps the status of `wanted`.
pub fn reap(wanted: Pid) -> Reaped {
    let mut status = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, ended))) if pid == wanted => status = Some(ended),
            Ok(Some(_)) => {}
            Ok(None) => return Reaped { status, some_left: true },
            // The only error of a wait for any child that does not block: there is none.
            Err(_) => return Reaped { status, some_left: false },
        }
    }
}

/// Kills what is left of a step, and returns the status of its leader if that is only reaped now.
///
/// As PID 1 that is every other process in the container, so that nothing of a submission is alive afterwards. Elsewhere
/// (in tests) it is the step's process group and nothing more.
pub fn end_step(leader: Pid) -> Result<Option<WaitStatus>> {
    let deadline = Instant::now() + Duration::from_secs(KILL_SECS);
    let mut status = None;
    loop {
        // kill(-1) spares the caller and reaches all others in one go, so no fork can slip through.
        let target = if getpid().is_init() { Pid::INIT } else { leader };
        // Fails when nobody is left, which the wait below tells as well.
        let _ = kill_process_group(target, Signal::KILL);
        let reaped = reap(leader);
        status = reaped.status.or(status);
        if !reaped.some_left {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Err(Trouble::new(format!("a killed process was still there after {KILL_SECS} s")));
        }
        thread::sleep(KILL_TICK);
    }
}
