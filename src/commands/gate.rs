// SPDX-License-Identifier: Apache-2.0
//! `gate`: delays the first start of the kubelet while its node name would be wrong, and writes the labels for the registration.
//!
//! It always exits with status 0: a wrong name can be corrected, but a node that does not boot is worse.

pub mod judge;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::run::{Process, foreign};
use super::status::{is_of, presence};
use super::{Answer, Exit, Output};
use crate::access::certificate::{self, NodeIdentity};
use crate::access::kubeconfig;
use crate::access::search::{self, FoundCredential};
use crate::agent::state::{self, MachineId};
use crate::apply::registration;
use crate::commands::gate::judge::{
    Daemon, Decision, GateReason, GateStatement, Opening, Present, WantedName, decide,
    decide_registered,
};
use crate::config::{self, LabelKey, Settings};
use crate::decide::identity::NameKind;
use crate::decide::registration::{findings, first_files, is_wanted as registration_is_wanted};
use crate::facts::names::is_hostname_template;
use crate::facts::registration::{LabelFileKind, Labels};
use crate::facts::topology::LabelValue;
use crate::observe;
use crate::report::status::{IdentityStatus, Status};
use crate::report::status_file;
use crate::sys::escape::json_text;
use crate::sys::lock::Presence;
use crate::sys::root::Root;
use crate::triggers::files;
use crate::wire::dbus::Bus;

/// The poll interval, in addition to inotify: the release of the daemon's lock causes no event.
const POLL: Duration = Duration::from_secs(1);

/// The text after the options in the help. The unit relies on it: no other exit status means success.
pub const EXIT_STATUS: &str = "\
Exit status: 0 in any case, also after a timeout, with an invalid configuration, or outside of KubeVirt, so that it never \
blocks a boot; 2 usage error.";

/// Waits until the kubelet can start, for at most `bound`.
pub fn run(process: &Process, bound: Duration) -> Answer {
    let loaded = config::load(&process.root, process.config.as_deref());
    let faulty = loaded.is_err();
    let settings = loaded.map(|loaded| loaded.settings).unwrap_or_default();
    let present = present(&process.root, &settings);
    if let Some(present) = &present {
        let daemon = read_daemon(&process.root, &settings, &mut None);
        let decision = decide_registered(present, &daemon, Duration::ZERO, bound);
        if let Decision::Open(opening) = decision {
            return answer(process, &opening, Duration::ZERO, &Written::default());
        }
    } else if let Some(opening) = needless(&process.root, &settings, faulty) {
        return answer(process, &opening, Duration::ZERO, &Written::default());
    }
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return Answer::stderr(
                format!(
                    "failed to create event loop, the kubelet starts without the check: {error}\n"
                ),
                Exit::Ok,
            );
        }
    };
    let started = Instant::now();
    let (opening, written) = runtime.block_on(async {
        let opening = wait(&process.root, &settings, present.as_ref(), started, bound).await;
        let written = match &opening.labels {
            Some(labels) => write(process, &settings, labels).await,
            None => Written::default(),
        };
        (opening, written)
    });
    runtime.shutdown_background();
    answer(process, &opening, started.elapsed(), &written)
}

/// Creates the directories of the label files of the kubelet: the sandbox of the gate's unit allows writes only to directories
/// that exist when it starts.
pub fn make_directories(process: &Process) -> Answer {
    let root = &process.root;
    let settings = config::load(root, process.config.as_deref()).map(|loaded| loaded.settings);
    let settings = settings.unwrap_or_default();
    let is_registered = present(root, &settings).is_some();
    let is_wanted = registration_is_wanted(&settings) && !is_registered;
    if !is_wanted || needless(root, &settings, false).is_some() {
        return Answer::new("", Exit::Ok);
    }
    let mut stderr = String::new();
    for kind in observe::registration::installed(root) {
        if let Err(refusal) = registration::make_directory(root, kind) {
            stderr.push_str(&format!("{}\n", refusal.text));
        }
    }
    Answer {
        text: String::new(),
        stderr,
        exit: Exit::Ok,
    }
}

