// SPDX-License-Identifier: Apache-2.0
//! Did the identity of this machine come with the image, and does the agent start at the next boot? Only those checks of
//! `bake-check` that are useful on a running machine.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::catalog::{Code, Finding, Group};
use crate::commands::bake_check::unit::OURS as UNIT;
use crate::commands::doctor::case::Checked;
use crate::commands::doctor::objects::NodeObject;
use crate::commands::doctor::reads::{Reads, briefly};
use crate::facts::Fact;
use crate::facts::clock::date;
use crate::facts::guest_agent::Enablement;
use crate::observe::guest_agent::{file_state, why};
use crate::sys::root::Root;
use crate::wire::dbus::{Bus, BusError};

/// The directory in which cloud-init creates a file for each step at its first run on this machine.
const FIRST_RUN: &str = "/var/lib/cloud/instance/sem";

const MACHINE_ID: &str = "/etc/machine-id";

/// Files that must be unique to one machine: the identities that systemd, RKE2 and K3s create at first boot.
const BELONGINGS: [&str; 2] = [MACHINE_ID, "/etc/rancher/node/password"];

/// The maximum number of cloud-init files to check; there are about thirty.
const NOTES_MAX: usize = 200;

/// The maximum time in seconds between the creation of the machine-id and the first run of cloud-init: a boot takes minutes, and
/// images are built days before.
const FIRST_BOOT_MAX: i64 = 3600;

/// The step for a VM that is newer than its files: the time at which the Node registered proves it.
const NEW_MACHINE_ID: &str = "If another VM has this machine-id, and this node is a worker: drain the Node, `rm -f /etc/machine-id /var/lib/dbus/machine-id`, \
                              `systemd-machine-id-setup`, then reboot. If it is a server: replace the node.";

/// Reads modification times, and judges the state of our unit.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let root = reads.observer.root();
    let began = began(root);
    let began = checked.need(Group::Image, "the first boot of this VM", &began);
    let created = reads.node.known().and_then(NodeObject::created);
    for path in BELONGINGS {
        let (what, written) = ("machine-specific state from the image", written(root, path));
        let written = checked.need(Group::Image, what, &written);
        if let (Some(began), Some(written)) = (began, written) {
            let finding = inherited(*began, path, *written, created);
            checked.findings.extend(finding);
        }
    }
    let enablement = briefly(enablement(reads.observer.bus())).await;
    let enablement = checked.need(Group::Image, "the unit of the agent", &enablement);
    let finding = enablement.and_then(|enablement| not_enabled(*enablement));
    checked.findings.extend(finding);
}

/// Returns the time of the first run of cloud-init, that of its oldest file. Absent if it did not run.
fn began(root: &Root) -> Fact<i64> {
    Fact::from(root.list(FIRST_RUN)).and_then(|notes| {
        let notes = notes.into_iter().take(NOTES_MAX);
        let times = notes.map(|note| written(root, Path::new(FIRST_RUN).join(note)));
        times.filter_map(|time| time.known().copied()).min().into()
    })
}

/// Returns the modification time of a file, as a Unix timestamp.
fn written(root: &Root, path: impl AsRef<Path>) -> Fact<i64> {
    root.metadata(path).map(|metadata| metadata.mtime()).into()
}

/// Returns whether the next boot starts our unit.
async fn enablement(bus: &Bus) -> Fact<Enablement> {
    match file_state(bus, UNIT).await {
        Ok(Some(state)) => Fact::Known(Enablement::parse(&state, false)),
        // Without a system bus, as in a file tree, systemd starts nothing.
        Ok(None) | Err(BusError::Absent(_)) => Fact::Absent,
        Err(error) => Fact::Failed(why(&error)),
    }
}

fn not_enabled(enablement: Enablement) -> Option<Finding> {
    let state = match enablement {
        Enablement::Masked => "masked",
        Enablement::Disabled => "not enabled",
        Enablement::Enabled | Enablement::Static => return None,
    };
    let text = format!("{UNIT} is {state}");
    Some(Finding::new(Code::AgentNotEnabled, text))
}

/// Returns a finding for a file that is older than the first boot. `created` is the creation time of the Node, if known.
fn inherited(began: i64, path: &str, written: i64, created: Option<i64>) -> Option<Finding> {
    // A Node that is older than that run of cloud-init: it was not the first one. After `cloud-init clean`, all files are older.
    if created.is_some_and(|created| created < began)
        || began.saturating_sub(written) <= FIRST_BOOT_MAX
    {
        return None;
    }
    let (written, began) = (date(written), date(began));
    let text = format!("{path} was written at {written}; first boot (cloud-init) at {began}");
    let finding = Finding::new(Code::IdentityFromImage, text);
    let steps = finding.fix().into_iter();
    let is_machine_id = created.is_some() && path == MACHINE_ID;
    let steps = steps.chain(is_machine_id.then_some(NEW_MACHINE_ID));
    let steps = steps.map(str::to_owned).collect();
    Some(finding.with_steps(steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::testing::{NOW, seconds};

    /// The file has when a file was written and when the Node was created, in seconds or days from the first boot. Below are the finding,
    /// its steps and its commands: only those for a Node that is younger than the first boot drain it, after the proof.
    #[test]
    fn what_is_older_than_the_machine_came_with_the_image() {
        let file = "src/commands/doctor/checks/image.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let (written, created) = case.split_once(' ').unwrap();
            let created = (created != "unknown").then(|| NOW + seconds(created));
            let found = inherited(NOW, MACHINE_ID, NOW + seconds(written), created);
            found.map_or_else(String::new, |found| {
                let commands = found.commands().iter().map(|command| &*command.text);
                let lines: Vec<&str> = found.fix().into_iter().chain(commands).collect();
                format!("{}: {}\n{}", found.code, found.seen, lines.join("\n"))
            })
        });
    }

    #[test]
    fn a_unit_that_the_next_boot_does_not_start_is_reported() {
        use Enablement::{Disabled, Enabled, Masked, Static};
        let found = [Enabled, Static, Disabled, Masked].map(|state| not_enabled(state).is_some());
        assert_eq!(found, [false, false, true, true]);
    }
}
