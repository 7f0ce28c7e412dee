// SPDX-License-Identifier: Apache-2.0
//! Determines the health of the QEMU guest agent, and the cause if it is not healthy.
//!
//! Only one cause is reported, the first on the path from the host to the program: the channel, the unit, the program, the
//! commands that it may run.

mod remedy;

use std::time::Duration;

use super::conditions::{DesiredCondition, kebab};
use crate::catalog::{Code, Finding};
use crate::facts::guest_agent::{Block, Enablement, GuestAgent, Load, RpcFilter, Unit, UnitState};
use crate::facts::{Fact, UnavailableKind};

/// The type of the condition.
pub const CONDITION: &str = "QemuGuestAgentReady";

/// The commands that KubeVirt requires of a supported guest agent (`pkg/virt-handler/guestagent.go`).
pub const REQUIRED: [&str; 10] = [
    "guest-ping",
    "guest-get-time",
    "guest-info",
    "guest-shutdown",
    "guest-network-get-interfaces",
    "guest-get-fsinfo",
    "guest-get-host-name",
    "guest-get-users",
    "guest-get-timezone",
    "guest-get-osinfo",
];

/// The time after a restart in which the agent is not healthy. An agent that crashes every few minutes must not be healthy in
/// between.
const RESTART_COUNTS: Duration = Duration::from_secs(10 * 60);

/// The time for which the host must be disconnected before it is reported. A live migration disconnects it for some seconds.
const DETACHED_LEAST: Duration = Duration::from_secs(60);

/// The time for which the state must be unknown before it is reported. The bus may restart, and systemd may reload its units.
const UNKNOWN_LEAST: Duration = Duration::from_secs(60);

/// The time for which the unit must be inactive before we start it. A package upgrade stops and starts the unit.
const STANDS_LEAST: Duration = Duration::from_secs(10);

/// The minimum time between two starts by this agent.
const START_AGAIN_AFTER: Duration = Duration::from_secs(10 * 60);

/// The health of the QEMU guest agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestAgentHealth {
    /// The agent runs and accepts all RPCs that the host needs.
    Healthy,
    /// The agent runs, but the host is not connected to its channel.
    HostNotAttached,
    /// The agent runs, but blocks RPCs that the host needs.
    RpcsBlocked,
    /// systemd restarted the unit recently or is about to restart it.
    Restarting,
    /// The unit is starting or stopping.
    Changing,
    /// The agent is not running.
    NotRunning,
    /// The agent is not running, and its unit is disabled.
    Disabled,
    /// The agent is not running, and its unit is masked.
    Masked,
    /// The agent is not installed.
    NotInstalled,
    /// The VM has no channel for the agent.
    ChannelMissing,
    /// The state cannot be determined.
    Unknown,
}

impl GuestAgentHealth {
    /// All states.
    pub const ALL: [Self; 11] = [
        Self::Healthy,
        Self::HostNotAttached,
        Self::RpcsBlocked,
        Self::Restarting,
        Self::Changing,
        Self::NotRunning,
        Self::Disabled,
        Self::Masked,
        Self::NotInstalled,
        Self::ChannelMissing,
        Self::Unknown,
    ];

    /// Reports whether the host cannot ask the agent anything such as for the hostname, until a user acts.
    pub fn is_silent(self) -> bool {
        matches!(
            self,
            Self::NotRunning
                | Self::Disabled
                | Self::Masked
                | Self::NotInstalled
                | Self::ChannelMissing
        )
    }

    /// Returns the name used in reports: the reason in kebab-case.
    pub fn name(self) -> String {
        kebab(self.reason())
    }

    /// Returns the reason of the condition `QemuGuestAgentReady`. The code of a finding contains it, after `guest-agent-`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::HostNotAttached => "HostNotAttached",
            Self::RpcsBlocked => "RPCsBlocked",
            Self::Restarting => "Restarting",
            Self::Changing => "Changing",
            Self::NotRunning => "NotRunning",
            Self::Disabled => "UnitDisabled",
            Self::Masked => "UnitMasked",
            Self::NotInstalled => "NotInstalled",
            Self::ChannelMissing => "ChannelMissing",
            Self::Unknown => "StateUnknown",
        }
    }
}

/// The state that is kept between two observations. Times are since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The unit and the number of its automatic restarts (`NRestarts`).
    restarts: Option<(String, u32)>,
    /// The time when that number was last observed to increase.
    restarted: Option<Duration>,
    /// The time since which the host is disconnected, and the time of the last observation of it.
    detached: Option<(Duration, Duration)>,
    /// The time since which the unit is inactive and can be started.
    stands: Option<Duration>,
    /// The time since which the state of the unit is unknown.
    unknown: Option<Duration>,
    /// The time of the last start by this agent.
    started: Option<Duration>,
}

