// SPDX-License-Identifier: Apache-2.0
//! Findings for credentials that cannot be used, and for failed requests to the two APIs.

use super::rbac::vmi_rbac;
use crate::catalog::{Code, Finding};
use crate::decide::Scene;
use crate::facts::observation::Observation;
use crate::facts::placement::Source;
use crate::facts::{self, Unavailable, UnavailableKind};

/// Adds findings for credentials that cannot be used.
pub(super) fn credentials(seen: Scene<'_>, findings: &mut Vec<Finding>) {
    let observation = seen.observation;
    if let facts::Fact::Failed(why) = &observation.harvester {
        let code = match why.kind {
            UnavailableKind::Missing if needs_no_credential(seen) => None,
            UnavailableKind::Missing => Some(Code::HarvesterCredentialMissing),
            UnavailableKind::OwnApi => Some(Code::HarvesterIsOwnApi),
            _ => Some(Code::HarvesterCredentialInvalid),
        };
        findings.extend(code.map(|code| Finding::new(code, why.text.clone())));
    }
    if let facts::Fact::Failed(why) = &observation.kubelet {
        let code = match why.kind {
            UnavailableKind::Missing => Code::KubeletCredentialMissing,
            _ => Code::KubeletCredentialInvalid,
        };
        findings.push(Finding::new(code, why.text.clone()));
    }
}

/// Reports whether the host reports its name and our configuration has its topology. A credential is not needed then.
fn needs_no_credential(seen: Scene<'_>) -> bool {
    let known = seen
        .placement
        .and_then(|placement| placement.known.as_ref());
    known.is_some_and(|known| known.source == Source::HostsTable)
}

/// Adds findings for failed requests to the two APIs.
pub(super) fn answers(observation: &Observation, findings: &mut Vec<Finding>) {
    if let (facts::Fact::Known(_), Some(why)) =
        (&observation.harvester, observation.candidates.why())
    {
        let code = match why.kind {
            UnavailableKind::Unreachable => Some(Code::HarvesterUnreachable),
            UnavailableKind::Credential => Some(Code::HarvesterUnauthorized),
            UnavailableKind::Forbidden => Some(Code::HarvesterForbidden),
            UnavailableKind::Tls => Some(Code::HarvesterTlsError),
            UnavailableKind::Refused | UnavailableKind::Malformed => {
                Some(Code::HarvesterBadResponse)
            }
            UnavailableKind::UnexpectedObject => Some(Code::UnexpectedObject),
            UnavailableKind::NotAsked
            | UnavailableKind::Missing
            | UnavailableKind::OwnApi
            | UnavailableKind::AnotherMachine
            | UnavailableKind::AnotherNode => None,
        };
        let finding = code.map(|code| Finding::new(code, why.text.clone()));
        findings.extend(finding.map(|finding| match finding.code {
            Code::HarvesterForbidden => finding.with_steps(vmi_rbac(observation)),
            _ => finding,
        }));
    }
    // A skipped read is not an error.
    if let Some(why) = observation
        .host_metrics
        .why()
        .filter(|why| why.kind != UnavailableKind::NotAsked)
    {
        findings.push(Finding::new(
            Code::DownwardMetricsUnusable,
            why.text.clone(),
        ));
    }
    if let (Some(kubelet), facts::Fact::Absent) = (observation.kubelet.known(), &observation.node) {
        findings.push(Finding::new(
            Code::NodeMissing,
            format!("no Node `{}` at {}", kubelet.node_name, kubelet.server),
        ));
    }
    if let (facts::Fact::Known(_), Some(Unavailable { kind, text, .. })) =
        (&observation.kubelet, observation.node.why())
    {
        let code = match kind {
            UnavailableKind::Unreachable => Some(Code::GuestApiUnreachable),
            UnavailableKind::Credential => Some(Code::GuestApiUnauthorized),
            UnavailableKind::Forbidden => Some(Code::GuestApiForbidden),
            UnavailableKind::Tls => Some(Code::GuestApiTlsError),
            UnavailableKind::Refused | UnavailableKind::Malformed => {
                Some(Code::GuestApiBadResponse)
            }
            UnavailableKind::UnexpectedObject => Some(Code::UnexpectedObject),
            UnavailableKind::AnotherMachine => Some(Code::NodeOfAnotherVm),
            UnavailableKind::AnotherNode => Some(Code::NodeMissing),
            UnavailableKind::NotAsked | UnavailableKind::Missing | UnavailableKind::OwnApi => None,
        };
        findings.extend(code.map(|code| Finding::new(code, text.clone())));
    }
}
