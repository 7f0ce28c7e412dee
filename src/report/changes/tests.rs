// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::*;
use crate::catalog::{Code, Finding, Group};
use crate::decide::Refusal;
use crate::decide::fast_poll::WindowOutcome::{ApiUnavailable, Confirmed, Unconfirmed};
use crate::decide::fixtures::{World, host, planned_event};
use crate::decide::name_match::Verdict;
use crate::decide::scheduled_events::{ScheduledEvent, ScheduledEventState};
use crate::facts::clock::ClockStep;
use crate::facts::names::HostName;
use crate::facts::topology::{LabelValue, ZONE};
use crate::report::compose::Context;
use crate::report::journal::MESSAGE_LIMIT;
use crate::report::message_id::tests::catalog;
use crate::report::problem::Problem;
use crate::report::tests::round;

/// Returns the status of a node without names, on this host, with these findings.
fn status(host: &str, findings: &[(&str, Severity, &str)]) -> Status {
    let mut status = Status::new(&round(&World::new(), &[]), &Context::default());
    host.clone_into(&mut status.placement.as_mut().unwrap().host);
    let findings = findings.iter().map(|(code, severity, seen)| Problem {
        severity: *severity,
        observed: (*seen).to_owned(),
        ..Problem::of(Code::parse(code).unwrap().entry())
    });
    (status.identity.names, status.findings) = (Vec::new(), findings.collect());
    status
}

/// Returns a round with the findings of a status, in which nothing else happened.
fn quiet(status: &Status) -> Round {
    let findings = status.findings.iter();
    let findings = findings.map(|finding| Finding::new(finding.code, finding.observed.as_str()));
    let mut round = round(&World::new(), &[]);
    round.plan.findings = findings.collect();
    let actions = &mut round.plan.actions;
    actions.retain(|action| matches!(action, Action::PatchNode(_)));
    round
}

/// Writes these labels to the Node, so long after the trigger.
fn label(round: &mut Round, labels: &BTreeMap<String, Option<LabelValue>>, latency: Duration) {
    for action in &mut round.plan.actions {
        if let Action::PatchNode(patch) = action {
            patch.labels.clone_from(labels);
        }
    }
    round.results = vec![Ok(())];
    round.now.uptime = round.reasons.at + latency;
}

fn judged(kind: NameKind, name: &str, verdict: Verdict) -> JudgedName {
    let name = name.to_owned();
    JudgedName {
        kind,
        name,
        verdict,
    }
}

/// Reports a status, with its findings.
fn news(reported: &mut Reported, status: &Status) -> Vec<Record> {
    reported.news(status, &quiet(status), ClockSteps::default())
}

/// What a record says, to whom, and with which fields.
fn shown(record: &Record) -> String {
    let mut kinds = catalog().into_iter();
    let kind = kinds.find(|kind| Some(kind.id) == record.message_id);
    let milliseconds = |field: Option<u64>| field.map(|field| format!("{field} ms"));
    let fields = [
        ("subject", kind.map(|kind| kind.subject.to_owned())),
        ("impact", record.impact.clone()),
        ("vm", record.vm.clone()),
        ("previous host", record.previous_host.clone()),
        ("host", record.host.clone()),
        ("zone", record.zone.clone()),
        ("trigger", record.trigger.clone()),
        ("latency", milliseconds(record.latency_ms)),
        ("interruption", milliseconds(record.interruption_ms)),
    ];
    let fields = fields.into_iter();
    let fields = fields.filter_map(|(name, value)| Some(format!("    {name}: {}\n", value?)));
    record.text(false) + &fields.collect::<String>()
}

