// SPDX-License-Identifier: Apache-2.0
//! `gate`: delays the start of the kubelet while its node name would be wrong or its credential is that of another machine. With
//! `--labels`, passes labels to a kubelet that starts.
//!
//! A Node keeps the name under which it registers. The daemon reconciles; the gate only evaluates its status. It always exits with
//! status 0: a wrong name can be corrected, but a node that does not boot is worse.

mod label_files;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::answer::{Answer, Exit};
use super::options::with_config;
use super::process::Process;
use super::run::{foreign, in_loop};
use super::status::{is_of, last};
use crate::access::certificate::{self, NodeIdentity};
use crate::access::search;
use crate::access::source::CredentialSource;
use crate::agent::state::{self, MachineId};
use crate::config::{self, LabelKey, Settings};
use crate::decide::identity::JudgedName;
use crate::decide::name_match::Verdict;
use crate::decide::registration::is_wanted as registration_is_wanted;
use crate::facts::names::{NameKind, VmName, is_hostname_template};
use crate::facts::registration::Labels;
use crate::facts::topology::{REGION, ZONE};
use crate::observe;
use crate::report::status::Status;
use crate::report::status_file;
use crate::sys::escape::one_line;
use crate::sys::file_watch::{What, watch};
use crate::sys::lock::Presence;
use crate::sys::root::{ReadError, Root};

/// The poll interval, in addition to inotify: the release of the daemon's lock causes no event.
const POLL: Duration = Duration::from_secs(1);

/// The time without a daemon after which the gate opens. systemd restarts the daemon 5 s after a crash, and a start takes at most
/// 1 s: after a longer time, the daemon will not restart on its own.
const DAEMON_GRACE: Duration = Duration::from_secs(15);

/// The text after the options in the help. The unit relies on it: no other exit status means success.
pub const EXIT_STATUS: &str = "\
Exit status: 0 in any case, also after a timeout, with an invalid configuration, or outside of KubeVirt, so that it never \
blocks a boot; 2 usage error.";

const EXPLAIN: &str = "harvester-node-agent explain";
const NO_DAEMON: &str = "harvester-node-agent.service is not running, so the VM name is unknown";
const SILENT: &str = "harvester-node-agent.service has no result yet";
const START_DAEMON: &str = "systemctl status harvester-node-agent";
const UNCHECKED: &str = "the kubelet starts without the check";
const NO_LABELS: &str =
    "the labels of its host are still unknown; run: harvester-node-agent whoami";
const FAULTY: &str = "invalid configuration; run: harvester-node-agent config check";
const TOO_LATE: &str = "; do not rename the host now, run: harvester-node-agent doctor";

/// The maximum length of a line, in characters.
const LINE_MAX: usize = 1000;

/// The names of a Node that does not exist yet; the first one that is known counts.
const NAMES: [NameKind; 2] = [NameKind::NodeName, NameKind::KernelHostname];

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    /// Let the kubelet start. With the reason, in one line; empty if there is nothing to say.
    Open(String),
    /// Delay it until the time is over. With the reason, and with what to say if the time is over, each in one line. A user should
    /// check the node then.
    Hold(String, String),
}

/// A kubelet credential that is present before the kubelet starts.
#[derive(Debug, Clone)]
struct Present {
    /// The path of the kubeconfig.
    path: String,
    /// The name of the Node that it is for, if it can be read.
    node: Option<String>,
    /// The reason to believe that it was copied from another machine.
    copied: Option<String>,
}

/// What the gate decides by, besides the time.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// The status of the daemon that runs, once it has published one.
    status: Option<Status>,
    /// The time for which no daemon has run.
    alone: Option<Duration>,
    /// Whether `/etc/hostname` is a template, which a fix must not replace.
    has_template: bool,
    /// Whether there is a Harvester credential, so that an unknown VM may still become known.
    may_learn: bool,
}

/// Waits until the kubelet can start, for at most `bound`.
pub fn run(process: &Process, bound: Duration) -> Answer {
    let root = &process.root;
    let (settings, is_faulty) = settings(process);
    let present = present(root, &settings);
    if present.is_none()
        && let Some(answer) = needless(process, &settings, is_faulty)
    {
        return answer;
    }
    let work = async { Ok(wait(root, &settings, present.as_ref(), bound).await) };
    in_loop(work).unwrap_or_else(|error| {
        let text = format!("failed to create event loop, {UNCHECKED}: {error}\n");
        Answer::stderr(text, Exit::Ok)
    })
}

