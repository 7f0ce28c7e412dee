// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::*;
use crate::catalog::Group;
use crate::decide::Refusal;
use crate::decide::fixtures::World;
use crate::decide::name_match::Verdict;
use crate::decide::scheduled_events::{
    ScheduledEvent, ScheduledEventReason, ScheduledEventState, ScheduledEventType,
};
use crate::facts::clock::ClockStep;
use crate::facts::names::HostName;
use crate::facts::topology::{LabelValue, ZONE};
use crate::report::compose::Context;
use crate::report::journal::MESSAGE_LIMIT;
use crate::report::problem::Problem;
use crate::report::status::{IdentityStatus, PlacementStatus, VmStatus};
use crate::report::tests::round;

/// Returns the status of a node without names, on this host, with these findings.
fn status(host: &str, findings: &[(&str, Severity, &str)]) -> Status {
    let status = Status::new(&round(&World::new(), &[]), &Context::default());
    let placement = status.placement.map(|placement| PlacementStatus {
        host: host.to_owned(),
        ..placement
    });
    let findings = findings.iter().map(|(code, severity, seen)| Problem {
        severity: *severity,
        observed: (*seen).to_owned(),
        ..Problem::of(Code::parse(code).unwrap().entry())
    });
    Status {
        identity: IdentityStatus {
            names: Vec::new(),
            ..status.identity
        },
        placement,
        findings: findings.collect(),
        ..status
    }
}

