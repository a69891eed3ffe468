//! `ncu-worker`: reads the settings, starts the log, works.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use jobs::config::{DatabaseConfig, Reader};
use jobs::gpu::{GpuConfig, Gpus};
use jobs::queue::Queue;
use jobs::sandbox::SandboxConfig;
use jobs::worker::{Worker, WorkerConfig};
use jobs::{doctor, log};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The worker of ncu-service. Settings are read from the environment.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take jobs from the queue until SIGTERM; then end the shape in progress and put the rest of its job back.
    Run,
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
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().command).await {
        Ok(code) => code,
        // The log may not be there yet, and a person started this.
        Err(error) => {
            eprintln!("ncu-worker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let mut reader = Reader::from_env();
    log::start(&mut reader)?;
    // The one TLS provider of the process; an error would mean that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match command {
        Command::Run => {
            let config = WorkerConfig::read(&mut reader)?;
            let drain = CancellationToken::new();
            tokio::spawn(drain_on(signal(SignalKind::terminate())?, drain.clone()));
            tokio::spawn(drain_on(signal(SignalKind::interrupt())?, drain.clone()));
            let Some(worker) = drain.run_until_cancelled(Worker::start(config)).await else {
                return Ok(ExitCode::SUCCESS);
            };
            worker?.run(drain).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Migrate => {
            let queue = Queue::connect_lazy(&DatabaseConfig::read(&mut reader)?, "ncu-worker")?;
            queue.migrate().await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Doctor { json } => {
            let config = WorkerConfig::read(&mut reader)?;
            let report = Box::pin(doctor::examine(&config)).await;
            if json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                println!("{report}");
            }
            Ok(if report.fit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Unquarantine => {
            let gpus = Gpus::new(GpuConfig::read(&mut reader)?, SandboxConfig::read(&mut reader)?.gpus);
            let lifted = gpus.lift_quarantine()?;
            for quarantine in &lifted {
                println!("{} is free again; it was: {}", quarantine.gpu, quarantine.reason);
            }
            if lifted.is_empty() {
                println!("none of {} is in quarantine", gpus.addresses().join(", "));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The first signal drains.
async fn drain_on(mut signal: Signal, drain: CancellationToken) {
    signal.recv().await;
    tracing::info!("draining: the shape in progress ends, nothing new is taken");
    drain.cancel();
}
