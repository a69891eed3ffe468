//! Runs one program: its own process group, its output to bounded sinks, an end at its limit.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ncu_runner::protocol::Step;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitStatus, pidfd_open};

use crate::trouble::{Result, Trouble};
use crate::{probe, processes};

/// Orphans are reaped at least this often while a step runs, lest they use up the container's process limit.
const REAP_TICK: Duration = Duration::from_millis(200);
/// What a step may still take after the kernel has killed one of its processes for memory. Such a step rarely recovers:
/// an evaluator whose child is gone waits for it for ever.
const AFTER_MEMORY_KILL: Duration = Duration::from_secs(10);
/// Read from one stream before the others have their turn.
const CHUNK_BYTES: usize = 16 * 1024;
/// Read from a stream after its step has ended: as much as a pipe can hold.
const MAX_PIPE_BYTES: usize = 1024 * 1024;

/// What to run.
pub struct Spec<'a> {
    /// Name of the step in the outcome.
    pub name: &'a str,
    /// The command line.
    pub argv: &'a [String],
    /// Working folder.
    pub dir: &'a Path,
    /// The whole environment.
    pub env: &'a [(OsString, OsString)],
    /// Longest wall time.
    pub limit: Duration,
    /// Called when the time is up, while everything still runs.
    pub at_limit: Option<&'a dyn Fn()>,
}

/// Where the output goes.
pub struct Sinks<'a> {
    /// Standard output.
    pub stdout: &'a mut dyn Write,
    /// Standard error.
    pub stderr: &'a mut dyn Write,
    /// What is written to the file descriptor that `POPCORN_FD` names; without a sink there is no such variable.
    pub popcorn: Option<&'a mut dyn Write>,
}

/// One stream that is read while the step runs.
struct Source<'a> {
    pipe: File,
    sink: &'a mut dyn Write,
    open: bool,
}

/// Runs a step to its end, or ends it at its limit or when a sink refuses more; kills what it leaves behind.
///
/// The error is the runner's own trouble: the program cannot be started or cannot be ended.
pub fn run(spec: &Spec, sinks: Sinks) -> Result<Step> {
    let (program, args) = spec.argv.split_first().ok_or_else(|| Trouble::new("the command line is empty"))?;
    let mut command = Command::new(program);
    command.args(args).current_dir(spec.dir).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.process_group(0).stdin(Stdio::null());

    let about_pipes = |errno: Errno| Trouble::new(format!("making a pipe: {errno}"));
    let (stdout_read, stdout_write) = pipe_with(PipeFlags::CLOEXEC).map_err(about_pipes)?;
    let (stderr_read, stderr_write) = pipe_with(PipeFlags::CLOEXEC).map_err(about_pipes)?;
    command.stdout(stdout_write).stderr(stderr_write);
    let mut sources = vec![source(stdout_read, sinks.stdout)?, source(stderr_read, sinks.stderr)?];
    let mut popcorn_write = None;
    if let Some(sink) = sinks.popcorn {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(about_pipes)?;
        // The only descriptor that a step inherits besides its standard streams.
        fcntl_setfd(&write, FdFlags::empty()).map_err(about_pipes)?;
        command.env("POPCORN_FD", write.as_raw_fd().to_string());
        sources.push(source(read, sink)?);
        popcorn_write = Some(write);
    }

    let started = Instant::now();
    let child = command.spawn().map_err(|error| Trouble::new(format!("starting {program}: {error}")))?;
    // Our copies of the write ends: a stream ends when the last of them is closed.
    drop((command, popcorn_write));

    let leader = Pid::from_child(&child);
    let watched = watch(leader, started + spec.limit, &mut sources);
    if let (Ok((None, true)), Some(look)) = (&watched, spec.at_limit) {
        look();
    }
    let reaped_late = processes::end_step(leader)?;
    let (ended, timed_out) = watched?;
    let status = ended.or(reaped_late);
    let seconds = started.elapsed().as_secs_f64();
    for source in &mut sources {
        source.drain()?;
    }
    Ok(Step {
        name: spec.name.to_owned(),
        argv: spec.argv.to_owned(),
        exit_code: status.and_then(WaitStatus::exit_status),
        signal: status.and_then(WaitStatus::terminating_signal),
        timed_out,
        seconds,
    })
}

/// Moves output until the leader ends, time is up or a sink refuses; the leader's status, and whether time was up.
fn watch(leader: Pid, mut deadline: Instant, sources: &mut [Source]) -> Result<(Option<WaitStatus>, bool)> {
    let about_poll = |errno: Errno| Trouble::new(format!("waiting for a step: {errno}"));
    let mut kills = Some(probe::oom_kills());
    let pidfd = pidfd_open(leader, PidfdFlags::empty()).map_err(about_poll)?;
    loop {
        if let Some(status) = processes::reap(leader).status {
            return Ok((Some(status), false));
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
            return Ok((None, true));
        };
        let readable = wait_readable(&pidfd, sources, left.min(REAP_TICK)).map_err(about_poll)?;
        if readable.is_empty() && kills.is_some_and(|before| probe::oom_kills() > before) {
            deadline = deadline.min(Instant::now() + AFTER_MEMORY_KILL);
            kills = None;
        }
        for index in readable {
            if !sources[index].pump()? {
                return Ok((None, false));
            }
        }
    }
}

/// Waits until there is output, or the process behind `pidfd` has ended, or the time is over.
fn wait_readable(pidfd: &OwnedFd, sources: &[Source], time: Duration) -> std::result::Result<Vec<usize>, Errno> {
    let open: Vec<usize> = (0..sources.len()).filter(|&index| sources[index].open).collect();
    let mut polled = vec![PollFd::new(pidfd, PollFlags::IN)];
    polled.extend(open.iter().map(|&index| PollFd::new(&sources[index].pipe, PollFlags::IN)));
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    match poll(&mut polled, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    let ready = polled.iter().skip(1).map(|fd| !fd.revents().is_empty());
    Ok(open.iter().zip(ready).filter_map(|(&index, is_ready)| is_ready.then_some(index)).collect())
}

fn source(pipe: OwnedFd, sink: &mut dyn Write) -> Result<Source<'_>> {
    fcntl_getfl(pipe.as_fd())
        .and_then(|flags| fcntl_setfl(pipe.as_fd(), flags | OFlags::NONBLOCK))
        .map_err(|errno| Trouble::new(format!("making a pipe: {errno}")))?;
    Ok(Source { pipe: File::from(pipe), sink, open: true })
}

impl Source<'_> {
    /// Moves one chunk; `false` when the sink takes no more because its limit is reached.
    fn pump(&mut self) -> Result<bool> {
        let mut chunk = [0; CHUNK_BYTES];
        match self.pipe.read(&mut chunk) {
            Ok(0) => self.open = false,
            Ok(count) => match self.sink.write_all(&chunk[..count]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    self.open = false;
                    return Ok(false);
                }
                Err(error) => return Err(Trouble::new(format!("writing a step's output: {error}"))),
            },
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(Trouble::new(format!("reading a step's output: {error}"))),
        }
        Ok(true)
    }

    /// Takes what the pipe still holds. Bounded, since outside a container a process that left its group can live on with
    /// the pipe open.
    fn drain(&mut self) -> Result<()> {
        let chunks = if self.open { MAX_PIPE_BYTES / CHUNK_BYTES } else { 0 };
        for _ in 0..chunks {
            if !self.open || !self.pump()? {
                break;
            }
        }
        Ok(())
    }
}