/// Returns the credential of a kubelet that has already registered, if there is one.
fn present(root: &Root, settings: &Settings) -> Option<Present> {
    let (distributions, _) = observe::distribution::read_distribution(root);
    let configured = settings.guest.kubeconfig.as_deref();
    let candidates = search::kubelet_candidates(configured, &distributions);
    let path = match search::find(root, candidates) {
        FoundCredential::At(found) => found.path,
        FoundCredential::Unreadable { candidate, .. } => candidate.path,
        FoundCredential::Nowhere { .. } => return None,
    };
    let credential = kubeconfig::load(root, &path, &settings.guest.allow).ok();
    let chain = credential.and_then(|credential| credential.client_certificate);
    let node = chain.and_then(|certificate| certificate::node_name(&certificate.chain).ok());
    Some(Present {
        path: path.display().to_string(),
        node: match node {
            Some(NodeIdentity::Node(name)) => Some(name.to_string()),
            _ => None,
        },
        copied: copied(root),
    })
}

/// Returns the reason to believe that the disk was copied from another machine: the agent wrote its state there.
fn copied(root: &Root) -> Option<String> {
    let machine = observe::machine::read_machine(root);
    let status = || Status::from_json(&status_file::read(root).ok()?).ok();
    // A daemon that cannot save its state still has a status.
    let before = state::recall(root, &MachineId::of(&machine))
        .copied_from
        .or_else(|| status()?.identity.copied_from)?;
    let ours = machine.product_uuid.known().copied().unwrap_or_default();
    Some(format!(
        "its disk was used with product_uuid {before}, and this VM has {ours}"
    ))
}

/// Returns the reason why there is nothing to wait for.
fn needless(root: &Root, settings: &Settings, faulty: bool) -> Option<Opening> {
    let opening = |reason, text| {
        Some(Opening {
            reason,
            text,
            labels: None,
        })
    };
    let machine = observe::machine::read_machine(root);
    if let Some(vendor) = foreign(&machine, settings) {
        let text = format!("not a KubeVirt virtual machine: SMBIOS vendor is {vendor}");
        return opening(GateReason::NotKubevirt, text);
    }
    if !faulty {
        return None;
    }
    // The daemon waits for a valid configuration, which must not delay the boot.
    let text = "invalid configuration, so the VM name is unknown; the kubelet starts without the check; run: harvester-node-agent config check";
    opening(GateReason::ConfigurationFaults, text.to_owned())
}

/// Waits for the status of the daemon.
async fn wait(
    root: &Root,
    settings: &Settings,
    present: Option<&Present>,
    started: Instant,
    bound: Duration,
) -> Opening {
    let changed = Notify::new();
    let watched = PathBuf::from(status_file::STATUS_FILE);
    let watch = files::watch_whole(root.clone(), watched, || changed.notify_one());
    tokio::pin!(watch);
    let mut is_watching = true;
    let mut alone = None;
    let mut reported = String::new();
    loop {
        let daemon = read_daemon(root, settings, &mut alone);
        let waited = started.elapsed();
        let decision = match present {
            Some(present) => decide_registered(present, &daemon, waited, bound),
            None => decide(&daemon, waited, bound),
        };
        match decision {
            Decision::Open(opening) => return opening,
            Decision::Wait(why) if why != reported => {
                let limit = match daemon {
                    Daemon::Missing(_) => bound.min(judge::DAEMON_GRACE),
                    _ => bound,
                };
                let left = limit.saturating_sub(waited).as_millis().div_ceil(1000);
                let line = format!("delaying the kubelet for up to {left} s: {why}\n");
                // If the boot is delayed, the user must see why.
                let _ = std::io::stderr().write_all(line.as_bytes());
                reported = why;
            }
            Decision::Wait(_) => {}
        }
        let pause = POLL.min(bound.saturating_sub(waited));
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
            _ = &mut watch, if is_watching => is_watching = false,
        }
    }
}

