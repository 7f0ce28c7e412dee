// SPDX-License-Identifier: Apache-2.0
use harvester_lab::expected::cases_are_expected;

use super::*;
use crate::facts::UnavailableKind;
use crate::facts::guest_agent::UNITS;

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_secs(1000);
const CONNECTED: Option<&HostView> = Some(&HostView::Connected);
const DISCONNECTED: Option<&HostView> = Some(&HostView::Disconnected);

fn unknown<T>() -> Fact<T> {
    Fact::failed(UnavailableKind::Unreachable, "no answer")
}

/// Returns a guest agent that runs on Debian, unless these words say otherwise.
fn agent(words: &str) -> GuestAgent {
    let mut unit = Unit {
        name: UNITS[0].to_owned(),
        state: UnitState::Active,
        enablement: Enablement::Static,
        shown: "running, static".to_owned(),
        restarts: Some(0),
    };
    let mut agent = GuestAgent {
        unit: Fact::Known(unit.clone()),
        has_channel: true,
        family: Family::Debian,
        is_requested: false,
    };
    let mut no_unit = None;
    for word in words.split_whitespace() {
        match word {
            "running" => {}
            "changing" => unit.state = UnitState::Changing,
            "restarting" => unit.state = UnitState::Restarting,
            "inactive" => unit.state = UnitState::Inactive,
            "failed" => unit.state = UnitState::Failed,
            "disabled" => unit.enablement = Enablement::Disabled,
            "masked" => unit.enablement = Enablement::Masked,
            "template" => unit.name = UNITS[1].to_owned(),
            "absent" => no_unit = Some(Fact::Absent),
            "unknown" => no_unit = Some(unknown()),
            "no-channel" => agent.has_channel = false,
            "requested" => agent.is_requested = true,
            "red-hat" => agent.family = Family::RedHat,
            "suse" => agent.family = Family::Suse,
            _ => {
                assert_eq!(word, "other");
                agent.family = Family::Other;
            }
        }
    }
    agent.unit = no_unit.unwrap_or(Fact::Known(unit));
    agent
}

/// The file has states of the guest agent, and after a comma the view of the host: what it reports counts where the unit runs or is not
/// known. Below are the health after a minute, the condition, and the finding with its remedy and commands.
#[test]
fn each_cause_has_its_health_its_condition_and_its_remedy() {
    cases_are_expected("src/decide/guest_agent/cases.txt", |case| {
        let (words, host) = case.split_once(", ").unwrap_or((case, ""));
        let host = match host {
            "connected" => Some(HostView::Connected),
            "disconnected" => Some(HostView::Disconnected),
            "" => None,
            why => Some(HostView::NotSupported(why.to_owned())),
        };
        let (seen, host) = (Fact::Known(agent(words)), host.as_ref());
        let mut memory = Memory::default();
        memory.note(&seen, host, NOW - LASTS);
        memory.note(&seen, host, NOW);
        let health = memory.health(NOW);
        let condition = condition(health).map(|one| (one.status, one.reason));
        let mut text = format!("{health:?}, {condition:?}\n");
        for finding in findings(&seen, host, health) {
            text += &format!("{}: {}\n{}\n", finding.code, finding.seen, finding.remedy());
            let commands = finding.commands().iter();
            text.extend(commands.map(|command| format!("$ {}\n", command.text)));
        }
        text
    });
    let health = Memory::default().health(NOW);
    assert_eq!(
        health,
        GuestAgentHealth::Unknown,
        "before the first observation"
    );
}

#[test]
fn a_state_that_may_pass_leaves_the_condition_for_a_minute_and_is_then_told() {
    let refused = HostView::NotSupported(String::new());
    let mut memory = Memory::default();
    // A live migration: KubeVirt calls it unsupported, then it is not connected, and unsupported again.
    let refused = Some(&refused);
    for (host, at) in [(refused, 0), (DISCONNECTED, 20), (refused, 40)] {
        let now = NOW + at * SECOND;
        memory.note(&Fact::Known(agent("")), host, now);
        assert_eq!(memory.condition(now), None);
        assert_eq!(memory.wait_to_tell(now), Some(LASTS - at * SECOND));
    }
    let now = NOW + LASTS;
    assert_eq!(memory.condition(now).unwrap().status, "False");
    assert_eq!(memory.wait_to_tell(now), None);
}

