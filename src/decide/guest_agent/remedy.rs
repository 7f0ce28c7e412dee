// SPDX-License-Identifier: Apache-2.0
//! Commands for this system that fix a guest agent that is not healthy.

use std::collections::BTreeMap;

use crate::catalog::{Code, Finding};
use crate::facts::guest_agent::{Block, Enablement, Family, Load, UNITS, Unit, UnitState};

/// Returns the name of the unit, or the newest known name if there is no unit.
pub(super) fn name(unit: Option<&Unit>) -> &str {
    let [newest, ..] = UNITS;
    unit.map_or(newest, |unit| unit.name.as_str())
}

/// Returns the name of the unit as a shell argument.
fn argument(unit: Option<&Unit>) -> String {
    let name = name(unit);
    match name.contains('\\') {
        true => format!("'{name}'"),
        false => name.to_owned(),
    }
}

/// Returns the state of the unit, in one line that does not change while the state is the same.
pub(super) fn state(unit: Option<&Unit>) -> String {
    let Some(unit) = unit else {
        return "no unit of qemu-guest-agent, and no program uses its channel".to_owned();
    };
    let state = match unit.state {
        UnitState::Active => "runs",
        UnitState::Failed => "failed",
        UnitState::Changing | UnitState::Restarting | UnitState::Inactive => "is not running",
    };
    let why = match (unit.load, unit.enablement) {
        (Load::Masked, _) => ", masked".to_owned(),
        (Load::Broken, _) => ", its unit file is invalid".to_owned(),
        _ if unit.state == UnitState::Failed => format!(": {}", unit.result),
        (Load::Loaded, Enablement::Disabled) => ", disabled".to_owned(),
        (Load::Loaded, Enablement::Enabled | Enablement::Static) => {
            format!(", {}", unit.file_state)
        }
    };
    format!("{} {state}{why}", unit.name)
}

pub(super) fn install(family: Family) -> String {
    match family {
        Family::Debian => "apt-get install qemu-guest-agent, then systemctl start qemu-guest-agent; at boot udev starts it",
        Family::RedHat => "dnf install qemu-guest-agent, then systemctl enable --now qemu-guest-agent",
        Family::Suse => {
            "zypper install qemu-guest-agent, then systemctl enable --now qemu-guest-agent; on SL Micro: \
             transactional-update pkg install qemu-guest-agent, then reboot"
        }
        Family::Other => "Install the package qemu-guest-agent of your OS.",
    }
    .to_owned()
}

pub(super) fn install_commands(family: Family) -> Vec<String> {
    let commands: &[&str] = match family {
        Family::Debian => &[
            "apt-get install qemu-guest-agent",
            "systemctl start qemu-guest-agent",
        ],
        Family::RedHat => &[
            "dnf install qemu-guest-agent",
            "systemctl enable --now qemu-guest-agent",
        ],
        Family::Suse => &[
            "zypper install qemu-guest-agent",
            "systemctl enable --now qemu-guest-agent",
        ],
        Family::Other => &[],
    };
    commands.iter().map(ToString::to_string).collect()
}

/// Returns the commands of [`start`], in the same order.
pub(super) fn start_commands(unit: Option<&Unit>) -> Vec<String> {
    let argument = argument(unit);
    let Some(unit) = unit else {
        return Vec::new();
    };
    let verbs: &[&str] = match (unit.load, unit.state, unit.enablement) {
        (Load::Masked, ..) => &["unmask", "start"],
        (Load::Broken, ..) => &["--no-pager status"],
        (_, UnitState::Failed, _) => &["--no-pager status", "reset-failed", "start"],
        (.., Enablement::Disabled) => &["enable --now"],
        (.., Enablement::Static | Enablement::Enabled) => &["start"],
    };
    let verbs = verbs.iter();
    verbs
        .map(|verb| format!("systemctl {verb} {argument}"))
        .collect()
}

pub(super) fn start(unit: Option<&Unit>) -> String {
    let argument = argument(unit);
    let Some(unit) = unit else {
        return "Install the package of your OS, which includes the unit, or start qemu-ga as at boot.".to_owned();
    };
    match (unit.load, unit.state, unit.enablement) {
        (Load::Masked, ..) => {
            format!("systemctl unmask {argument}, then systemctl start {argument}")
        }
        (Load::Broken, ..) => {
            format!("systemctl status {argument} shows the error in its unit file")
        }
        (_, UnitState::Failed, _) => format!(
            "journalctl -b -u {argument} shows why; then systemctl reset-failed {argument} and systemctl start {argument}"
        ),
        (.., Enablement::Disabled) => format!("systemctl enable --now {argument}"),
        (.., Enablement::Static) => format!(
            "systemctl start {argument}; systemctl enable changes nothing, because udev starts it when the channel appears"
        ),
        (.., Enablement::Enabled) => format!("systemctl start {argument}"),
    }
}

pub(super) fn enable(unit: &Unit) -> String {
    let argument = argument(Some(unit));
    match unit.load {
        Load::Masked => format!("systemctl unmask {argument}"),
        Load::Loaded | Load::Broken => format!("systemctl enable {argument}"),
    }
}

pub(super) fn journal(unit: Option<&Unit>) -> String {
    format!("journalctl --no-pager -b -n 50 -u {}", argument(unit))
}

/// Returns the finding for blocked commands, grouped by the list that blocks them.
pub(super) fn unblock(blocked: &[(Block<'_>, &str)], unit: Option<&Unit>) -> Finding {
    let mut lists: BTreeMap<Block<'_>, Vec<&str>> = BTreeMap::new();
    for (block, rpc) in blocked {
        lists.entry(*block).or_default().push(rpc);
    }
    let mut seen = Vec::new();
    let mut steps = Vec::new();
    for (block, commands) in lists {
        let commands = commands.join(", ");
        let (origin, step) = match block {
            Block::Listed(origin) => (origin, format!("remove {commands} from {origin}")),
            Block::NotAllowed(origin) => (origin, format!("add {commands} to {origin}")),
        };
        seen.push(format!("{commands} by {origin}"));
        steps.push(step);
    }
    let restart = format!("systemctl restart {}", argument(unit));
    Finding::new(Code::GuestAgentRpcsBlocked, seen.join("; "))
        .with_remedy(format!("{}; then {restart}", steps.join("; ")))
        .with_commands(vec![restart])
}