/// Reads the status of the daemon. `alone` is the time since when no daemon runs.
fn read_daemon(root: &Root, settings: &Settings, alone: &mut Option<Instant>) -> Daemon {
    let status = status_file::read(root).ok();
    let status = status.and_then(|value| Status::from_json(&value).ok());
    let Presence::Running(holder) = presence(root, status.as_ref().map(|status| &status.agent))
    else {
        let since = alone.get_or_insert_with(Instant::now);
        return Daemon::Missing(since.elapsed());
    };
    *alone = None;
    // A status of an earlier process is obsolete.
    match status.filter(|status| is_of(&status.agent, holder)) {
        Some(status) => match said(root, &status) {
            Some(mut said) => {
                // A credential that was just created, and that the daemon has not read yet, counts as well.
                said.may_learn = said.may_learn || has_harvester_credential(root, settings);
                Daemon::Says(said)
            }
            None => Daemon::Silent,
        },
        None => Daemon::Silent,
    }
}

fn has_harvester_credential(root: &Root, settings: &Settings) -> bool {
    let (distributions, _) = observe::distribution::read_distribution(root);
    let configured = settings.harvester.kubeconfig.as_deref();
    let candidates = search::harvester_candidates(configured, &distributions);
    matches!(search::find(root, candidates), FoundCredential::At(_))
}

/// Extracts the name that would register, and its labels, from a status.
fn said(root: &Root, status: &Status) -> Option<GateStatement> {
    let IdentityStatus { names, vm, .. } = &status.identity;
    let named = |kind| names.iter().find(|name| name.kind == kind);
    let name = named(NameKind::NodeName).or_else(|| named(NameKind::KernelHostname))?;
    let labels = match &status.registration {
        None => WantedName::None,
        Some(registration) => match &registration.labels {
            None => WantedName::Unknown,
            Some(labels) => parse(labels).map_or(WantedName::Unknown, WantedName::Known),
        },
    };
    Some(GateStatement {
        kind: name.kind,
        name: name.name.clone(),
        verdict: name.verdict,
        vm: vm.as_ref().map(|vm| vm.name.clone()),
        given: status
            .identity
            .expected_name
            .clone()
            .filter(|_| vm.is_none()),
        has_template: observe::machine::read_machine(root)
            .static_hostname
            .known()
            .is_some_and(|name| is_hostname_template(name)),
        reason: status.identity.message.clone(),
        may_learn: status.credentials.harvester.kubeconfig.is_some(),
        labels,
    })
}

/// Parses the labels by the rules of Kubernetes: an invalid label would prevent the start of the kubelet.
fn parse(labels: &BTreeMap<String, String>) -> Option<Labels> {
    let parsed = |(key, value): (&String, &String)| {
        let key = LabelKey::parse(key).ok()?;
        Some((key.as_str().to_owned(), LabelValue::parse(value).ok()?))
    };
    let mut read = Labels::new();
    for label in labels {
        let (key, value) = parsed(label)?;
        read.insert(key, value);
    }
    Some(read)
}

/// The result of the writes to the label files.
#[derive(Debug, Default)]
struct Written {
    files: Vec<String>,
    problems: Vec<String>,
}

/// Writes the labels for every installed distribution.
async fn write(process: &Process, settings: &Settings, labels: &Labels) -> Written {
    let root = &process.root;
    let bus = Bus::new(root, process.system_bus_address.as_deref());
    let present = observe::registration::read(root);
    let kinds = observe::registration::installed(root);
    let mut written = Written::default();
    if kinds.is_empty() {
        let text = "none of RKE2, K3s and kubelet is installed: the labels were not written";
        written.problems.push(text.to_owned());
    }
    let hidden = observe::registration::hidden_by(root).is_some();
    for change in first_files(&kinds, &present, labels, hidden) {
        match registration::begin(root, &bus, &change).await {
            Ok(()) if hidden && change.kind == LabelFileKind::Kubelet => {}
            Ok(()) => written.files.push(change.kind.path().display().to_string()),
            Err(refusal) => written.problems.push(refusal.text),
        }
    }
    for finding in findings(settings, &observe::registration::read(root), None) {
        let title = finding.code.entry().title;
        let line = format!("{title}: {}; {}", finding.seen, finding.remedy());
        written.problems.push(line);
    }
    written
}

