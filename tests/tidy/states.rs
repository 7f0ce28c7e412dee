// SPDX-License-Identifier: Apache-2.0
//! The page of the states is what the agent writes: each row has the status of its condition, and its state in reports, which is the
//! code of a finding if something is wrong.

use harvester_node_agent::catalog::{Code, kebab};
use harvester_node_agent::decide::action::DesiredCondition;
use harvester_node_agent::decide::conditions;
use harvester_node_agent::decide::events;
use harvester_node_agent::decide::guest_agent::{self, GuestAgentHealth};
use harvester_node_agent::decide::identity::{Identity, OfflineVm, OwnVm};
use harvester_node_agent::decide::label_state;
use harvester_node_agent::decide::name_match::Verdict;
use harvester_node_agent::facts::names::VmName;
use harvester_node_agent::facts::{Unavailable, UnavailableKind};

use super::read;

/// A state: its reason, and its condition if one is written.
type State = (&'static str, Option<DesiredCondition>);

fn topology() -> Vec<State> {
    let states = label_state::all();
    let states = states.iter();
    states
        .map(|state| (state.reason(), conditions::topology(state)))
        .collect()
}

fn identity() -> Vec<State> {
    let state = |vm, verdict: Verdict| {
        let condition = conditions::identity(&Identity {
            vm,
            evidence: Vec::new(),
            names: Vec::new(),
            verdict,
            expected: None,
        });
        (verdict.reason(), Some(condition))
    };
    let known = || {
        OwnVm::ProvenOffline(OfflineVm {
            name: VmName::parse("vm").unwrap(),
            namespace: None,
            instance_uid: None,
        })
    };
    let unread = || OwnVm::Unknown(Unavailable::new(UnavailableKind::Unreachable, ""));
    let verdicts = Verdict::ALL.iter().copied();
    let verdicts = verdicts.map(|verdict| match verdict {
        Verdict::Unknown => state(unread(), verdict),
        Verdict::Ambiguous => state(OwnVm::Ambiguous(Vec::new()), verdict),
        Verdict::NotFound => state(OwnVm::NotFound(String::new()), verdict),
        _ => state(known(), verdict),
    });
    verdicts.collect()
}

fn guest_agent() -> Vec<State> {
    let all = GuestAgentHealth::ALL.iter();
    all.map(|health| (health.reason(), guest_agent::condition(*health)))
        .collect()
}

#[test]
fn each_row_has_the_condition_and_the_state_and_the_event_is_the_same_word() {
    // Nothing is wrong, or it is over soon, or another finding says why it is not known.
    let without_finding = [
        "Synced",
        "Pending",
        "HarvesterNotRead",
        "NamesMatch",
        "NamesMatchExceptCaseOrDomain",
        "VmUnknown",
        "Healthy",
        "Changing",
        "StateUnknown",
    ];
    let page = read("packaging/docs/pages/harvester-node-agent-states.7.md");
    for (heading, states) in [
        (conditions::TOPOLOGY, topology()),
        (conditions::IDENTITY, identity()),
        (guest_agent::CONDITION, guest_agent()),
    ] {
        let (_, table) = page.split_once(&format!("\n### {heading}\n")).unwrap();
        for (reason, condition) in states {
            let status = condition.as_ref().map_or("not written", |one| one.status);
            let state = kebab(reason);
            let row = format!("| `{reason}` | {status} | `{state}` |");
            assert!(table.lines().any(|line| line == row), "no row {row}");
            let is_code = Code::parse(&state).is_some();
            assert_ne!(is_code, without_finding.contains(&reason), "{reason}");
            if let Some(condition) = condition {
                assert_eq!(condition.reason, reason);
                let is_same = events::reason(&condition) == reason;
                assert_eq!(is_same, status != "True", "{reason}");
            }
        }
    }
}
