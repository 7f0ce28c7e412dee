// SPDX-License-Identifier: Apache-2.0
//! Determines the health of the QEMU guest agent, and the cause if it is not healthy.
//!
//! Only one cause is reported, the first on the path from the host to the program: the channel, the unit, what KubeVirt says of it.

use std::time::Duration;

use super::action::DesiredCondition;
use super::conditions::{explained, plain};
use crate::catalog::{Code, Finding, kebab};
use crate::facts::Fact;
use crate::facts::guest_agent::{Enablement, Family, GuestAgent, HostView, Unit, UnitState};
use crate::sys::escape::shell_word;

/// The type of the condition.
pub const CONDITION: &str = "QemuGuestAgentReady";

/// The time after a restart in which the agent is not healthy. An agent that crashes every few minutes must not be healthy in
/// between.
const RESTART_COUNTS: Duration = Duration::from_secs(10 * 60);

/// The time for which a state that may pass by itself must last before it is reported. A live migration disconnects the agent for
/// some seconds, and KubeVirt calls it unsupported until it has asked for its commands. The bus may restart, and systemd may reload
/// its units.
const LASTS: Duration = Duration::from_secs(60);

/// The time for which the unit must be inactive before we start it. A package upgrade stops and starts the unit.
const STANDS_LEAST: Duration = Duration::from_secs(10);

/// The minimum time between two starts by this agent.
const START_AGAIN_AFTER: Duration = Duration::from_secs(10 * 60);

