// SPDX-License-Identifier: Apache-2.0
//! `run`: the service. Assembles the parts of the agent, also for the commands that run one round.

mod invalid_config;
mod write_access;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use nix::unistd::Uid;
use time::UtcDateTime;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::answer::{Answer, Exit};
use super::options::config_option;
use super::process::Process;
use super::rbac::permissions;
use crate::agent::source_board::SourceBoard;
use crate::agent::state::{self, MachineId, State};
use crate::agent::{self, Agent, Mode, Observe, Publish, Round};
use crate::catalog::{Code, Finding};
use crate::config::{self, ConfigErrors, LoadedConfig, Settings};
use crate::decide::schedule::Random;
use crate::decide::{Memory, Now};
use crate::facts::clock::rfc3339;
use crate::facts::machine::Machine;
use crate::facts::names::VmName;
use crate::facts::trigger::Trigger;
use crate::observe::machine::read_machine;
use crate::observe::observer::Observer;
use crate::report::Reporter;
use crate::report::compose::Context;
use crate::report::endpoint::{self, MetricsPage};
use crate::report::journal::{Journal, Priority};
use crate::report::logging;
use crate::report::message_id;
use crate::report::problem::Problem;
use crate::report::status::{AgentStatus, PermissionStatus, Status};
use crate::report::text::Text;
use crate::sys::escape::{chain, shell_path};
use crate::sys::lock;
use crate::sys::root::Root;
use crate::triggers::{self, Chance, Listener};

/// The text after the options in the help of `run`.
pub const EXIT_STATUS: &str = "\
Exit status: 0 stopped by SIGTERM or SIGINT; 1 the lock file cannot be used; 2 usage error; 4 not a KubeVirt virtual machine; 75 another agent is running, \
or a temporary failure. With an invalid configuration, the service waits until it is valid.";

/// Runs the service until it is stopped.
pub fn run(process: &Process) -> Answer {
    let loaded = match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(errors) if process.notify.notify_socket.is_none() => return invalid(process, &errors),
        // If the service exited, systemd would only restart it.
        Err(errors) => match in_loop(invalid_config::until_valid(process, &errors)) {
            Ok(Some(loaded)) => loaded,
            Ok(None) => return Answer::new("", Exit::Ok),
            Err(error) => return failed(&error),
        },
    };
    let machine = read_machine(&process.root);
    if let Some(answer) = refused(&machine, &loaded.settings) {
        // Without the notification, systemd treats the service as failed, regardless of the exit code (`service_sigchld_event` in
        // `src/core/service.c`).
        process.notifier().ready("not a KubeVirt virtual machine");
        return answer;
    }
    in_loop(serve(process, loaded, &machine)).unwrap_or_else(|error| failed(&error))
}

/// Runs one round, and returns what `answer` makes of it. `is_examined` adds event sources and permissions to the status.
pub(super) fn one_round(
    process: &Process,
    mode: Mode,
    is_examined: bool,
    answer: impl FnOnce(&Round, &Status) -> Answer,
) -> Answer {
    let settings = match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => loaded.settings,
        Err(errors) => return invalid(process, &errors),
    };
    logging::debug_to_stderr(settings.log.level);
    let machine = read_machine(&process.root);
    if let Some(answer) = refused(&machine, &settings) {
        return answer;
    }
    // A dry run must not create anything, and the lock is a file.
    let lock = (mode == Mode::Write).then(|| lock::acquire(&process.root));
    if let Some(Err(error)) = &lock {
        return locked(error);
    }
    let work = async {
        let board = SourceBoard::default();
        let state = state::recall(&process.root, &MachineId::of(&machine));
        let mut observer = observer(process, board.clone(), &state);
        let round = reconcile(&settings, &mut observer, mode).await;
        if is_examined {
            let files = observer.targets(&settings, &round.identity).files;
            triggers::probe(&process.root, &process.bus(), files, &board).await;
        }
        let context = Context {
            agent: process_status(),
            event_sources: board.sources(),
            ..Context::default()
        };
        let mut status = Status::new(&round, &context);
        status.identity.copied_from = state.copied_from;
        if is_examined {
            let all = permissions::read(observer.connections(), &settings, &round).await;
            status.permissions = all.iter().map(PermissionStatus::from).collect();
        }
        Ok(answer(&round, &status))
    };
    in_loop(work).unwrap_or_else(|error| failed(&error))
}

