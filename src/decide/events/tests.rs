// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::catalog::{Api, Group, Severity};
use crate::decide::fixtures::World;
use crate::decide::{Action, Plan};
use crate::facts::Fact;

const MINUTE: Duration = Duration::from_secs(60);

/// The errors and warnings without any Event, and the reason for it.
const WITHOUT: [(Code, &str); 1] = [(
    Code::WatchUnavailable,
    "the agent opens it again; polls continue",
)];

/// The reasons and notes of Events.
fn shown(drafts: &[EventDraft]) -> Vec<(&str, &str)> {
    let shown = drafts.iter();
    shown
        .map(|draft| (draft.reason, draft.note.as_str()))
        .collect()
}

/// The Events that a plan sends without a change of the Node.
fn sent(plan: &Plan) -> Vec<&'static str> {
    let events = plan.actions.iter().filter_map(|action| match action {
        Action::SendEvents(events) => Some(&events.announce),
        _ => None,
    });
    events.flatten().map(|draft| draft.reason).collect()
}

#[test]
fn each_code_has_the_channel_of_its_severity() {
    let states = label_state::all();
    let labels = states.iter().filter_map(conditions::topology);
    let health = GuestAgentHealth::ALL.iter();
    let health = health.filter_map(|health| guest_agent::condition(*health));
    let reasons = labels.chain(health).filter_map(|wanted| wanted.finding);
    let verdicts = Verdict::ALL.iter().filter_map(|verdict| verdict.code());
    let reasons: Vec<Code> = reasons.chain(verdicts).collect();
    for code in Code::ALL {
        let is_on_node = code.entry().severity > Severity::Notice;
        let is_without = WITHOUT.iter().any(|(without, _)| without == code);
        let expected = is_on_node && !is_without && !reasons.contains(code);
        assert_eq!(has_own_event(*code), expected, "{code}");
    }
}

#[test]
fn a_finding_that_comes_and_goes_has_one_event_an_hour() {
    let mut announced = Announced::default();
    let exposed = |file: &str| vec![Finding::new(Code::CredentialExposed, file)];
    let count = |announced: &mut Announced, findings: &[Finding], minutes: u32| {
        announced.news(findings, false, MINUTE * minutes).len()
    };
    assert_eq!(count(&mut announced, &exposed("a"), 0), 1);
    for minute in 1..60 {
        let findings = if minute % 2 == 0 {
            exposed("a")
        } else {
            Vec::new()
        };
        assert_eq!(count(&mut announced, &findings, minute), 0, "{minute}");
    }
    assert_eq!(count(&mut announced, &exposed("a"), 60), 1);
    assert_eq!(count(&mut announced, &exposed("a"), 200), 0, "it is known");
    assert_eq!(count(&mut announced, &exposed("b"), 201), 1);
    // Another observation waits, and is not lost.
    assert_eq!(count(&mut announced, &exposed("c"), 202), 0);
    assert_eq!(count(&mut announced, &exposed("c"), 261), 1);
}

#[test]
fn an_error_text_that_differs_is_no_news_and_an_unread_host_resolves_nothing() {
    let mut announced = Announced::default();
    let first = [
        Finding::new(Code::EventSourceUnavailable, "no bus").of_source("dbus"),
        Finding::new(Code::ProviderIdDiffers, "x"),
    ];
    let drafts = announced.news(&first, false, Duration::ZERO);
    let expected = [
        (
            "ProviderIdDiffers",
            "providerID of the Node belongs to a different VM: x",
        ),
        (
            "EventSourceUnavailable",
            "event source is inactive; changes are detected late: no bus",
        ),
    ];
    assert_eq!(shown(&drafts), expected);
    let later = [Finding::new(Code::EventSourceUnavailable, "timeout").of_source("dbus")];
    assert_eq!(announced.news(&later, true, MINUTE * 100), []);
    assert_eq!(announced.news(&first, false, MINUTE * 200), []);
    // One source may fail while another does.
    let other = [Finding::new(Code::EventSourceUnavailable, "no bus").of_source("files")];
    assert_eq!(announced.news(&other, false, MINUTE * 201).len(), 1);
}

#[test]
fn after_a_restart_the_same_finding_has_the_same_event() {
    let name = |code, seen: &[&str], api| {
        let findings = seen.iter().map(|seen| Finding::new(code, *seen));
        let findings = findings.map(|one| one.about(Group::of_credential(api)));
        let findings: Vec<Finding> = findings.collect();
        let drafts = Announced::default().news(&findings, false, Duration::ZERO);
        assert_eq!(drafts.len(), 1);
        drafts[0].name.clone().unwrap()
    };
    let exposed = |seen: &[&str], api| name(Code::CredentialExposed, seen, api);
    let first = exposed(&["a", "b"], Api::Harvester);
    assert!(first.starts_with("credentialexposed."), "{first}");
    assert_eq!(first, exposed(&["a", "b"], Api::Harvester));
    assert_ne!(first, exposed(&["a"], Api::Harvester));
    assert_ne!(first, exposed(&["a", "b"], Api::Guest));
    assert_ne!(
        exposed(&["eth0"], Api::Guest),
        exposed(&["eth1"], Api::Guest)
    );
    let expires = |seen| name(Code::CredentialExpires, &[seen], Api::Guest);
    assert_eq!(expires("in 3 days"), expires("in 2 days"));
    let lost = |seen| name(Code::EventSourceUnavailable, &[seen], Api::Guest);
    assert_eq!(lost("no bus"), lost("timeout"));
}

#[test]
fn a_new_warning_is_sent_once_by_the_daemon_about_its_own_node() {
    let mut world = World::settled();
    // The second one is a notice, and the clock explains the third one.
    world.observation.findings = [
        Code::CredentialExposed,
        Code::StateDiscarded,
        Code::CredentialExpires,
        Code::ClockSkew,
    ]
    .map(|code| Finding::new(code, "x"))
    .to_vec();
    let quiet = |change: &dyn Fn(&mut World)| {
        let mut world = world.clone();
        change(&mut world);
        sent(&world.plan())
    };
    assert!(quiet(&|world| world.is_daemon = false).is_empty());
    assert!(quiet(&|world| world.settings.report.events = false).is_empty());
    assert!(quiet(&|world| world.observation.node = Fact::Absent).is_empty());
    let plan = world.plan();
    assert_eq!(sent(&plan), ["CredentialExposed", "ClockSkew"]);
    world.apply(&plan);
    assert!(sent(&world.plan()).is_empty());
}

#[test]
fn an_event_that_was_not_sent_because_of_too_many_writes_is_sent_later() {
    let mut world = World::settled();
    while world.memory.report_writes.left(world.uptime).is_none() {
        world.memory.report_writes.note(world.uptime);
    }
    world.observation.findings = vec![Finding::new(Code::CredentialExposed, "a")];
    let plan = world.plan();
    assert!(sent(&plan).is_empty());
    world.apply(&plan);
    world.uptime += MINUTE;
    assert_eq!(sent(&world.plan()), ["CredentialExposed"]);
}
