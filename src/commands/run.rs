// SPDX-License-Identifier: Apache-2.0
//! The commands that run rounds: `run`, `once`, `whoami`. Assembles the parts of the agent.

mod invalid_config;
mod write_access;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use time::UtcDateTime;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::rbac::permissions;
use super::{Answer, Exit, Output, Strictness, once, whoami};
use crate::agent::signal_board::SignalBoard;
use crate::agent::state::{self, MachineId, State};
use crate::agent::{self, Agent, Clock, Mode, Publish, Reload, RoundReport};
use crate::catalog::Code;
use crate::config::{self, ConfigErrors, LoadedConfig, Settings};
use crate::decide::schedule::Random;
use crate::decide::{Memory, Now, rfc3339};
use crate::facts::machine::Machine;
use crate::facts::names::VmName;
use crate::facts::observation::ObservationIssue;
use crate::facts::trigger::Trigger;
use crate::observe::machine::read_machine;
use crate::observe::observer::Observer;
use crate::report::Reporter;
use crate::report::compose::Context;
use crate::report::endpoint::{self, MetricsPage};
use crate::report::journal::{Journal, Priority};
use crate::report::logging;
use crate::report::message_id;
use crate::report::sink::{SinkFacts, choose_sink};
use crate::report::status::{AgentStatus, EventSourceStatus, PermissionStatus, Status};
use crate::report::systemd::{Notifier, NotifyEnvironment};
use crate::report::text::{Show, TermStyle};
use crate::sys::escape::chain;
use crate::sys::lock;
use crate::sys::root::Root;
use crate::triggers::{self, Chance, Listener};
use crate::wire::dbus::Bus;

/// The text after the options in the help of `run`.
pub const EXIT_STATUS: &str = "\
Exit status: 0 stopped by SIGTERM or SIGINT; 2 usage error; 4 not a KubeVirt virtual machine; 75 another agent is running, \
or a temporary failure. With an invalid configuration, the service waits until it is valid.";

/// The options and environment of the process, read once in `main`.
#[derive(Debug, Clone)]
pub struct Process {
    /// The file system root.
    pub root: Root,
    /// The only configuration file, if set.
    pub config: Option<PathBuf>,
    /// The output format.
    pub output: Output,
    /// The capabilities of standard output.
    pub term: TermStyle,
    /// `--verbose`.
    pub is_verbose: bool,
    /// `--strict`.
    pub strictness: Strictness,
    /// `JOURNAL_STREAM`.
    pub journal_stream: Option<String>,
    /// `NO_COLOR`.
    pub no_color: Option<String>,
    /// `NOTIFY_SOCKET`.
    pub notify_socket: Option<OsString>,
    /// `WATCHDOG_USEC`.
    pub watchdog_usec: Option<String>,
    /// `WATCHDOG_PID`.
    pub watchdog_pid: Option<String>,
    /// `DBUS_SYSTEM_BUS_ADDRESS`.
    pub system_bus_address: Option<String>,
}

impl Process {
    /// Returns the display settings for a status at `now`.
    pub fn show(&self, now: UtcDateTime) -> Show {
        Show {
            style: self.term,
            verbose: self.is_verbose,
            now,
        }
    }

    pub(super) fn notifier(&self) -> Notifier {
        let environment = NotifyEnvironment {
            notify_socket: self.notify_socket.as_deref(),
            watchdog_usec: self.watchdog_usec.as_deref(),
            watchdog_pid: self.watchdog_pid.as_deref(),
        };
        Notifier::new(&environment, std::process::id())
    }
}

/// The command to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// The service.
    Serve,
    /// One round that writes.
    Once(Mode),
    /// One round that writes nothing.
    Whoami,
}

/// Runs a command to completion.
pub fn run(process: &Process, task: Task) -> Answer {
    let loaded = match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(errors) => match held(process, task, &errors) {
            None => return Answer::stderr(format!("{errors}\n"), Exit::Configuration),
            Some(None) => return Answer::new("", Exit::Ok),
            Some(Some(loaded)) => loaded,
        },
    };
    let settings = loaded.settings;
    if task != Task::Serve {
        logging::debug_to_stderr(settings.log.level);
    }
    let machine = read_machine(&process.root);
    if let Some(vendor) = foreign(&machine, &settings) {
        let entry = Code::NotKubevirt.entry();
        let text = format!(
            "{}: SMBIOS vendor is {vendor}. {}\n",
            entry.title,
            entry.fix.join(" ")
        );
        if task == Task::Serve {
            stand_aside(process);
        }
        return Answer::stderr(text, Exit::NotKubevirt);
    }
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::MAX)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return Answer::stderr(
                format!("failed to create event loop: {error}\n"),
                Exit::TryAgain,
            );
        }
    };
    let answer = match task {
        Task::Serve => runtime.block_on(serve(process, settings, &machine, &loaded.warnings)),
        Task::Once(mode) => {
            // Acquiring the lock creates its file, and a dry run must not create anything.
            let _lock = match mode {
                Mode::DryRun => None,
                Mode::Write => match lock::acquire(&process.root) {
                    Ok(lock) => Some(lock),
                    Err(error) => return locked(&error),
                },
            };
            runtime.block_on(run_rounds(process, &settings, mode, task))
        }
        Task::Whoami => runtime.block_on(run_rounds(process, &settings, Mode::DryRun, task)),
    };
    // Do not wait for a name server or a disk that does not respond.
    runtime.shutdown_background();
    answer
}

