// SPDX-License-Identifier: Apache-2.0
//! The process's own plumbing: debug messages of the modules, panics, core dumps.
//!
//! What people are meant to read goes through `report::journal`, not through here.

use crate::config::{Log, LogLevel};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;

/// Sends what the modules say at the configured level and above to standard error.
pub fn init(log: &Log) {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let layer = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time();
    // A second subscriber in one process (a test) changes nothing.
    let _ = Registry::default().with(level).with(layer).try_init();
}

/// A panic is one line that says where. What it says is ours, never text from outside.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        eprintln!("this is a fault of the agent itself: panic at {place}; systemd starts it again");
    }));
}

/// Keeps keys and tokens out of core dumps, and this process's memory from other processes of the same user.
pub fn deny_core_dumps() {
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        tracing::debug!(%error, "failed to set the limit of core dumps");
    }
    if let Err(error) = prctl::set_dumpable(false) {
        tracing::debug!(%error, "failed to forbid core dumps");
    }
}