impl Memory {
    /// Records an observation at `now`. A failed one changes nothing.
    pub fn note(&mut self, seen: &Fact<GuestAgent>, now: Duration) {
        let is_unknown = judge(seen, self, now) == GuestAgentHealth::Unknown;
        self.unknown = is_unknown.then(|| self.unknown.unwrap_or(now));
        let Some(agent) = seen.known() else {
            return;
        };
        let stands = startable(agent).is_some();
        self.stands = stands.then(|| self.stands.unwrap_or(now));
        if let Some(unit) = agent.unit.known()
            && let Some(count) = unit.restarts
        {
            let grew = |(name, before): &(String, u32)| *name == unit.name && count > *before;
            if self.restarts.as_ref().is_some_and(grew) {
                self.restarted = Some(now);
            }
            self.restarts = Some((unit.name.clone(), count));
        }
        let host = agent
            .channel
            .known()
            .and_then(|channel| channel.host.known());
        match host {
            Some(false) => {
                let since = self.detached.map_or(now, |(since, _)| since);
                self.detached = Some((since, now));
            }
            Some(true) | None => self.detached = None,
        }
    }

    /// Records that this agent started the unit.
    pub fn note_start(&mut self, now: Duration) {
        self.started = Some(now);
    }

    /// Reports whether the state has been unknown for long enough to report it.
    pub fn is_long_unknown(&self, now: Duration) -> bool {
        self.unknown
            .is_some_and(|since| now.saturating_sub(since) >= UNKNOWN_LEAST)
    }

    /// Returns how long to wait before an inactive unit is started, if it can be started after that.
    pub fn wait_to_start(&self, now: Duration) -> Option<Duration> {
        let due = self.stands? + STANDS_LEAST;
        let again = self
            .started
            .map_or(due, |at| due.max(at + START_AGAIN_AFTER));
        Some(again.saturating_sub(now)).filter(|left| !left.is_zero())
    }

    fn restarted_lately(&self, now: Duration) -> bool {
        self.restarted
            .is_some_and(|at| now.saturating_sub(at) < RESTART_COUNTS)
    }

    fn is_detached(&self) -> bool {
        self.detached
            .is_some_and(|(since, read)| read.saturating_sub(since) >= DETACHED_LEAST)
    }
}

/// Returns the health at `now`. `memory` must include this observation.
pub fn judge(seen: &Fact<GuestAgent>, memory: &Memory, now: Duration) -> GuestAgentHealth {
    let Some(agent) = seen.known() else {
        return GuestAgentHealth::Unknown;
    };
    if agent.channel == Fact::Absent {
        return GuestAgentHealth::ChannelMissing;
    }
    let is_missing = agent.program == Fact::Absent;
    let unit = match &agent.unit {
        Fact::Known(unit) => unit,
        Fact::Absent | Fact::Failed(_) if is_missing => return GuestAgentHealth::NotInstalled,
        // If systemd has no such unit, the program that has the channel open is the agent.
        unknown => {
            let holder = agent
                .channel
                .known()
                .and_then(|channel| channel.guest.known());
            return match (holder, unknown) {
                (Some(true), _) => running(agent, memory),
                (Some(false) | None, Fact::Absent) => GuestAgentHealth::NotRunning,
                // A machine without a bus has no systemd that could start the unit.
                (Some(false), Fact::Failed(why)) if why.kind == UnavailableKind::Missing => {
                    GuestAgentHealth::NotRunning
                }
                // systemd did not answer: the unit may be active or starting.
                (Some(false) | None, _) => GuestAgentHealth::Unknown,
            };
        }
    };
    match unit.state {
        UnitState::Active if memory.restarted_lately(now) => GuestAgentHealth::Restarting,
        UnitState::Active => running(agent, memory),
        UnitState::Restarting => GuestAgentHealth::Restarting,
        UnitState::Changing => GuestAgentHealth::Changing,
        UnitState::Inactive | UnitState::Failed if unit.load == Load::Masked => {
            GuestAgentHealth::Masked
        }
        UnitState::Inactive | UnitState::Failed if is_missing => GuestAgentHealth::NotInstalled,
        UnitState::Inactive if unit.enablement == Enablement::Disabled => {
            GuestAgentHealth::Disabled
        }
        UnitState::Inactive | UnitState::Failed => GuestAgentHealth::NotRunning,
    }
}

fn running(agent: &GuestAgent, memory: &Memory) -> GuestAgentHealth {
    match () {
        () if !blocked(&agent.filter).is_empty() => GuestAgentHealth::RpcsBlocked,
        () if memory.is_detached() => GuestAgentHealth::HostNotAttached,
        () => GuestAgentHealth::Healthy,
    }
}

/// Returns the required commands that are blocked, sorted by the list that blocks them.
fn blocked(filter: &RpcFilter) -> Vec<(Block<'_>, &'static str)> {
    let mut blocked: Vec<_> = REQUIRED
        .into_iter()
        .filter_map(|rpc| Some((filter.block(rpc)?, rpc)))
        .collect();
    blocked.sort_unstable();
    blocked
}

