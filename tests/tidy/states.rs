// SPDX-License-Identifier: Apache-2.0
//! The page of the states is what the agent writes: each row has the status of its condition, and its state in reports, which is the
//! code of a finding if something is wrong.

use harvester_node_agent::catalog::{Code, kebab};
use harvester_node_agent::decide::action::DesiredCondition;
use harvester_node_agent::decide::conditions;
use harvester_node_agent::decide::guest_agent::{self, GuestAgentHealth};
use harvester_node_agent::decide::identity::{Identity, OfflineVm, OwnVm};
use harvester_node_agent::decide::label_state;
use harvester_node_agent::decide::name_match::Verdict;
use harvester_node_agent::facts::names::VmName;
use harvester_node_agent::facts::{Unavailable, UnavailableKind};

use super::read;
use super::reference::{is_complete, rows};

/// A state: its reason, and its condition if one is written.
type State = (&'static str, Option<DesiredCondition>);

/// Reasons that are no finding: nothing is wrong, it is over soon, or another finding says why it is not known.
const WITHOUT_FINDING: &str = "Synced Pending HarvesterNotRead NamesMatch NamesMatchExceptCaseOrDomain VmUnknown Healthy Changing StateUnknown";

fn identity(verdict: Verdict) -> State {
    let vm = match verdict {
        Verdict::Unknown => OwnVm::Unknown(Unavailable::new(UnavailableKind::Unreachable, "")),
        Verdict::Ambiguous => OwnVm::Ambiguous(Vec::new()),
        Verdict::NotFound => OwnVm::NotFound(String::new()),
        _ => OwnVm::ProvenOffline(OfflineVm {
            name: VmName::parse("vm").unwrap(),
            namespace: None,
            instance_uid: None,
        }),
    };
    let condition = conditions::identity(&Identity {
        vm,
        evidence: Vec::new(),
        names: Vec::new(),
        verdict,
        expected: None,
    });
    (verdict.reason(), Some(condition))
}

#[test]
fn the_page_draws_what_the_agent_does_as_the_code_does_and_names_each_state() {
    let page = read("packaging/docs/pages/harvester-node-agent-states.7.md");
    let code = read("src/decide/doing.rs");
    let (_, drawing) = code.split_once("```text\n").unwrap();
    let (drawing, _) = drawing.split_once("//! ```").unwrap();
    assert!(page.contains(&drawing.replace("//! ", "    ")), "{drawing}");
    let (_, states) = code.split_once("pub enum Doing {").unwrap();
    let (states, _) = states.split_once("\n}").unwrap();
    let states = states.lines().map(str::trim_start);
    let states = states.filter(|line| line.starts_with(char::is_uppercase));
    let names: Vec<_> = states
        .filter_map(|line| line.split(['(', ',']).next())
        .collect();
    assert_eq!(names.len(), 9, "{names:?}");
    for name in names {
        assert!(page.contains(name), "{name}");
    }
}

#[test]
fn each_state_has_one_row_with_its_condition_and_its_finding() {
    let topology = label_state::all().into_iter();
    let topology = topology.map(|state| (state.reason(), conditions::topology(&state)));
    let identity = Verdict::ALL.iter().map(|verdict| identity(*verdict));
    let health = GuestAgentHealth::ALL.iter();
    let health = health.map(|health| (health.reason(), guest_agent::condition(*health)));
    let tables: [(&str, Vec<State>); 3] = [
        (conditions::TOPOLOGY, topology.collect()),
        (conditions::IDENTITY, identity.collect()),
        (guest_agent::CONDITION, health.collect()),
    ];
    let page = read("packaging/docs/pages/harvester-node-agent-states.7.md");
    for (heading, states) in tables {
        let reasons = states.iter().map(|(reason, _)| *reason);
        is_complete(reasons, rows("states", heading));
        for (reason, condition) in states {
            let status = condition.as_ref().map_or("not written", |one| one.status);
            let state = kebab(reason);
            let row = format!("| `{reason}` | {status} | `{state}` |");
            assert!(page.lines().any(|line| line == row), "no row {row}");
            let is_code = Code::parse(&state).is_some();
            let is_expected = !WITHOUT_FINDING.split(' ').any(|one| one == reason);
            assert_eq!(is_code, is_expected, "{reason}");
            if let Some(condition) = condition {
                assert_eq!(condition.reason, reason);
                assert_eq!(condition.finding, Code::parse(&state), "{reason}");
            }
        }
    }
}
