// SPDX-License-Identifier: Apache-2.0
//! Converts the results of the decisions to findings of the catalog.

pub mod expiry;
mod labels;
mod names;
pub mod reads;

use super::doing::{Doing, Labeling};
use super::guest_agent;
use super::identity::OwnVm;
use super::input::Scene;
use super::memory::Memory;
use crate::catalog::{Code, Finding, split_consequences};
use crate::decide::label_state::LabelState;

pub use names::replacing_provider_id;

/// Returns all findings, ordered by severity, the most severe first, and then those that another finding explains.
pub fn raise(
    seen: Scene<'_>,
    wanted: &Labeling,
    sync: &LabelState,
    memory: &Memory,
) -> (Vec<Finding>, Vec<Finding>) {
    let mut findings = Vec::new();
    reads::credentials(seen, &mut findings);
    expiry::findings(seen.observation, seen.now, &mut findings);
    reads::answers(seen.observation, memory.node.as_ref(), &mut findings);
    let mut about_names = Vec::new();
    let agent = &seen.observation.guest_agent;
    let health = memory.guest_agent.health(seen.now.uptime);
    names::names(seen.identity, seen.observation, &mut about_names);
    about_names.extend(names::deletion(seen.identity, seen.observation, health));
    about_names.retain(|finding| memory.may_report(finding.code));
    findings.append(&mut about_names);
    let last = memory.last_vmi.as_ref();
    names::identity(seen.identity, seen.observation, last, &mut findings);
    findings.extend(sync.finding());
    let left = wanted.labels.left.iter();
    findings.extend(left.filter_map(|left| labels::left(left, seen)));
    if let Some(stand) = &wanted.conflict {
        let (who, key) = (stand.conflict.escape_debug(), &stand.key);
        let text = format!("`{who}` keeps reverting {key}");
        findings.push(Finding::new(Code::LabelConflict, text));
    }
    let refusals = memory.refusals.iter();
    findings.extend(refusals.map(|one| Finding::new(Code::NodeWriteFailed, one.text.clone())));
    if matches!(wanted.doing, Doing::Withheld(_)) {
        let text = "too many updates of the Node were necessary; the next one is sent within 30 s";
        findings.push(Finding::new(Code::TopologyFlapping, text));
    }
    labels::static_labels(seen, &mut findings);
    let host = seen.identity.vmi().map(|vmi| &vmi.guest_agent);
    findings.extend(guest_agent::findings(agent, host, health));
    let is_unread = |api| seen.observation.read_failure(api).is_some();
    let is_explained = |finding: &Finding| match finding.code {
        // An object that cannot be read cannot be watched either.
        Code::WatchUnavailable => finding.api().is_some_and(is_unread),
        // A server that has or had the VM is Harvester's, such as behind a tunnel.
        Code::HarvesterOnLoopback => matches!(
            seen.identity.vm,
            OwnVm::Identified(_) | OwnVm::Remembered(..)
        ),
        _ => false,
    };
    let seen_elsewhere = seen.observation.findings.iter();
    findings.extend(seen_elsewhere.filter(|one| !is_explained(one)).cloned());
    let (mut findings, mut consequences) = split_consequences(findings);
    for findings in [&mut findings, &mut consequences] {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.code.entry().severity));
        findings.dedup();
    }
    (findings, consequences)
}
