// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use super::*;
use crate::catalog::{Group, Severity};
use crate::decide::events;
use crate::decide::fixtures::World;
use crate::decide::guest_agent::{self, GuestAgentHealth};
use crate::decide::identity::OfflineVm;
use crate::decide::label_state;
use crate::facts::names::VmName;
use crate::facts::node::{Node, NodeCondition};
use crate::facts::{Unavailable, UnavailableKind};
use crate::sys::document::json::Text;

/// The names of a machine with this verdict; its VM is known or not.
fn names(verdict: Verdict, is_known: bool) -> Identity {
    let vm = match is_known {
        true => OwnVm::ProvenOffline(OfflineVm {
            name: VmName::parse("pool1-abcde").unwrap(),
            namespace: None,
            instance_uid: None,
        }),
        false => OwnVm::Unknown(Unavailable::new(UnavailableKind::Unreachable, "timeout")),
    };
    Identity {
        vm,
        evidence: Vec::new(),
        names: Vec::new(),
        verdict,
        expected: None,
    }
}

/// The conditions of all states.
fn all() -> Vec<DesiredCondition> {
    let labels = label_state::all();
    let verdicts = Verdict::ALL.iter();
    let verdicts = verdicts.map(|verdict| identity(&names(*verdict, true)));
    let health = GuestAgentHealth::ALL.iter();
    let health = health.filter_map(|health| guest_agent::condition(*health));
    let all = labels.iter().filter_map(topology).chain(verdicts);
    all.chain(health).collect()
}

/// A Node whose condition has this status for another reason, or that does not have it.
fn node(kind: &str, status: Option<&str>) -> Node {
    let mut world = World::new();
    let condition = status.map(|status| NodeCondition {
        kind: Text(kind.to_owned()),
        status: Text(status.to_owned()),
        reason: Some(Text("Before".to_owned())),
        message: None,
    });
    world.node().conditions.extend(condition);
    world.node().clone()
}

#[test]
fn an_error_or_a_warning_is_on_the_node_and_a_notice_is_not() {
    let before = [None, Some("True"), Some("False"), Some("Unknown")];
    let mut seen = BTreeSet::new();
    for wanted in all() {
        let severity = wanted.finding.map(|code| code.entry().severity);
        let is_true = wanted.status == "True";
        let (is_on_node, expected) = match severity {
            Some(Severity::Error | Severity::Warning) => {
                let again = (wanted.status == "False").then_some("Warning");
                (
                    true,
                    [Some("Warning"), Some("Warning"), Some("Warning"), again],
                )
            }
            Some(Severity::Notice) => (false, [None, None, Some("Normal"), Some("Normal")]),
            None if is_true => (false, [None, None, Some("Normal"), Some("Normal")]),
            // Another finding explains why it is not known.
            None => (true, [None; 4]),
        };
        assert_eq!(!is_true, is_on_node, "{wanted:?}");
        let events = before.map(|status| {
            let event = events::transition(&wanted, &node(wanted.kind, status))?;
            // One word: that of the condition, unless nothing is wrong any more.
            assert_eq!(event.reason == wanted.reason, !is_true, "{event:?}");
            Some(event.kind)
        });
        assert_eq!(events, expected, "{wanted:?}");
        seen.insert(severity);
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// The errors that are no state of a condition, and why. `doctor` alone detects what the agent does not look for.
const ELSEWHERE: [(Code, &str); 12] = [
    (Code::NotKubevirt, "the agent does not run"),
    (Code::NodeUninitialized, "doctor"),
    (Code::RancherTokenRejected, "doctor"),
    (Code::ServerIsHarvesterUi, "doctor"),
    (Code::ServerIsRancher, "doctor"),
    (Code::CredentialNamespaceDiffers, "doctor"),
    (
        Code::HarvesterCredentialExpired,
        "its condition is that of HarvesterUnauthorized, which it suppresses; it has an Event",
    ),
    (
        Code::KubeletCredentialExpired,
        "the credential that would write it has expired",
    ),
    (
        Code::NodeMayBeDeleted,
        "its cause is the condition QemuGuestAgentReady; it has an Event",
    ),
    (Code::ServerNotInCertificate, "doctor"),
    (Code::ConfigInvalid, "the agent is idle"),
    (Code::ClockSkew, "doctor"),
];

#[test]
fn every_error_of_the_agent_has_its_condition() {
    let shown: Vec<Code> = all().iter().filter_map(|wanted| wanted.finding).collect();
    for code in Code::ALL {
        let entry = code.entry();
        if entry.severity == Severity::Error {
            // `bake-check` alone detects those of an image.
            let is_elsewhere = ELSEWHERE.iter().any(|(elsewhere, _)| elsewhere == code)
                || entry.group == Group::Image;
            assert_eq!(shown.contains(code), !is_elsewhere, "{code}");
        }
    }
}

#[test]
fn names_are_verified_only_against_a_vm_that_is_known() {
    for (verdict, is_known, status, reason) in [
        (Verdict::Match, true, "True", "NamesMatch"),
        (
            Verdict::MatchExceptCaseOrDomain,
            true,
            "True",
            "NamesMatchExceptCaseOrDomain",
        ),
        (Verdict::Match, false, "Unknown", "VmUnknown"),
        (Verdict::Differs, false, "False", "HostnameDiffers"),
        (Verdict::PlatformHostname, true, "False", "HostnameDiffers"),
        (
            Verdict::ConfiguredOverride,
            true,
            "True",
            "ConfiguredOverride",
        ),
        (Verdict::Unknown, false, "Unknown", "VmUnknown"),
        (Verdict::Unknown, true, "Unknown", "VmUnknown"),
    ] {
        let wanted = identity(&names(verdict, is_known));
        assert_eq!((wanted.status, wanted.reason), (status, reason));
    }
}