/// Returns an observer that knows the VM of an earlier run.
pub(super) fn observer(process: &Process, board: SourceBoard, state: &State) -> Observer {
    let vm = state.vm.as_deref();
    let vm = vm.and_then(|name| VmName::parse(name).ok());
    Observer::new(process.root.clone(), process.bus(), board, vm)
}

/// Reconciles once. The command prints the result of the round at the end.
pub(super) async fn reconcile(settings: &Settings, observer: &mut Observer, mode: Mode) -> Round {
    let (start, mut silent) = (Instant::now(), Silent);
    let (memory, now) = (Memory::default(), || now(start));
    let round = agent::once(settings, observer, &mut silent, &now, memory, mode);
    Box::pin(round).await
}

/// Runs a future to completion in an event loop.
pub(super) fn in_loop<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::MAX)
        .build()?;
    let result = runtime.block_on(future);
    // Do not wait for a name server or a disk that does not respond.
    runtime.shutdown_background();
    result
}

fn failed(error: &io::Error) -> Answer {
    Answer::stderr(format!("error: failed to start: {error}\n"), Exit::TryAgain)
}

fn invalid(process: &Process, errors: &ConfigErrors) -> Answer {
    let option = config_option(process.config.as_deref());
    let check = format!("harvester-node-agent {option}config check");
    let problems = errors.lines().map(|line| {
        let finding = Finding::new(Code::ConfigInvalid, line).with_commands(vec![check.clone()]);
        Problem::new(&finding, |_| None)
    });
    let problems: Vec<Problem> = problems.collect();
    let mut out = Text::new(process.show_now());
    Problem::write(&problems.iter().collect::<Vec<_>>(), &mut out);
    Answer::stderr(out.finish(), Exit::Configuration)
}

/// Reports whether a user can read what the agent reads: root, or the owner of a tree.
pub(super) fn can_read_all(root: &Root, user: Uid) -> bool {
    let is_owner = |dir: Metadata| dir.uid() == user.as_raw();
    user.is_root() || !root.is_live() && root.metadata("/").is_ok_and(is_owner)
}

/// Returns the answer for a user who cannot read what the agent reads.
pub(super) fn not_root(process: &Process, command: &str) -> Option<Answer> {
    if can_read_all(&process.root, Uid::effective()) {
        return None;
    }
    let dir = process.root.join("/");
    let tree = match process.root.is_live() {
        true => String::new(),
        false => format!("--root={} ", shell_path(dir.components().as_path())),
    };
    let config = config_option(process.config.as_deref());
    let text = format!(
        "error: only root can read the credentials and the firmware tables. Run as root:\n  sudo harvester-node-agent {tree}{config}{command}\n"
    );
    Some(Answer::stderr(text, Exit::TryAgain))
}

/// Returns the answer for a machine that is not KubeVirt's.
fn refused(machine: &Machine, settings: &Settings) -> Option<Answer> {
    let vendor = foreign(machine, settings)?;
    let entry = Code::NotKubevirt.entry();
    let fix = entry.fix.join(" ");
    let text = format!(
        "error: {}: SMBIOS vendor is {vendor}. {fix} For the commands: harvester-node-agent explain {}\n",
        entry.title, entry.code
    );
    Some(Answer::stderr(text, Exit::NotKubevirt))
}

/// Returns the answer for a lock that cannot be acquired: only one agent at a time can write.
fn locked(error: &lock::LockError) -> Answer {
    let (hint, exit) = match error {
        lock::LockError::Held { .. } => (
            "; the agent is already running: see `harvester-node-agent status`, or reconcile with \
             `systemctl reload harvester-node-agent`",
            Exit::TryAgain,
        ),
        lock::LockError::Stalled => ("", Exit::TryAgain),
        lock::LockError::Unusable(_) => ("", Exit::Failed),
    };
    Answer::stderr(format!("error: {}{hint}\n", chain(error)), exit)
}

