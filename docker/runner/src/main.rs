//! The program inside an ncu-service container: it restricts itself, does the one task in the request, and leaves an
//! outcome. Normally PID 1 of a container with a read-only root, run as a user who is not root.
//!
//! Exit codes: 0 when the outcome tells what happened, whatever that is; 70 when the runner itself had trouble.

mod assemble;
mod capture;
mod environment;
mod export;
mod files;
#[cfg(test)]
mod fuzzing;
mod launches;
mod layout;
mod probe;
mod processes;
mod progress;
mod restrict;
mod selection;
mod step;
mod streams;
mod trace;
mod tracer;
mod trouble;
mod warm_calls;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ncu_runner::protocol::{self, Outcome, Request};

use crate::layout::Layout;
use crate::trouble::{Result, Trouble};

/// `EX_SOFTWARE` of sysexits.h.
const OWN_TROUBLE: u8 = 70;

fn main() -> ExitCode {
    match run() {
        Ok(Outcome { error: None, .. }) => ExitCode::SUCCESS,
        Ok(Outcome { error: Some(line), .. }) => own_trouble(&line),
        Err(trouble) => own_trouble(&trouble.to_string()),
    }
}

fn own_trouble(line: &str) -> ExitCode {
    eprintln!("ncu-runner: {line}");
    ExitCode::from(OWN_TROUBLE)
}

fn run() -> Result<Outcome> {
    let layout = Layout::beneath(&root()?);
    restrict::harden_self()?;
    let mut outcome = Outcome::default();
    if let Err(trouble) = task(&layout, &mut outcome) {
        outcome.error = Some(trouble.to_string());
    }
    outcome.oom_kills = probe::oom_kills();
    // Every other process is gone by now, so nobody can change what is written here.
    let path = layout.out.join(protocol::OUTCOME_FILE);
    let json = serde_json::to_vec_pretty(&outcome).map_err(|error| Trouble::at("writing", &path, error))?;
    files::create_new(&path)?.write_all(&json).map_err(|error| Trouble::at("writing", &path, error))?;
    Ok(outcome)
}

fn task(layout: &Layout, outcome: &mut Outcome) -> Result<()> {
    let text = fs::read(&layout.request).map_err(|error| Trouble::at("reading", &layout.request, error))?;
    let request: Request =
        serde_json::from_slice(&text).map_err(|error| Trouble::at("reading", &layout.request, error))?;
    let wants_landlock = match &request {
        Request::Capture(request) => request.landlock,
        Request::Export(request) => request.landlock,
    };
    if wants_landlock {
        outcome.landlock = restrict::landlock(layout)?;
    }
    match &request {
        Request::Capture(request) => capture::run(request, layout, outcome),
        Request::Export(request) => export::run(request, layout, outcome),
    }
}

/// `/`, or the folder of `ncu-runner --root FOLDER`, which plays a container's root on a bare host.
fn root() -> Result<PathBuf> {
    let args: Vec<_> = env::args_os().skip(1).collect();
    match args.as_slice() {
        [] => Ok(PathBuf::from("/")),
        [flag, folder] if flag == OsStr::new("--root") && Path::new(folder).is_absolute() => Ok(folder.into()),
        _ => Err(Trouble::new("usage: ncu-runner [--root FOLDER]")),
    }
}