/// Returns a round with the findings of a status, in which nothing else happened.
fn quiet(status: &Status) -> Round {
    let findings = status.findings.iter();
    let findings = findings.map(|finding| Finding::new(finding.code, finding.observed.as_str()));
    let mut round = round(&World::new(), &[]);
    round.plan.findings = findings.collect();
    let is_patch = |action: &Action| matches!(action, Action::PatchNode(_));
    round.plan.actions.retain(is_patch);
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

/// Reports a status, with its findings.
fn news(reported: &mut Reported, status: &Status) -> Vec<Record> {
    reported.news(status, &quiet(status), ClockSteps::default())
}

fn ids(records: &[Record]) -> Vec<&str> {
    records
        .iter()
        .filter_map(|record| record.message_id)
        .collect()
}

#[test]
fn a_state_that_stays_is_reported_once() {
    let mut reported = Reported::default();
    let found = status("hv-a", &[("hostname-differs", Severity::Warning, "x")]);
    let first = news(&mut reported, &found);
    assert_eq!(ids(&first), [message_id::IDENTIFIED, message_id::FINDING]);
    assert_eq!(first[1].priority, Priority::Warning);
    assert_eq!(first[1].finding.as_deref(), Some("hostname-differs"));
    let entry = Code::HostnameDiffers.entry();
    let fix = first[1].fix.as_deref().unwrap_or_default();
    assert!(fix.contains(entry.fix[0]), "{fix}");
    assert_eq!(first[1].message, format!("{}: x", entry.title));
    assert_eq!(first[1].impact.as_deref(), Some(entry.impact));
    assert!(news(&mut reported, &found).is_empty());
}

#[test]
fn a_round_without_a_host_keeps_the_last_one_with_its_zone() {
    let mut reported = Reported::default();
    let mut status = status("hv-a", &[]);
    news(&mut reported, &status);
    status.placement = None;
    news(&mut reported, &status);
    let kept = (reported.host.as_deref(), reported.zone.as_deref());
    assert_eq!(kept, (Some("hv-a"), Some("rack-a")));
}

#[test]
fn a_finding_that_changes_is_reported_again_and_one_that_goes_is_resolved() {
    let mut reported = Reported::default();
    news(
        &mut reported,
        &status("hv-a", &[("hostname-differs", Severity::Warning, "x")]),
    );
    let changed = news(
        &mut reported,
        &status("hv-a", &[("hostname-differs", Severity::Warning, "y")]),
    );
    assert_eq!(
        (ids(&changed), changed[0].priority),
        (vec![message_id::FINDING], Priority::Warning)
    );
    let resolved = news(&mut reported, &status("hv-a", &[]));
    assert_eq!(
        (ids(&resolved), resolved[0].priority),
        (vec![message_id::RESOLVED], Priority::Notice)
    );
}

#[test]
fn a_migration_is_reported_with_both_hosts_and_its_labels_with_the_latency() {
    let mut reported = Reported::default();
    news(&mut reported, &status("hv-a", &[]));
    let there = status("hv-b", &[]);
    let mut round = quiet(&there);
    let labels = [(ZONE.to_owned(), LabelValue::parse("rack-b").ok())];
    label(&mut round, &labels.into(), Duration::from_millis(12));
    let [from, to, at] = ["hv-a", "hv-b", "now"].map(str::to_owned);
    round.plan.moved = Some(Migration { from, to, at });
    let news = reported.news(&there, &round, ClockSteps::default());
    assert_eq!(ids(&news), [message_id::MIGRATED, message_id::LABELED]);
    assert_eq!(
        (news[0].previous_host.as_deref(), news[0].host.as_deref()),
        (Some("hv-a"), Some("hv-b"))
    );
    assert_eq!(news[1].latency_ms, Some(12));
}

#[test]
fn a_new_name_is_reported_once_with_the_old_one_and_none_at_the_first_report() {
    let named = |names: &[(NameKind, &str, Verdict)]| {
        let mut status = status("hv-a", &[]);
        status.identity.names = names
            .iter()
            .map(|(kind, name, verdict)| JudgedName {
                kind: *kind,
                name: (*name).to_owned(),
                verdict: *verdict,
            })
            .collect();
        status
    };
    let mut reported = Reported::default();
    let right = named(&[
        (NameKind::KernelHostname, "vm-1", Verdict::Match),
        (NameKind::NodeName, "vm-1", Verdict::Match),
    ]);
    let first = news(&mut reported, &right);
    assert_eq!(ids(&first), [message_id::IDENTIFIED]);
    let wrong = named(&[
        (NameKind::KernelHostname, "localhost", Verdict::Differs),
        (NameKind::NodeName, "vm-2", Verdict::Match),
    ]);
    let renamed = news(&mut reported, &wrong);
    assert_eq!(ids(&renamed), [message_id::RENAMED]);
    assert_eq!(
        renamed[0].message,
        "hostname changed from `vm-1` to `localhost`: differs"
    );
    assert!(news(&mut reported, &wrong).is_empty());
}

#[test]
fn a_clock_that_was_set_is_reported_once_by_how_much() {
    let mut reported = Reported::default();
    let there = status("hv-a", &[]);
    let mut round = quiet(&there);
    round.plan.interruption = Some(Duration::from_millis(89));
    let mut after = |count| {
        let clock = ClockSteps {
            count,
            last: Some(ClockStep(-150_000_000)),
        };
        reported.news(&there, &round, clock)
    };
    // Steps before the first report are not reported.
    assert_eq!(ids(&after(1)), [message_id::IDENTIFIED]);
    let records = after(2);
    let [record] = records.as_slice() else {
        panic!("{records:?}")
    };
    assert_eq!(record.message, "wall clock set by -0.150 s");
    assert_eq!(record.interruption_ms, Some(89));
    assert!(after(2).is_empty());
}

#[test]
fn a_hint_is_reported_at_once_and_its_end_only_where_nothing_else_reports_it() {
    let end = |trigger, outcome| WindowEnd {
        trigger,
        outcome,
        from: Some(crate::decide::fixtures::host("hv-a")),
        took: Duration::from_secs(60),
        reads: 11,
    };
    let mut reported = Reported::default();
    let there = status("hv-a", &[]);
    news(&mut reported, &there);
    let hint = reported.hint(Trigger::Link);
    assert_eq!(hint.message_id, Some(message_id::SIGN));
    assert!(hint.message.contains("GUEST_ANNOUNCE"));
    assert_eq!(hint.host.as_deref(), Some("hv-a"));
    let mut round = quiet(&there);
    let mut ended = |window_end: &WindowEnd| {
        round.plan.window_end = Some(window_end.clone());
        reported.news(&there, &round, ClockSteps::default())
    };
    let news = ended(&end(Trigger::Link, WindowOutcome::Unconfirmed));
    assert_eq!(
        (ids(&news), news[0].priority),
        (vec![message_id::UNCONFIRMED], Priority::Info)
    );
    assert!(
        news[0]
            .message
            .contains("still on hv-a 60s after hint link (11 reads)")
    );
    assert_eq!(news[0].trigger.as_deref(), Some("link"));
    let news = ended(&end(Trigger::Port, WindowOutcome::ApiUnavailable));
    assert_eq!(news[0].priority, Priority::Warning);
    let [from, to] = ["hv-a", "hv-b"].map(crate::decide::fixtures::host);
    let mut confirmed = end(Trigger::Link, WindowOutcome::Confirmed { from, to });
    assert!(ended(&confirmed).is_empty());
    // The entry of the migration was earlier than that of the hint.
    confirmed.reads = 0;
    let news = ended(&confirmed);
    assert_eq!(
        (news[0].message.as_str(), news[0].message_id),
        (
            "hint link belongs to the live migration to hv-b that is already reported",
            None
        )
    );
}

#[test]
fn what_cannot_be_looked_at_is_neither_new_nor_gone() {
    let mut reported = Reported::default();
    let held = [
        ("pinned-by-config", Severity::Warning, "zone"),
        ("pinned-by-config", Severity::Warning, "region"),
    ];
    assert_eq!(news(&mut reported, &status("hv-a", &held)).len(), 3);
    assert!(
        news(&mut reported, &status("hv-a", &held)).is_empty(),
        "two of one code stay told"
    );
    let mut away = status(
        "hv-a",
        &[("harvester-unreachable", Severity::Warning, "timeout")],
    );
    away.placement = None;
    assert_eq!(ids(&news(&mut reported, &away)), [message_id::FINDING]);
    away.findings[0].observed = "connection refused".to_owned();
    assert!(
        news(&mut reported, &away).is_empty(),
        "another text of one trouble"
    );
    let back = news(&mut reported, &status("hv-a", &held));
    assert_eq!(
        (ids(&back), back[0].finding.as_deref()),
        (vec![message_id::RESOLVED], Some("harvester-unreachable"))
    );
}

#[test]
fn a_second_source_or_api_of_one_code_is_reported_and_resolved_on_its_own() {
    let there = status("hv-a", &[]);
    let mut reported = Reported::default();
    news(&mut reported, &there);
    let mut round = quiet(&there);
    let mut messages = |findings: &[&Finding]| {
        round.plan.findings = findings.iter().copied().cloned().collect();
        let records = reported.news(&there, &round, ClockSteps::default());
        let records = records.into_iter();
        records.map(|record| record.message).collect::<Vec<_>>()
    };
    let source = |name, text: &str| Finding::new(Code::SignalUnavailable, text).of_source(name);
    let [clock, again] = ["denied", "denied again"].map(|text| source("clock", text));
    let link = source("link", "no socket");
    let watch = |group, text: &str| Finding::new(Code::WatchUnavailable, text).about(group);
    let of_harvester = watch(Group::HarvesterApi, "reset");
    let of_guest = watch(Group::Node, "overloaded");

    assert_eq!(messages(&[&clock]).len(), 1);
    assert!(
        messages(&[&again])[..].is_empty(),
        "another text of one error"
    );
    let news = messages(&[&again, &link]);
    assert!(news[0].ends_with("no socket"), "{news:?}");
    assert_eq!(messages(&[&link]), ["resolved: signal-unavailable (clock)"]);
    assert_eq!(messages(&[]), ["resolved: signal-unavailable (link)"]);

    assert_eq!(messages(&[&of_harvester]).len(), 1);
    let news = messages(&[&of_harvester, &of_guest]);
    assert!(news[0].ends_with("overloaded"), "{news:?}");
    let news = messages(&[&of_guest]);
    assert_eq!(news, ["resolved: watch-unavailable (harvester)"]);
}

/// The longest names that Kubernetes and Linux accept, and an issue as long as the error of a library may be.
#[test]
fn every_message_is_what_and_where_in_one_line_of_at_most_160_characters() {
    let (host, name) = ("h".repeat(253), "n".repeat(64));
    let long = "an error of a library with\nall its causes: ".repeat(40);
    let mut reported = Reported::default();
    let mut first = status(&host, &[]);
    first.identity.names = vec![JudgedName {
        kind: NameKind::StaticHostname,
        name: name.clone(),
        verdict: Verdict::MatchExceptCaseOrDomain,
    }];
    let mut records = news(&mut reported, &first);
    for hint in [Trigger::Link, Trigger::Port, Trigger::Operator] {
        records.push(reported.hint(hint));
    }
    let keys =
        ["region", "zone", "host"].map(|key| format!("failure-domain.beta.kubernetes.io/{key}"));
    let labels = keys.map(|key| (key, LabelValue::parse(&"v".repeat(63)).ok()));
    let from = "o".repeat(253);
    let moved = Migration {
        from: from.clone(),
        to: host.clone(),
        at: String::new(),
    };
    let ends =
        [WindowOutcome::Unconfirmed, WindowOutcome::ApiUnavailable].map(|outcome| WindowEnd {
            trigger: Trigger::Port,
            outcome,
            from: HostName::parse(&from).ok(),
            took: Duration::from_secs(86_400),
            reads: usize::MAX,
        });
    let mut next = status(
        &host,
        &[("harvester-unreachable", Severity::Error, long.as_str())],
    );
    next.identity.vm = Some(VmStatus {
        name: host.clone(),
        namespace: Some("n".repeat(63)),
        uid: None,
        instance_uid: None,
    });
    next.identity.names = first.identity.names.clone();
    next.identity.names[0].name = "m".repeat(64);
    next.labels.node = Some(host.clone());
    let scheduled: Vec<ScheduledEvent> = ScheduledEventState::ALL
        .iter()
        .map(|state| ScheduledEvent {
            id: "i".repeat(36),
            time: String::new(),
            state: *state,
            kind: ScheduledEventType::LiveMigration,
            reason: ScheduledEventReason::MigrationRequested,
            source: String::new(),
            host: Some(host.clone()),
            target_host: Some(from.clone()),
            start_time: None,
            deadline: None,
            message: Some(long.clone()),
        })
        .collect();
    let clock = ClockSteps {
        count: 1,
        last: Some(ClockStep(-99_999_999_150_000_000)),
    };
    let mut round = quiet(&next);
    label(&mut round, &labels.into(), Duration::from_millis(u64::MAX));
    round.plan.moved = Some(moved);
    round.plan.scheduled = scheduled;
    let unit = Action::StartUnit("qemu-guest-agent.service".to_owned());
    round.plan.actions.push(unit);
    let refused = Refusal {
        text: long.clone(),
        passing: false,
        retry_after: None,
        is_deferred: false,
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

    // `journalctl -x` must not say of a unit that did not start that it was started.
    let is_start = |record: &&Record| {
        let id = record.message_id.unwrap_or_default();
        [message_id::UNIT_STARTED, message_id::UNIT_NOT_STARTED].contains(&id)
    };
    for record in records.iter().filter(is_start) {
        let is_failed = record.priority == Priority::Warning;
        let id = record.message_id.unwrap_or_default();
        assert_eq!(id == message_id::UNIT_NOT_STARTED, is_failed, "{record:?}");
    }

    let kinds: BTreeSet<&str> = ids(&records).into_iter().collect();
    let elsewhere = [
        message_id::STARTED,
        message_id::STOPPED,
        message_id::RELOADED,
        message_id::CONFIGURATION_REFUSED,
        message_id::RECORDS_LOST,
    ];
    for kind in message_id::ALL {
        let is_here = kinds.contains(kind.id) || elsewhere.contains(&kind.id);
        assert!(is_here, "no message for {}", kind.subject);
    }
    let mut longest = 0;
    for record in records {
        let message = record.short_message();
        longest = longest.max(message.chars().count());
        assert!(message.chars().count() <= MESSAGE_LIMIT, "{message}");
        assert!(!message.ends_with('.'), "{message}");
    }
    assert_eq!(
        longest, MESSAGE_LIMIT,
        "nothing was long enough to be shortened"
    );
}