/// If systemd would only restart the service: waits for a valid configuration and returns it, or `Some(None)` if it is stopped.
fn held(process: &Process, task: Task, errors: &ConfigErrors) -> Option<Option<LoadedConfig>> {
    let is_service = task == Task::Serve && process.notify_socket.is_some();
    let runtime = is_service.then(|| Builder::new_current_thread().enable_all().build());
    Some(
        runtime?
            .ok()?
            .block_on(invalid_config::until_usable(process, errors)),
    )
}

/// Notifies systemd that the service is ready, before it exits because it is not needed. Without the notification, systemd treats
/// the service as failed, regardless of the exit code (`service_sigchld_event` in `src/core/service.c`).
fn stand_aside(process: &Process) {
    process.notifier().ready("not a KubeVirt virtual machine");
}

/// Returns the VM of an earlier run, if its state is that of this machine.
pub(super) fn earlier(state: &State) -> Option<VmName> {
    state
        .vm
        .as_deref()
        .and_then(|name| VmName::parse(name).ok())
}

/// Returns the answer for a lock that cannot be acquired: only one agent at a time can write.
fn locked(error: &lock::LockError) -> Answer {
    let hint = match error {
        lock::LockError::Held { .. } => {
            "; the agent is already running: see `harvester-node-agent status`, or reconcile with \
             `systemctl reload harvester-node-agent`"
        }
        lock::LockError::Unusable(_) | lock::LockError::Stalled => "",
    };
    Answer::stderr(format!("{}{hint}\n", chain(error)), Exit::TryAgain)
}

/// Returns the vendor of a machine that is not KubeVirt's. A machine without a vendor may be a KubeVirt VM.
pub(super) fn foreign(machine: &Machine, settings: &Settings) -> Option<String> {
    let vendor = machine
        .vendor
        .known()
        .filter(|vendor| !vendor.is_kubevirt() && !settings.machine.assume_kubevirt)?;
    Some(format!("`{}`", vendor.sys_vendor.escape_debug()))
}

