// SPDX-License-Identifier: Apache-2.0
//! QEMU's guest agent, with a stand-in for systemd: what is wrong with it is on the Node at once, and it is started only
//! where that is allowed.

use harvester_lab::bus::{Bus, Systemd, Unit};
use harvester_lab::process::{Agent, Line, Signal};
use harvester_lab::world::{World, WorldOptions, eventually};

use crate::{On, SOON, TOPOLOGY, condition_becomes, findings, findings_become, on_both, serve};

on_both!(
    a_guest_agent_that_stops_is_on_the_node_at_once,
    each_cause_of_an_unhealthy_guest_agent_has_a_finding,
);

const HEALTHY: &str = "QemuGuestAgentReady";
const UNIT: &str = "qemu-guest-agent.service";
const DEVICE: &str = r"dev-virtio\x2dports-org.qemu.guest_agent.0.device";

/// A world with a system bus, and on it a systemd that has this unit.
async fn world_with(on: On, unit: Unit) -> (World, Bus, Systemd) {
    let world = on.world(WorldOptions::default()).await;
    let bus = Bus::start(&world.guest).await;
    let units = [(UNIT, unit), (DEVICE, Unit::plugged())];
    let systemd = Systemd::start(&bus, &units).await;
    (world, bus, systemd)
}

/// The agent, when it hears systemd and has nothing left to do.
async fn settled(world: &World, systemd: &Systemd) -> Agent {
    let agent = serve(world).await;
    condition_becomes(world, TOPOLOGY, "True", "Synced").await;
    eventually(SOON, "it listens", || async { systemd.is_subscribed() }).await;
    agent
}

/// How many Events have this reason.
async fn events(world: &World, reason: &str) -> usize {
    let events = world.events().await;
    events
        .iter()
        .filter(|event| event["reason"] == reason)
        .count()
}

/// What the status file says is to be done about a finding; nothing while it has none of this code.
fn remedy(world: &World, code: &str) -> String {
    let status = world.guest.status().unwrap();
    let all = status["findings"].as_array().unwrap();
    let finding = all.iter().find(|finding| finding["code"] == code);
    let steps = finding.and_then(|finding| finding["fix"].as_array());
    let steps = steps.into_iter().flatten().filter_map(|step| step.as_str());
    steps.collect::<Vec<_>>().join(" ")
}

/// Waits until that is this. A reading in the middle of a change may name another one for a moment.
async fn remedy_becomes(world: &World, code: &str, expected: &str) {
    eventually(SOON, expected, || async { remedy(world, code) == expected }).await;
}

async fn a_guest_agent_that_stops_is_on_the_node_at_once(on: On) {
    let (world, _bus, systemd) = world_with(on, Unit::running()).await;
    let mut agent = settled(&world, &systemd).await;
    condition_becomes(&world, HEALTHY, "True", "Healthy").await;
    findings_become(&world, &[]).await;

    systemd.set(UNIT, Unit::stopped()).await;
    let tells = |line: &Line| line.text.contains("[guest-agent-not-running]");
    // Seen by systemd's signal: the next poll is minutes away.
    agent.wait_line(tells, SOON).await;
    condition_becomes(&world, HEALTHY, "False", "GuestAgentNotRunning").await;
    findings_become(&world, &["guest-agent-not-running"]).await;
    let start = format!("systemctl start {UNIT}");
    remedy_becomes(&world, "guest-agent-not-running", &start).await;

    systemd.set(UNIT, Unit::running()).await;
    condition_becomes(&world, HEALTHY, "True", "Healthy").await;
    findings_become(&world, &[]).await;
    // The last Event, so all others are there.
    let is_ready = || async { events(&world, "QemuGuestAgentReady").await == 1 };
    eventually(SOON, "the last Event", is_ready).await;
    assert_eq!(events(&world, "GuestAgentNotRunning").await, 1);
}

