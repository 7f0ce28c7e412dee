// SPDX-License-Identifier: Apache-2.0
//! One round of `doctor`: an ordinary round that writes nothing, followed by the checks.
//!
//! It runs in a separate thread. A disk, network file system or device that hangs blocks the thread that reads it, and the read
//! cannot be canceled. After [`LIMIT`], the round times out with its results so far.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::case::Gap;
use super::checks;
use super::diagnosis::Diagnosis;
use super::found::Found;
use super::gaps::gaps;
use super::reader::Reader;
use super::service::Service;
use crate::agent::signal_board::SignalBoard;
use crate::agent::state::{self, MachineId};
use crate::agent::{self, Clock, Mode};
use crate::catalog::{Code, Finding, Group};
use crate::commands::process::Process;
use crate::commands::run::{Silent, SystemClock, context, earlier, foreign};
use crate::config::{self, Settings};
use crate::decide::Memory;
use crate::facts::{Unavailable, UnavailableKind};
use crate::observe::machine::read_machine;
use crate::observe::observer::Observer;
use crate::report::status::Status;
use crate::wire::dbus::Bus;

/// The timeout of one round. Each request has its own, much shorter timeout.
const LIMIT: Duration = Duration::from_secs(20);

/// The results of a round so far, which its thread shares.
#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<Progress>>);

#[derive(Debug, Default)]
struct Progress {
    found: Found,
    /// What is being read.
    step: &'static str,
}

impl Shared {
    /// Adds results, and sets what is read next. No lock is held while something is read.
    fn add(&self, next: &'static str, add: impl FnOnce(&mut Found)) {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        progress.step = next;
        add(&mut progress.found);
    }
}

/// Runs one round.
pub(super) async fn run(process: &Process) -> Diagnosis {
    let shared = Shared::default();
    let ended = match begin(process, &shared) {
        Ok(ended) => timeout(LIMIT, ended).await.map(|ended| ended.is_ok()),
        Err(error) => {
            shared.add("", |found| {
                without_rest(found, &format!("failed to spawn a thread: {error}"));
            });
            Ok(true)
        }
    };
    let mut progress = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let step = progress.step;
    match ended {
        Ok(true) => {}
        Ok(false) => {
            let why = format!("the check stopped while reading {step}");
            without_rest(&mut progress.found, &why);
        }
        Err(_) => {
            let seconds = LIMIT.as_secs();
            let why = format!(
                "timed out after {seconds}s while reading {step}: a disk, network file system or device hangs"
            );
            without_rest(&mut progress.found, &why);
        }
    }
    Diagnosis::new(&progress.found, SystemClock::new().now().wall)
}

fn begin(process: &Process, shared: &Shared) -> io::Result<oneshot::Receiver<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = oneshot::channel();
    let (process, shared) = (process.clone(), shared.clone());
    let work = move || {
        if gather(&runtime, &process, &shared).is_some() {
            // After the timeout, there is no receiver.
            end.send(()).unwrap_or_default();
        }
    };
    thread::Builder::new().name("look".to_owned()).spawn(work)?;
    Ok(ended)
}

/// Completes a round whose other steps could not be done.
fn without_rest(found: &mut Found, why: &str) {
    let what = match found.status {
        Some(_) => "the remaining checks",
        None => "all checks",
    };
    let why = Unavailable::new(UnavailableKind::Unreachable, why);
    found
        .checked
        .gaps
        .extend(Group::ALL.iter().map(|group| Gap {
            group: *group,
            what,
            why: why.clone(),
            due_to: None,
        }));
    found.is_unanswered = true;
}

/// Runs the round in its thread, and shares the results after each step. `None` if it ended early.
fn gather(runtime: &Runtime, process: &Process, shared: &Shared) -> Option<()> {
    shared.add("the configuration and the state of the agent", |_| {});
    let clock = SystemClock::new();
    let (settings, findings) = settings(process);
    let service = Service::read(&process.root);
    shared.add("the firmware tables", |found| {
        found.checked.findings = findings;
        found.service = service;
    });
    let machine = read_machine(&process.root);
    if let Some(vendor) = foreign(&machine, &settings) {
        let seen = format!("SMBIOS vendor is {vendor}");
        let finding = Finding::new(Code::NotKubevirt, seen);
        shared.add("", |found| found.checked.findings.push(finding));
        return Some(());
    }
    shared.add("credentials, both APIs, qemu-guest-agent", |found| {
        found.checked.findings.extend(found.service.finding());
    });

    let state = state::recall(&process.root, &MachineId::of(&machine));
    let bus = Bus::new(&process.root, process.system_bus_address.as_deref());
    let root = process.root.clone();
    let observer = Observer::new(root, bus, SignalBoard::default(), earlier(&state));
    let mut observer = observer.with_short_timeouts();
    let rounds = runtime.block_on(Box::pin(agent::once(
        &settings,
        &mut observer,
        &mut Silent,
        &clock,
        Memory::default(),
        Mode::DryRun,
    )));
    let round = rounds.last()?;
    let context = context(&clock, Vec::new());
    let status = Status::new(round, &context);
    shared.add("the additional checks of doctor", |found| {
        let findings = &mut found.checked.findings;
        findings.extend(round.plan.findings.iter().cloned());
        findings.extend(round.plan.consequences.iter().cloned());
        found.checked.gaps = gaps(round);
        found.status = Some(status);
        found.is_unanswered = round.is_unanswered();
    });

    let reader = Reader::new(&observer, &settings, round, clock.now());
    let checked = runtime.block_on(Box::pin(checks::all(&reader)));
    shared.add("", |found| {
        found.checked.merge(checked);
        let reported = found.service.reported(&found.checked.findings);
        found.checked.findings.extend(reported);
    });
    Some(())
}

/// Returns the settings, or the defaults and a finding for each error in the configuration.
fn settings(process: &Process) -> (Settings, Vec<Finding>) {
    match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => (loaded.settings, Vec::new()),
        Err(errors) => {
            let finding = |problem| Finding::new(Code::ConfigInvalid, problem);
            (Settings::default(), errors.lines().map(finding).collect())
        }
    }
}
