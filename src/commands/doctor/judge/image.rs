// SPDX-License-Identifier: Apache-2.0
//! Checks for an identity that came from the image, and whether the agent starts at the next boot.

use super::{Case, date};
use crate::catalog::{Code, Finding};
use crate::commands::doctor::facts::image::Belonging;

/// The maximum time in seconds between the creation of the machine-id and the first run of cloud-init: a boot takes minutes, and
/// images are built days before.
const FIRST_BOOT_MAX: i64 = 3600;

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
        let inherited = belongings
            .iter()
            .filter(|belonging| began.saturating_sub(belonging.written) > FIRST_BOOT_MAX);
        findings.extend(inherited.map(|belonging| brought(belonging, *began)));
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