/// Returns the desired condition; `None` while the unit is starting or stopping.
pub fn condition(health: GuestAgentHealth) -> Option<DesiredCondition> {
    let (status, message) = match health {
        GuestAgentHealth::Changing => return None,
        GuestAgentHealth::Healthy => ("True", "qemu-guest-agent is running"),
        GuestAgentHealth::HostNotAttached => (
            "False",
            "qemu-guest-agent is running, but the host is not connected to its channel",
        ),
        GuestAgentHealth::RpcsBlocked => {
            ("False", "qemu-guest-agent blocks RPCs that the host needs")
        }
        GuestAgentHealth::Restarting => ("False", "qemu-guest-agent keeps restarting"),
        GuestAgentHealth::NotRunning => ("False", "qemu-guest-agent is not running"),
        GuestAgentHealth::Disabled => (
            "False",
            "qemu-guest-agent is installed, but its unit is disabled",
        ),
        GuestAgentHealth::Masked => ("False", "the unit of qemu-guest-agent is masked"),
        GuestAgentHealth::NotInstalled => ("False", "qemu-guest-agent is not installed"),
        GuestAgentHealth::ChannelMissing => (
            "False",
            "the VM has no virtio-serial channel for qemu-guest-agent",
        ),
        GuestAgentHealth::Unknown => ("Unknown", "the state of qemu-guest-agent is unknown"),
    };
    Some(DesiredCondition {
        kind: CONDITION,
        status,
        reason: health.reason(),
        message: message.to_owned(),
    })
}

/// Returns the findings: the cause, with the commands for this system.
pub fn findings(seen: &Fact<GuestAgent>, health: GuestAgentHealth) -> Vec<Finding> {
    let Some(agent) = seen.known() else {
        return Vec::new();
    };
    let unit = agent.unit.known();
    let cause = match health {
        GuestAgentHealth::Healthy | GuestAgentHealth::Changing | GuestAgentHealth::Unknown => None,
        GuestAgentHealth::HostNotAttached => Some(Finding::new(
            Code::GuestAgentHostNotAttached,
            "host_connected is 0 for port org.qemu.guest_agent.0",
        )),
        GuestAgentHealth::RpcsBlocked => Some(remedy::unblock(&blocked(&agent.filter), unit)),
        GuestAgentHealth::Restarting => Some(
            Finding::new(Code::GuestAgentRestarting, remedy::name(unit))
                .with_remedy(remedy::journal(unit))
                .with_commands(vec![remedy::journal(unit)]),
        ),
        GuestAgentHealth::NotRunning | GuestAgentHealth::Disabled | GuestAgentHealth::Masked => {
            Some(
                Finding::new(Code::GuestAgentNotRunning, remedy::state(unit))
                    .with_remedy(remedy::start(unit))
                    .with_commands(remedy::start_commands(unit)),
            )
        }
        GuestAgentHealth::NotInstalled => Some(
            Finding::new(
                Code::GuestAgentNotInstalled,
                if agent.is_requested {
                    "there is neither /usr/bin/qemu-ga nor /usr/sbin/qemu-ga, although the user data names it: cloud-init installs \
                     packages only at the first boot, and /var/log/cloud-init-output.log shows whether that failed"
                } else {
                    "there is neither /usr/bin/qemu-ga nor /usr/sbin/qemu-ga"
                },
            )
            .with_remedy(remedy::install(agent.family))
            .with_commands(remedy::install_commands(agent.family)),
        ),
        GuestAgentHealth::ChannelMissing => Some(Finding::new(
            Code::GuestAgentChannelMissing,
            "there is no virtio-serial port org.qemu.guest_agent.0",
        )),
    };
    let forgotten = |unit: &&Unit| {
        unit.state == UnitState::Active
            && (unit.enablement == Enablement::Disabled || unit.load == Load::Masked)
    };
    let next_boot = unit.filter(forgotten).map(|unit| {
        Finding::new(Code::GuestAgentNotEnabled, remedy::state(Some(unit)))
            .with_remedy(remedy::enable(unit))
            .with_commands(vec![remedy::enable(unit)])
    });
    cause.into_iter().chain(next_boot).collect()
}

/// Returns the unit to start at `now`, if the configuration allows it: a unit that can run and has been inactive for a while. It
/// is not started again within ten minutes, whatever the result, and never if an administrator masked or disabled it.
pub fn unit_to_start<'a>(
    seen: &'a Fact<GuestAgent>,
    memory: &Memory,
    now: Duration,
) -> Option<&'a str> {
    let unit = startable(seen.known()?)?;
    let is_time = memory.stands.is_some() && memory.wait_to_start(now).is_none();
    is_time.then_some(unit.name.as_str())
}

/// Returns the unit if it only needs a start.
fn startable(agent: &GuestAgent) -> Option<&Unit> {
    let unit = agent.unit.known()?;
    agent.channel.known()?;
    let may = unit.load == Load::Loaded
        && unit.enablement != Enablement::Disabled
        && agent.program != Fact::Absent;
    let stands = matches!(unit.state, UnitState::Inactive | UnitState::Failed);
    (may && stands).then_some(unit)
}

#[cfg(test)]
mod tests;
