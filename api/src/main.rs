//! `ncu-api`: reads the settings, starts the log, serves.

mod cli;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use cli::Command;
use jobs::config::Reader;
use jobs::telemetry::{Telemetry, TelemetryConfig};
use jobs::usage;
use ncu_api::app::{self, App};
use ncu_api::config::Config;
use ncu_api::serve::{self, Limits};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    match execute().await {
        Ok(()) => ExitCode::SUCCESS,
        // The log may not be there yet, and a person started this.
        Err(error) => {
            eprintln!("ncu-api: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn execute() -> Result<(), Box<dyn Error>> {
    match cli::arguments()?.command {
        Command::Serve => run().await,
        Command::Completions { shell } => Ok(usage::print_completions(shell, cli::command()?)?),
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut reader = Reader::from_env();
    // The one TLS provider of the process; an error would mean that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = TelemetryConfig::read(&mut reader)?;
    let metrics_listen = config.metrics_listen;
    let telemetry = Telemetry::start(config, "ncu-api")?;
    let served = async {
        if let Some(address) = metrics_listen {
            telemetry.serve_metrics(address).await?;
        }
        serve(reader).await
    };
    let served = served.await;
    telemetry.end().await;
    served
}

async fn serve(mut reader: Reader) -> Result<(), Box<dyn Error>> {
    let config = Config::read(&mut reader)?;
    // It holds secrets in clear.
    drop(reader);
    let app = Arc::new(App::new(&config)?);
    let asked = serve::stop_signal()?;
    let stop = {
        let app = Arc::clone(&app);
        async move {
            asked.await;
            // Those who wait for a change are answered now, and can wait on at the next instance.
            app.changes.close();
            // Streams of the queue would not end by themselves.
            app.board.close();
        }
    };
    let listener = match serve::passed_socket()? {
        Some(passed) if passed.local_addr()? != config.listen => {
            let address = passed.local_addr()?;
            return Err(format!(
                "systemd passes a socket on {address}, but NCU_SERVICE_LISTEN is {}: give both the same address",
                config.listen
            )
            .into());
        }
        Some(passed) => passed,
        None => TcpListener::bind(config.listen)
            .await
            .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?,
    };
    tracing::info!(listen = %listener.local_addr()?, checks_cli_ids = app.kernelbot.is_some(), "serving");
    let migration = tokio::spawn(serve::migrate(app.queue.clone()));
    let gauges = tokio::spawn(serve::watch_queue(app.queue.clone()));
    serve::serve(listener, app::router(app), stop, &Limits::from(&config)).await;
    migration.abort();
    gauges.abort();
    Ok(())
}
