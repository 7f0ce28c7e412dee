// SPDX-License-Identifier: Apache-2.0
//! Writes the files that pass labels to the kubelet of a distribution, just before it starts.
//!
//! Without a file, the kubelet changes no label of a Node that exists. Outdated labels would be those of another host.

use std::path::Path;

use crate::commands::answer::{Answer, Exit};
use crate::facts::registration::{LabelFileKind, Labels, MARK};
use crate::observe::registration::{hidden_by, installed};
use crate::sys::atomic_file::{WriteOutcome, make_directory, remove, write_atomic};
use crate::sys::escape::chain;
use crate::sys::root::Root;

/// Labels are not secret.
const MODE: u32 = 0o644;

/// The maximum size of a file. Ours have some hundred bytes; a larger one is not ours.
const FILE_MAX: u64 = 16 << 10;

/// The text after the mark in the first line, and the second line.
const NOTE: &str = " ([registration] node_labels). Changes are overwritten.
# The kubelet registers its Node with these labels.
";

/// Writes the labels for each installed distribution. If there are none, or none are wanted, removes our files. A file of another
/// writer is not changed. An error is the reason why there are none.
pub(super) fn write(root: &Root, is_wanted: bool, labels: Result<Labels, String>) -> Answer {
    let mut answer = Answer::new("", Exit::Ok);
    let mut problems = Vec::new();
    let kinds = installed(root);
    if kinds.is_empty() {
        let text = "none of RKE2, K3s and kubelet is installed: the labels were not written";
        problems.push(text.to_owned());
    }
    if let Err(why) = &labels {
        let what = "the kubelet gets no labels, and a registered Node keeps those it has";
        problems.push(format!("{what}: {why}"));
    }
    let labels = labels.ok().filter(|_| is_wanted);
    for kind in kinds {
        let other = match kind {
            LabelFileKind::Kubelet => hidden_by(root),
            LabelFileKind::Rke2 | LabelFileKind::K3s => None,
        };
        problems.extend(other.as_deref().map(hidden));
        let labels = labels.as_ref().filter(|_| other.is_none());
        match update(root, kind, labels.and_then(|labels| text(kind, labels))) {
            Ok(None) => {}
            Ok(Some(done)) => answer.text.push_str(&format!("{done}\n")),
            Err(problem) => problems.push(problem),
        }
    }
    // Where no labels are wanted, nothing is missing.
    if is_wanted {
        let lines = problems.iter().map(|problem| format!("{problem}\n"));
        answer.stderr.extend(lines);
    }
    answer
}

/// Writes a file, or removes it if there is no text for it. Returns what changed, or why nothing could be changed.
fn update(
    root: &Root,
    kind: LabelFileKind,
    text: Option<String>,
) -> Result<Option<String>, String> {
    let path = kind.path();
    let shown = path.display();
    let is_present = match root.read_text(path, FILE_MAX) {
        // Only this command writes to its directory.
        _ if kind == LabelFileKind::Kubelet => root.exists(path),
        Ok(present) if present.starts_with(MARK) => true,
        Ok(_) => {
            let why = "it does not begin with the comment of harvester-node-agent";
            return Err(format!("{shown} was not changed: {why}"));
        }
        Err(error) if error.is_absent() => false,
        Err(error) => return Err(chain(&error)),
    };
    let done = match text {
        Some(text) => {
            let directory = path.parent().map_or(Ok(()), |it| make_directory(root, it));
            let written = directory.and_then(|()| write_atomic(root, path, text.as_bytes(), MODE));
            let is_new = |outcome| outcome == WriteOutcome::Written;
            written.map(|outcome| is_new(outcome).then(|| format!("labels written to {shown}")))
        }
        None if is_present => remove(root, path).map(|()| Some(format!("{shown} removed"))),
        None => Ok(None),
    };
    done.map_err(|error| chain(&error))
}

/// Describes that another file sets the variable of the kubelet. Arguments of an administrator must never be overridden: an
/// environment file, such as ours, takes precedence over `Environment=` (systemd.exec(5)).
fn hidden(other: &Path) -> String {
    let path = LabelFileKind::Kubelet.path().display();
    let is_environment = other.starts_with("/etc/default") || other.starts_with("/etc/sysconfig");
    let other = other.display();
    let empty = match is_environment {
        true => "if the line `KUBELET_EXTRA_ARGS=` in it is empty, remove that line; otherwise ",
        false => "",
    };
    format!(
        "{other} sets KUBELET_EXTRA_ARGS, so {path} gets no labels; {empty}move its arguments to KUBELET_KUBEADM_ARGS in \
         /var/lib/kubelet/kubeadm-flags.env, for a node that has not joined to `nodeRegistration.kubeletExtraArgs` of kubeadm"
    )
}

/// Returns the text of a file, if there are labels. Keys and values contain no special characters of YAML or systemd.
fn text(kind: LabelFileKind, labels: &Labels) -> Option<String> {
    let pairs = labels.iter().map(|(key, value)| format!("{key}={value}"));
    let pairs: Vec<String> = pairs.collect();
    let body = match kind {
        LabelFileKind::Rke2 | LabelFileKind::K3s => {
            let lines = pairs.iter().map(|pair| format!("- \"{pair}\"\n"));
            let how = "# To manage this file manually, remove the first line.";
            format!("{how}\nnode-label+:\n{}", lines.collect::<String>())
        }
        LabelFileKind::Kubelet => {
            format!("KUBELET_EXTRA_ARGS=--node-labels={}\n", pairs.join(","))
        }
    };
    (!pairs.is_empty()).then(|| format!("{MARK}{NOTE}{body}"))
}

#[cfg(test)]
mod tests;
