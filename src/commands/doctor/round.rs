// SPDX-License-Identifier: Apache-2.0
//! One round of `doctor`: an ordinary round that writes nothing, followed by the checks.
//!
//! It runs in a separate thread. A disk, network file system or device that hangs blocks the thread that reads it, and the read
//! cannot be canceled. After [`LIMIT`], the round times out with its results so far.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use time::UtcDateTime;
use tokio::runtime::{Builder, Runtime};

use super::case::Gap;
use super::checks;
use super::diagnosis::Diagnosis;
use super::found::Found;
use super::gaps::gaps;
use super::reads::Reads;
use super::service::Service;
use crate::agent::source_board::SourceBoard;
use crate::agent::state::{self, MachineId};
use crate::agent::{Mode, Round};
use crate::catalog::{Code, Finding, Flag, Group};
use crate::commands::options::{config_option, with_config};
use crate::commands::process::Process;
use crate::commands::run::{foreign, observer, reconcile};
use crate::config::{self, Settings};
use crate::decide::Action;
use crate::facts::machine::Machine;
use crate::facts::topology::LabelValue;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::machine::read_machine;
use crate::report::compose::Context;
use crate::report::status::Status;

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

/// Returns a gap if it is unknown whether this is a VM of KubeVirt: then all advice may be for another machine.
fn platform_gap(machine: &Machine, settings: &Settings) -> Option<Gap> {
    let why = match &machine.vendor {
        _ if settings.machine.assume_kubevirt => return None,
        Fact::Known(_) => return None,
        Fact::Failed(why) => why.clone(),
        Fact::Absent => {
            let text = "`/sys/class/dmi/id/sys_vendor` does not exist";
            Unavailable::new(UnavailableKind::Missing, text)
        }
    };
    Some(Gap::new(
        Group::Machine,
        "whether this is a KubeVirt VM",
        &why,
    ))
}

/// Returns the labels that a running agent would write now, with the values that the Node has.
fn late_labels(round: &Round) -> Option<String> {
    let node = round.observation.node.known()?;
    let patch = round.plan.actions.iter().find_map(|action| match action {
        Action::PatchNode(patch) => Some(patch),
        _ => None,
    })?;
    let labels = patch.labels.iter().map(|(key, value)| {
        let has = node.labels.get(key).map_or("none", String::as_str);
        let wants = value.as_ref().map_or("none", LabelValue::as_str);
        format!("{key} is {has}, not {wants}")
    });
    let labels = labels.collect::<Vec<_>>().join(", ");
    (!labels.is_empty()).then(|| format!("labels that differ: {labels}"))
}

/// Runs one round.
pub(super) fn run(process: &Process) -> Diagnosis {
    let shared = Shared::default();
    let ended = begin(process, &shared).map(|ended| ended.recv_timeout(LIMIT));
    let mut progress = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (step, seconds) = (progress.step, LIMIT.as_secs());
    let problem = match ended {
        Ok(Ok(())) => None,
        Ok(Err(RecvTimeoutError::Disconnected)) => {
            Some(format!("the check stopped while reading {step}"))
        }
        Ok(Err(RecvTimeoutError::Timeout)) => Some(format!(
            "timed out after {seconds}s while reading {step}: a disk, network file system or device hangs"
        )),
        Err(error) => Some(format!("failed to spawn a thread: {error}")),
    };
    if let Some(why) = problem {
        progress.found.end_early(&why);
    }
    let mut diagnosis = Diagnosis::new(&progress.found, UtcDateTime::now());
    let findings = diagnosis.groups.iter_mut();
    let findings = findings.flat_map(|section| &mut section.findings);
    // What needs a memory is from the service, which may read another file.
    for problem in findings.filter(|one| !one.code.is(Flag::NeedsMemory)) {
        for step in &mut problem.fix {
            *step = with_config(step, process.config.as_deref());
        }
        // Only at the start: in the middle, the words may be part of the name of a file.
        let commands = problem.commands.iter_mut();
        for command in commands.filter(|one| one.text.starts_with("harvester-node-agent ")) {
            command.text = with_config(&command.text, process.config.as_deref()).into();
        }
    }
    diagnosis
}

fn begin(process: &Process, shared: &Shared) -> io::Result<Receiver<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = mpsc::channel();
    let (process, shared) = (process.clone(), shared.clone());
    let work = move || {
        gather(&runtime, &process, &shared);
        // After the timeout, there is no receiver.
        end.send(()).unwrap_or_default();
    };
    thread::Builder::new().name("look".to_owned()).spawn(work)?;
    Ok(ended)
}

