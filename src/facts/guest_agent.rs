// SPDX-License-Identifier: Apache-2.0
//! The QEMU guest agent (qemu-ga) of this machine, as systemd, the kernel and KubeVirt report it.

use super::fact::Fact;

/// The unit names of the agent, newest first: Debian, Ubuntu, Fedora, EL and openSUSE >= 15.3 with SLE >= 15 SP3; then SLE 15 <=
/// SP2; then older ones.
pub const UNITS: [&str; 3] = [
    "qemu-guest-agent.service",
    r"qemu-ga@virtio\x2dports-org.qemu.guest_agent.0.service",
    "qemu-ga.service",
];

/// The port of the channel. Only one process can read it, and that is qemu-ga: no other program may open it.
pub const PORT: &str = "org.qemu.guest_agent.0";

/// The systemd device unit of the port. All units of the agent are bound to it.
pub const DEVICE_UNIT: &str = r"dev-virtio\x2dports-org.qemu.guest_agent.0.device";

/// The facts of one observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAgent {
    /// The unit; `Absent` if systemd has none of [`UNITS`].
    pub unit: Fact<Unit>,
    /// Whether the VM has the channel to the host.
    pub has_channel: bool,
    /// The family of the OS, which determines the commands of a remedy.
    pub family: Family,
    /// Whether cloud-init's user data of this VM asks for the package.
    pub is_requested: bool,
}

/// The systemd unit of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The name, one of [`UNITS`].
    pub name: String,
    /// The active state.
    pub state: UnitState,
    /// The enablement: how it is started at boot.
    pub enablement: Enablement,
    /// `SubState` and `UnitFileState`, as text.
    pub shown: String,
    /// The number of automatic restarts since the last manual start (`NRestarts`); `None` if systemd does not report it.
    pub restarts: Option<u32>,
}

/// `ActiveState`, with one relevant sub-state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitState {
    /// The unit is active.
    Active,
    /// The unit is starting or stopping.
    Changing,
    /// The unit ended and will be restarted by systemd.
    Restarting,
    /// The unit was not started, or ended successfully.
    Inactive,
    /// The unit failed.
    Failed,
}

impl UnitState {
    /// Parses `ActiveState` and `SubState`. systemd 254 and later has three more sub-states of a service between two runs, whose
    /// names all contain `auto-restart` (`src/core/service.c`).
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

/// The mechanism that starts the unit at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enablement {
    /// An enabled `[Install]` section.
    Enabled,
    /// A udev rule without an `[Install]` section: `systemctl enable` has no effect.
    Static,
    /// None.
    Disabled,
    /// The unit is masked and cannot be started.
    Masked,
}

impl Enablement {
    /// Parses `UnitFileState`. `is_wanted` is true if another unit (the channel's device) wants this one, as with a udev rule,
    /// even for a disabled unit.
    pub fn parse(file_state: &str, is_wanted: bool) -> Self {
        match file_state {
            "enabled" | "enabled-runtime" | "alias" | "indirect" | "generated" => Self::Enabled,
            "masked" | "masked-runtime" => Self::Masked,
            "static" | "transient" => Self::Static,
            _ if is_wanted => Self::Static,
            _ => Self::Disabled,
        }
    }
}

/// What KubeVirt reports of the agent, in the conditions of the VirtualMachineInstance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostView {
    /// No program has the channel open (without `AgentConnected`).
    Disconnected,
    /// A program has the channel open (`AgentConnected`).
    Connected,
    /// It lacks or blocks commands that KubeVirt requires (`AgentVersionNotSupported`), with the reason.
    NotSupported(String),
}

/// The families of distributions with different commands.
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
    /// Returns the family for `ID` and `ID_LIKE` of os-release(5).
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
            ("masked", false, Enablement::Masked),
            ("masked-runtime", true, Enablement::Masked),
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
