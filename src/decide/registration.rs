// SPDX-License-Identifier: Apache-2.0
//! Decides which labels a kubelet that starts gets, and the changes of the files that contain them.
//!
//! Our files contain the labels that our Node has by policy, not the labels of the host: the kubelet, and RKE2 and K3s before it,
//! set their labels again at each start. `gate` creates the files; this module only updates or removes existing ones.

use std::path::Path;
use std::time::Duration;

use super::input::Scene;
use super::labels::LabelPlan;
use crate::catalog::{Code, Finding};
use crate::config::{LabelKey, OnChange, Settings};
use crate::facts::node::Node;
use crate::facts::observation::Observation;
use crate::facts::registration::{
    DropIn, LabelFile, LabelFileContent, LabelFileKind, Labels, MARK,
};
use crate::facts::topology::{LabelValue, REGION, ZONE};
use crate::facts::{self, UnavailableKind};

/// The minimum time between two requests to reload systemd's manager for the same edit: a reload takes seconds on a machine with
/// many units, and does not help if another file of the unit is the reason.
const RELOAD_PAUSE: Duration = Duration::from_secs(10 * 60);

/// The text after the mark in the first line, and the second line.
const NOTE: &str = " ([registration] node_labels). Changes are overwritten.
# To manage this file manually, remove the first line. The kubelet registers its Node with these labels.
";

/// The labels for a first registration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registration {
    /// Whether a first registration needs labels.
    pub is_wanted: bool,
    /// The labels, if known.
    pub labels: Option<Labels>,
}

/// A change of one of our files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The kind of file.
    pub kind: LabelFileKind,
    /// The edit.
    pub edit: Edit,
}

/// An edit of one of our files. After each of these, systemd reloads if the file is a drop-in of the kubelet's unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The new text of the file.
    Write(String),
    /// The removal of the file.
    Remove,
    /// No edit: the file is up to date or removed, but systemd has not loaded that yet.
    Reload,
}

impl FileChange {
    /// Reports whether only systemd reloads, without a change of the file.
    pub fn is_reload(&self) -> bool {
        self.edit == Edit::Reload
    }
}

/// Reports whether a first registration needs labels. With `on_change = "report"`, we register no labels.
pub fn is_wanted(settings: &Settings) -> bool {
    settings.registration.node_labels && settings.topology.on_change != OnChange::Report
}

/// Returns the labels and the changes of files. `plan` contains the changes of our Node in this round; it is empty if there are
/// none. `reloaded` is the time since the last reload for the last edit.
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
            // The labels are unknown at present, so the file stays unchanged.
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
    if changes.iter().any(is_kubelet) || is_unloaded(seen.observation) && is_rested {
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

/// Returns the files that `gate` must write for a first registration. A file of another writer is not changed. `hidden`: another
/// file sets the kubelet's arguments. Ours could override them, so it is written without labels; the agent reports this, and adds
/// the labels when possible.
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

/// Returns findings about the files. `refusal` is the error of the last change of a file.
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

/// Returns the finding for a file without effect: another file sets the variable of the kubelet.
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

/// Returns the labels of our Node after the plan, or those of a new Node if it does not exist yet.
fn labels(settings: &Settings, seen: Scene<'_>, plan: &LabelPlan) -> Option<Labels> {
    // A kubelet with the name of another VM must not change the labels of that VM's Node.
    let placement = seen
        .placement
        .filter(|_| !seen.identity.is_named_as_another())?;
    let keys = [REGION, ZONE]
        .into_iter()
        .chain(settings.topology.host_label.as_ref().map(LabelKey::as_str));
    if let facts::Fact::Known(node) = &seen.observation.node {
        return Some(of_node(keys, node, plan));
    }
    let has_no_kubelet =
        matches!(seen.observation.kubelet.why(), Some(why) if why.kind == UnavailableKind::Missing);
    // If the Node cannot be read at present, its labels are unknown.
    if !has_no_kubelet && seen.observation.node != facts::Fact::Absent {
        return None;
    }
    let topology = &placement.known.as_ref()?.topology;
    let value = |key: &str| match key {
        REGION | ZONE => topology.value(key).cloned(),
        _ => LabelValue::parse(placement.host.as_str()).ok(),
    };
    let mut labels = Labels::new();
    labels.extend(keys.filter_map(|key| Some((key.to_owned(), value(key)?))));
    Some(labels)
}

fn of_node<'a>(keys: impl Iterator<Item = &'a str>, node: &Node, plan: &LabelPlan) -> Labels {
    let after = |key: &str| match plan.changes.get(key) {
        Some(change) => change.as_ref(),
        None => node.labels.get(key),
    };
    let of_key = |key: &str| Some((key.to_owned(), LabelValue::parse(after(key)?).ok()?));
    let mut labels = Labels::new();
    labels.extend(keys.filter_map(of_key));
    labels
}

/// Returns the text of a file. Keys and values contain no special characters of YAML or systemd.
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
