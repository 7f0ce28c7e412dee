// SPDX-License-Identifier: Apache-2.0
//! Findings for an unknown region or zone of the host.

use crate::catalog::{Code, Finding};
use crate::decide::failure_code;
use crate::decide::input::Scene;
use crate::decide::label_state::LabelState;
use crate::decide::placement::{Placement, PlacementOutcome};

/// Adds findings for the host of the VM and its topology.
pub(super) fn placement(seen: Scene<'_>, sync: &LabelState, findings: &mut Vec<Finding>) {
    let Some(placement) = seen.placement else {
        if seen.identity.vmi().is_some() {
            findings.push(Finding::new(
                Code::NoTopologySource,
                "status.nodeName of the VMI is empty: the VM is not running",
            ));
        }
        return;
    };
    let tried = |wanted| {
        placement
            .tried
            .iter()
            .find(|tried| tried.outcome == wanted)
            .map_or_else(String::new, |tried| tried.detail.clone())
    };
    let trouble = placement.trouble.as_ref();
    let trouble = trouble.filter(|_| seen.identity.vmi().is_some());
    let text = match (sync.code(), trouble) {
        (Some(code), Some(why)) if code == failure_code::source(why.kind) => why.text.clone(),
        (Some(Code::LabelValueInvalid), _) => tried(PlacementOutcome::Invalid),
        (Some(Code::AnnotationsStale), _) => tried(PlacementOutcome::Stale),
        (Some(Code::NoTopologySource), _) => sources(placement),
        (None, _) if *sync == LabelState::HostWithoutTopology => {
            let text = format!("host {}", placement.host);
            findings.push(Finding::new(Code::HostWithoutTopology, text));
            return;
        }
        _ => return,
    };
    findings.extend(sync.code().map(|code| Finding::new(code, text)));
}

/// Returns the result of each source, in one line.
pub fn sources(placement: &Placement) -> String {
    let texts: Vec<String> = placement
        .tried
        .iter()
        .map(|tried| format!("{}: {}", tried.source, tried.detail))
        .collect();
    format!("host {}; {}", placement.host, texts.join("; "))
}
