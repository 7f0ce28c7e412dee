// SPDX-License-Identifier: Apache-2.0
//! Findings for labels that differ from the host.

use crate::catalog::{Code, Finding};
use crate::decide::input::Scene;
use crate::decide::labels::{Left, SkipReason};
use crate::facts::topology::{LabelValue, TWINS};

/// The step for labels of the host that are not read.
const UNREAD: &str = "If `whoami -v` shows that the credential is not allowed to read the host: apply the output of `harvester-node-agent rbac` on \
                      Harvester, then reload the service. Otherwise wait until the Harvester API responds.";

const NEVER_SET: &str = "labels of the host for `[labels.extra]` are not read";

/// Returns the finding for a label that was not changed.
pub(super) fn left(left: &Left, seen: Scene<'_>) -> Option<Finding> {
    let value = |value: &Option<String>| {
        let text = value.as_deref().unwrap_or("none");
        text.escape_debug().to_string()
    };
    let (key, present, wanted) = (&left.key, value(&left.present), value(&left.wanted));
    let is_known = seen.placement.is_some_and(|at| at.known.is_some());
    let code = match left.reason {
        SkipReason::Pinned | SkipReason::ReportOnly => Code::PinnedByConfig,
        SkipReason::NotManaged => Code::LabelNotManaged,
        SkipReason::HostHasNone => Code::TopologyPartial,
        SkipReason::HostNameInvalid | SkipReason::ValueInvalid => Code::LabelValueInvalid,
        SkipReason::HostNotRead => return Some(unread(left, &present)),
        // The host has the others. If no source answers, the missing answer is reported instead.
        SkipReason::WouldMix if left.wanted.is_some() || !is_known => return None,
        SkipReason::WouldMix => Code::TopologyPartial,
    };
    let text = format!("{key}: {present} on the Node, {wanted} on the host");
    Some(Finding::new(code, text))
}

/// Returns the finding for a label of the host that is not read. All labels that were never set are one finding.
fn unread(left: &Left, present: &str) -> Finding {
    let key = &left.key;
    let text = format!("{key}: {present} on the Node, not read from the host");
    let finding = match left.present {
        Some(_) => Finding::new(Code::TopologyPartial, text),
        None => Finding::new(Code::ConfigWarning, NEVER_SET),
    };
    let commands = Code::HarvesterForbidden.entry().commands.to_vec();
    finding.with_remedy(UNREAD).with_all_commands(commands)
}

/// Adds findings for labels that the distribution sets at each start of the kubelet and that differ from the host.
pub(super) fn static_labels(seen: Scene<'_>, findings: &mut Vec<Finding>) {
    let labels = seen.observation.distributions.iter();
    for label in labels.flat_map(|distribution| &distribution.node_labels) {
        let mut twins = TWINS.iter();
        let topology = twins.find(|(key, twin)| [*key, *twin].contains(&label.key.as_str()));
        let host_label = seen.settings.topology.host_label.as_ref();
        let is_host = host_label.is_some_and(|key| key.as_str() == label.key);
        let wanted = match (topology, seen.placement) {
            (Some((key, _)), Some(placement)) => placement.value(key).map(LabelValue::as_str),
            (None, Some(placement)) if is_host => Some(placement.host.as_str()),
            (Some(_) | None, _) => continue,
        };
        if wanted != Some(label.value.as_str()) {
            let file = label.origin.display();
            let text = format!("{}={} in {file}", label.key, label.value.escape_debug());
            findings.push(Finding::new(Code::StaticNodeLabel, text));
        }
    }
}