async fn serve(
    process: &Process,
    settings: Settings,
    machine: &Machine,
    warnings: &[String],
) -> Answer {
    // Before the first thread: only this thread and those that it starts are restricted.
    let write_access = write_access::restrict(&process.root, &settings);
    if thread::Builder::new().spawn(|| ()).is_ok() {
        // One thread for blocking calls stays: tokio panics if a call has none and the system allows no more.
        tokio::task::spawn_blocking(|| ());
    }
    let lock = match lock::acquire(&process.root) {
        Ok(lock) => Some(lock),
        Err(error @ lock::LockError::Held { .. }) => return locked(&error),
        // A read-only or full /var must not prevent the agent from running.
        Err(_) => None,
    };
    let clock = SystemClock::new();
    let health = SignalBoard::default();
    let notifier = process.notifier();
    let facts = SinkFacts::observe(
        &process.root,
        process.journal_stream.clone(),
        process.no_color.as_deref(),
    );
    let level = settings.log.level;
    let journal = Journal::new(choose_sink(&facts), level);
    logging::debug_to_journal(&journal, level);
    tracing::debug!(?write_access, "Landlock restricts write access");
    let (state, discarded) = state::load(&process.root, &MachineId::of(machine));
    let earlier_vm = earlier(&state);
    let last_migration = state.last_migration.as_ref();
    let last_migration = last_migration.map(|last| last.migration.clone());
    let memory = Memory {
        last_migration: last_migration.clone(),
        unannounced: last_migration,
        scheduled: state.scheduled.clone(),
        ..Memory::default()
    };
    let board = MetricsPage::default();
    let mut reporter = Reporter::new(
        process.root.clone(),
        journal.clone(),
        notifier,
        health.clone(),
        state,
        process_status(&clock),
        board.clone(),
    );
    let version = env!("CARGO_PKG_VERSION");
    reporter.say(
        Priority::Info,
        Some(message_id::STARTED),
        format!("harvester-node-agent {version} started"),
    );
    for warning in warnings {
        reporter.say(Priority::Warning, None, format!("configuration: {warning}"));
    }
    if let Some(why) = discarded {
        health.issue(
            "discarded-state",
            Some(ObservationIssue::StateDiscarded { why }),
        );
    }
    let bus = Bus::new(&process.root, process.system_bus_address.as_deref());
    let listener = Listener::new(
        process.root.clone(),
        &bus,
        clock.start,
        reporter.watchdog_period(),
        health.clone(),
        Chance {
            random,
            machine: machine.phase(),
        },
        reporter.hint_sink(),
    );
    let signals = (
        listener,
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    );
    let (wait, mut terminate, mut interrupt) = match signals {
        (Ok(wait), Ok(terminate), Ok(interrupt)) => (wait, terminate, interrupt),
        (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => {
            return Answer::stderr(
                format!("failed to register a signal handler: {error}\n"),
                Exit::TryAgain,
            );
        }
    };
    let endpoint = Box::pin(endpoint::serve(board, health.clone()));
    let mut agent = Agent {
        io: Observer::new(process.root.clone(), bus, health, earlier_vm).backing_off(random),
        publish: reporter,
        wait,
        reload: Reloader {
            root: process.root.clone(),
            config: process.config.clone(),
            journal,
        },
        clock,
    };
    // On the heap: the future lives as long as the process.
    let work = Box::pin(agent::run(settings, &mut agent, memory));
    tokio::select! {
        biased;
        // A signal stops the loop at any point: a patch is either sent as a whole, or sent after the next start.
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = work => {}
        () = endpoint => {}
    }
    agent.publish.stopping();
    agent.publish.close();
    drop(lock);
    Answer::new("", Exit::Ok)
}

async fn run_rounds(process: &Process, settings: &Settings, mode: Mode, task: Task) -> Answer {
    let clock = SystemClock::new();
    let state = state::recall(&process.root, &MachineId::of(&read_machine(&process.root)));
    let address = process.system_bus_address.as_deref();
    let bus = Bus::new(&process.root, address);
    let health = SignalBoard::default();
    let mut observer = Observer::new(process.root.clone(), bus, health.clone(), earlier(&state));
    let rounds = Box::pin(agent::once(
        settings,
        &mut observer,
        &mut Silent,
        &clock,
        Memory::default(),
        mode,
    ))
    .await;
    let Some(last) = rounds.last() else {
        return Answer::new("", Exit::TryAgain);
    };
    if task == Task::Whoami {
        triggers::probe(&process.root, address, &health).await;
    }
    let sources = health.signals().into_iter();
    let sources = sources.map(EventSourceStatus::from).collect();
    let context = Context {
        copied_from: state.copied_from,
        ..context(&clock, sources)
    };
    let mut status = Status::new(&last.report(settings), &context);
    if task == Task::Whoami {
        let permissions = permissions::read(observer.connections(), settings, last).await;
        status.permissions = permissions.iter().map(PermissionStatus::from).collect();
    }
    let answer = match task {
        Task::Whoami => whoami::answer(
            last,
            &status,
            process.output,
            process.show(clock.now().wall),
        ),
        Task::Once(_) | Task::Serve => once::answer(&rounds, &status, mode, process.output),
    };
    process.strictness.apply(answer, &status)
}

/// Returns the part of the status that is not from the round.
pub(super) fn context(clock: &SystemClock, event_sources: Vec<EventSourceStatus>) -> Context {
    Context {
        agent: process_status(clock),
        copied_from: None,
        event_sources,
        since: std::collections::BTreeMap::new(),
        last_migration: None,
        last_migration_hint: None,
        scheduled_event: None,
    }
}

fn process_status(clock: &SystemClock) -> AgentStatus {
    let own = lock::Instance::own();
    AgentStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        start_time: rfc3339(clock.now().wall),
        start_ticks: own.as_ref().map(|own| own.start_ticks),
        boot_id: own.map(|own| own.boot_id),
    }
}

/// The clocks of this machine.
#[derive(Debug)]
pub(super) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now {
            uptime: self.start.elapsed(),
            wall: UtcDateTime::now(),
            random: random(),
        }
    }
}

/// Returns random bits for delays. Without a source, delays are half of their maximum: safe for the node, but not spread.
fn random() -> Random {
    let mut bits = [0; 8];
    match ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bits) {
        Ok(()) => Random::from_bits(u64::from_ne_bytes(bits)),
        Err(_) => Random::from_bits(u64::MAX / 2),
    }
}

/// Loads the configuration again from the same paths.
#[derive(Debug)]
struct Reloader {
    root: Root,
    config: Option<PathBuf>,
    journal: Journal,
}

impl Reload for Reloader {
    fn reload(&mut self) -> Result<Settings, String> {
        let only: Option<&Path> = self.config.as_deref();
        let loaded = config::load(&self.root, only)
            .map_err(|errors| errors.lines().collect::<Vec<_>>().join("; "))?;
        let level = loaded.settings.log.level;
        self.journal.set_level(level);
        logging::debug_to_journal(&self.journal, level);
        Ok(loaded.settings)
    }
}

/// A publisher without output, for a single round that prints its result at the end.
#[derive(Debug)]
pub(super) struct Silent;

impl Publish for Silent {
    fn publish(&mut self, _: &RoundReport<'_>) {}
    fn hint(&mut self, _: Trigger) {}
    fn alive(&mut self) {}
    fn reloaded(&mut self, _: Result<(), &str>) {}
    fn stopping(&mut self) {}
}
