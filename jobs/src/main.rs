//! `ncu-worker`: reads the settings, starts the log, works.

mod cli;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use cli::Command;
use jobs::config::{DatabaseConfig, Reader};
use jobs::gpu::{GpuConfig, Gpus};
use jobs::queue::{Actor, Queue};
use jobs::sandbox::SandboxConfig;
use jobs::telemetry::{Telemetry, TelemetryConfig};
use jobs::worker::{Leave, Worker, WorkerConfig};
use jobs::{admin, doctor, usage};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

/// How long a worker that hands its job over may take to end.
const HAND_OVER_LIMIT: Duration = Duration::from_millis(1400);

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        // The log may not be there yet, and a person started this.
        Err(error) => {
            eprintln!("ncu-worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<ExitCode, Box<dyn Error>> {
    let command = cli::arguments()?.command;
    if let Command::Completions { shell } = command {
        usage::print_completions(shell, cli::command()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let ran = runtime.block_on(run(command));
    // What a thread still does is somebody else's by now, or is done again.
    runtime.shutdown_background();
    ran
}

async fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let mut reader = Reader::from_env();
    // The one TLS provider of the process; an error would mean that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let telemetry = TelemetryConfig::read(&mut reader)?;
    let metrics_listen = telemetry.metrics_listen.filter(|_| matches!(command, Command::Run { .. }));
    let telemetry = Telemetry::start(telemetry, "ncu-worker")?;
    let served = match metrics_listen {
        Some(address) => telemetry.serve_metrics(address).await,
        None => Ok(()),
    };
    let ran = match served {
        Ok(()) => execute(command, &mut reader).await,
        Err(error) => Err(error.into()),
    };
    telemetry.end().await;
    ran
}

async fn execute(command: Command, reader: &mut Reader) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Command::Run { drain } => work(WorkerConfig::read(reader)?, drain).await,
        Command::Migrate => {
            let queue = Queue::connect_lazy(&DatabaseConfig::read(reader)?, "ncu-worker")?;
            queue.migrate().await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Doctor { json } => {
            let config = WorkerConfig::read(reader)?;
            let report = Box::pin(doctor::examine(&config)).await;
            if json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                println!("{report}");
            }
            Ok(if report.fit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Unquarantine => {
            let gpus = Gpus::new(GpuConfig::read(reader)?, SandboxConfig::read(reader)?.gpus);
            let lifted = gpus.lift_quarantine()?;
            for quarantine in &lifted {
                println!("{} is free again; it was: {}", quarantine.gpu, quarantine.reason);
            }
            if lifted.is_empty() {
                println!("none of {} is in quarantine", gpus.addresses().join(", "));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Admin { command, actor, json } => {
            let queue = Queue::connect_lazy(&DatabaseConfig::read(reader)?, "ncu-worker admin")?;
            let actor = Actor::new(&actor.unwrap_or_else(system_user)).ok_or("--as needs a name")?;
            let answer = admin::run(&queue, &actor, &command).await?;
            if json {
                println!("{}", serde_json::to_string_pretty(&answer)?);
            } else {
                println!("{answer}");
            }
            Ok(ExitCode::SUCCESS)
        }
        // They were printed before anything was started.
        Command::Completions { .. } => Ok(ExitCode::SUCCESS),
    }
}

/// The user who started this: under sudo the one who did that.
fn system_user() -> String {
    let mut named = ["SUDO_USER", "USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    named.find(|name| !name.trim().is_empty()).unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}

/// Works until a signal.
async fn work(config: WorkerConfig, drain: bool) -> Result<ExitCode, Box<dyn Error>> {
    let leave = Leave::default();
    let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(leave_on(terminate, interrupt, drain, leave.clone()));
    let start = leave.after_this_shape.run_until_cancelled(Worker::start(config, leave.clone()));
    let Some(worker) = start.await else { return Ok(ExitCode::SUCCESS) };
    let worker = worker?;
    let late = async {
        leave.hand_over.cancelled().await;
        sleep(HAND_OVER_LIMIT).await;
    };
    tokio::select! {
        ended = worker.run() => ended?,
        () = late => tracing::warn!("not everything could be handed over in time; it is adopted after its lease"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The first signal ends the taking of jobs, and hands over what runs unless that is to be waited for; a second one hands it
/// over in any case.
async fn leave_on(mut terminate: Signal, mut interrupt: Signal, drain: bool, leave: Leave) {
    for waits in [drain, false] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        leave.after_this_shape.cancel();
        if waits {
            tracing::info!("draining: the shape in progress ends, nothing new is taken");
        } else {
            tracing::info!("leaving: what runs is handed over, nothing new is taken");
            leave.hand_over.cancel();
        }
    }
}