/// Runs the round in its thread, and shares the results after each step.
fn gather(runtime: &Runtime, process: &Process, shared: &Shared) {
    shared.add("the configuration and the state of the agent", |_| {});
    let mut service = Service::read(&process.root);
    let (settings, findings) = settings(process, service.is_running() != Some(false));
    service.is_invalid = findings.iter().any(|one| one.code == Code::ConfigInvalid);
    shared.add("the firmware tables", |found| {
        if process.config.is_some() {
            let note = "checked with the file of --config; the service may use another";
            found.checked.note(Group::Machine, note.to_owned());
        }
        found.checked.findings = findings;
        found.service = service;
    });
    let machine = read_machine(&process.root);
    if let Some(vendor) = foreign(&machine, &settings) {
        let seen = format!("SMBIOS vendor is {vendor}");
        let finding = Finding::new(Code::NotKubevirt, seen);
        shared.add("", |found| found.checked.findings.push(finding));
        return;
    }
    shared.add("credentials, both APIs, qemu-guest-agent", |found| {
        found.checked.findings.extend(found.service.finding());
        found.checked.gaps.extend(found.service.gap());
        found.checked.gaps.extend(platform_gap(&machine, &settings));
    });

    let state = state::recall(&process.root, &MachineId::of(&machine));
    let observer = observer(process, SourceBoard::default(), &state);
    let mut observer = observer.with_short_timeouts();
    let round = reconcile(&settings, &mut observer, Mode::DryRun);
    let round = runtime.block_on(round);
    let status = Status::new(&round, &Context::default());
    shared.add("the additional checks of doctor", |found| {
        if let Some(late) = late_labels(&round) {
            found.checked.note(Group::Node, late.clone());
            let stopped = found.service.finding();
            if let Some(mut finding) = stopped.filter(|one| one.code == Code::AgentNotRunning) {
                // Nothing corrects them.
                finding.seen = late;
                found.checked.findings.push(finding.about(Group::Node));
            }
        }
        let findings = &mut found.checked.findings;
        findings.extend(round.plan.findings.iter().cloned());
        findings.extend(round.plan.consequences.iter().cloned());
        found.checked.gaps.extend(gaps(&round));
        found.status = Some(status);
        found.is_unanswered = round.is_unanswered();
    });

    let checked = runtime.block_on(Box::pin(async {
        let reads = Reads::after(&round, &observer, &settings).await;
        checks::all(&reads).await
    }));
    shared.add("", |found| {
        found.checked.merge(checked);
        let reported = found.service.reported(&found.checked.findings);
        found.checked.findings.extend(reported);
    });
}

/// Returns the settings, or the defaults, and a finding for each warning or error in the configuration.
fn settings(process: &Process, may_run: bool) -> (Settings, Vec<Finding>) {
    let only = process.config.as_deref();
    let (settings, code, problems) = match config::load(&process.root, only) {
        Ok(loaded) => (loaded.settings, Code::ConfigWarning, loaded.warnings),
        Err(errors) => (
            Settings::default(),
            Code::ConfigInvalid,
            errors.lines().collect(),
        ),
    };
    let check = format!("harvester-node-agent {}config check", config_option(only));
    // One that is idle loads the corrected files automatically.
    let reload = may_run.then(|| "systemctl reload harvester-node-agent".to_owned());
    let commands: Vec<String> = [check].into_iter().chain(reload).collect();
    let finding = |problem| Finding::new(code, problem).with_commands(commands.clone());
    (settings, problems.into_iter().map(finding).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_for_an_invalid_configuration_name_its_file_and_reload_only_what_runs() {
        let (_dir, process) = Process::configured("a\t.toml", "x = 1\n");
        for may_run in [true, false] {
            let (_, findings) = settings(&process, may_run);
            let commands = findings[0].commands().iter();
            let commands: Vec<&str> = commands.map(|one| &*one.text).collect();
            let check = r"harvester-node-agent --config=$'/a\011.toml' config check";
            let expected = [check, "systemctl reload harvester-node-agent"];
            assert_eq!(commands, expected[..1 + usize::from(may_run)]);
        }
    }

    #[test]
    fn the_commands_of_a_diagnosis_read_the_same_configuration() {
        let (_dir, process) = Process::configured("a.toml", "x = 1\n");
        let diagnosis = run(&process).document().to_string();
        for (part, is_said) in [
            ("harvester-node-agent --config=/a.toml config check", true),
            ("harvester-node-agent config check", false),
            ("harvester-node-agent whoami", false),
            // A stopped agent is seen beside its invalid configuration.
            ("agent-not-running", true),
            ("the service may use another", true),
        ] {
            assert_eq!(diagnosis.contains(part), is_said, "{part}: {diagnosis}");
        }
    }

    #[test]
    fn a_machine_without_a_vendor_may_be_another_one() {
        let mut settings = Settings::default();
        let machine = Machine {
            vendor: Fact::Absent,
            ..Machine::default()
        };
        let gap = |settings: &Settings| platform_gap(&machine, settings);
        assert!(gap(&settings).unwrap().message.contains("sys_vendor"));
        settings.machine.assume_kubevirt = true;
        assert_eq!(gap(&settings), None);
    }
}
