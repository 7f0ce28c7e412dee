// SPDX-License-Identifier: Apache-2.0
//! The side remarks of an observation, as findings.

use crate::catalogue::{Code, Finding, Group};
use crate::facts::observation::{Api, Remark, Who};
use crate::sys::escape::shell_word;

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

/// Where what is wrong with a credential belongs.
fn credential_group(side: &str) -> Group {
    match side {
        "kubelet" => Group::KubeletCredential,
        _ => Group::HarvesterCredential,
    }
}

/// Where what is wrong with a watch belongs.
fn group(api: Api) -> Group {
    match api {
        Api::Harvester => Group::HarvesterApi,
        Api::Guest => Group::Node,
    }
}

/// Returns how to allow the unit a port for metrics.
fn allow_port(port: u16) -> String {
    format!(
        "allow the port with a drop-in: systemctl edit harvester-node-agent, lines [Service] and SocketBindAllow=tcp:{port}; \
         then systemctl restart harvester-node-agent. Or set [metrics] listen to a socket in /run/harvester-node-agent, which \
         needs no drop-in"
    )
}

/// The finding that a remark becomes.
fn finding(remark: &Remark) -> Finding {
    match remark {
        Remark::CredentialExposed { side, path, mode } => {
            let path = path.display();
            Finding::new(
                Code::CredentialExposed,
                format!("{path} has mode {mode:04o}"),
            )
            .with_remedy(format!("chmod 0600 {path}"))
            .with_commands(vec![format!(
                "chmod 0600 {}",
                shell_word(&path.to_string())
            )])
            .about(credential_group(side))
        }
        Remark::CredentialChangeable {
            side,
            place,
            problem,
        } => {
            let place = shell_word(&place.to_string_lossy());
            Finding::new(Code::CredentialWritableByOthers, problem.clone())
                .with_commands(vec![
                    format!("chown -h root:root {place}"),
                    format!("chmod go-w {place}"),
                ])
                .about(credential_group(side))
        }
        Remark::CredentialKept { side, problem } => {
            let text = format!("{side}: {problem}");
            Finding::new(Code::CredentialReloadFailed, text).about(credential_group(side))
        }
        Remark::HarvesterOnLoopback { server } => {
            Finding::new(Code::HarvesterOnLoopback, server.clone())
        }
        Remark::DistributionFile { problem, .. } => {
            Finding::new(Code::DistributionFileBroken, problem.clone())
        }
        Remark::ConfigurationKept { faults } => {
            Finding::new(Code::ConfigReloadFailed, faults.clone())
        }
        Remark::StateDiscarded { why } => Finding::new(Code::StateDiscarded, why.clone()),
        Remark::WatchUnavailable { what, api } => {
            let finding = Finding::new(Code::WatchUnavailable, what.clone()).about(group(*api));
            match api {
                Api::Harvester => finding,
                // What a kubelet may watch is no matter of our roles.
                Api::Guest => finding
                    .with_remedy("Check the journal of the API server: it may be overloaded, or a proxy in front of it closes connections.")
                    .with_commands(vec!["harvester-node-agent status".to_owned()]),
            }
        }
        Remark::WatchInterrupted { what, api } => {
            Finding::new(Code::WatchInterrupted, what.clone()).about(group(*api))
        }
        Remark::SignalUnavailable { what } => Finding::new(Code::SignalUnavailable, what.clone()),
        Remark::MetricsUnavailable { what, forbidden } => {
            let finding = Finding::new(Code::MetricsUnavailable, what.clone());
            match forbidden {
                Some(port) => finding
                    .with_remedy(allow_port(*port))
                    .with_commands(vec!["systemctl edit harvester-node-agent".to_owned()]),
                None => finding,
            }
        }
        Remark::UnexpectedObject { what } => Finding::new(Code::UnexpectedObject, what.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_the_unit_denies_is_allowed_by_a_drop_in() {
        let remark = |forbidden| {
            finding(&Remark::MetricsUnavailable {
                what: "failed to listen".to_owned(),
                forbidden,
            })
        };
        let denied = remark(Some(9879));
        assert!(denied.remedy().contains("SocketBindAllow=tcp:9879"));
        assert!(!remark(None).remedy().contains("SocketBindAllow"));
    }
}