/// Writes the labels for a kubelet that starts now. It waits for no other process.
pub fn write_labels(process: &Process) -> Answer {
    let root = &process.root;
    let (settings, is_faulty) = settings(process);
    let status = match last(root) {
        (status, Presence::Running(holder)) => status
            .filter(|status| is_of(&status.agent, holder))
            .ok_or(SILENT),
        _ => Err(NO_DAEMON),
    };
    // The daemon keeps the configuration that was valid.
    let is_wanted = match &status {
        Ok(status) if is_faulty => status.registration.is_some(),
        _ => registration_is_wanted(&settings),
    };
    let host_label = settings.topology.host_label.as_ref().map(LabelKey::as_str);
    let labels = status
        .map_err(|what| format!("{what}; run: {START_DAEMON}"))
        .and_then(|status| known_labels(status, host_label));
    let mut answer = label_files::write(root, is_wanted, labels);
    if is_faulty {
        let faulty = with_config(FAULTY, process.config.as_deref());
        answer.stderr.push_str(&format!("{faulty}\n"));
    }
    answer
}

/// Returns the labels for the kubelet, or why there are none. The status is written by a process in a sandbox, and the labels are
/// read by one without: only the keys that we label are passed on.
fn known_labels(status: Status, host_label: Option<&str>) -> Result<Labels, String> {
    if name_of(&status, &NAMES).is_some_and(|name| name.verdict == Verdict::AnotherVm) {
        let what = "the name of its Node is that of another VM";
        return Err(format!("{what}; fix: {EXPLAIN} name-of-another-vm"));
    }
    let labels = status.registration.and_then(|wanted| wanted.labels);
    let mut labels = labels.ok_or_else(|| NO_LABELS.to_owned())?;
    labels.retain(|key, _| {
        [REGION, ZONE].contains(&key.as_str()) || Some(key.as_str()) == host_label
    });
    Ok(labels)
}

/// Returns the settings, and whether they are the defaults because the configuration is invalid.
fn settings(process: &Process) -> (Settings, bool) {
    match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => (loaded.settings, false),
        Err(_) => (Settings::default(), true),
    }
}

/// Returns the credential of a kubelet that has already registered, if there is one.
fn present(root: &Root, settings: &Settings) -> Option<Present> {
    let (distributions, _) = observe::distribution::read_distribution(root);
    let configured = settings.guest.kubeconfig.as_deref();
    let candidates = search::kubelet_candidates(configured, &distributions);
    let mut source = CredentialSource::default();
    let path = &source.search(root, &candidates)?.0.path;
    let credential = source.credential();
    let chain = credential.and_then(|credential| credential.client_certificate.as_ref());
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
    // A daemon that cannot save its state still has a status.
    let before = state::recall(root, &MachineId::of(&machine))
        .copied_from
        .or_else(|| last(root).0?.identity.copied_from)?;
    let ours = machine.product_uuid.known().copied().unwrap_or_default();
    Some(format!(
        "its disk was used with product_uuid {before}, and this VM has {ours}"
    ))
}

/// Returns the answer if there is nothing to wait for.
fn needless(process: &Process, settings: &Settings, is_faulty: bool) -> Option<Answer> {
    let machine = observe::machine::read_machine(&process.root);
    if let Some(vendor) = foreign(&machine, settings) {
        let text = format!("not a KubeVirt virtual machine: SMBIOS vendor is {vendor}\n");
        return Some(Answer::new(text, Exit::Ok));
    }
    // The daemon waits for a valid configuration, which must not delay the boot.
    let text = format!(
        "invalid configuration, so the VM name is unknown; {UNCHECKED}; run: harvester-node-agent config check\n"
    );
    let text = with_config(&text, process.config.as_deref());
    is_faulty.then(|| Answer::stderr(text, Exit::Ok))
}

