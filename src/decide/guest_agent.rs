// SPDX-License-Identifier: Apache-2.0
//! Whether QEMU's guest agent does its work for the host, and if not, what is in its way.
//!
//! One cause at a time is named, the first on the way from the host to the program: the channel, the unit, the program, the
//! commands that it may run.

mod remedy;

use std::time::Duration;

use super::conditions::{DesiredCondition, kebab};
use crate::catalogue::{Code, Finding};
use crate::facts::guest_agent::{Block, Enablement, GuestAgent, Load, RpcFilter, Unit, UnitState};
use crate::facts::{Fact, UnavailableKind};

/// Type of the condition.
pub const CONDITION: &str = "QemuGuestAgentReady";

/// The commands without which KubeVirt takes an agent for an unsupported one (`pkg/virt-handler/guestagent.go`).
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

/// For how long a restart counts: an agent that crashes each few minutes is not healthy in between.
const RESTART_COUNTS: Duration = Duration::from_secs(10 * 60);

/// For how long the host must be away. During a live migration it is for some seconds, and nothing is wrong.
const DETACHED_LEAST: Duration = Duration::from_secs(60);

/// For how long it must not be known how it is before that is said: the bus restarts, and systemd reads its units again.
const UNKNOWN_LEAST: Duration = Duration::from_secs(60);

/// For how long it must have stood still before we start it: a package that is upgraded stops and starts it.
const STANDS_LEAST: Duration = Duration::from_secs(10);

/// Between two starts by us.
const START_AGAIN_AFTER: Duration = Duration::from_secs(10 * 60);

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestAgentHealth {
    /// It runs, and may run what the host needs.
    Healthy,
    /// It runs, and no one on the host listens.
    HostNotAttached,
    /// It runs, and may not run what the host needs.
    RpcsBlocked,
    /// It ended by itself a short while ago, or has just done so.
    Restarting,
    /// It is about to run or to end.
    Changing,
    /// It does not run.
    NotRunning,
    /// It does not run, and no one starts it.
    Disabled,
    /// It does not run, and may not be started.
    Masked,
    /// It is not there.
    NotInstalled,
    /// The host offers no channel.
    ChannelMissing,
    /// It cannot be determined.
    Unknown,
}

impl GuestAgentHealth {
    /// Every state.
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

    /// Returns the name used in reports: the reason in kebab-case.
    pub fn name(self) -> String {
        kebab(self.reason())
    }

    /// Returns the reason of the condition `QemuGuestAgentReady`. A finding has it in its code, after `guest-agent-`.
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

/// What is remembered between two readings. Times are since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The unit and how often systemd had started it again.
    restarts: Option<(String, u32)>,
    /// When that number was last seen to have grown.
    restarted: Option<Duration>,
    /// Since when the host is away, and when that was read last.
    detached: Option<(Duration, Duration)>,
    /// Since when it could be started and does not run.
    stands: Option<Duration>,
    /// Since when nothing is known of its unit.
    unknown: Option<Duration>,
    /// When we started it.
    started: Option<Duration>,
}

impl Memory {
    /// Takes in a reading at `now`. A failed one changes nothing.
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

    /// Takes in that we started the unit.
    pub fn note_start(&mut self, now: Duration) {
        self.started = Some(now);
    }

    /// Whether nothing has been known for so long that it is worth saying.
    pub fn is_long_unknown(&self, now: Duration) -> bool {
        self.unknown
            .is_some_and(|since| now.saturating_sub(since) >= UNKNOWN_LEAST)
    }

    /// How much longer a unit that stands still is left alone, where it is to be started then.
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

/// How it is at `now`, with `memory` that took in this reading.
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
        // Without a unit that systemd knows, a program that holds the channel is the agent.
        unknown => {
            let holder = agent
                .channel
                .known()
                .and_then(|channel| channel.guest.known());
            return match (holder, unknown) {
                (Some(true), _) => running(agent, memory),
                (Some(false) | None, Fact::Absent) => GuestAgentHealth::NotRunning,
                // A machine without a bus has no systemd that might be about to start it.
                (Some(false), Fact::Failed(why)) if why.kind == UnavailableKind::Missing => {
                    GuestAgentHealth::NotRunning
                }
                // systemd did not answer: its unit may run, or be just about to.
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

/// The required commands that may not be run, by what keeps them.
fn blocked(filter: &RpcFilter) -> Vec<(Block<'_>, &'static str)> {
    let mut blocked: Vec<_> = REQUIRED
        .into_iter()
        .filter_map(|rpc| Some((filter.block(rpc)?, rpc)))
        .collect();
    blocked.sort_unstable();
    blocked
}

/// Returns what the condition should say; `None` while that is changing.
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

/// What to report: the cause, with commands to type on this system.
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
                "there is neither /usr/bin/qemu-ga nor /usr/sbin/qemu-ga",
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

/// The unit that is to be started at `now`, where the configuration allows it: one that could run and has not for a while.
/// Never again within ten minutes, whatever came of it; never one that someone masked or disabled.
pub fn unit_to_start<'a>(
    seen: &'a Fact<GuestAgent>,
    memory: &Memory,
    now: Duration,
) -> Option<&'a str> {
    let unit = startable(seen.known()?)?;
    let is_time = memory.stands.is_some() && memory.wait_to_start(now).is_none();
    is_time.then_some(unit.name.as_str())
}

/// The unit, where nothing but a start is missing.
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