/// Declares the states, each with the finding that explains it and the message of its condition.
macro_rules! states {
    ($($(#[$doc:meta])* $state:ident, $code:expr, $message:literal;)*) => {
        /// The health of the QEMU guest agent.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum GuestAgentHealth {
            $($(#[$doc])* $state,)*
        }

        impl GuestAgentHealth {
            /// All states.
            pub const ALL: &[Self] = &[$(Self::$state),*];

            fn row(self) -> (Option<Code>, &'static str) {
                match self {
                    $(Self::$state => ($code, $message),)*
                }
            }
        }
    };
}

states! {
    /// The agent runs, and nothing is wrong with it.
    Healthy, None, "qemu-guest-agent is running";
    /// The agent runs, but is not connected to the host.
    NotConnected, Some(Code::GuestAgentNotConnected), "qemu-guest-agent is running, but KubeVirt reports that it is not connected";
    /// The agent runs, but lacks or blocks RPCs that KubeVirt requires.
    NotSupported, Some(Code::GuestAgentNotSupported), "qemu-guest-agent lacks or blocks RPCs that KubeVirt requires";
    /// systemd restarted the unit recently or is about to restart it.
    Restarting, Some(Code::GuestAgentRestarting), "qemu-guest-agent keeps restarting";
    /// The unit is starting or stopping.
    Changing, None, "qemu-guest-agent is starting or stopping";
    /// The agent is not running.
    NotRunning, Some(Code::GuestAgentNotRunning), "qemu-guest-agent is not running";
    /// The agent is not running, and its unit is disabled.
    Disabled, Some(Code::GuestAgentNotRunning), "qemu-guest-agent is installed, but its unit is disabled";
    /// The agent is not running, and its unit is masked.
    Masked, Some(Code::GuestAgentNotRunning), "the unit of qemu-guest-agent is masked";
    /// The agent is not installed.
    NotInstalled, Some(Code::GuestAgentNotInstalled), "qemu-guest-agent is not installed";
    /// The VM has no channel for the agent.
    ChannelMissing, Some(Code::GuestAgentChannelMissing), "the VM has no virtio-serial channel for qemu-guest-agent";
    /// The state cannot be determined.
    Unknown, None, "the state of qemu-guest-agent is unknown";
}

impl GuestAgentHealth {
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

    /// Reports whether a live migration causes this state for some seconds.
    fn may_pass(self) -> bool {
        matches!(self, Self::NotConnected | Self::NotSupported)
    }

    /// Returns the name in reports: the code of the finding that explains the state, if there is one.
    pub fn name(self) -> String {
        kebab(self.reason())
    }

    /// Returns the reason of the condition `QemuGuestAgentReady`.
    pub fn reason(self) -> &'static str {
        match (self, self.row()) {
            (_, (Some(code), _)) => code.reason(),
            (Self::Healthy, _) => "Healthy",
            (Self::Changing, _) => "Changing",
            _ => "StateUnknown",
        }
    }
}

/// The state that is kept between two observations. Times are since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The state that was observed last, and the time since which it is this one.
    state: Option<(GuestAgentHealth, Duration)>,
    /// The unit and the number of its automatic restarts (`NRestarts`).
    restarts: Option<(String, u32)>,
    /// The time when that number was last observed to increase.
    restarted: Option<Duration>,
    /// The time of the last start by this agent.
    pub(super) started: Option<Duration>,
}

impl Memory {
    /// Records an observation at `now`; `host` is known only while the VM is.
    pub fn note(&mut self, seen: &Fact<GuestAgent>, host: Option<&HostView>, now: Duration) {
        if let Some(unit) = unit(seen)
            && let Some(count) = unit.restarts
        {
            let grew = |(name, before): &(String, u32)| *name == unit.name && count > *before;
            if self.restarts.as_ref().is_some_and(grew) {
                self.restarted = Some(now);
            }
            self.restarts = Some((unit.name.clone(), count));
        }
        let counts = |at| now.saturating_sub(at) < RESTART_COUNTS;
        let state = judge(seen, host, self.restarted.is_some_and(counts));
        let same = self
            .state
            .filter(|(before, _)| *before == state || before.may_pass() && state.may_pass());
        self.state = Some((state, same.map_or(now, |(_, since)| since)));
    }

    /// Returns the health at `now`.
    pub fn health(&self, now: Duration) -> GuestAgentHealth {
        match self.state {
            Some((state, since)) if state.may_pass() && now.saturating_sub(since) < LASTS => {
                GuestAgentHealth::Healthy
            }
            Some((state, _)) => state,
            None => GuestAgentHealth::Unknown,
        }
    }

    /// Returns the desired condition; `None` while the present one stays: the unit is starting or stopping, or a state that may pass
    /// by itself has lasted for a short time only.
    pub fn condition(&self, now: Duration) -> Option<DesiredCondition> {
        condition(self.health(now)).filter(|_| self.wait_to_tell(now).is_none())
    }

    /// Returns how long to wait until a state that may pass by itself is reported.
    pub fn wait_to_tell(&self, now: Duration) -> Option<Duration> {
        let (state, since) = self.state?;
        let left = (since + LASTS).saturating_sub(now);
        let is_waiting = state == GuestAgentHealth::Unknown || state.may_pass();
        (is_waiting && !left.is_zero()).then_some(left)
    }

    /// Returns how long to wait before an inactive unit is started, if it can be started after that: never if an administrator masked
    /// or disabled it, and not again within ten minutes, whatever the result.
    pub fn wait_to_start(&self, now: Duration) -> Option<Duration> {
        let stopped = self
            .state
            .filter(|(state, _)| *state == GuestAgentHealth::NotRunning);
        let due = stopped?.1 + STANDS_LEAST;
        let again = self
            .started
            .map_or(due, |at| due.max(at + START_AGAIN_AFTER));
        Some(again.saturating_sub(now))
    }
}

fn unit(seen: &Fact<GuestAgent>) -> Option<&Unit> {
    seen.known().and_then(|agent| agent.unit.known())
}

fn judge(
    seen: &Fact<GuestAgent>,
    host: Option<&HostView>,
    is_restarting: bool,
) -> GuestAgentHealth {
    let Some(agent) = seen.known() else {
        return GuestAgentHealth::Unknown;
    };
    if !agent.has_channel {
        return GuestAgentHealth::ChannelMissing;
    }
    let running = match host {
        Some(HostView::Disconnected) => GuestAgentHealth::NotConnected,
        Some(HostView::NotSupported(_)) => GuestAgentHealth::NotSupported,
        Some(HostView::Connected) | None => GuestAgentHealth::Healthy,
    };
    let unit = match &agent.unit {
        Fact::Known(unit) => unit,
        // If systemd has no such unit or does not respond, the program that has the channel open is the agent.
        _ if host.is_some_and(|host| *host != HostView::Disconnected) => return running,
        Fact::Absent => return GuestAgentHealth::NotInstalled,
        Fact::Failed(_) => return GuestAgentHealth::Unknown,
    };
    match (unit.state, unit.enablement) {
        (UnitState::Active, _) if is_restarting => GuestAgentHealth::Restarting,
        (UnitState::Active, _) => running,
        (UnitState::Restarting, _) => GuestAgentHealth::Restarting,
        (UnitState::Changing, _) => GuestAgentHealth::Changing,
        (UnitState::Inactive | UnitState::Failed, Enablement::Masked) => GuestAgentHealth::Masked,
        (UnitState::Inactive | UnitState::Failed, Enablement::Disabled) => {
            GuestAgentHealth::Disabled
        }
        (UnitState::Inactive | UnitState::Failed, _) => GuestAgentHealth::NotRunning,
    }
}

/// Returns the condition of a state; `None` while the unit is starting or stopping.
pub fn condition(health: GuestAgentHealth) -> Option<DesiredCondition> {
    let status = match (health, health.row()) {
        (_, (Some(code), message)) => return Some(explained(CONDITION, code, "False", message)),
        (GuestAgentHealth::Changing, _) => return None,
        (GuestAgentHealth::Unknown, _) => "Unknown",
        _ => "True",
    };
    Some(plain(CONDITION, status, health.reason(), health.row().1))
}

/// Returns the findings: the cause, with the commands for this system.
pub fn findings(
    seen: &Fact<GuestAgent>,
    host: Option<&HostView>,
    health: GuestAgentHealth,
) -> Vec<Finding> {
    let unit = unit(seen);
    let cause = match (health, seen.known(), unit) {
        (GuestAgentHealth::NotConnected, ..) => {
            let text = "condition AgentConnected of the VMI is not True";
            Some(Finding::new(Code::GuestAgentNotConnected, text))
        }
        (GuestAgentHealth::NotSupported, ..) => {
            let why = match host {
                Some(HostView::NotSupported(why)) => why,
                _ => "",
            };
            let text = format!("condition AgentVersionNotSupported of the VMI: {why}");
            Some(Finding::new(Code::GuestAgentNotSupported, text))
        }
        (GuestAgentHealth::Restarting, _, Some(unit)) => {
            Some(Finding::new(Code::GuestAgentRestarting, unit.name.as_str()))
        }
        (
            GuestAgentHealth::NotRunning | GuestAgentHealth::Disabled | GuestAgentHealth::Masked,
            _,
            Some(unit),
        ) => Some(with_systemctl(
            Code::GuestAgentNotRunning,
            unit,
            match (unit.state, unit.enablement) {
                (_, Enablement::Masked) => &["unmask", "start"],
                (UnitState::Failed, _) => &["--no-pager status", "reset-failed", "start"],
                (_, Enablement::Disabled) => &["enable --now"],
                (_, Enablement::Static | Enablement::Enabled) => &["start"],
            },
        )),
        (GuestAgentHealth::NotInstalled, Some(agent), _) => Some(not_installed(agent)),
        (GuestAgentHealth::ChannelMissing, ..) => {
            let text = "there is no virtio-serial port org.qemu.guest_agent.0";
            Some(Finding::new(Code::GuestAgentChannelMissing, text))
        }
        _ => None,
    };
    let running = unit.filter(|unit| unit.state == UnitState::Active);
    let next_boot = running.and_then(|unit| {
        let verb = match unit.enablement {
            Enablement::Masked => "unmask",
            Enablement::Disabled => "enable",
            Enablement::Enabled | Enablement::Static => return None,
        };
        Some(with_systemctl(Code::GuestAgentNotEnabled, unit, &[verb]))
    });
    cause.into_iter().chain(next_boot).collect()
}

/// Returns a finding about the state of the unit, which these commands of systemctl fix.
fn with_systemctl(code: Code, unit: &Unit, verbs: &[&str]) -> Finding {
    let name = shell_word(&unit.name);
    let command = |verb: &&str| format!("systemctl {verb} {name}");
    let commands: Vec<String> = verbs.iter().map(command).collect();
    Finding::new(code, format!("{}: {}", unit.name, unit.shown))
        .with_remedy(commands.join(", then "))
        .with_commands(commands)
}

fn not_installed(agent: &GuestAgent) -> Finding {
    let asked = match agent.is_requested {
        true => {
            ", although the user data names it: cloud-init installs packages only at the first boot, and \
             /var/log/cloud-init-output.log shows whether that failed"
        }
        false => "",
    };
    let text = format!("systemd has no unit qemu-guest-agent or qemu-ga{asked}");
    let finding = Finding::new(Code::GuestAgentNotInstalled, text);
    let install = match agent.family {
        Family::Debian => "apt-get update && apt-get install qemu-guest-agent",
        Family::RedHat => "dnf install qemu-guest-agent",
        Family::Suse => {
            "zypper install qemu-guest-agent  # SL Micro: transactional-update pkg install qemu-guest-agent, then reboot"
        }
        // The commands of the catalog.
        Family::Other => return finding,
    };
    let commands = [install, "systemctl enable --now qemu-guest-agent"];
    finding.with_commands(commands.map(str::to_owned).to_vec())
}

/// Returns the unit to start at `now`, if the configuration allows it.
pub fn unit_to_start(seen: &Fact<GuestAgent>, memory: &Memory, now: Duration) -> Option<String> {
    let is_time = memory.wait_to_start(now) == Some(Duration::ZERO);
    Some(unit(seen)?.name.clone()).filter(|_| is_time)
}

#[cfg(test)]
mod tests;
