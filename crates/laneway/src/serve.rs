//! `laneway serve`: the broker as a process.

use std::io::Write;
use std::sync::mpsc;

use laneway_config::ConfigError;

use crate::broker::{Broker, StartError, StopError};
use crate::cli::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE, ServeArgs};
use crate::logging::{self, LoggingError};
use crate::signals::Signals;
use crate::systemd::Manager;

/// Why the process ends with an error.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Stop(#[from] StopError),
    #[error("signals or the service manager: {0}")]
    Signals(#[from] std::io::Error),
}

/// Serves until a signal. Gives the exit code of the process.
pub fn serve(args: &ServeArgs) -> u8 {
    match run(args) {
        Ok(()) => EXIT_OK,
        Err(error) => {
            // Standard error may lie on the disk that is full.
            let _ = writeln!(std::io::stderr(), "laneway: {error}");
            match error {
                ServeError::Config(_) | ServeError::Logging(_) => EXIT_USAGE,
                ServeError::Start(
                    StartError::Config(_)
                    | StartError::Root(_)
                    | StartError::Keys(_)
                    | StartError::KeyMissing(_),
                ) => EXIT_USAGE,
                _ => EXIT_FAILURE,
            }
        }
    }
}

fn run(args: &ServeArgs) -> Result<(), ServeError> {
    let config = args.load()?.config;
    logging::start(&config.log.filter)?;
    end_on_panic();
    let manager = Manager::from_environment()?;
    let signals = Signals::block()?;
    let (stop, stopped) = mpsc::channel();
    signals.watch(move |signal| {
        tracing::info!(?signal, "draining; a second signal ends the process at once");
        // Nobody listens only when the broker did not start; then the process is ending anyway.
        let _ = stop.send(());
    })?;
    let broker = Broker::start(config)?;
    let mut watchdog = None;
    if let Some(manager) = &manager {
        let address = broker.tcp_addr().map_or_else(|| "nowhere".to_owned(), |address| address.to_string());
        manager.ready(&format!("listening on {address}"));
        watchdog = manager.watch(broker.pulse())?;
    }
    // The channel closes only with the thread of the signals, which does not end.
    let _ = stopped.recv();
    if let Some(manager) = &manager {
        manager.stopping();
    }
    // The signs of life go on while the shards drain.
    let result = broker.shutdown();
    drop(watchdog);
    if let (Some(manager), Err(error)) = (&manager, &result) {
        manager.status(&error.to_string());
    }
    result?;
    tracing::info!("stopped");
    Ok(())
}

/// A broken invariant stops the whole process: a shard that lost its thread must not leave the others serving.
pub fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
