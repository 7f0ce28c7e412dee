// SPDX-License-Identifier: Apache-2.0
//! The page of the states is what the agent writes: each row has the condition, the Event and the series of its reason, and the
//! findings that explain it.

use harvester_node_agent::catalog::Code;
use harvester_node_agent::decide::conditions::{self, DesiredCondition, kebab};
use harvester_node_agent::decide::events;
use harvester_node_agent::decide::guest_agent::{self, GuestAgentHealth};
use harvester_node_agent::decide::identity::{Identity, OfflineVm, OwnVm};
use harvester_node_agent::decide::label_state::{self, LabelState};
use harvester_node_agent::decide::name_match::Verdict;
use harvester_node_agent::facts::names::VmName;
use harvester_node_agent::facts::{Unavailable, UnavailableKind};

use super::read;

/// A state: its reason, its condition if one is written, and the state of its series.
type State = (&'static str, Option<DesiredCondition>, String);

fn topology() -> Vec<State> {
    let state = |reason| (reason, conditions::topology(&sync(reason)), kebab(reason));
    label_state::REASONS.into_iter().map(state).collect()
}

/// Returns the state of the labels that has this reason.
fn sync(reason: &'static str) -> LabelState {
    let simple = [
        LabelState::Synced,
        LabelState::Pending,
        LabelState::HostWithoutTopology,
        LabelState::Pinned,
        LabelState::Stale,
        LabelState::Partial,
        LabelState::Invalid,
        LabelState::Conflict {
            writer: String::new(),
        },
        LabelState::WriteFailed(String::new()),
        LabelState::AnotherVm,
        LabelState::NoSource,
    ];
    let found = simple.into_iter().find(|sync| sync.reason() == reason);
    let sync = found.unwrap_or(match reason {
        "NodeMissing" | "NodeNotRead" | "NodeOfAnotherVM" => LabelState::NoNode { reason },
        _ => LabelState::NoVm {
            reason,
            text: String::new(),
        },
    });
    assert_eq!(sync.reason(), reason);
    sync
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
        (condition.reason, Some(condition), verdict.name())
    };
    let known = || {
        OwnVm::ProvenOffline(OfflineVm {
            name: VmName::parse("vm").unwrap(),
            namespace: None,
            instance_uid: None,
        })
    };
    let unread = || OwnVm::Unknown(Unavailable::new(UnavailableKind::Unreachable, ""));
    let verdicts = Verdict::ALL.into_iter().map(|verdict| match verdict {
        Verdict::Unknown => state(unread(), verdict),
        Verdict::Ambiguous => state(OwnVm::Ambiguous(Vec::new()), verdict),
        Verdict::NotFound => state(OwnVm::NotFound(String::new()), verdict),
        _ => state(known(), verdict),
    });
    verdicts.collect()
}

fn guest_agent() -> Vec<State> {
    let state = |health: GuestAgentHealth| {
        let condition = guest_agent::condition(health);
        (health.reason(), condition, health.name())
    };
    GuestAgentHealth::ALL.iter().copied().map(state).collect()
}

#[test]
fn each_row_has_the_condition_the_event_the_series_and_the_findings_of_its_state() {
    // A notice: nothing is wrong, but the Node has no topology either.
    let noted = ["HostWithoutTopology"];
    // It is over within seconds, or nothing is known to be wrong.
    let passing = ["Pending", "Changing", "StateUnknown"];
    let page = read("packaging/docs/pages/harvester-node-agent-states.7.md");
    for (condition, series, prefix, states) in [
        (conditions::TOPOLOGY, "topology_state", "", topology()),
        (conditions::IDENTITY, "identity_state", "", identity()),
        (
            guest_agent::CONDITION,
            "qemu_guest_agent_state",
            "guest-agent-",
            guest_agent(),
        ),
    ] {
        let (_, table) = page.split_once(&format!("\n### {condition}\n")).unwrap();
        for (reason, condition, state) in states {
            let status = condition.as_ref().map_or("not written", |one| one.status);
            let event = condition.as_ref().map(events::reason);
            let event = event.map_or(String::new(), |event| format!("`{event}`"));
            let row =
                format!("| `{reason}` | {status} | {event} | `{series}{{state=\"{state}\"}}` |");
            let found = table.lines().find_map(|line| line.strip_prefix(&row));
            let findings = found.unwrap_or_else(|| panic!("no row {row}"));
            let codes: Vec<&str> = findings.split('`').skip(1).step_by(2).collect();
            for code in &codes {
                assert!(Code::parse(code).is_some(), "{reason}: {code}");
            }
            let code = format!("{prefix}{}", kebab(reason));
            let is_code = Code::parse(&code).is_some();
            assert!(!is_code || codes == [code.as_str()], "{reason}: {codes:?}");
            let is_good = status == "True" && !noted.contains(&reason);
            let is_quiet = is_good || passing.contains(&reason);
            assert_eq!(codes.is_empty(), is_quiet, "{reason}: {codes:?}");
        }
    }
}
