// SPDX-License-Identifier: Apache-2.0
//! Which labels a kubelet that starts is given, and the changes of the files that give them.
//!
//! Our files say what is on our Node by policy, not what the host says: a kubelet, and RKE2 and K3s before it, set their
//! labels again at each start. The first file is made by `gate`; here one that exists is kept in step or removed, and none
//! is made.

use std::path::Path;
use std::time::Duration;

use super::Scene;
use super::labels::LabelPlan;
use crate::catalogue::{Code, Finding};
use crate::config::{LabelKey, OnChange, Settings};
use crate::facts::node::Node;
use crate::facts::observation::Observation;
use crate::facts::registration::{
    DropIn, LabelFile, LabelFileContent, LabelFileKind, Labels, MARK,
};
use crate::facts::topology::{LabelValue, REGION, ZONE};
use crate::facts::{self, UnavailableKind};

/// The minimum time between two requests to reload systemd's manager for a missed reload: a reload takes seconds on a machine
/// with many units.
const RELOAD_PAUSE: Duration = Duration::from_secs(10 * 60);

/// What follows the mark in the first line, and the second line.
const NOTE: &str = " ([registration] node_labels). Changes are overwritten.
# To manage this file manually, remove the first line. The kubelet registers its Node with these labels.
";

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registration {
    /// Whether a first registration is to have labels.
    pub is_wanted: bool,
    /// The labels, where they are known.
    pub labels: Option<Labels>,
}

/// A change of one of our files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Which one.
    pub kind: LabelFileKind,
    /// What is done to it.
    pub edit: Edit,
}

/// What is done to one of our files. After each of these, systemd reloads if the file is a drop-in of the kubelet's unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// It gets this text.
    Write(String),
    /// It is removed.
    Remove,
    /// Nothing: the file is up to date or removed, but systemd has not loaded that yet.
    Reload,
}

impl FileChange {
    /// Reports whether systemd reloads for the kubelet's drop-in alone, without a change of the file.
    pub fn is_reload(&self) -> bool {
        self.edit == Edit::Reload
    }
}

/// Reports whether a first registration is to have labels. With `on_change = "report"` none are ours to register with.
pub fn is_wanted(settings: &Settings) -> bool {
    settings.registration.node_labels && settings.topology.on_change != OnChange::Report
}

/// Decides, and returns the changes of files. `plan` is what is about to be changed on our Node; empty where nothing is.
/// `reloaded`: the time since the last reload for a missed one.
pub fn decide(
    settings: &Settings,
    seen: Scene<'_>,
    plan: &LabelPlan,
    reloaded: Option<Duration>,
) -> (Registration, Vec<FileChange>) {
    let is_wanted = is_wanted(settings);
    let labels = labels(settings, seen, plan).filter(|_| is_wanted);
    let changes = seen.observation.label_files.iter().filter_map(|file| {
        let LabelFileContent::Ours(present) = &file.content else {
            return None;
        };
        let text = match (&labels, is_wanted) {
            (Some(_), _) if file.hidden_by.is_some() => Some(text(file.kind, &Labels::new())),
            (Some(labels), _) => Some(text(file.kind, labels)),
            (None, false) => None,
            // Not known just now: what it says stays.
            (None, true) => return None,
        };
        (text.as_ref() != Some(present)).then_some(FileChange {
            kind: file.kind,
            edit: text.map_or(Edit::Remove, Edit::Write),
        })
    });
    let mut changes: Vec<FileChange> = changes.collect();
    let is_kubelet = |change: &FileChange| change.kind == LabelFileKind::Kubelet;
    let is_rested = reloaded.is_none_or(|ago| ago >= RELOAD_PAUSE);
    // A change of the file includes a reload.
    if is_unloaded(seen.observation) && is_rested && !changes.iter().any(is_kubelet) {
        changes.push(FileChange {
            kind: LabelFileKind::Kubelet,
            edit: Edit::Reload,
        });
    }
    (Registration { is_wanted, labels }, changes)
}

/// Reports whether systemd has loaded another version of our drop-in of the kubelet's unit than the one on disk: the file was
/// changed or removed, and the reload was missed.
pub(super) fn is_unloaded(observation: &Observation) -> bool {
    let is_ours = |file: &LabelFile| file.kind == LabelFileKind::Kubelet && file.is_ours();
    let is_concerned = |drop_in: &DropIn| {
        drop_in.needs_reload && (drop_in.is_listed || observation.label_files.iter().any(is_ours))
    };
    observation.drop_in.as_ref().is_some_and(is_concerned)
}

