// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::facts::UnavailableKind;
use crate::facts::guest_agent::UNITS;

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_secs(1000);
const CONNECTED: Option<&HostView> = Some(&HostView::Connected);
const DISCONNECTED: Option<&HostView> = Some(&HostView::Disconnected);

fn unit() -> Unit {
    Unit {
        name: UNITS[0].to_owned(),
        state: UnitState::Active,
        enablement: Enablement::Static,
        shown: "running, static".to_owned(),
        restarts: Some(0),
    }
}

fn unknown<T>() -> Fact<T> {
    Fact::failed(UnavailableKind::Unreachable, "no answer")
}

fn agent() -> GuestAgent {
    GuestAgent {
        unit: Fact::Known(unit()),
        has_channel: true,
        family: Family::Debian,
        is_requested: false,
    }
}

fn with_unit(change: impl FnOnce(&mut Unit)) -> GuestAgent {
    let mut unit = unit();
    change(&mut unit);
    GuestAgent {
        unit: Fact::Known(unit),
        ..agent()
    }
}

fn stopped(change: impl FnOnce(&mut Unit)) -> GuestAgent {
    with_unit(|unit| {
        unit.state = UnitState::Inactive;
        change(unit);
    })
}

fn without(unit: Fact<Unit>) -> GuestAgent {
    GuestAgent { unit, ..agent() }
}

/// Returns the health after the same observation has been made for a minute.
fn judged(agent: GuestAgent, host: Option<&HostView>) -> (GuestAgentHealth, Vec<Finding>) {
    let seen = Fact::Known(agent);
    let mut memory = Memory::default();
    memory.note(&seen, host, NOW - LASTS);
    memory.note(&seen, host, NOW);
    let health = memory.health(NOW);
    (health, findings(&seen, host, health))
}

#[test]
fn each_cause_has_its_health_its_finding_and_its_remedy() {
    let cases = [
        (agent(), GuestAgentHealth::Healthy, None),
        (
            with_unit(|unit| unit.state = UnitState::Changing),
            GuestAgentHealth::Changing,
            None,
        ),
        (
            with_unit(|unit| unit.state = UnitState::Restarting),
            GuestAgentHealth::Restarting,
            Some((Code::GuestAgentRestarting, "Check its journal")),
        ),
        (
            stopped(|_| {}),
            GuestAgentHealth::NotRunning,
            Some((
                Code::GuestAgentNotRunning,
                "systemctl start qemu-guest-agent.service",
            )),
        ),
        (
            stopped(|unit| unit.enablement = Enablement::Disabled),
            GuestAgentHealth::Disabled,
            Some((
                Code::GuestAgentNotRunning,
                "systemctl enable --now qemu-guest-agent.service",
            )),
        ),
        (
            stopped(|unit| unit.enablement = Enablement::Masked),
            GuestAgentHealth::Masked,
            Some((
                Code::GuestAgentNotRunning,
                "systemctl unmask qemu-guest-agent.service, then systemctl start",
            )),
        ),
        (
            stopped(|unit| unit.state = UnitState::Failed),
            GuestAgentHealth::NotRunning,
            Some((
                Code::GuestAgentNotRunning,
                "systemctl --no-pager status qemu-guest-agent.service, then systemctl reset-failed",
            )),
        ),
        (
            stopped(|unit| unit.name = UNITS[1].to_owned()),
            GuestAgentHealth::NotRunning,
            Some((
                Code::GuestAgentNotRunning,
                r"systemctl start 'qemu-ga@virtio\x2dports-org.qemu.guest_agent.0.service'",
            )),
        ),
        (
            without(Fact::Absent),
            GuestAgentHealth::NotInstalled,
            Some((Code::GuestAgentNotInstalled, "Install the package")),
        ),
        (
            GuestAgent {
                has_channel: false,
                ..stopped(|_| {})
            },
            GuestAgentHealth::ChannelMissing,
            Some((
                Code::GuestAgentChannelMissing,
                "Load the kernel module virtio_console",
            )),
        ),
        (
            with_unit(|unit| unit.enablement = Enablement::Disabled),
            GuestAgentHealth::Healthy,
            Some((
                Code::GuestAgentNotEnabled,
                "systemctl enable qemu-guest-agent.service",
            )),
        ),
        (
            with_unit(|unit| unit.enablement = Enablement::Masked),
            GuestAgentHealth::Healthy,
            Some((
                Code::GuestAgentNotEnabled,
                "systemctl unmask qemu-guest-agent.service",
            )),
        ),
        (without(unknown()), GuestAgentHealth::Unknown, None),
    ];
    for (agent, expected, finding) in cases {
        let (health, findings) = judged(agent.clone(), None);
        assert_eq!(health, expected, "{agent:?}");
        assert_eq!(
            condition(health).is_none(),
            health == GuestAgentHealth::Changing
        );
        let reported: Vec<_> = findings
            .iter()
            .map(|finding| (finding.code, finding.remedy()))
            .collect();
        match finding {
            None => assert_eq!(reported, [], "{agent:?}"),
            Some((code, remedy)) => {
                assert_eq!(reported.len(), 1, "{reported:?}");
                assert_eq!(reported[0].0, code, "{agent:?}");
                assert!(reported[0].1.starts_with(remedy), "{}", reported[0].1);
            }
        }
    }
    assert_eq!(
        Memory::default().health(NOW),
        GuestAgentHealth::Unknown,
        "before the first observation"
    );
}

