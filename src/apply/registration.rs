// SPDX-License-Identifier: Apache-2.0
//! Writes and removes our own files that pass labels to the kubelet of a distribution.

use std::time::Duration;

use crate::decide::Refusal;
use crate::decide::registration::{Edit, FileChange};
use crate::facts::registration::LabelFileKind;
use crate::sys::atomic_file::{self, WriteError};
use crate::sys::disk::DiskWork;
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::wire::dbus::{Bus, BusError, MANAGER};

/// Labels are not secret, and systemd warns about units that are not world-readable.
const MODE: u32 = 0o644;

/// The timeout of a reload of systemd, in which it reads all units again: seconds on a node with many pods and mounts. Less than our
/// watchdog allows.
const RELOAD: Duration = Duration::from_secs(20);

/// The time limit of a change of a file. Less than our watchdog allows.
const EDIT: Duration = Duration::from_secs(10);

/// The changes of files.
pub type Edits = DiskWork<Result<(), WriteError>>;

/// The name of our own service.
const SERVICE: &str = "harvester-node-agent.service";

/// Creates the first file and its directory, and restarts our service: in its sandbox, a directory that was created after its
/// start is read-only.
///
/// # Errors
///
/// Returns a one-line message if one of these steps fails.
pub async fn begin(root: &Root, bus: &Bus, change: &FileChange) -> Result<(), Refusal> {
    make_directory(root, change.kind)?;
    edit(root, bus, change, &mut Edits::default()).await?;
    let reloaded = match change.kind {
        LabelFileKind::Kubelet => reload(bus, change.kind).await,
        _ => Ok(()),
    };
    // Also if the reload took too long: systemd may reload for a package manager at the first boot.
    let restart = bus.call_within(RELOAD, MANAGER, "TryRestartUnit", &[SERVICE, "replace"]);
    let restarted = reported(restart.await, |why| {
        format!("{SERVICE} was not restarted: {why}; systemctl restart {SERVICE}")
    });
    reloaded.and(restarted)
}

/// Creates the directory of a file if it does not exist.
///
/// # Errors
///
/// Returns a one-line message if it cannot be created.
pub fn make_directory(root: &Root, kind: LabelFileKind) -> Result<(), Refusal> {
    match kind.path().parent() {
        Some(directory) => atomic_file::make_directory(root, directory)
            .map_err(|error| Refusal::passing(chain(&error))),
        None => Ok(()),
    }
}

/// Changes or removes a file, or makes systemd read it: systemd reads the drop-in of a unit only on a reload, as with
/// `systemctl daemon-reload`.
///
/// # Errors
///
/// Returns a one-line message if the file cannot be changed or systemd does not reload.
pub async fn edit(
    root: &Root,
    bus: &Bus,
    change: &FileChange,
    edits: &mut Edits,
) -> Result<(), Refusal> {
    if change.is_reload() {
        return reload(bus, change.kind).await;
    }
    let path = change.kind.path();
    let (file, edit) = (root.clone(), change.edit.clone());
    let work = move || match &edit {
        Edit::Write(text) => {
            atomic_file::write_atomic(&file, path, text.as_bytes(), MODE).map(drop)
        }
        Edit::Remove => atomic_file::remove(&file, path),
        Edit::Reload => Ok(()),
    };
    let stalled = || {
        let path = path.display();
        Refusal::passing(format!("{path} was not changed: the disk does not respond"))
    };
    let result = edits.run(EDIT, work).await.ok_or_else(stalled)?;
    result.map_err(|error| Refusal::passing(chain(&error)))
}

async fn reload(bus: &Bus, kind: LabelFileKind) -> Result<(), Refusal> {
    let reload = bus.call_within(RELOAD, MANAGER, "Reload", &[]).await;
    reported(reload, |why| {
        let path = kind.path().display();
        format!("{path} was written, but systemd did not reload it: {why}; systemctl daemon-reload")
    })
}

/// Converts the response of systemd. Without a bus there is no systemd that needs a reload.
fn reported<T>(
    answer: Result<T, BusError>,
    text: impl FnOnce(String) -> String,
) -> Result<(), Refusal> {
    match answer {
        Ok(_) | Err(BusError::Absent(_)) => Ok(()),
        Err(error) => Err(Refusal::passing(text(chain(&error)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_disk_that_does_not_respond_is_named_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let bus = Bus::new(&root, None);
        let change = FileChange {
            kind: LabelFileKind::Kubelet,
            edit: Edit::Remove,
        };
        let (mut edits, _end) = Edits::stalled();
        let refused = edit(&root, &bus, &change, &mut edits).await.unwrap_err();
        let text = "05-harvester-node-agent.conf was not changed: the disk does not respond";
        assert!(refused.text.ends_with(text), "{}", refused.text);
    }
}
