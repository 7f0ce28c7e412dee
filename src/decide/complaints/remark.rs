// SPDX-License-Identifier: Apache-2.0
//! The side remarks of an observation, as findings.

use crate::facts::who::Remark;
use crate::findings::{Code, Finding};

/// The finding that a remark becomes.
pub(super) fn finding(remark: &Remark) -> Finding {
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
        Remark::WatchUnavailable { what } => Finding::new(Code::WatchUnavailable, what.clone()),
        Remark::SignalUnavailable { what } => Finding::new(Code::SignalUnavailable, what.clone()),
        Remark::WrongObject { what } => Finding::new(Code::WrongObject, what.clone()),
    }
}
