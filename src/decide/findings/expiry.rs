// SPDX-License-Identifier: Apache-2.0
//! Credentials that expire soon or have expired.

use std::path::Path;

use crate::catalog::{Api, Code, Finding, Group};
use crate::decide::input::Now;
use crate::facts::Fact;
use crate::facts::clock::date;
use crate::facts::observation::Observation;

/// Days before expiration from which a credential is reported. The text has the days that are left, so that it changes once a day.
const SOON_DAYS: i64 = 30;

/// The number of seconds in a day.
const DAY: i64 = 86_400;

/// The clock skew in seconds that is ignored. A server may also accept a credential for this long after it expires.
const LENIENCE: i64 = 60;

/// The expiration state of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Expired, as text: `expired at ...`.
    Over(String),
    /// Expires soon, as text: `expires at ..., in ... days`.
    Near(String),
}

/// Returns the expiration state if it is to be reported. `end` and `now` are in seconds since 1970.
pub fn reported(end: i64, now: i64) -> Option<End> {
    let left = end.saturating_sub(now);
    let date = date(end);
    if left <= 0 {
        return Some(End::Over(format!("expired at {date}")));
    }
    let left = match left / DAY {
        SOON_DAYS.. => return None,
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    Some(End::Near(format!("expires at {date}, in {left}")))
}

/// Adds the findings for the Harvester token and the kubelet certificate.
pub(super) fn findings(observation: &Observation, now: Now, findings: &mut Vec<Finding>) {
    let harvester = observation.harvester.known().map(|harvester| Life {
        api: Api::Harvester,
        what: "Harvester token",
        file: &harvester.kubeconfig,
        server: &harvester.server,
        end: harvester.expires,
        is_taken: observation.candidates.known().is_some(),
    });
    let kubelet = observation.kubelet.known().map(|kubelet| Life {
        api: Api::Guest,
        what: match kubelet.account {
            Some(_) => "token for the guest cluster",
            None => "kubelet client certificate",
        },
        file: &kubelet.kubeconfig,
        server: &kubelet.server,
        end: kubelet.expires,
        is_taken: matches!(observation.node, Fact::Known(_) | Fact::Absent),
    });
    let lives = [harvester, kubelet].into_iter().flatten();
    findings.extend(lives.filter_map(|life| finding(&life, now)));
}

/// A credential and its expiration.
struct Life<'a> {
    api: Api,
    what: &'static str,
    file: &'a Path,
    server: &'a str,
    end: Option<i64>,
    /// Whether the server accepts the credential.
    is_taken: bool,
}

fn finding(life: &Life<'_>, now: Now) -> Option<Finding> {
    let now = now.wall.unix_timestamp();
    let end = life.end?;
    let Life {
        what, file, server, ..
    } = life;
    let file = file.display();
    match reported(end, now)? {
        End::Near(ends) => {
            let text = format!("{file}: {what} {ends}");
            let finding = Finding::new(Code::CredentialExpires, text);
            let finding = finding.about(Group::of_credential(life.api));
            Some(match life.api {
                Api::Harvester => {
                    let expired = Code::HarvesterCredentialExpired.entry();
                    let steps = expired.fix.iter().map(|step| (*step).to_owned());
                    let finding = finding.with_steps(steps.collect());
                    finding.with_all_commands(expired.commands.to_vec())
                }
                Api::Guest => finding.with_remedy(
                    "Before it expires, restart rke2-server, rke2-agent, k3s or k3s-agent, one server at a time: the kubelet gets a new certificate. With kubeadm, the kubelet renews it \
                     automatically; restart it if it did not.",
                ),
            })
        }
        End::Over(ended) if !life.is_taken => {
            let code = match life.api {
                Api::Harvester => Code::HarvesterCredentialExpired,
                Api::Guest => Code::KubeletCredentialExpired,
            };
            Some(Finding::new(code, format!("{file}: {what} {ended}")))
        }
        // The server accepts the credential, so its clock differs from ours.
        End::Over(ended) if now.saturating_sub(end) > LENIENCE => {
            let text = format!(
                "by the clock of this node, the {what} in {file} {ended}, but {server} accepts it"
            );
            Some(Finding::new(Code::ClockDrift, text))
        }
        End::Over(_) => None,
    }
}
