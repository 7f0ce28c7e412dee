// SPDX-License-Identifier: Apache-2.0
//! Credentials that cannot be used, and answers of the two APIs that tell nothing.

use super::rights::vmi_rbac;
use crate::catalogue::{Code, Finding};
use crate::decide::Seen;
use crate::facts::observation::Who;
use crate::facts::placement::Source;
use crate::facts::{self, Why, WhyKind};

/// Credentials that cannot be used.
pub(super) fn credentials(seen: Seen<'_>, findings: &mut Vec<Finding>) {
    let who = seen.who;
    if let facts::Seen::Failed(why) = &who.harvester {
        let code = match why.kind {
            WhyKind::Missing if needs_no_credential(seen) => None,
            WhyKind::Missing => Some(Code::HarvesterCredentialMissing),
            WhyKind::OwnApi => Some(Code::HarvesterIsOwnApi),
            _ => Some(Code::HarvesterCredentialInvalid),
        };
        findings.extend(code.map(|code| Finding::new(code, why.text.clone())));
    }
    if let facts::Seen::Failed(why) = &who.kubelet {
        let code = match why.kind {
            WhyKind::Missing => Code::KubeletCredentialMissing,
            _ => Code::KubeletCredentialInvalid,
        };
        findings.push(Finding::new(code, why.text.clone()));
    }
}

/// Whether the host tells its name and our configuration its place, as it is meant to be without a credential.
fn needs_no_credential(seen: Seen<'_>) -> bool {
    let known = seen
        .placement
        .and_then(|placement| placement.known.as_ref());
    known.is_some_and(|known| known.source == Source::HostsTable)
}

/// Failed answers of the two APIs.
pub(super) fn answers(who: &Who, findings: &mut Vec<Finding>) {
    if let (facts::Seen::Known(_), Some(why)) = (&who.harvester, who.candidates.why()) {
        let code = match why.kind {
            WhyKind::Unreachable => Some(Code::HarvesterUnreachable),
            WhyKind::Credential => Some(Code::HarvesterUnauthorized),
            WhyKind::Forbidden => Some(Code::HarvesterForbidden),
            WhyKind::Tls => Some(Code::HarvesterTlsError),
            WhyKind::Refused | WhyKind::Malformed => Some(Code::HarvesterBadResponse),
            WhyKind::UnexpectedObject => Some(Code::UnexpectedObject),
            WhyKind::NotAsked | WhyKind::Missing | WhyKind::OwnApi | WhyKind::AnotherMachine => {
                None
            }
        };
        let finding = code.map(|code| Finding::new(code, why.text.clone()));
        findings.extend(finding.map(|finding| match finding.code {
            Code::HarvesterForbidden => finding.with_steps(vmi_rbac(who)),
            _ => finding,
        }));
    }
    // What was not needed was not asked.
    if let Some(why) = who
        .host_metrics
        .why()
        .filter(|why| why.kind != WhyKind::NotAsked)
    {
        findings.push(Finding::new(
            Code::DownwardMetricsUnusable,
            why.text.clone(),
        ));
    }
    if let (Some(kubelet), facts::Seen::Absent) = (who.kubelet.known(), &who.node) {
        findings.push(Finding::new(
            Code::NodeMissing,
            format!("no Node `{}` at {}", kubelet.node_name, kubelet.server),
        ));
    }
    if let (facts::Seen::Known(_), Some(Why { kind, text, .. })) = (&who.kubelet, who.node.why()) {
        let code = match kind {
            WhyKind::Unreachable => Some(Code::GuestApiUnreachable),
            WhyKind::Credential => Some(Code::GuestApiUnauthorized),
            WhyKind::Forbidden => Some(Code::GuestApiForbidden),
            WhyKind::Tls => Some(Code::GuestApiTlsError),
            WhyKind::Refused | WhyKind::Malformed => Some(Code::GuestApiBadResponse),
            WhyKind::UnexpectedObject => Some(Code::UnexpectedObject),
            WhyKind::AnotherMachine => Some(Code::NodeOfAnotherMachine),
            WhyKind::NotAsked | WhyKind::Missing | WhyKind::OwnApi => None,
        };
        findings.extend(code.map(|code| Finding::new(code, text.clone())));
    }
}