/// The files that `gate` is to write for a first registration; one that someone else wrote is left alone. `hidden`: whether
/// someone else sets the kubelet's arguments. Ours could take them away, so it then says nothing; it stands there all the same,
/// for the agent to fill when it may, and to report it until then.
pub fn first_files(
    kinds: &[LabelFileKind],
    present: &[LabelFile],
    labels: &Labels,
    hidden: bool,
) -> Vec<FileChange> {
    let none = Labels::new();
    let wanted = kinds.iter().filter_map(|kind| {
        let labels = match kind {
            LabelFileKind::Kubelet if hidden => &none,
            _ => labels,
        };
        let text = text(*kind, labels);
        let may_write = match present.iter().find(|file| file.kind == *kind) {
            None => true,
            Some(file) => file.is_ours() && file.content != LabelFileContent::Ours(text.clone()),
        };
        may_write.then_some(FileChange {
            kind: *kind,
            edit: Edit::Write(text),
        })
    });
    wanted.collect()
}

/// Findings about the files. `refusal` is why the last change of one was not made.
pub fn findings(settings: &Settings, files: &[LabelFile], refusal: Option<&str>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = refusal
        .map(|text| Finding::new(Code::LabelFileNotWritten, text))
        .into_iter()
        .collect();
    if !settings.registration.node_labels {
        return findings;
    }
    for file in files {
        let path = file.kind.path().display();
        if let LabelFileContent::Foreign(why) = &file.content {
            findings.push(Finding::new(
                Code::LabelFileNotManaged,
                format!("{path} {why}"),
            ));
        } else if let Some(other) = &file.hidden_by {
            findings.push(hidden(other));
        }
    }
    findings
}

/// The kubelet's own variable is set elsewhere.
fn hidden(other: &Path) -> Finding {
    let path = LabelFileKind::Kubelet.path().display();
    let is_environment = other.starts_with("/etc/default") || other.starts_with("/etc/sysconfig");
    let other = other.display();
    let text = format!("{other} sets KUBELET_EXTRA_ARGS, so {path} has no effect");
    let empty = if is_environment {
        format!(
            "where its line is empty, remove it: sed -i '/^KUBELET_EXTRA_ARGS=$/d' {other}; otherwise "
        )
    } else {
        String::new()
    };
    Finding::new(Code::LabelFileWithoutEffect, text).with_remedy(format!(
        "{empty}move its arguments to `nodeRegistration.kubeletExtraArgs` in the kubeadm configuration"
    ))
}

/// Our Node's labels after the plan; those of a Node to be where there is none yet.
fn labels(settings: &Settings, seen: Scene<'_>, plan: &LabelPlan) -> Option<Labels> {
    let placement = seen.placement?;
    let keys = [REGION, ZONE]
        .into_iter()
        .chain(settings.topology.host_label.as_ref().map(LabelKey::as_str));
    if let facts::Fact::Known(node) = &seen.observation.node {
        return Some(of_node(keys, node, plan));
    }
    let has_no_kubelet =
        matches!(seen.observation.kubelet.why(), Some(why) if why.kind == UnavailableKind::Missing);
    // A Node that cannot be read just now has labels that are not known.
    if !has_no_kubelet && seen.observation.node != facts::Fact::Absent {
        return None;
    }
    let topology = &placement.known.as_ref()?.topology;
    let value = |key: &str| match key {
        REGION | ZONE => topology.value(key).cloned(),
        _ => LabelValue::parse(placement.host.as_str()).ok(),
    };
    Some(
        keys.filter_map(|key| Some((key.to_owned(), value(key)?)))
            .collect(),
    )
}

fn of_node<'a>(keys: impl Iterator<Item = &'a str>, node: &Node, plan: &LabelPlan) -> Labels {
    let after = |key: &str| match plan.changes.get(key) {
        Some(change) => change.as_ref(),
        None => node.labels.get(key),
    };
    keys.filter_map(|key| Some((key.to_owned(), LabelValue::parse(after(key)?).ok()?)))
        .collect()
}

/// The text of a file. Keys and values have no character that YAML or systemd would take for something else.
fn text(kind: LabelFileKind, labels: &Labels) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let body = match (kind, pairs.as_slice()) {
        (_, []) => String::new(),
        (LabelFileKind::Rke2 | LabelFileKind::K3s, pairs) => {
            let lines = pairs.iter().map(|pair| format!("- \"{pair}\"\n"));
            format!("node-label+:\n{}", lines.collect::<String>())
        }
        (LabelFileKind::Kubelet, pairs) => format!(
            "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--node-labels={}\"\n",
            pairs.join(",")
        ),
    };
    format!("{MARK}{NOTE}{body}")
}

#[cfg(test)]
mod tests;
