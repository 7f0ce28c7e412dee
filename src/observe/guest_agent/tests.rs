// SPDX-License-Identifier: Apache-2.0
//! Tests against a real dbus-daemon with a fake systemd, and files in a temporary directory.

use std::time::Duration;

use harvester_lab::bus::{Bus as Daemon, Systemd, Unit as Shown};
use harvester_lab::guest::GuestTree;

use super::*;
use crate::apply;
use crate::decide::guest_agent::{GuestAgentHealth, Memory, unit_to_start};
use crate::facts::guest_agent::DEVICE_UNIT;
use crate::wire::dbus::DEADLINE;

/// A machine with the channel.
struct Guest {
    tree: GuestTree,
    root: Root,
    bus: Bus,
    _dir: tempfile::TempDir,
}

impl Guest {
    fn new() -> Self {
        let guest = Self::bare();
        let class = "/sys/class/virtio-ports/vport1p2/name";
        guest.tree.write(class, format!("{PORT}\n"));
        guest
    }

    fn bare() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        Self {
            tree: GuestTree::new(dir.path()),
            bus: Bus::new(&root, None),
            root,
            _dir: dir,
        }
    }

    async fn read(&self) -> GuestAgent {
        read(&self.root, &self.bus).await
    }

    /// Reads the state once and returns its health.
    async fn health(&self) -> GuestAgentHealth {
        let seen = Fact::Known(self.read().await);
        let mut memory = Memory::default();
        memory.note(&seen, None, Duration::ZERO);
        memory.health(Duration::ZERO)
    }
}

#[tokio::test]
async fn the_unit_of_every_family_is_found_and_judged() {
    use Enablement::{Disabled, Enabled, Masked, Static};
    use GuestAgentHealth as Health;
    use GuestAgentHealth::{Healthy, NotRunning, Restarting};
    let (running, stopped) = (Shown::running, Shown::stopped);
    let is_static = || Shown {
        file_state: "static",
        ..running()
    };
    let wanted = Shown {
        file_state: "disabled",
        wanted_by: vec![DEVICE_UNIT.to_owned()],
        ..running()
    };
    let loaded = |state| Shown {
        load: state,
        file_state: if state == "masked" { state } else { "" },
        ..stopped()
    };
    let on_disk = |file_state| Shown {
        in_memory: false,
        file_state,
        ..stopped()
    };
    let broken = |active, sub| Shown {
        active,
        sub,
        ..running()
    };
    let (failed, restarting) = (
        broken("failed", "failed"),
        broken("activating", "auto-restart"),
    );
    let (disabled, masked) = (on_disk("disabled"), on_disk("masked"));
    let gone = vec![(UNITS[0], loaded("not-found")), (UNITS[1], is_static())];
    let older = vec![(UNITS[0], on_disk("disabled")), (UNITS[2], running())];
    let first = |unit| vec![(UNITS[0], unit)];
    for (units, name, enablement, health) in [
        // Debian and Ubuntu: static, started by a udev rule.
        (first(is_static()), UNITS[0], Static, Healthy),
        // Fedora and EL: enabled.
        (first(running()), UNITS[0], Enabled, Healthy),
        // openSUSE: disabled by preset, and wanted by the device through a udev rule.
        (first(wanted), UNITS[0], Static, Healthy),
        // SLE 15 SP2: an instance, and another name that is referenced but does not exist.
        (gone, UNITS[1], Static, Healthy),
        // Older versions: the plain name; an active unit takes precedence over an inactive one.
        (older, UNITS[2], Enabled, Healthy),
        (first(loaded("masked")), UNITS[0], Masked, Health::Masked),
        // Not in memory, because no unit wants it.
        (first(disabled), UNITS[0], Disabled, Health::Disabled),
        (first(masked), UNITS[0], Masked, Health::Masked),
        (first(failed), UNITS[0], Enabled, NotRunning),
        (first(restarting), UNITS[0], Enabled, Restarting),
    ] {
        let guest = Guest::new();
        let daemon = Daemon::start(&guest.tree).await;
        let device = (DEVICE_UNIT, Shown::plugged());
        let units: Vec<_> = units.into_iter().chain([device]).collect();
        let systemd = Systemd::start(&daemon, &units).await;
        let agent = guest.read().await;
        let unit = agent.unit.known();
        assert_eq!(unit.unwrap().name, name, "{agent:?}");
        assert_eq!(unit.unwrap().enablement, enablement, "{agent:?}");
        assert_eq!(guest.health().await, health, "{agent:?}");
        // systemd announces a unit that it loads, which would cause another reconcile.
        let calls = systemd.calls();
        let mut loads = calls.iter().filter(|call| call.starts_with("LoadUnit"));
        assert_eq!(loads.next(), None, "{calls:?}");
    }
}

