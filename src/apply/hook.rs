// SPDX-License-Identifier: Apache-2.0
//! Runs hooks: executables of the administrator for one state of a scheduled event, each as a transient unit of systemd.
//!
//! The agent only starts the unit and waits for its result. systemd ends a hook that exceeds the time limit, and every process
//! that it leaves. No hook waits for another one.

mod find;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use zbus::Message;
use zbus::wire::{ObjectPath, Variant};

use crate::agent::source_board::SourceBoard;
use crate::catalog::{Code, Finding};
use crate::decide::HookRun;
use crate::decide::scheduled_events::ScheduledEvent;
use crate::sys::escape::{chain, one_line};
use crate::sys::root::Root;
use crate::wire::dbus::{Bus, BusError, DRIVER, MANAGER};
use find::Hooks;

/// The maximum number of runs of hooks, and of sendings of Events, beside the loop. Each run of hooks has a connection to the bus, of
/// which a user may have 256, and a faulty Harvester may announce migrations at any rate.
pub const BESIDE_MAX: usize = 16;

/// The time after which systemd sends SIGTERM to a hook.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The time between SIGTERM and SIGKILL.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The maximum length of a keyword of systemd.
const WORD_MAX: usize = 64;

/// Runs the hooks for a state, and reports those that were rejected or failed. Each state has its own finding.
pub(super) async fn run_beside(
    root: Root,
    bus: Bus,
    board: SourceBoard,
    permits: Arc<Semaphore>,
    run: HookRun,
) {
    let state = run.event.state.as_str();
    let Hooks { paths, rejected } = find::find(&root, run.event.state);
    let mut problems = rejected;
    if !paths.is_empty() {
        let permit = permits.try_acquire();
        let refused = permit.is_err().then(|| {
            let what = format!(
                "the hooks for `{state}` were not started: {BESIDE_MAX} runs are not finished"
            );
            Finding::new(Code::HookFailed, what)
        });
        // An earlier run that ends well says nothing about one that was not started.
        board.report("hook-runs", refused);
        if permit.is_err() {
            return;
        }
        problems.extend(self::run(&bus, &paths, &run).await);
    }
    let what = problems.join("; ");
    let finding = (!what.is_empty()).then(|| Finding::new(Code::HookFailed, what));
    board.report(state, finding);
}

/// Runs the hooks at these paths, and waits until they end. Returns what failed, one line for each hook.
///
/// The unit of a hook has the ID and the state of the event in its name, so that it cannot run twice at a time.
async fn run(bus: &Bus, hooks: &[String], run: &HookRun) -> Vec<String> {
    let began = Instant::now();
    let mut failures = Vec::new();
    let mut jobs = BTreeMap::new();
    let mut signals = match bus.signals().await {
        Ok(signals) => signals,
        Err(error) => return vec![format!("no hook was started: {}", chain(&error))],
    };
    for path in hooks {
        let unit = unit_name(&run.event, path);
        match start(bus, &unit, path, run).await {
            Ok(job) => drop(jobs.insert(job, (path, unit))),
            // The agent was restarted, and the hook has not ended.
            Err(error)
                if error.name().as_deref() == Some("org.freedesktop.systemd1.UnitExists") => {}
            Err(error) => failures.push(format!("failed to start {path}: {}", chain(&error))),
        }
    }
    // The end of the connection is no failure of a hook.
    while !jobs.is_empty()
        && let Some(message) = signals.next().await
    {
        if let Some((job, result)) = removed_job(&message)
            && let Some((path, unit)) = jobs.remove(&job)
            && result != "done"
        {
            let seconds = began.elapsed().as_secs();
            failures.push(format!("{path}: {result} after {seconds} s, unit {unit}"));
        }
    }
    failures
}

/// A job of systemd: the unique name of systemd on the bus, and the path of the job.
type Job = (String, String);

/// Starts a hook. Returns its job.
async fn start(bus: &Bus, unit: &str, path: &str, run: &HookRun) -> Result<Job, BusError> {
    let rule = format!(
        "type='signal',sender='{}',path='{}',interface='{}',member='JobRemoved',arg2='{unit}'",
        MANAGER.name, MANAGER.path, MANAGER.interface
    );
    bus.call(DRIVER, "AddMatch", &[&rule]).await?;
    let microseconds = |limit: Duration| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    let properties: Vec<(&str, Variant<'_>)> = vec![
        ("Description", format!("Hook {path}").into()),
        ("Type", "oneshot".into()),
        ("ExecStart", vec![(path, vec![path], false)].into()),
        ("Environment", environment(run).into()),
        ("TimeoutStartUSec", microseconds(TIME_LIMIT).into()),
        ("TimeoutStopUSec", microseconds(STOP_LIMIT).into()),
        ("KillMode", "control-group".into()),
        ("CollectMode", "inactive-or-failed".into()),
    ];
    let auxiliary: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
    // `fail`: a hook must not replace a queued job, such as those of a shutdown.
    let arguments = (unit, "fail", properties, auxiliary);
    let answer = bus
        .call_typed(MANAGER, "StartTransientUnit", &arguments)
        .await?;
    let malformed = || BusError::Malformed("StartTransientUnit".to_owned());
    let header = answer.header();
    let systemd = header.sender().ok_or_else(malformed)?.to_string();
    let body = answer.body();
    let job: ObjectPath<'_> = body.deserialize().map_err(|_| malformed())?;
    Ok((systemd, job.to_string()))
}

/// Returns the job that systemd removed, and its result. A signal counts only for the job of its sender.
fn removed_job(message: &Message) -> Option<(Job, String)> {
    let header = message.header();
    if header.member()?.as_str() != "JobRemoved" {
        return None;
    }
    let body = message.body();
    let (_, job, _, result): (u32, ObjectPath<'_>, &str, &str) = body.deserialize().ok()?;
    let result = one_line(result, WORD_MAX).into_owned();
    Some(((header.sender()?.to_string(), job.to_string()), result))
}

/// Returns the name of the unit. The path has only characters that are valid in it.
fn unit_name(event: &ScheduledEvent, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let state = event.state.as_str();
    format!(
        "harvester-node-agent-hook-{state}-{}-{name}.service",
        event.id
    )
}

/// Returns the environment of a hook. Fields of the event have the names that they have in the journal.
fn environment(run: &HookRun) -> Vec<String> {
    let event = &run.event;
    let variables = [
        ("HNA_EVENT_ID", Some(event.id.as_str())),
        ("HNA_EVENT_TIME", Some(&event.time)),
        ("HNA_EVENT_STATE", Some(event.state.as_str())),
        ("HNA_EVENT_TYPE", Some(event.kind.as_str())),
        ("HNA_EVENT_REASON", Some(event.reason.as_str())),
        ("HNA_EVENT_SOURCE", Some(&event.source)),
        ("HNA_EVENT_MESSAGE", event.message.as_deref()),
        ("HNA_HOST", event.host.as_deref()),
        ("HNA_TARGET_HOST", event.target_host.as_deref()),
        ("HNA_START_TIME", event.start_time.as_deref()),
        ("HNA_DEADLINE", event.deadline.as_deref()),
        ("HNA_VM", run.vm.as_deref()),
        ("HNA_NODE", run.node.as_deref()),
    ];
    let set = variables.into_iter();
    set.filter_map(|(name, value)| Some(format!("{name}={}", value?)))
        .collect()
}

#[cfg(test)]
mod tests;
