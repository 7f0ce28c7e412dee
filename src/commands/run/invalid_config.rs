// SPDX-License-Identifier: Apache-2.0
//! The service with an invalid configuration: it reports the errors once, and waits for a valid configuration.
//!
//! If it exited instead, systemd would restart it every few seconds indefinitely, each time with the same errors. It must never
//! continue with defaults, which may differ from the intended configuration.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::commands::options::with_config;
use crate::commands::process::Process;
use crate::config::{self, ConfigErrors, LoadedConfig, LogLevel};
use crate::report::journal::{Priority, Record};
use crate::report::message_id;
use crate::sys::file_watch::{self, What};

/// The interval between two reads if inotify is not available.
const POLL: Duration = Duration::from_secs(60);

const STATUS: &str =
    "invalid configuration; idle until it is fixed (run: harvester-node-agent config check)";

/// Waits for a valid configuration. Returns `None` if the service is stopped first.
pub(super) async fn until_valid(
    process: &Process,
    errors: &ConfigErrors,
) -> io::Result<Option<LoadedConfig>> {
    let status = &with_config(STATUS, process.config.as_deref());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let journal = process.journal(LogLevel::Info);
    let mut notifier = process.notifier();
    let paths = match &process.config {
        Some(file) => vec![file.clone()],
        // The files, and those in a directory.
        None => (config::watched_paths().into_iter())
            .flat_map(|path| [path.join(file_watch::EACH), path])
            .collect(),
    };
    let changed = Notify::new();
    let mut watch = Box::pin(async {
        // The watch ends if inotify is not available; then only the poll remains.
        let look = || changed.notify_one();
        let root = process.root.clone();
        let _ = file_watch::watch(root, paths, What::Content, look, |_| {}).await;
        std::future::pending::<()>().await;
    });
    let (mut lines, mut said) = (errors.lines().collect::<Vec<_>>(), Vec::new());
    let usable = loop {
        if lines != said {
            journal.send(Record {
                message_id: Some(message_id::CONFIGURATION_REFUSED),
                ..Record::new(Priority::Error, status.clone())
            });
            for line in &lines {
                journal.send(Record::new(Priority::Error, line.clone()));
            }
            said.clone_from(&lines);
        }
        notifier.ready(status);
        let pause = notifier.watchdog_interval().map_or(POLL, |at| at.min(POLL));
        tokio::select! {
            _ = terminate.recv() => break None,
            _ = interrupt.recv() => break None,
            _ = hangup.recv() => {}
            () = changed.notified() => {}
            () = &mut watch => {}
            () = tokio::time::sleep(pause) => notifier.watchdog(),
        }
        match config::load(&process.root, process.config.as_deref()) {
            Ok(loaded) => break Some(loaded),
            Err(errors) => lines = errors.lines().collect(),
        }
    };
    if usable.is_none() {
        notifier.stopping();
    }
    journal.close(Duration::from_secs(1));
    Ok(usable)
}