async fn each_cause_of_an_unhealthy_guest_agent_has_a_finding(on: On) {
    let (world, _bus, systemd) = world_with(on, Unit::running()).await;
    let agent = settled(&world, &systemd).await;
    condition_becomes(&world, HEALTHY, "True", "Healthy").await;

    let masked = Unit {
        load: "masked",
        file_state: "masked",
        ..Unit::stopped()
    };
    systemd.set(UNIT, masked).await;
    condition_becomes(&world, HEALTHY, "False", "GuestAgentNotRunning").await;
    findings_become(&world, &["guest-agent-not-running"]).await;
    let unmask = format!("systemctl unmask {UNIT}, then systemctl start {UNIT}");
    remedy_becomes(&world, "guest-agent-not-running", &unmask).await;
    systemd.set(UNIT, Unit::running()).await;
    condition_becomes(&world, HEALTHY, "True", "Healthy").await;

    // The host takes the channel away: udev's device and the kernel's port go.
    std::fs::remove_dir_all(world.guest.path("/sys/class/virtio-ports")).unwrap();
    let gone = Unit {
        in_memory: false,
        ..Unit::stopped()
    };
    systemd.set(DEVICE, gone).await;
    condition_becomes(&world, HEALTHY, "False", "GuestAgentChannelMissing").await;
    findings_become(&world, &["guest-agent-channel-missing"]).await;
    world.guest.guest_agent();
    systemd.set(DEVICE, Unit::plugged()).await;
    condition_becomes(&world, HEALTHY, "True", "Healthy").await;
    findings_become(&world, &[]).await;

    let between_two_runs = Unit {
        active: "activating",
        sub: "auto-restart",
        ..Unit::running()
    };
    systemd.set(UNIT, between_two_runs).await;
    condition_becomes(&world, HEALTHY, "False", "GuestAgentRestarting").await;
    // It runs again, for now; that it does not last is still so.
    let runs_again = Unit {
        restarts: 1,
        ..Unit::running()
    };
    systemd.set(UNIT, runs_again).await;
    let stays = || async { findings(&world) == ["guest-agent-restarting"] };
    eventually(SOON, "the finding", stays).await;
    looks_again(&agent, &systemd).await;
    assert!(stays().await, "{:?}", findings(&world));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_rule_of_udev_starts_is_enabled_and_what_nothing_starts_is_not() {
    let static_unit = Unit {
        file_state: "static",
        ..Unit::running()
    };
    let (world, _bus, systemd) = world_with(On::Lab, static_unit).await;
    let _agent = settled(&world, &systemd).await;
    condition_becomes(&world, HEALTHY, "True", "Healthy").await;
    findings_become(&world, &[]).await;
    let disabled = Unit {
        file_state: "disabled",
        ..Unit::running()
    };
    systemd.set(UNIT, disabled.clone()).await;
    findings_become(&world, &["guest-agent-not-enabled"]).await;
    condition_becomes(&world, HEALTHY, "True", "Healthy").await;
    let wanted = Unit {
        wanted_by: vec![DEVICE.to_owned()],
        ..disabled
    };
    systemd.set(UNIT, wanted).await;
    findings_become(&world, &[]).await;
}

fn starts(systemd: &Systemd) -> usize {
    let calls = systemd.calls();
    let start = format!("StartUnit {UNIT}");
    calls.iter().filter(|call| **call == start).count()
}

/// Makes the agent look at the unit three times. The first two looks are over then, with all that follows from them.
async fn looks_again(agent: &Agent, systemd: &Systemd) {
    for _ in 0..3 {
        let asked = || {
            let calls = systemd.calls();
            let get = format!("GetUnit {UNIT}");
            calls.iter().filter(|call| **call == get).count()
        };
        let before = asked();
        agent.signal(Signal::SIGHUP);
        eventually(SOON, "a look at the unit", || async { asked() > before }).await;
    }
}

/// Longer than a unit has to be stopped before it is started.
mod slow {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_stopped_guest_agent_is_started_once_where_that_is_allowed() {
        let (world, _bus, systemd) = world_with(On::Lab, Unit::stopped()).await;
        let allowed = "[qemu_guest_agent]\nauto_start = true\n";
        world.guest.agent_config("10-start.toml", allowed);
        let mut agent = settled(&world, &systemd).await;
        let tells = |line: &Line| line.text.contains(&format!("unit started: {UNIT}"));
        agent.wait_line(tells, SOON).await;
        // It ends at once: it is not started again and again.
        looks_again(&agent, &systemd).await;
        condition_becomes(&world, HEALTHY, "False", "GuestAgentNotRunning").await;
        assert_eq!(starts(&systemd), 1, "{:?}", systemd.calls());
        let lines = agent.lines().into_iter().filter(tells).count();
        assert_eq!(lines, 1, "{}", agent.transcript());
        systemd.set(UNIT, Unit::running()).await;
        condition_becomes(&world, HEALTHY, "True", "Healthy").await;
        findings_become(&world, &[]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_stopped_guest_agent_is_left_alone_where_nothing_is_said() {
        let (world, _bus, systemd) = world_with(On::Lab, Unit::stopped()).await;
        let agent = settled(&world, &systemd).await;
        // Longer than it stands still before it is started elsewhere.
        tokio::time::sleep(std::time::Duration::from_secs(11)).await;
        looks_again(&agent, &systemd).await;
        condition_becomes(&world, HEALTHY, "False", "GuestAgentNotRunning").await;
        findings_become(&world, &["guest-agent-not-running"]).await;
        assert_eq!(starts(&systemd), 0, "{:?}", systemd.calls());
    }
}
