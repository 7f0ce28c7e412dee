// SPDX-License-Identifier: Apache-2.0
//! Did the identity of this machine come with the image, and does the agent start at the next boot? Only those checks of
//! `bake-check` that are useful on a running machine.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::catalog::{Code, Finding, Group};
use crate::commands::bake_check::unit::OURS as UNIT;
use crate::commands::doctor::case::{Checked, date};
use crate::commands::doctor::objects::NodeObject;
use crate::commands::doctor::reader::{Reader, briefly};
use crate::facts::Fact;
use crate::facts::guest_agent::Enablement;
use crate::observe::guest_agent::{file_state, why};
use crate::sys::root::{ReadError, Root};
use crate::wire::dbus::{Bus, BusError};

/// The directory in which cloud-init creates a file for each step at its first run on this machine.
const FIRST_RUN: &str = "/var/lib/cloud/instance/sem";

/// Files that must be unique to one machine: the identities that systemd, RKE2 and K3s create at first boot.
const BELONGINGS: [&str; 2] = ["/etc/machine-id", "/etc/rancher/node/password"];

/// The maximum number of cloud-init files to check; there are about thirty.
const NOTES_MAX: usize = 200;

/// The maximum time in seconds between the creation of the machine-id and the first run of cloud-init: a boot takes minutes, and
/// images are built days before.
const FIRST_BOOT_MAX: i64 = 3600;

/// The step for a VM that is newer than its files: the time at which the Node registered proves it.
const NEW_MACHINE_ID: &str = "For the machine-id alone: drain the Node, `rm -f /etc/machine-id /var/lib/dbus/machine-id`, \
                              `systemd-machine-id-setup`, then reboot.";

/// A file that must be unique to one machine, and its modification time as a Unix timestamp.
type Belonging = (PathBuf, i64);

/// Reads modification times, the creation time of the Node, and the state of our unit.
pub(super) async fn check(reader: &Reader<'_>, checked: &mut Checked) {
    let began = began(reader.observer.root());
    let began = checked.need(Group::Image, "the first boot of this VM", &began);
    let belongings = belongings(reader.observer.root());
    let what = "machine-specific state from the image";
    let belongings = checked.need(Group::Image, what, &belongings);
    let node = reader.node().await.known();
    let created = node.and_then(NodeObject::created);
    if let (Some(began), Some(belongings)) = (began, belongings) {
        let findings = inherited(*began, belongings, created);
        checked.findings.extend(findings);
    }
    let enablement = briefly(enablement(reader.observer.bus())).await;
    let enablement = checked.need(Group::Image, "the unit of the agent", &enablement);
    let finding = enablement.and_then(|enablement| not_enabled(*enablement));
    checked.findings.extend(finding);
}

/// Returns the time of the first run of cloud-init, that of its oldest file. Absent if it did not run.
fn began(root: &Root) -> Fact<i64> {
    let notes = match root.list(FIRST_RUN) {
        Ok(notes) => notes,
        Err(error) => return error.into(),
    };
    let notes = notes.into_iter().take(NOTES_MAX);
    let times = notes.filter_map(|note| written(root, &Path::new(FIRST_RUN).join(note)).ok());
    times.min().map_or(Fact::Absent, Fact::Known)
}

fn belongings(root: &Root) -> Fact<Vec<Belonging>> {
    let mut belongings = Vec::new();
    for path in BELONGINGS.map(PathBuf::from) {
        match written(root, &path) {
            Ok(written) => belongings.push((path, written)),
            Err(error) if error.is_absent() => {}
            Err(error) => return error.into(),
        }
    }
    Fact::Known(belongings)
}

fn written(root: &Root, path: &Path) -> Result<i64, ReadError> {
    root.metadata(path).map(|metadata| metadata.mtime())
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

/// Returns a finding for each file that is older than the first boot. `created` is the creation time of the Node, if known.
fn inherited(began: i64, belongings: &[Belonging], created: Option<i64>) -> Vec<Finding> {
    // A Node that is older than that run of cloud-init: it was not the first one. After `cloud-init clean`, all files are older.
    if created.is_some_and(|created| created < began) {
        return Vec::new();
    }
    let inherited = belongings
        .iter()
        .filter(|(_, written)| began.saturating_sub(*written) > FIRST_BOOT_MAX);
    let findings = inherited.map(|(path, written)| {
        let (path, written, began) = (path.display(), date(*written), date(began));
        let text = format!("{path} was written at {written}; first boot (cloud-init) at {began}");
        let finding = Finding::new(Code::IdentityFromImage, text);
        let steps = finding.fix().into_iter();
        let steps = steps.chain(created.map(|_| NEW_MACHINE_ID));
        let steps = steps.map(str::to_owned).collect();
        finding.with_steps(steps)
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::testing::{DAY, NOW};

    fn found(written: i64, created: Option<i64>) -> Vec<Finding> {
        inherited(NOW, &[("/etc/machine-id".into(), NOW + written)], created)
    }

    #[test]
    fn what_is_older_than_the_machine_came_with_the_image() {
        for (written, is_inherited) in [
            (-30 * DAY, true),
            (-2 * 3600, true),
            (-60, false),
            (60, false),
        ] {
            let found = found(written, Some(NOW + 120));
            assert_eq!(found.len(), usize::from(is_inherited), "{written}");
            assert!(found.iter().all(|one| one.code == Code::IdentityFromImage));
        }
    }

    #[test]
    fn a_node_that_is_older_than_the_first_boot_is_not_accused() {
        let destroys = |finding: &Finding| {
            let fix = finding.remedy();
            fix.contains("drain") || fix.contains("recreate")
        };
        // After `cloud-init clean` and a reboot.
        assert_eq!(found(-30 * DAY, Some(NOW - 29 * DAY)), []);
        // It is unknown when the Node registered.
        let unknown = found(-30 * DAY, None);
        assert!(!destroys(&unknown[0]), "{}", unknown[0].remedy());
        assert!(unknown[0].commands()[0].text.starts_with("sha256sum "));
        let younger = found(-30 * DAY, Some(NOW + 120));
        assert!(destroys(&younger[0]), "{}", younger[0].remedy());
        assert!(
            younger[0].fix()[0].starts_with("Compare "),
            "first the proof"
        );
    }

    #[test]
    fn a_unit_that_the_next_boot_does_not_start_is_reported() {
        for (enablement, is_reported) in [
            (Enablement::Enabled, false),
            (Enablement::Static, false),
            (Enablement::Disabled, true),
            (Enablement::Masked, true),
        ] {
            let found = not_enabled(enablement);
            assert_eq!(found.is_some(), is_reported, "{enablement:?}");
        }
    }
}