#[tokio::test]
async fn no_unit_is_not_installed_and_no_port_is_no_channel() {
    let guest = Guest::new();
    let daemon = Daemon::start(&guest.tree).await;
    let _systemd = Systemd::start(&daemon, &[(DEVICE_UNIT, Shown::plugged())]).await;
    assert_eq!(guest.read().await.unit, Fact::Absent);
    assert_eq!(guest.health().await, GuestAgentHealth::NotInstalled);
    let bare = Guest::bare().health().await;
    assert_eq!(bare, GuestAgentHealth::ChannelMissing);
}

#[tokio::test]
async fn a_growing_number_of_restarts_is_seen_from_one_reading_to_the_next() {
    let guest = Guest::new();
    let daemon = Daemon::start(&guest.tree).await;
    let systemd = Systemd::start(&daemon, &[(UNITS[0], Shown::running())]).await;
    let mut memory = Memory::default();
    let mut healths = Vec::new();
    for (restarts, second) in [(3, 0), (3, 1), (4, 2)] {
        let unit = Shown {
            restarts,
            ..Shown::running()
        };
        systemd.set(UNITS[0], unit).await;
        let now = Duration::from_secs(second);
        let seen = Fact::Known(guest.read().await);
        memory.note(&seen, None, now);
        healths.push(memory.health(now));
    }
    use GuestAgentHealth::{Healthy, Restarting};
    assert_eq!(healths, [Healthy, Healthy, Restarting]);
}

#[tokio::test]
async fn without_a_bus_the_unit_is_unknown_and_files_are_read_all_the_same() {
    let guest = Guest::new();
    guest
        .tree
        .write("/etc/os-release", "ID=ubuntu\nID_LIKE=debian\n");
    let agent = guest.read().await;
    assert_eq!(agent.unit.why().unwrap().kind, UnavailableKind::Missing);
    assert_eq!(agent.family, Family::Debian);
    assert!(agent.has_channel && !agent.is_requested);
    assert_eq!(guest.health().await, GuestAgentHealth::Unknown);
    guest
        .tree
        .write(USER_DATA, "#cloud-config\npackages: [qemu-guest-agent]\n");
    assert!(guest.read().await.is_requested);
}

#[tokio::test]
async fn a_hung_bus_costs_its_deadline_once_and_leaves_the_unit_unknown() {
    let guest = Guest::new();
    let daemon = Daemon::start(&guest.tree).await;
    let _systemd = Systemd::start(&daemon, &[(UNITS[0], Shown::running())]).await;
    assert_eq!(guest.health().await, GuestAgentHealth::Healthy);
    // With an established connection, and without one.
    for bus in [guest.bus.clone(), Bus::new(&guest.root, None)] {
        daemon.hang();
        tokio::time::pause();
        let mut turns = 0u32;
        let agent = tokio::select! {
            agent = read(&guest.root, &bus) => agent,
            () = async {
                loop {
                    tokio::time::sleep(DEADLINE / 100).await;
                    turns += 1;
                }
            } => unreachable!(),
        };
        tokio::time::resume();
        daemon.go_on();
        // Other tasks run meanwhile, and the wait is over after one deadline.
        assert!((98..=101).contains(&turns), "{turns}");
        assert_eq!(agent.unit.why().unwrap().kind, UnavailableKind::Unreachable);
        let mut memory = Memory::default();
        memory.note(&Fact::Known(agent), None, Duration::ZERO);
        assert_eq!(memory.health(Duration::ZERO), GuestAgentHealth::Unknown);
    }
    assert_eq!(guest.health().await, GuestAgentHealth::Healthy);
}

#[tokio::test]
async fn a_stopped_unit_is_started_through_systemd_and_a_refusal_is_one_line() {
    let guest = Guest::new();
    let daemon = Daemon::start(&guest.tree).await;
    let systemd = Systemd::start(&daemon, &[(UNITS[0], Shown::stopped())]).await;
    let seen = Fact::Known(guest.read().await);
    let mut memory = Memory::default();
    memory.note(&seen, None, Duration::ZERO);
    let unit = unit_to_start(&seen, &memory, Duration::from_secs(60)).unwrap();
    apply::unit::start(&guest.bus, &unit).await.unwrap();
    let start = format!("StartUnit {}", UNITS[0]);
    let calls = systemd.calls();
    assert_eq!(calls.iter().filter(|call| **call == start).count(), 1);
    systemd.refuse_to_start("Interactive authentication\nrequired");
    let refusal = apply::unit::start(&guest.bus, &unit).await.unwrap_err();
    let text = &refusal.text;
    assert!(!refusal.passing && !text.contains('\n'), "{refusal:?}");
    assert_eq!(text.matches("authentication").count(), 1, "{text}");
    println!("refused: {}", refusal.text);
    drop((systemd, daemon));
    let refusal = apply::unit::start(&guest.bus, &unit).await.unwrap_err();
    assert!(refusal.passing, "{refusal:?}");
    println!("without a bus: {}", refusal.text);
}
