//! The command line of `ncu-api`.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use jobs::config::ConfigError;
use jobs::telemetry::TelemetryConfig;
use jobs::usage::{environment, settings_of};
use ncu_api::config::Config;

const EXAMPLES: &str = "\
Examples:
  ncu-api serve
  ncu-api completions bash > /etc/bash_completion.d/ncu-api

Exit status:
  0  it was told to stop and has ended the requests in progress
  1  it could not start: one line on standard error says why
  2  the command line cannot be understood

`ncu-api serve --help` lists its settings. They are environment variables, and docs/configuration.md has all.";

/// The HTTP side of ncu-service: takes submissions, answers polls, and hands out archives.
#[derive(Debug, Parser)]
#[command(name = "ncu-api", version = jobs::usage::version(), after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take submissions, answer polls and hand out archives until SIGTERM; requests in progress may end then.
    Serve,
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

/// The command line, with the settings in the `--help` of `serve`.
pub fn command() -> Result<clap::Command, ConfigError> {
    let settings = settings_of(|reader| {
        TelemetryConfig::read(reader)?;
        Config::read(reader).map(drop)
    })?;
    Ok(Arguments::command().mut_subcommand("serve", |command| command.after_long_help(environment(&settings))))
}