#[test]
fn what_the_host_reports_counts_where_the_unit_runs_or_is_not_known() {
    let why = "This guest agent doesn't support required basic commands";
    let refused = HostView::NotSupported(why.to_owned());
    for (agent, host, expected) in [
        (agent(), CONNECTED, GuestAgentHealth::Healthy),
        (agent(), DISCONNECTED, GuestAgentHealth::NotConnected),
        (agent(), Some(&refused), GuestAgentHealth::NotSupported),
        // A program that runs without one of the units, or without a bus.
        (without(Fact::Absent), CONNECTED, GuestAgentHealth::Healthy),
        (without(unknown()), CONNECTED, GuestAgentHealth::Healthy),
        (
            without(Fact::Absent),
            DISCONNECTED,
            GuestAgentHealth::NotInstalled,
        ),
        (without(unknown()), DISCONNECTED, GuestAgentHealth::Unknown),
        // The host may see a stopped agent as connected for a moment.
        (stopped(|_| {}), CONNECTED, GuestAgentHealth::NotRunning),
        (stopped(|_| {}), DISCONNECTED, GuestAgentHealth::NotRunning),
    ] {
        assert_eq!(
            judged(agent.clone(), host).0,
            expected,
            "{agent:?} {host:?}"
        );
    }
    let (_, findings) = judged(agent(), DISCONNECTED);
    assert_eq!(findings[0].code, Code::GuestAgentNotConnected);
    let (_, findings) = judged(agent(), Some(&refused));
    assert_eq!(findings[0].code, Code::GuestAgentNotSupported);
    assert!(findings[0].seen.contains(why), "{}", findings[0].seen);
}

#[test]
fn a_state_that_may_pass_leaves_the_condition_for_a_minute_and_is_then_told() {
    let refused = HostView::NotSupported(String::new());
    let mut memory = Memory::default();
    // A live migration: KubeVirt calls it unsupported, then it is not connected, and unsupported again.
    for (host, at) in [
        (Some(&refused), 0),
        (DISCONNECTED, 20),
        (Some(&refused), 40),
    ] {
        let now = NOW + at * SECOND;
        memory.note(&Fact::Known(agent()), host, now);
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
            memory.note(&Fact::Known(agent()), host, at);
            memory.health(at)
        };
        assert_eq!(health(host, NOW), GuestAgentHealth::Healthy);
        // A live migration disconnects it for some seconds.
        assert_eq!(
            health(CONNECTED, NOW + 5 * SECOND),
            GuestAgentHealth::Healthy
        );
        assert_eq!(health(host, NOW + 90 * SECOND), GuestAgentHealth::Healthy);
        assert_eq!(health(host, NOW + 149 * SECOND), GuestAgentHealth::Healthy);
        assert_eq!(health(host, NOW + 150 * SECOND), expected);
        // Harvester is not read: nothing is known of the host.
        assert_eq!(health(None, NOW + 151 * SECOND), GuestAgentHealth::Healthy);
    }
    let mut memory = Memory::default();
    memory.note(&unknown(), None, NOW);
    assert_eq!(memory.condition(NOW + 59 * SECOND), None);
    let condition = memory.condition(NOW + 60 * SECOND).unwrap();
    assert_eq!(
        (condition.status, condition.reason),
        ("Unknown", "StateUnknown")
    );
    assert_eq!(findings(&unknown(), None, memory.health(NOW)), []);
}