/// The entries of a sequence of rounds are in `expected.txt`.
#[test]
fn each_change_is_reported_once_with_the_expected_entry() {
    let mut text = String::new();
    let mut reports = |what: &str, records: Vec<Record>| {
        text += &format!("# {what}\n");
        text.extend(records.iter().map(shown));
    };
    let differs = |seen| status("hv-a", &[("hostname-differs", Severity::Warning, seen)]);
    let here = status("hv-a", &[]);
    let mut reported = Reported::default();
    reports("the first round", news(&mut reported, &differs("x")));
    reports("the same", news(&mut reported, &differs("x")));
    reports("another observation", news(&mut reported, &differs("y")));
    reports("none", news(&mut reported, &here));
    let mut away = here.clone();
    away.placement = None;
    reports("no host", news(&mut reported, &away));
    let hint = reported.hint(Trigger::Link);
    reports("a hint, with the last host and its zone", vec![hint]);

    let named = |hostname: &str, verdict, node: &str| {
        let mut status = here.clone();
        status.identity.names = vec![
            judged(NameKind::KernelHostname, hostname, verdict),
            judged(NameKind::NodeName, node, Verdict::Match),
        ];
        status
    };
    let right = named("vm-1", Verdict::Match, "vm-1");
    let wrong = named("localhost", Verdict::Differs, "vm-2");
    reports("the first names", news(&mut reported, &right));
    reports("another hostname", news(&mut reported, &wrong));
    reports("the same hostname", news(&mut reported, &wrong));

    let there = status("hv-b", &[]);
    let mut round = quiet(&there);
    let labels = [(ZONE.to_owned(), LabelValue::parse("rack-b").ok())];
    label(&mut round, &labels.into(), Duration::from_millis(12));
    let [from, to, at] = ["hv-a", "hv-b", "now"].map(str::to_owned);
    round.plan.moved = Some(Migration { from, to, at });
    let migrated = reported.news(&there, &round, ClockSteps::default());
    reports("a migration, and its labels", migrated);

    let mut round = quiet(&here);
    let [own, later] = ["a migration, with its own entry", "a hint later than that"];
    for (what, trigger, outcome, reads) in [
        ("a hint for nothing", Trigger::Link, Unconfirmed, 11),
        ("no answer", Trigger::Port, ApiUnavailable, 11),
        (own, Trigger::Link, Confirmed, 11),
        (later, Trigger::Link, Confirmed, 0),
    ] {
        round.plan.window_end = Some(WindowEnd {
            trigger,
            outcome,
            from: Some(host("hv-a")),
            took: Duration::from_secs(60),
            reads,
        });
        let ended = reported.news(&here, &round, ClockSteps::default());
        reports(what, ended);
    }

    let mut reported = Reported::default();
    let mut round = quiet(&here);
    round.plan.interruption = Some(Duration::from_millis(89));
    for (what, count) in [
        ("a clock that was set before", 1),
        ("a clock that is set", 2),
        ("no other step", 2),
    ] {
        let last = Some(ClockStep(-150_000_000));
        let clock = ClockSteps { count, last };
        reports(what, reported.news(&here, &round, clock));
    }

    let held = ["zone", "region"].map(|seen| ("pinned-by-config", Severity::Warning, seen));
    let held = status("hv-a", &held);
    reports("two of one code", news(&mut reported, &held));
    reports("both again", news(&mut reported, &held));
    let unreachable = ("harvester-unreachable", Severity::Warning, "timeout");
    let mut away = status("hv-a", &[unreachable]);
    away.placement = None;
    reports("what cannot be seen stays", news(&mut reported, &away));
    away.findings[0].observed = "connection refused".to_owned();
    reports("another text of one error", news(&mut reported, &away));
    reports("it can be seen again", news(&mut reported, &held));

    let source =
        |name, text: &str| Finding::new(Code::EventSourceUnavailable, text).of_source(name);
    let [clock, again] = ["denied", "denied again"].map(|text| source("clock", text));
    let link = source("link", "no socket");
    let watch = |group, text: &str| Finding::new(Code::WatchUnavailable, text).about(group);
    let of_harvester = watch(Group::HarvesterApi, "reset");
    let of_guest = watch(Group::Node, "overloaded");
    let mut reported = Reported::default();
    for (what, findings) in [
        ("one source", vec![&clock]),
        ("another text of its error", vec![&again]),
        ("another source", vec![&again, &link]),
        ("the first source works", vec![&link]),
        ("the other source works, one API", vec![&of_harvester]),
        ("another API", vec![&of_harvester, &of_guest]),
        ("the first API works", vec![&of_guest]),
    ] {
        let mut round = quiet(&here);
        round.plan.findings = findings.into_iter().cloned().collect();
        let records = reported.news(&here, &round, ClockSteps::default());
        reports(what, records);
    }
    let file = "src/report/changes/expected.txt";
    harvester_lab::expected::is_expected(file, &text, str::to_owned);
}