/// Waits until the kubelet can start. Returns what to say.
async fn wait(
    root: &Root,
    settings: &Settings,
    present: Option<&Present>,
    bound: Duration,
) -> Answer {
    let started = Instant::now();
    let changed = Notify::new();
    let watched = vec![PathBuf::from(status_file::STATUS_FILE)];
    let look = || changed.notify_one();
    let watch = watch(root.clone(), watched, What::Whole, look, |_| {});
    tokio::pin!(watch);
    let mut is_watching = true;
    let mut alone = None;
    let mut reported = String::new();
    loop {
        let seen = see(root, settings, &mut alone);
        let waited = started.elapsed();
        let why = match decide(present, &seen) {
            Decision::Open(text) => {
                let end = if text.is_empty() { "" } else { "\n" };
                return Answer::new(one_line(&text, LINE_MAX) + end, Exit::Ok);
            }
            Decision::Hold(_, late) if left(&seen, waited, bound).is_zero() => {
                return Answer::stderr(one_line(&late, LINE_MAX) + "\n", Exit::Ok);
            }
            Decision::Hold(why, _) => one_line(&why, LINE_MAX).into_owned(),
        };
        if why != reported {
            let left = left(&seen, waited, bound).as_millis().div_ceil(1000);
            let line = format!("delaying the kubelet for up to {left} s: {why}\n");
            // If the boot is delayed, the user must see why.
            let _ = std::io::stderr().write_all(line.as_bytes());
            reported = why;
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
fn see(root: &Root, settings: &Settings, alone: &mut Option<Instant>) -> Seen {
    let (status, presence) = last(root);
    let Presence::Running(holder) = presence else {
        let since = alone.get_or_insert_with(Instant::now);
        return Seen {
            alone: Some(since.elapsed()),
            ..Seen::default()
        };
    };
    *alone = None;
    // A status of an earlier process is obsolete.
    let Some(status) = status.filter(|status| is_of(&status.agent, holder)) else {
        return Seen::default();
    };
    let hostname = observe::machine::read_machine(root).static_hostname;
    let hostname = hostname.known();
    Seen {
        alone: None,
        has_template: hostname.is_some_and(|name| is_hostname_template(name)),
        // A credential that was just created, and that the daemon has not read yet, counts as well.
        may_learn: status.credentials.harvester.kubeconfig.is_some()
            || has_harvester_credential(root, settings),
        status: Some(status),
    }
}

fn has_harvester_credential(root: &Root, settings: &Settings) -> bool {
    let (distributions, _) = observe::distribution::read_distribution(root);
    let configured = settings.harvester.kubeconfig.as_deref();
    let candidates = search::harvester_candidates(configured, &distributions);
    // Only whether it is there: the files that it names may be on a disk that hangs. The daemon takes the first one that exists.
    let mut found = candidates.iter().map(|one| root.metadata(&one.path));
    let first = found.find(|one| !one.as_ref().is_err_and(ReadError::is_absent));
    first.is_some_and(|one| one.is_ok_and(|metadata| metadata.is_file()))
}

/// Returns how much of a delay is left, `waited` after the start of the gate.
fn left(seen: &Seen, waited: Duration, bound: Duration) -> Duration {
    let grace = seen.alone.map(|since| DAEMON_GRACE.saturating_sub(since));
    grace.unwrap_or(bound).min(bound.saturating_sub(waited))
}

fn decide(present: Option<&Present>, seen: &Seen) -> Decision {
    match present {
        Some(present) => decide_registered(present, seen.status.as_ref()),
        None => decide_first(seen),
    }
}

/// Decides where a kubelet credential is present. It opens at once, unless the credential is that of another machine: two kubelets
/// would then report one Node.
fn decide_registered(present: &Present, status: Option<&Status>) -> Decision {
    let name = status.and_then(|status| name_of(status, &[NameKind::NodeName]));
    let verdict = name.map_or(Verdict::Unknown, |name| name.verdict);
    let is_of_another = match present.copied {
        Some(_) => !verdict.may_register(),
        None => verdict == Verdict::AnotherVm,
    };
    if !is_of_another {
        return Decision::Open(String::new());
    }
    let node = name.map(|name| &name.name).or(present.node.as_ref());
    let node = node.map(|node| format!(" of Node `{}`", node.escape_debug()));
    let vm = status.and_then(|status| status.identity.vm.as_ref());
    let vm = vm.map(|vm| format!(", and this is VM `{}`", vm.name));
    let [node, vm] = [node, vm].map(Option::unwrap_or_default);
    let what = format!("{} is the kubelet credential{node}", present.path);
    let why = match &present.copied {
        Some(why) => format!(
            "{what}, and it is of another machine: {why}{vm}. Two kubelets would report one Node; fix: {EXPLAIN} node-of-another-vm"
        ),
        None => format!(
            "{what}, which is the name of another VM{vm}: {}; fix: {EXPLAIN} name-of-another-vm",
            verdict.consequence()
        ),
    };
    let late = format!("the kubelet starts, although {why}");
    Decision::Hold(why, late)
}

/// Decides where no kubelet has registered yet.
fn decide_first(seen: &Seen) -> Decision {
    let status = seen.status.as_ref();
    let name = status.and_then(|status| name_of(status, &NAMES));
    let (Some(status), Some(name)) = (status, name) else {
        let what = seen.alone.map_or(SILENT, |_| NO_DAEMON);
        let late = format!("{what}; {UNCHECKED}; run: {START_DAEMON}");
        return Decision::Hold(format!("{what}; run: {START_DAEMON}"), late);
    };
    let verdict = name.verdict;
    let registration = status.registration.as_ref();
    let missing = match registration.is_some_and(|wanted| wanted.labels.is_none()) {
        true => format!("; {NO_LABELS}"),
        false => String::new(),
    };
    let shown = format!("{} `{}`", name.kind.as_str(), name.name.escape_debug());
    if verdict.may_register() {
        let vm = status.identity.vm.as_ref().map(|vm| vm.name.as_str());
        let how = match verdict {
            verdict if verdict.is_match() => "matches",
            Verdict::ConfiguredOverride => "is configured for",
            _ => "is derived from the name of",
        };
        let vm = vm.unwrap_or_default();
        let text = format!("{shown} {how} VM `{vm}` ({}){missing}", verdict.as_str());
        return match missing.is_empty() {
            true => Decision::Open(text),
            false => Decision::Hold(text.clone(), text),
        };
    }
    if verdict == Verdict::Unknown && !seen.may_learn {
        let why = status.identity.message.as_deref();
        let why = why.unwrap_or("no source provides it");
        let text = format!("{shown} cannot be checked, the VM name is unknown: {why}");
        return Decision::Open(text);
    }
    let (problem, fix) = problem(status, name, seen.has_template);
    // A host that is renamed now registers a second Node.
    let late = format!("the kubelet starts, although {shown} {problem}{missing}{TOO_LATE}");
    Decision::Hold(format!("{shown} {problem}; {fix}"), late)
}

/// Returns the first name of these kinds, and how it compares with that of the VM.
fn name_of<'a>(status: &'a Status, kinds: &[NameKind]) -> Option<&'a JudgedName> {
    let mut kinds = kinds.iter();
    kinds.find_map(|kind| {
        let mut names = status.identity.names.iter();
        names.find(|name| name.kind == *kind)
    })
}

/// Describes the problem of the name with its consequence, and the fix while the kubelet has not started.
fn problem(status: &Status, name: &JudgedName, has_template: bool) -> (String, String) {
    let identity = &status.identity;
    let vm = identity.vm.as_ref().map(|vm| &vm.name);
    let expected = vm.or(identity.expected_name.as_ref());
    // A process in a sandbox wrote it, and it becomes an argument of a command.
    let expected = expected.filter(|name| VmName::parse(name).is_ok());
    let Some(expected) = expected.filter(|_| name.verdict != Verdict::Unknown) else {
        let why = identity.message.as_deref().unwrap_or("no VM matches");
        let text =
            format!("is not checked yet, because the VM of this node is not identified: {why}");
        return (text, "run: harvester-node-agent whoami".to_owned());
    };
    let found = match vm {
        Some(vm) => format!("does not match VM `{vm}`"),
        None => {
            format!("is not `{expected}`, which cloud-init received; the VM is not identified")
        }
    };
    let remedy = match name.kind {
        NameKind::NodeName => {
            format!("set it to {expected} in the RKE2/K3s configuration, or remove it there")
        }
        _ if has_template => format!(
            "set node-name to {expected} in the RKE2/K3s configuration; /etc/hostname is a template"
        ),
        _ => format!("hostnamectl set-hostname {expected}"),
    };
    let more = match name.verdict {
        Verdict::Fqdn => ", and `prefer_fqdn_over_hostname: false` in the cloud-init user data",
        _ => "",
    };
    let text = format!(
        "{found} ({}), and the name of a registered Node cannot change: {}",
        name.verdict.as_str(),
        name.verdict.consequence(),
    );
    (text, format!("fix: {remedy}{more}"))
}
