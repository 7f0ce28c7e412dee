// SPDX-License-Identifier: Apache-2.0
//! Findings for an unknown region or zone of the host.

use crate::catalog::{Code, Finding};
use crate::decide::Scene;
use crate::decide::label_state::LabelState;
use crate::decide::placement::{Placement, PlacementOutcome};
use crate::facts::UnavailableKind;

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
            .map(|tried| tried.detail.clone())
    };
    match sync {
        LabelState::Invalid => {
            findings.push(Finding::new(
                Code::LabelValueInvalid,
                tried(PlacementOutcome::Invalid).unwrap_or_default(),
            ));
        }
        LabelState::NoSource | LabelState::Stale if placement.trouble.is_some() => {
            let why = placement.trouble.as_ref();
            let code = match why.map(|why| why.kind) {
                Some(UnavailableKind::UnexpectedObject) => Code::UnexpectedObject,
                _ => Code::HarvesterUnreachable,
            };
            let text = why.map(|why| why.text.clone()).unwrap_or_default();
            findings.push(Finding::new(code, text));
        }
        LabelState::Stale => findings.push(Finding::new(
            Code::AnnotationsStale,
            tried(PlacementOutcome::Stale).unwrap_or_default(),
        )),
        LabelState::NoSource => {
            findings.push(Finding::new(Code::NoTopologySource, sources(placement)));
        }
        LabelState::HostWithoutTopology => {
            findings.push(Finding::new(
                Code::HostWithoutTopology,
                format!("host {}", placement.host),
            ));
        }
        _ => {}
    }
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
