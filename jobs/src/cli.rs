//! The command line of `ncu-worker`.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use jobs::admin;
use jobs::config::{ConfigError, DatabaseConfig, Reader};
use jobs::gpu::GpuConfig;
use jobs::sandbox::SandboxConfig;
use jobs::telemetry::TelemetryConfig;
use jobs::usage::{environment, settings_of};
use jobs::worker::WorkerConfig;

const EXAMPLES: &str = "\
Examples:
  ncu-worker doctor                      what this host lacks for captures, and what to do
  ncu-worker run                         take jobs until SIGTERM
  ncu-worker admin status                the queue and the workers at a glance
  ncu-worker admin pause --reason \"a new driver\"
  ncu-worker completions bash > /etc/bash_completion.d/ncu-worker

Exit status:
  0  done; for `run`, it was told to stop and has handed over what ran
  1  not done: one line on standard error says why; for `doctor`, no capture can be made here
  2  the command line cannot be understood

`ncu-worker COMMAND --help` lists the settings of a command. They are environment variables, and docs/configuration.md has all.";

/// The worker of ncu-service: takes jobs from the queue, and profiles each of their shapes in a container of its own.
#[derive(Debug, Parser)]
#[command(name = "ncu-worker", version = jobs::usage::version(), after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take jobs from the queue until SIGTERM; then leave the running container to the next worker and end at once.
    Run {
        /// On SIGTERM wait for the shape in progress, and put the rest of its job back; a second SIGTERM does not wait.
        #[arg(long)]
        drain: bool,
    },
    /// Bring the database's schema up to date and end.
    Migrate,
    /// Look at everything that a capture needs and capture a tiny kernel; exit status 1 when no capture can be made.
    Doctor {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lift the quarantine of this worker's GPUs.
    Unquarantine,
    /// Look at the queue and change it; each use is recorded. Needs the database and nothing else.
    Admin {
        #[command(subcommand)]
        command: admin::Command,
        /// Who orders this, for the record; else the user of the system.
        #[arg(long = "as", value_name = "NAME", global = true)]
        actor: Option<String>,
        /// Print JSON.
        #[arg(long, global = true)]
        json: bool,
    },
    /// Print completions for a shell, to be sourced or put where the shell looks for them.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Reads the command line. It ends the program where that cannot be understood, or asks for help.
pub fn arguments() -> Result<Arguments, ConfigError> {
    Ok(Arguments::from_arg_matches(&command()?.get_matches()).unwrap_or_else(|error| error.exit()))
}

/// The command line, with the settings of each command in its `--help`.
pub fn command() -> Result<clap::Command, ConfigError> {
    let mut command = Arguments::command();
    for (name, read) in SETTINGS {
        let settings = environment(&settings_of(*read)?);
        command = command.mut_subcommand(name, |command| command.after_long_help(settings));
    }
    Ok(command)
}

type Read = fn(&mut Reader) -> Result<(), ConfigError>;

/// What each command reads.
const SETTINGS: &[(&str, Read)] = &[
    ("run", |reader| {
        TelemetryConfig::read(reader)?;
        WorkerConfig::read(reader).map(drop)
    }),
    ("migrate", |reader| DatabaseConfig::read(reader).map(drop)),
    ("doctor", |reader| WorkerConfig::read(reader).map(drop)),
    ("unquarantine", |reader| {
        GpuConfig::read(reader)?;
        SandboxConfig::read(reader).map(drop)
    }),
    ("admin", |reader| DatabaseConfig::read(reader).map(drop)),
];
