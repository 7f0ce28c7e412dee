// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::facts::UnavailableKind;
use crate::facts::guest_agent::{Channel, Family, UNITS, Variables};

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_secs(1000);

fn unit() -> Unit {
    Unit {
        name: UNITS[0].to_owned(),
        load: Load::Loaded,
        state: UnitState::Active,
        sub_state: "running".to_owned(),
        enablement: Enablement::Static,
        file_state: "static".to_owned(),
        restarts: Some(0),
        result: "success".to_owned(),
    }
}

fn unknown<T>() -> Fact<T> {
    Fact::failed(UnavailableKind::Unreachable, "no answer")
}

fn agent() -> GuestAgent {
    GuestAgent {
        unit: Fact::Known(unit()),
        program: Fact::Known("/usr/sbin/qemu-ga".into()),
        channel: Fact::Known(Channel {
            guest: Fact::Known(true),
            host: Fact::Known(true),
        }),
        filter: RpcFilter::default(),
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

fn ends(guest: Fact<bool>, host: Fact<bool>) -> Fact<Channel> {
    Fact::Known(Channel { guest, host })
}

fn blocking(rpcs: &str) -> GuestAgent {
    let mut filter = RpcFilter::default();
    filter.add_arguments(&["qemu-ga", "-b", rpcs], &Variables::new());
    GuestAgent { filter, ..agent() }
}

/// Returns the health after a single observation.
fn judged(agent: GuestAgent) -> (GuestAgentHealth, Vec<Finding>) {
    let seen = Fact::Known(agent);
    let mut memory = Memory::default();
    memory.note(&seen, NOW);
    let health = judge(&seen, &memory, NOW);
    (health, findings(&seen, health))
}

#[test]
fn each_cause_has_its_health_its_finding_and_its_remedy() {
    let gone = |agent: GuestAgent| GuestAgent {
        program: Fact::Absent,
        ..agent
    };
    let no_unit = || GuestAgent {
        unit: Fact::Absent,
        ..agent()
    };
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
            Some((
                Code::GuestAgentRestarting,
                "journalctl --no-pager -b -n 50 -u qemu-guest-agent.service",
            )),
        ),
        (
            stopped(|_| {}),
            GuestAgentHealth::NotRunning,
            Some((
                Code::GuestAgentNotRunning,
                "systemctl start qemu-guest-agent.service; systemctl enable changes nothing",
            )),
        ),
        (
            stopped(|unit| unit.enablement = Enablement::Enabled),
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
            stopped(|unit| unit.load = Load::Masked),
            GuestAgentHealth::Masked,
            Some((
                Code::GuestAgentNotRunning,
                "systemctl unmask qemu-guest-agent.service",
            )),
        ),
        (
            stopped(|unit| unit.load = Load::Broken),
            GuestAgentHealth::NotRunning,
            Some((
                Code::GuestAgentNotRunning,
                "systemctl status qemu-guest-agent.service",
            )),
        ),
        (
            stopped(|unit| unit.state = UnitState::Failed),
            GuestAgentHealth::NotRunning,
            Some((
                Code::GuestAgentNotRunning,
                "journalctl -b -u qemu-guest-agent.service",
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
            gone(no_unit()),
            GuestAgentHealth::NotInstalled,
            Some((
                Code::GuestAgentNotInstalled,
                "apt-get install qemu-guest-agent",
            )),
        ),
        (
            gone(stopped(|_| {})),
            GuestAgentHealth::NotInstalled,
            Some((
                Code::GuestAgentNotInstalled,
                "apt-get install qemu-guest-agent",
            )),
        ),
        // A program in a custom path, or one that runs without systemd, is not a problem.
        (gone(agent()), GuestAgentHealth::Healthy, None),
        (no_unit(), GuestAgentHealth::Healthy, None),
        (
            GuestAgent {
                channel: ends(Fact::Known(false), Fact::Known(true)),
                ..no_unit()
            },
            GuestAgentHealth::NotRunning,
            Some((Code::GuestAgentNotRunning, "Install the package")),
        ),
        (
            GuestAgent {
                channel: Fact::Absent,
                ..stopped(|_| {})
            },
            GuestAgentHealth::ChannelMissing,
            Some((
                Code::GuestAgentChannelMissing,
                "Load the kernel module virtio_console",
            )),
        ),
        (
            blocking("guest-exec,guest-get-users,guest-info"),
            GuestAgentHealth::RpcsBlocked,
            Some((
                Code::GuestAgentRpcsBlocked,
                "remove guest-get-users, guest-info from the command line of its unit; then systemctl restart",
            )),
        ),
        (
            blocking("guest-exec,guest-file-open"),
            GuestAgentHealth::Healthy,
            None,
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
            with_unit(|unit| unit.load = Load::Masked),
            GuestAgentHealth::Healthy,
            Some((
                Code::GuestAgentNotEnabled,
                "systemctl unmask qemu-guest-agent.service",
            )),
        ),
    ];
    for (agent, expected, finding) in cases {
        let (health, findings) = judged(agent.clone());
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
}

#[test]
fn without_a_bus_the_files_and_the_kernel_still_say_what_they_can() {
    let silent = |channel| GuestAgent {
        unit: unknown(),
        channel,
        ..agent()
    };
    for (agent, expected) in [
        (
            silent(ends(Fact::Known(true), unknown())),
            GuestAgentHealth::Healthy,
        ),
        (
            silent(ends(Fact::Known(false), unknown())),
            GuestAgentHealth::Unknown,
        ),
        (
            GuestAgent {
                unit: Fact::failed(UnavailableKind::Missing, "there is no bus"),
                ..silent(ends(Fact::Known(false), unknown()))
            },
            GuestAgentHealth::NotRunning,
        ),
        (
            silent(ends(unknown(), unknown())),
            GuestAgentHealth::Unknown,
        ),
        (silent(unknown()), GuestAgentHealth::Unknown),
        (silent(Fact::Absent), GuestAgentHealth::ChannelMissing),
        (
            GuestAgent {
                program: Fact::Absent,
                ..silent(unknown())
            },
            GuestAgentHealth::NotInstalled,
        ),
    ] {
        assert_eq!(judged(agent.clone()).0, expected, "{agent:?}");
    }
    let unread = unknown();
    let health = judge(&unread, &Memory::default(), NOW);
    assert_eq!(condition(health).unwrap().status, "Unknown");
    assert_eq!(findings(&unread, health), []);
}

#[test]
fn a_restart_between_two_readings_counts_for_ten_minutes_and_a_number_that_was_there_does_not() {
    let reading = |restarts| Fact::Known(with_unit(|unit| unit.restarts = restarts));
    let mut memory = Memory::default();
    let mut health = |restarts, at| {
        let seen = reading(restarts);
        memory.note(&seen, at);
        judge(&seen, &memory, at)
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
fn a_host_that_is_away_during_a_migration_is_no_fault_and_one_that_stays_away_is() {
    let reading = |host| {
        Fact::Known(GuestAgent {
            channel: ends(Fact::Known(true), host),
            ..agent()
        })
    };
    let mut memory = Memory::default();
    let mut health = |host, at| {
        let seen = reading(host);
        memory.note(&seen, at);
        judge(&seen, &memory, at)
    };
    let away = || Fact::Known(false);
    assert_eq!(health(away(), NOW), GuestAgentHealth::Healthy);
    assert_eq!(
        health(Fact::Known(true), NOW + 5 * SECOND),
        GuestAgentHealth::Healthy
    );
    assert_eq!(health(away(), NOW + 90 * SECOND), GuestAgentHealth::Healthy);
    assert_eq!(
        health(away(), NOW + 149 * SECOND),
        GuestAgentHealth::Healthy
    );
    assert_eq!(
        health(away(), NOW + 150 * SECOND),
        GuestAgentHealth::HostNotAttached
    );
    assert_eq!(
        health(unknown(), NOW + 151 * SECOND),
        GuestAgentHealth::Healthy
    );
}

#[test]
fn the_condition_says_the_same_while_the_state_stays() {
    let reported = |agent| condition(judged(agent).0).unwrap();
    assert_eq!(
        reported(stopped(|unit| {
            unit.state = UnitState::Failed;
            unit.result = "exit-code".to_owned();
            unit.restarts = Some(3);
        })),
        reported(stopped(|unit| {
            unit.state = UnitState::Failed;
            unit.result = "signal".to_owned();
            unit.restarts = Some(4);
        }))
    );
}

#[test]
fn each_family_gets_the_commands_of_its_own() {
    for (family, command) in [
        (Family::Debian, "apt-get install"),
        (Family::RedHat, "dnf install"),
        (Family::Suse, "zypper install"),
        (Family::Other, "Install the package qemu-guest-agent"),
    ] {
        assert!(remedy::install(family).starts_with(command));
    }
}

#[test]
fn only_a_unit_that_stands_still_and_can_run_is_started_and_at_most_once_in_ten_minutes() {
    let started = |agent: GuestAgent, memory: &Memory, now| {
        unit_to_start(&Fact::Known(agent), memory, now).map(str::to_owned)
    };
    let mut fresh = Memory::default();
    fresh.note(&Fact::Known(stopped(|_| {})), NOW - STANDS_LEAST);
    let soon = NOW - Duration::from_secs(1);
    assert_eq!(started(stopped(|_| {}), &fresh, soon), None);
    assert_eq!(fresh.wait_to_start(soon), Some(Duration::from_secs(1)));
    let name = Some(UNITS[0].to_owned());
    for stands in [
        stopped(|_| {}),
        stopped(|unit| unit.state = UnitState::Failed),
    ] {
        assert_eq!(started(stands, &fresh, NOW), name);
    }
    for left in [
        agent(),
        with_unit(|unit| unit.state = UnitState::Changing),
        with_unit(|unit| unit.state = UnitState::Restarting),
        stopped(|unit| unit.load = Load::Masked),
        stopped(|unit| unit.load = Load::Broken),
        stopped(|unit| unit.enablement = Enablement::Disabled),
        GuestAgent {
            channel: Fact::Absent,
            ..stopped(|_| {})
        },
        GuestAgent {
            channel: unknown(),
            ..stopped(|_| {})
        },
        GuestAgent {
            program: Fact::Absent,
            ..stopped(|_| {})
        },
        GuestAgent {
            unit: Fact::Absent,
            ..agent()
        },
    ] {
        assert_eq!(started(left.clone(), &fresh, NOW), None, "{left:?}");
    }
    assert_eq!(unit_to_start(&unknown(), &fresh, NOW), None);
    let mut memory = fresh.clone();
    memory.note_start(NOW);
    let stands = || stopped(|unit| unit.state = UnitState::Failed);
    assert_eq!(started(stands(), &memory, NOW + 599 * SECOND), None);
    assert_eq!(started(stands(), &memory, NOW + 600 * SECOND), name);
}

#[test]
fn user_data_that_asks_for_the_package_is_named_where_it_is_not_installed() {
    let seen = |is_requested| {
        let agent = GuestAgent {
            unit: Fact::Absent,
            program: Fact::Absent,
            is_requested,
            ..agent()
        };
        let found = findings(&Fact::Known(agent), GuestAgentHealth::NotInstalled);
        assert_eq!(found[0].code, Code::GuestAgentNotInstalled);
        found[0].seen.clone()
    };
    assert!(!seen(false).contains("user data"));
    assert!(seen(true).contains("only at the first boot"));
    assert!(seen(true).contains("/var/log/cloud-init-output.log"));
}