#[test]
fn a_restart_between_two_readings_counts_for_ten_minutes_and_a_number_that_was_there_does_not() {
    let reading = |restarts| Fact::Known(with_unit(|unit| unit.restarts = restarts));
    let mut memory = Memory::default();
    let mut health = |restarts, at| {
        memory.note(&reading(restarts), CONNECTED, at);
        memory.health(at)
    };
    assert_eq!(health(Some(7), NOW), GuestAgentHealth::Healthy);
    assert_eq!(health(Some(7), NOW + SECOND), GuestAgentHealth::Healthy);
    assert_eq!(
        health(Some(8), NOW + 2 * SECOND),
        GuestAgentHealth::Restarting
    );
    assert_eq!(
        health(Some(8), NOW + 3 * SECOND),
        GuestAgentHealth::Restarting
    );
    // An observation without the number does not count as zero.
    assert_eq!(health(None, NOW + 4 * SECOND), GuestAgentHealth::Restarting);
    assert_eq!(
        health(Some(8), NOW + 603 * SECOND),
        GuestAgentHealth::Healthy
    );
    // A manual restart: systemd resets the counter.
    assert_eq!(
        health(Some(0), NOW + 604 * SECOND),
        GuestAgentHealth::Healthy
    );
    assert_eq!(
        health(Some(1), NOW + 605 * SECOND),
        GuestAgentHealth::Restarting
    );
}

#[test]
fn each_family_gets_the_commands_of_its_own() {
    for (family, command) in [
        (
            Family::Debian,
            "apt-get update && apt-get install qemu-guest-agent",
        ),
        (Family::RedHat, "dnf install qemu-guest-agent"),
        (Family::Suse, "zypper install qemu-guest-agent"),
        (
            Family::Other,
            "apt-get update && apt-get install qemu-guest-agent || zypper",
        ),
    ] {
        let agent = GuestAgent {
            family,
            ..without(Fact::Absent)
        };
        let (_, findings) = judged(agent, None);
        let commands = findings[0].commands();
        assert!(commands[0].text.starts_with(command), "{commands:?}");
    }
}

#[test]
fn only_a_unit_that_stands_still_and_can_run_is_started_and_at_most_once_in_ten_minutes() {
    let started = |agent: GuestAgent, at: Duration, last: Option<Duration>| {
        let seen = Fact::Known(agent);
        let mut memory = Memory::default();
        memory.note(&seen, None, NOW - STANDS_LEAST);
        if let Some(last) = last {
            memory.started = Some(last);
        }
        memory.note(&seen, None, at);
        unit_to_start(&seen, &memory, at)
    };
    let failed = || stopped(|unit| unit.state = UnitState::Failed);
    let name = Some(UNITS[0].to_owned());
    for stands in [stopped(|_| {}), failed()] {
        assert_eq!(started(stands.clone(), NOW - SECOND, None), None);
        assert_eq!(started(stands, NOW, None), name);
    }
    for left in [
        agent(),
        with_unit(|unit| unit.state = UnitState::Changing),
        with_unit(|unit| unit.state = UnitState::Restarting),
        stopped(|unit| unit.enablement = Enablement::Masked),
        stopped(|unit| unit.enablement = Enablement::Disabled),
        stopped(|unit| {
            unit.state = UnitState::Failed;
            unit.enablement = Enablement::Disabled;
        }),
        GuestAgent {
            has_channel: false,
            ..stopped(|_| {})
        },
        without(Fact::Absent),
        without(unknown()),
    ] {
        assert_eq!(started(left.clone(), NOW, None), None, "{left:?}");
    }
    assert_eq!(started(failed(), NOW + 599 * SECOND, Some(NOW)), None);
    assert_eq!(started(failed(), NOW + 600 * SECOND, Some(NOW)), name);
}

#[test]
fn user_data_that_asks_for_the_package_is_named_where_it_is_not_installed() {
    let seen = |is_requested| {
        let agent = GuestAgent {
            is_requested,
            ..without(Fact::Absent)
        };
        let (_, found) = judged(agent, None);
        assert_eq!(found[0].code, Code::GuestAgentNotInstalled);
        found[0].seen.clone()
    };
    assert!(!seen(false).contains("user data"));
    assert!(seen(true).contains("only at the first boot"));
    assert!(seen(true).contains("/var/log/cloud-init-output.log"));
}