/// Returns the vendor of a machine that is not KubeVirt's. A machine without a vendor may be a KubeVirt VM.
pub(super) fn foreign(machine: &Machine, settings: &Settings) -> Option<String> {
    let vendor = machine.vendor.known()?;
    let is_foreign = !vendor.is_kubevirt() && !settings.machine.assume_kubevirt;
    is_foreign.then(|| format!("`{}`", vendor.sys_vendor.escape_debug()))
}

async fn serve(process: &Process, loaded: LoadedConfig, machine: &Machine) -> io::Result<Answer> {
    let settings = loaded.settings;
    // Before the first thread: only this thread and those that it starts are restricted.
    let write_access = write_access::restrict(&process.root, &settings);
    if thread::Builder::new().spawn(|| ()).is_ok() {
        // One thread for blocking calls stays: tokio panics if a call has none and the system allows no more.
        tokio::task::spawn_blocking(|| ());
    }
    let lock = match lock::acquire(&process.root) {
        Ok(lock) => Some(lock),
        Err(error @ lock::LockError::Held { .. }) => return Ok(locked(&error)),
        // A read-only or full /var must not prevent the agent from running.
        Err(_) => None,
    };
    let start = Instant::now();
    let board = SourceBoard::default();
    let level = settings.log.level;
    let journal = process.journal(level);
    logging::debug_to_journal(&journal, level);
    tracing::debug!(?write_access, "Landlock restricts write access");
    let (state, discarded) = state::load(&process.root, &MachineId::of(machine));
    let observer = observer(process, board.clone(), &state).backing_off(random);
    let last_migration = state.last_migration.as_ref();
    let last_migration = last_migration.map(|last| last.migration.clone());
    let memory = Memory {
        is_unannounced: last_migration.is_some(),
        last_migration,
        scheduled: state.scheduled.clone(),
        ..Memory::default()
    };
    let metrics = MetricsPage::default();
    let mut reporter = Reporter::new(
        process.root.clone(),
        journal.clone(),
        process.notifier(),
        board.clone(),
        state,
        process_status(),
        metrics.clone(),
    );
    let version = env!("CARGO_PKG_VERSION");
    reporter.say(
        Priority::Info,
        Some(message_id::STARTED),
        format!("harvester-node-agent {version} started"),
    );
    for warning in loaded.warnings {
        reporter.say(Priority::Warning, None, format!("configuration: {warning}"));
    }
    if let Some(why) = discarded {
        let finding = Finding::new(Code::StateDiscarded, why);
        board.report("discarded-state", Some(finding));
    }
    let wait = Listener::new(
        &process.root,
        observer.bus(),
        start,
        reporter.watchdog_period(),
        board.clone(),
        Chance {
            random,
            machine: machine.phase(),
        },
    )?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let endpoint = Box::pin(endpoint::serve(metrics, board));
    let mut agent = Agent {
        io: observer,
        publish: reporter,
        wait,
        reload: || reload(process, &journal),
        clock: || now(start),
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
    Ok(Answer::new("", Exit::Ok))
}

/// Returns the part of the status that is about this process.
fn process_status() -> AgentStatus {
    let own = lock::Instance::own();
    AgentStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        start_time: rfc3339(UtcDateTime::now()),
        start_ticks: own.as_ref().map(|own| own.start_ticks),
        boot_id: own.map(|own| own.boot_id),
    }
}

/// Returns the time, and that since the start.
fn now(start: Instant) -> Now {
    Now {
        uptime: start.elapsed(),
        wall: UtcDateTime::now(),
        random: random(),
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
fn reload(process: &Process, journal: &Journal) -> Result<Settings, String> {
    let loaded = config::load(&process.root, process.config.as_deref())
        .map_err(|errors| errors.lines().collect::<Vec<_>>().join("; "))?;
    let level = loaded.settings.log.level;
    journal.set_level(level);
    logging::debug_to_journal(journal, level);
    Ok(loaded.settings)
}

/// A publisher without output, for a single round that prints its result at the end.
#[derive(Debug)]
pub(super) struct Silent;

impl Publish for Silent {
    fn publish(&mut self, _: &Round, _: &Settings) {}
    fn hint(&mut self, _: Trigger) {}
    fn alive(&mut self) {}
    fn reloaded(&mut self, _: Result<(), &str>) {}
}
