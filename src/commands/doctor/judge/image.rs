// SPDX-License-Identifier: Apache-2.0
//! Checks for an identity that came from the image, and whether the agent starts at the next boot.

use super::{Case, date};
use crate::catalog::{Code, Finding};
use crate::commands::doctor::facts::image::Belonging;

/// The maximum time in seconds between the creation of the machine-id and the first run of cloud-init: a boot takes minutes, and
/// images are built days before.
const FIRST_BOOT_MAX: i64 = 3600;

/// The step for a VM that is newer than its files: the time at which the Node registered proves it.
const NEW_MACHINE_ID: &str = "For the machine-id alone: drain the Node, `rm -f /etc/machine-id /var/lib/dbus/machine-id`, \
                              `systemd-machine-id-setup`, then reboot.";

/// Returns the findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    let image = &case.examination.image;
    let mut findings = Vec::new();
    if let (Some(false), Some(unit)) = (image.starts_agent(), image.unit.known()) {
        let state = if unit.is_masked {
            "masked"
        } else {
            "not enabled"
        };
        let text = format!("{} is {state}", unit.name);
        findings.push(Finding::new(Code::AgentNotEnabled, text));
    }
    if let (Some(began), Some(belongings)) = (image.began.known(), image.belongings.known()) {
        let created = case.examination.node.created.known();
        // A Node that is older than that run of cloud-init: it was not the first one. After `cloud-init clean`, all files are older.
        if created.is_some_and(|created| created < began) {
            return findings;
        }
        let inherited = belongings
            .iter()
            .filter(|belonging| began.saturating_sub(belonging.written) > FIRST_BOOT_MAX);
        let inherited = inherited.map(|belonging| brought(belonging, *began));
        findings.extend(inherited.map(|finding| {
            let steps = finding.fix().into_iter();
            let steps = steps.chain(created.map(|_| NEW_MACHINE_ID));
            let steps = steps.map(str::to_owned).collect();
            finding.with_steps(steps)
        }));
    }
    findings
}

fn brought(belonging: &Belonging, began: i64) -> Finding {
    let path = belonging.path.display();
    let text = format!(
        "{path} was written at {}; first boot (cloud-init) at {}",
        date(belonging.written),
        date(began)
    );
    Finding::new(Code::IdentityFromImage, text)
}

#[cfg(test)]
mod tests;