#[test]
fn a_state_that_may_pass_counts_after_a_minute() {
    let refused = HostView::NotSupported(String::new());
    for (host, expected) in [
        (DISCONNECTED, GuestAgentHealth::NotConnected),
        (Some(&refused), GuestAgentHealth::NotSupported),
    ] {
        let mut memory = Memory::default();
        let mut health = |host, at| {
            memory.note(&Fact::Known(agent("")), host, at);
            memory.health(at)
        };
        for (host, seconds, expected) in [
            (host, 0, GuestAgentHealth::Healthy),
            // A live migration disconnects it for some seconds.
            (CONNECTED, 5, GuestAgentHealth::Healthy),
            (host, 90, GuestAgentHealth::Healthy),
            (host, 149, GuestAgentHealth::Healthy),
            (host, 150, expected),
            // Harvester is not read: nothing is known of the host.
            (None, 151, GuestAgentHealth::Healthy),
        ] {
            assert_eq!(health(host, NOW + seconds * SECOND), expected, "{seconds}");
        }
    }
    let mut memory = Memory::default();
    memory.note(&unknown(), None, NOW);
    assert_eq!(memory.condition(NOW + 59 * SECOND), None);
    let condition = memory.condition(NOW + 60 * SECOND).unwrap();
    let found = (condition.status, condition.reason);
    assert_eq!(found, ("Unknown", "StateUnknown"));
    assert_eq!(findings(&unknown(), None, memory.health(NOW)), []);
}

#[test]
fn a_restart_between_two_readings_counts_for_ten_minutes_and_a_number_that_was_there_does_not() {
    let mut memory = Memory::default();
    let mut reading = agent("");
    let mut health = |restarts, at| {
        if let Fact::Known(unit) = &mut reading.unit {
            unit.restarts = restarts;
        }
        memory.note(&Fact::Known(reading.clone()), CONNECTED, at);
        memory.health(at)
    };
    use GuestAgentHealth::{Healthy, Restarting};
    for (restarts, seconds, expected) in [
        (Some(7), 0, Healthy),
        (Some(7), 1, Healthy),
        (Some(8), 2, Restarting),
        (Some(8), 3, Restarting),
        // An observation without the number does not count as zero.
        (None, 4, Restarting),
        (Some(8), 603, Healthy),
        // A manual restart: systemd resets the counter.
        (Some(0), 604, Healthy),
        (Some(1), 605, Restarting),
    ] {
        assert_eq!(
            health(restarts, NOW + seconds * SECOND),
            expected,
            "{seconds}"
        );
    }
}

#[test]
fn only_a_unit_that_stands_still_and_can_run_is_started_and_at_most_once_in_ten_minutes() {
    let started = |words: &str, at: Duration, last: Option<Duration>| {
        let seen = Fact::Known(agent(words));
        let mut memory = Memory::default();
        memory.note(&seen, None, NOW - STANDS_LEAST);
        if let Some(last) = last {
            memory.started = Some(last);
        }
        memory.note(&seen, None, at);
        unit_to_start(&seen, &memory, at)
    };
    let name = Some(UNITS[0].to_owned());
    for stands in ["inactive", "failed"] {
        assert_eq!(started(stands, NOW - SECOND, None), None);
        assert_eq!(started(stands, NOW, None), name);
    }
    for left in [
        "running",
        "changing",
        "restarting",
        "inactive masked",
        "inactive disabled",
        "failed disabled",
        "inactive no-channel",
        "absent",
        "unknown",
    ] {
        assert_eq!(started(left, NOW, None), None, "{left}");
    }
    assert_eq!(started("failed", NOW + 599 * SECOND, Some(NOW)), None);
    assert_eq!(started("failed", NOW + 600 * SECOND, Some(NOW)), name);
}
