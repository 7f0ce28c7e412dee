// SPDX-License-Identifier: Apache-2.0
//! Findings for issues outside the main reads: exposed credentials, invalid files, event sources that do not work.

use crate::catalog::{Code, Finding, Group};
use crate::facts::observation::{Api, Observation, ObservationIssue};
use crate::sys::escape::shell_word;

/// Returns the findings for all issues, except those that a failed read explains: if an object cannot be read, it cannot be
/// watched either.
pub(super) fn findings(observation: &Observation) -> impl Iterator<Item = Finding> {
    let explained = |issue: &&ObservationIssue| match issue {
        ObservationIssue::WatchUnavailable { api, .. } => match api {
            Api::Harvester => observation.candidates.why().is_some(),
            Api::Guest => observation.node.why().is_some(),
        },
        _ => false,
    };
    observation
        .issues
        .iter()
        .filter(move |issue| !explained(issue))
        .map(finding)
}

/// Returns the group for findings about the credential of an API.
fn credential_group(api: Api) -> Group {
    match api {
        Api::Guest => Group::KubeletCredential,
        Api::Harvester => Group::HarvesterCredential,
    }
}

/// Returns the group for findings about a watch of an API.
fn group(api: Api) -> Group {
    match api {
        Api::Harvester => Group::HarvesterApi,
        Api::Guest => Group::Node,
    }
}

/// Returns the text that shows how to allow a metrics port for the unit.
fn allow_port(port: u16) -> String {
    format!(
        "allow the port with a drop-in: systemctl edit harvester-node-agent, lines [Service] and SocketBindAllow=tcp:{port}; \
         then systemctl restart harvester-node-agent. Or set [metrics] listen to a socket in /run/harvester-node-agent, which \
         needs no drop-in"
    )
}

/// Converts an issue to a finding.
fn finding(issue: &ObservationIssue) -> Finding {
    match issue {
        ObservationIssue::CredentialExposed { api, path, mode } => {
            let path = path.display();
            Finding::new(
                Code::CredentialExposed,
                format!("{path} has mode {mode:04o}"),
            )
            .with_commands(vec![format!(
                "chmod 0600 {}",
                shell_word(&path.to_string())
            )])
            .about(credential_group(*api))
        }
        ObservationIssue::CredentialChangeable {
            api,
            place,
            problem,
        } => {
            let place = shell_word(&place.to_string_lossy());
            Finding::new(Code::CredentialWritableByOthers, problem.clone())
                .with_commands(vec![
                    format!("chown -h root:root {place}"),
                    format!("chmod go-w {place}"),
                ])
                .about(credential_group(*api))
        }
        ObservationIssue::CredentialKept { api, problem } => {
            let text = format!("{}: {problem}", api.credential());
            Finding::new(Code::CredentialReloadFailed, text).about(credential_group(*api))
        }
        ObservationIssue::HarvesterOnLoopback { server } => {
            Finding::new(Code::HarvesterOnLoopback, server.clone())
        }
        ObservationIssue::DistributionFile { problem } => {
            Finding::new(Code::DistributionFileBroken, problem.clone())
        }
        ObservationIssue::ConfigurationKept { faults } => {
            Finding::new(Code::ConfigReloadFailed, faults.clone())
        }
        ObservationIssue::StateDiscarded { why } => Finding::new(Code::StateDiscarded, why.clone()),
        ObservationIssue::WatchUnavailable { what, api } => {
            let finding = Finding::new(Code::WatchUnavailable, what.clone()).about(group(*api));
            match api {
                Api::Harvester => finding,
                // Our roles do not control what a kubelet may watch.
                Api::Guest => finding
                    .with_remedy("Check the journal of the API server: it may be overloaded, or a proxy in front of it closes connections.")
                    .with_commands(vec!["harvester-node-agent status -v".to_owned()]),
            }
        }
        ObservationIssue::WatchInterrupted { what, api } => {
            Finding::new(Code::WatchInterrupted, what.clone()).about(group(*api))
        }
        ObservationIssue::NoWatchProgress { what, api } => {
            Finding::new(Code::WatchProgressMissing, what.clone()).about(group(*api))
        }
        ObservationIssue::SignalUnavailable { source, what } => {
            Finding::new(Code::SignalUnavailable, what.clone()).of_source(source)
        }
        ObservationIssue::MetricsUnavailable {
            source,
            what,
            forbidden,
        } => {
            let finding = Finding::new(Code::MetricsUnavailable, what.clone()).of_source(source);
            match forbidden {
                Some(port) => finding
                    .with_remedy(allow_port(*port))
                    .with_commands(vec!["systemctl edit harvester-node-agent".to_owned()]),
                None => finding,
            }
        }
        ObservationIssue::FilesNotRead { what } => Finding::new(Code::FileNotRead, what.clone()),
        ObservationIssue::FilesNotWritten { what } => {
            Finding::new(Code::FileNotWritten, what.clone())
        }
        ObservationIssue::HooksFailed { what } => Finding::new(Code::HookFailed, what.clone()),
        ObservationIssue::UnexpectedObject { what } => {
            Finding::new(Code::UnexpectedObject, what.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_the_unit_denies_is_allowed_by_a_drop_in() {
        let issue = |forbidden| {
            finding(&ObservationIssue::MetricsUnavailable {
                source: "http",
                what: "failed to listen".to_owned(),
                forbidden,
            })
        };
        let denied = issue(Some(9879));
        assert!(denied.remedy().contains("SocketBindAllow=tcp:9879"));
        assert!(!issue(None).remedy().contains("SocketBindAllow"));
    }
}