/// The longest names that Kubernetes and Linux accept, and an issue as long as the error of a library may be.
#[test]
fn every_message_is_what_and_where_in_one_line_of_at_most_160_characters() {
    let host = "h".repeat(253);
    let long = "an error of a library with\nall its causes: ".repeat(40);
    let mut reported = Reported::default();
    let mut first = status(&host, &[]);
    let long_name = |letter: &str| {
        let (kind, verdict) = (NameKind::StaticHostname, Verdict::MatchExceptCaseOrDomain);
        vec![judged(kind, &letter.repeat(64), verdict)]
    };
    first.identity.names = long_name("n");
    let mut records = news(&mut reported, &first);
    records
        .extend([Trigger::Link, Trigger::Port, Trigger::Operator].map(|hint| reported.hint(hint)));
    let labels = ["region", "zone", "host"].map(|key| {
        let key = format!("failure-domain.beta.kubernetes.io/{key}");
        (key, LabelValue::parse(&"v".repeat(63)).ok())
    });
    let from = "o".repeat(253);
    let (to, at) = (host.clone(), String::new());
    let moved = Migration {
        from: from.clone(),
        to,
        at,
    };
    let ends = [Unconfirmed, ApiUnavailable].map(|outcome| WindowEnd {
        trigger: Trigger::Port,
        outcome,
        from: HostName::parse(&from).ok(),
        took: Duration::from_secs(86_400),
        reads: usize::MAX,
    });
    let unreachable = ("harvester-unreachable", Severity::Error, long.as_str());
    let mut next = status(&host, &[unreachable]);
    let vm = next.identity.vm.as_mut().unwrap();
    (vm.name, vm.namespace) = (host.clone(), Some("n".repeat(63)));
    next.identity.names = long_name("m");
    next.labels.node = Some(host.clone());
    let states = ScheduledEventState::ALL.iter();
    let scheduled = states.map(|state| ScheduledEvent {
        state: *state,
        host: Some(host.clone()),
        target_host: Some(from.clone()),
        message: Some(long.clone()),
        ..planned_event()
    });
    let (count, last) = (1, Some(ClockStep(-99_999_999_150_000_000)));
    let clock = ClockSteps { count, last };
    let mut round = quiet(&next);
    label(&mut round, &labels.into(), Duration::from_millis(u64::MAX));
    (round.plan.moved, round.plan.scheduled) = (Some(moved), scheduled.collect());
    let unit = Action::StartUnit("qemu-guest-agent.service".to_owned());
    round.plan.actions.push(unit);
    let refused = Refusal {
        passing: false,
        ..Refusal::passing(long.as_str())
    };
    for window_end in ends {
        round.plan.window_end = Some(window_end);
        for result in [Ok(()), Err(refused.clone())] {
            round.results = vec![Ok(()), result];
            records.extend(reported.clone().news(&next, &round, clock));
        }
    }
    news(&mut reported, &next);
    records.extend(news(&mut reported, &first));

    let elsewhere = [
        message_id::STARTED,
        message_id::STOPPED,
        message_id::RELOADED,
        message_id::CONFIGURATION_REFUSED,
        message_id::RECORDS_LOST,
    ];
    for kind in catalog() {
        let mut here = records.iter().filter_map(|record| record.message_id);
        let is_here = here.any(|id| id == kind.id);
        assert!(is_here || elsewhere.contains(&kind.id), "{}", kind.subject);
    }
    let mut longest = 0;
    for record in records {
        // `journalctl -x` must not say of a unit that did not start that it was started.
        let is_failed = record.priority == Priority::Warning;
        match record.message_id {
            Some(message_id::UNIT_STARTED) => assert!(!is_failed, "{record:?}"),
            Some(message_id::UNIT_NOT_STARTED) => assert!(is_failed, "{record:?}"),
            _ => {}
        }
        let message = record.short_message();
        longest = longest.max(message.chars().count());
        assert!(!message.ends_with('.'), "{message}");
    }
    assert_eq!(longest, MESSAGE_LIMIT, "too long, or none is shortened");
}