fn answer(process: &Process, opening: &Opening, waited: Duration, written: &Written) -> Answer {
    if process.output == Output::Json {
        let value = json!({
            "reason": opening.reason.as_str(),
            "message": opening.text,
            "durationSeconds": waited.as_millis() as f64 / 1000.0,
            "labels": opening.labels,
            "writtenFiles": written.files,
            "errors": written.problems,
        });
        return Answer::new(json_text(&value), Exit::Ok);
    }
    if opening.reason == GateReason::NotFirstStart {
        return Answer::new("", Exit::Ok);
    }
    let mut text = format!("{}\n", opening.text);
    for file in &written.files {
        text.push_str(&format!("labels written to {file}\n"));
    }
    let mut stderr = String::new();
    if opening.reason.is_worrying() {
        std::mem::swap(&mut text, &mut stderr);
    }
    for problem in &written.problems {
        stderr.push_str(&format!("{problem}\n"));
    }
    Answer {
        text,
        stderr,
        exit: Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::lock::{self, Instance, LOCK_FILE};

    fn publish(root: &Root, process: &Instance) {
        let status = json!({
            "apiVersion": crate::report::status::API_VERSION, "kind": "Status",
            "lastUpdateTime": "2026-11-21T10:00:00Z", "trigger": "timer",
            "agent": {
                "version": "1", "pid": process.pid, "startTime": "2026-11-21T10:00:00Z",
                "startTicks": process.start_ticks, "bootID": process.boot_id,
            },
            "identity": {
                "state": "names-match", "impact": "", "evidence": [],
                "names": [{"type": "hostname", "name": "vm-1", "state": "names-match"}],
            },
            "labels": {"state": "pending", "owned": {}, "skippedLabels": []},
            "credentials": {"harvester": {}, "kubelet": {}},
            "eventSources": [], "findings": [],
        });
        let content = status_file::content(&status);
        let path = root.join(&content.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content.text.unwrap()).unwrap();
    }

    #[test]
    fn a_copied_disk_is_known_at_every_boot_until_the_node_is_that_of_this_vm() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let save = |state: &state::State| {
            let content = state.content();
            write(content.path.to_str().unwrap(), &content.text.unwrap());
        };
        let uuid = |last| format!("0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4{last}");
        let boot = |last| {
            write("/sys/class/dmi/id/product_uuid", &uuid(last));
            let ours = MachineId::of(&observe::machine::read_machine(&root));
            state::load(&root, &ours).0
        };
        save(&boot("a"));
        assert_eq!(copied(&root), None);
        let mut state = boot("b");
        assert!(copied(&root).unwrap().contains(&uuid("a")));
        // The daemon replaces the state of the other VM.
        save(&state);
        assert_eq!(boot("b").copied_from, state.copied_from);
        assert!(copied(&root).unwrap().contains(&uuid("a")));
        state.copied_from = None;
        save(&state);
        assert_eq!(copied(&root), None);
        let own = Instance::own().unwrap();
        publish(&root, &own);
        assert_eq!(copied(&root), None);
        let mut status = status_file::read(&root).unwrap();
        status["identity"]["copiedFrom"] = json!(uuid("a"));
        write(status_file::STATUS_FILE, &status.to_string());
        assert!(copied(&root).unwrap().contains(&uuid("a")));
    }

    #[test]
    fn a_status_counts_if_the_lock_has_no_process_id() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let own = Instance::own().unwrap();
        publish(&root, &own);
        let says = || {
            let daemon = read_daemon(&root, &Settings::default(), &mut None);
            matches!(daemon, Daemon::Says(_))
        };
        assert!(says(), "the process in the status runs");
        let _lock = lock::acquire(&root).unwrap();
        assert!(says());
        // As on a full disk.
        std::fs::write(root.join(LOCK_FILE), "").unwrap();
        assert!(says());
        let ended = Instance {
            start_ticks: own.start_ticks + 1,
            ..own
        };
        publish(&root, &ended);
        assert!(!says(), "a status of an earlier process");
    }
}
