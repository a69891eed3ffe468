//! `ncu-api`: reads the settings, starts the log, serves.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use jobs::config::Reader;
use ncu_api::app::{self, App};
use ncu_api::config::Config;
use ncu_api::serve;
use tokio::net::TcpListener;

/// The HTTP side of ncu-service. Settings are read from the environment.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take submissions, answer polls and hand out archives.
    Serve,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { command: Command::Serve } = Arguments::parse();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        // The log may not be there yet, and a person started this.
        Err(error) => {
            eprintln!("ncu-api: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut reader = Reader::from_env();
    jobs::log::start(&mut reader)?;
    let config = Config::read(&mut reader)?;
    // It holds secrets in clear.
    drop(reader);
    // The one TLS provider of the process; an error would mean that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();

    let app = Arc::new(App::new(&config)?);
    let stop = serve::stop_signal()?;
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
    tracing::info!(listen = %listener.local_addr()?, checks_cli_ids = app.kernelbot.is_some(), "serving");
    let migration = tokio::spawn(serve::migrate(app.queue.clone()));
    serve::serve(listener, app::router(app), stop, config.stop_timeout).await;
    migration.abort();
    Ok(())
}
