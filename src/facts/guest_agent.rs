// SPDX-License-Identifier: Apache-2.0
//! QEMU's guest agent (qemu-ga) in this machine, as systemd, the files and the kernel describe it.

mod filter;

use std::path::PathBuf;

pub use filter::{Block, CONFIGURATION, Listed, RpcFilter, Variable, Variables, WITHOUT_SYSTEMD};

use super::Fact;

/// The names that the agent's unit has, newest first: Debian, Ubuntu, Fedora, EL and openSUSE >= 15.3 with SLE >= 15 SP3;
/// then SLE 15 <= SP2; then older ones.
pub const UNITS: [&str; 3] = [
    "qemu-guest-agent.service",
    r"qemu-ga@virtio\x2dports-org.qemu.guest_agent.0.service",
    "qemu-ga.service",
];

/// The channel's port. It has one reader, and that is qemu-ga: no one else may open it.
pub const PORT: &str = "org.qemu.guest_agent.0";

/// systemd's unit for the port. All units of the agent are bound to it.
pub const DEVICE_UNIT: &str = r"dev-virtio\x2dports-org.qemu.guest_agent.0.device";

/// The facts of one reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAgent {
    /// The unit; `Absent` when systemd knows none of [`UNITS`].
    pub unit: Fact<Unit>,
    /// The program, at the first of the usual places.
    pub program: Fact<PathBuf>,
    /// The channel to the host; `Absent` when the host offers none.
    pub channel: Fact<Channel>,
    /// Which commands it does not run.
    pub filter: RpcFilter,
    /// Whose packages this system has, which decides the commands of a remedy.
    pub family: Family,
}

/// The unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// One of [`UNITS`].
    pub name: String,
    /// Whether someone may start it.
    pub load: Load,
    /// What it does now.
    pub state: UnitState,
    /// `SubState`, for people.
    pub sub_state: String,
    /// How it is started at boot.
    pub enablement: Enablement,
    /// `UnitFileState`, for people.
    pub file_state: String,
    /// How often systemd started it again after it ended, since someone started it; `None` when systemd does not say.
    pub restarts: Option<u32>,
    /// `Result` of its last run, such as `exit-code`; `success` while all is well.
    pub result: String,
}

/// `LoadState`, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// It can be started.
    Loaded,
    /// Someone forbade to start it.
    Masked,
    /// Its file is broken: `bad-setting`, `error`.
    Broken,
}

/// `ActiveState`, with the one sub-state that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitState {
    /// It runs.
    Active,
    /// It is about to run, or about to end.
    Changing,
    /// It has ended by itself and is about to be started again.
    Restarting,
    /// It does not run, and was not asked to or ended well.
    Inactive,
    /// It does not run because it failed.
    Failed,
}

impl UnitState {
    /// From `ActiveState` and `SubState`. systemd 254 and later has three more sub-states of a service between two runs, all
    /// named after the first (`src/core/service.c`).
    pub fn parse(active: &str, sub: &str) -> Self {
        match active {
            _ if sub.contains("auto-restart") => Self::Restarting,
            "active" | "reloading" | "refreshing" => Self::Active,
            "activating" | "deactivating" | "maintenance" => Self::Changing,
            "failed" => Self::Failed,
            _ => Self::Inactive,
        }
    }
}

/// Who starts the unit at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enablement {
    /// An `[Install]` section that is in force.
    Enabled,
    /// A rule of udev, and no `[Install]` section: `systemctl enable` changes nothing.
    Static,
    /// No one.
    Disabled,
}

impl Enablement {
    /// From `UnitFileState`, and whether another unit (the channel's device) wants it, as a rule of udev makes it do even
    /// for a disabled one.
    pub fn parse(file_state: &str, is_wanted: bool) -> Self {
        match file_state {
            "enabled" | "enabled-runtime" | "alias" | "indirect" | "generated" => Self::Enabled,
            "static" | "transient" => Self::Static,
            _ if is_wanted => Self::Static,
            _ => Self::Disabled,
        }
    }
}

/// The two ends of the channel, as the kernel's driver tells them to root (`virtio-ports` in debugfs).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Whether a program in this machine holds it open.
    pub guest: Fact<bool>,
    /// Whether someone on the host does: libvirt, for KubeVirt.
    pub host: Fact<bool>,
}

/// Makers of distributions whose commands differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Debian, Ubuntu.
    Debian,
    /// Fedora, EL and its rebuilds.
    RedHat,
    /// openSUSE, SLE, SL Micro.
    Suse,
    /// Any other.
    Other,
}

impl Family {
    /// From `ID` and `ID_LIKE` of os-release(5).
    pub fn of(id: &str, id_like: &str) -> Self {
        let names = [id, id_like];
        let is = |known: &[&str]| {
            names.iter().any(|names| {
                let mut names = names.split_whitespace();
                names.any(|name| known.iter().any(|prefix| name.starts_with(prefix)))
            })
        };
        match () {
            () if is(&["debian", "ubuntu"]) => Self::Debian,
            () if is(&["fedora", "rhel", "centos"]) => Self::RedHat,
            () if is(&["suse", "opensuse", "sles", "sled", "sl-micro", "sle-micro"]) => Self::Suse,
            () => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sub_state_between_two_runs_counts_as_restarting() {
        for (active, sub, state) in [
            ("active", "running", UnitState::Active),
            ("reloading", "reload", UnitState::Active),
            ("activating", "start", UnitState::Changing),
            ("deactivating", "stop-sigterm", UnitState::Changing),
            ("activating", "auto-restart", UnitState::Restarting),
            ("activating", "auto-restart-queued", UnitState::Restarting),
            (
                "inactive",
                "dead-before-auto-restart",
                UnitState::Restarting,
            ),
            (
                "failed",
                "failed-before-auto-restart",
                UnitState::Restarting,
            ),
            ("inactive", "dead", UnitState::Inactive),
            ("failed", "failed", UnitState::Failed),
            ("", "", UnitState::Inactive),
        ] {
            assert_eq!(UnitState::parse(active, sub), state, "{active}/{sub}");
        }
    }

    #[test]
    fn static_counts_and_so_does_a_disabled_unit_that_its_device_wants() {
        for (file_state, is_wanted, enablement) in [
            ("enabled", false, Enablement::Enabled),
            ("enabled-runtime", false, Enablement::Enabled),
            ("indirect", false, Enablement::Enabled),
            ("generated", false, Enablement::Enabled),
            ("static", false, Enablement::Static),
            ("disabled", true, Enablement::Static),
            ("disabled", false, Enablement::Disabled),
            ("masked", false, Enablement::Disabled),
            ("", false, Enablement::Disabled),
        ] {
            assert_eq!(Enablement::parse(file_state, is_wanted), enablement);
        }
    }

    #[test]
    fn the_family_is_recognized_by_name_or_likeness() {
        for (id, id_like, family) in [
            ("debian", "", Family::Debian),
            ("ubuntu", "debian", Family::Debian),
            ("rocky", "rhel centos fedora", Family::RedHat),
            ("fedora", "", Family::RedHat),
            ("opensuse-leap", "suse opensuse", Family::Suse),
            ("sl-micro", "", Family::Suse),
            ("arch", "", Family::Other),
            ("", "", Family::Other),
        ] {
            assert_eq!(Family::of(id, id_like), family, "{id}");
        }
    }
}
