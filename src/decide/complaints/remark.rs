// SPDX-License-Identifier: Apache-2.0
//! The side remarks of an observation, as findings.

use crate::facts::who::{Api, Remark, Who};
use crate::findings::{Code, Finding};

/// The findings of all remarks, but for those that a failed reading explains: where the object cannot be read, its watch cannot be
/// kept open either.
pub(super) fn findings(who: &Who) -> impl Iterator<Item = Finding> {
    let explained = |remark: &&Remark| match remark {
        Remark::WatchUnavailable { api, .. } => match api {
            Api::Harvester => who.candidates.why().is_some(),
            Api::Guest => who.node.why().is_some(),
        },
        _ => false,
    };
    who.remarks
        .iter()
        .filter(move |remark| !explained(remark))
        .map(finding)
}

/// The finding that a remark becomes.
fn finding(remark: &Remark) -> Finding {
    match remark {
        Remark::CredentialExposed { path, mode } => {
            let path = path.display();
            Finding::new(
                Code::CredentialExposed,
                format!("{path} has mode {mode:04o}"),
            )
            .with_remedy(format!("chmod 0600 {path}"))
        }
        Remark::CredentialKept { side, problem } => {
            Finding::new(Code::CredentialKept, format!("{side}: {problem}"))
        }
        Remark::HarvesterOnLoopback { server } => {
            Finding::new(Code::HarvesterOnLoopback, server.clone())
        }
        Remark::DistributionFile { problem } => {
            Finding::new(Code::DistributionFileBroken, problem.clone())
        }
        Remark::ConfigurationKept { faults } => {
            Finding::new(Code::ConfigurationKept, faults.clone())
        }
        Remark::StateDiscarded { why } => Finding::new(Code::StateDiscarded, why.clone()),
        Remark::WatchUnavailable { what, .. } => Finding::new(Code::WatchUnavailable, what.clone()),
        Remark::SignalUnavailable { what } => Finding::new(Code::SignalUnavailable, what.clone()),
        Remark::MetricsUnavailable { what } => Finding::new(Code::MetricsUnavailable, what.clone()),
        Remark::WrongObject { what } => Finding::new(Code::WrongObject, what.clone()),
    }
}
