// SPDX-License-Identifier: Apache-2.0
//! Writes and removes our own files that pass labels to the kubelet of a distribution.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::decide::Refusal;
use crate::decide::registration::{Edit, FileChange};
use crate::facts::registration::LabelFileKind;
use crate::sys::atomic_file::{self, WriteError};
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

/// Held while a file is changed, so that a disk that does not respond holds one thread.
pub type Turn = Arc<Mutex<()>>;

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
    edit(root, bus, change, &Turn::default()).await?;
    if change.kind == LabelFileKind::Kubelet {
        reload(bus, change.kind).await?;
    }
    // systemd may still reload for somebody else, such as a package manager at the first boot.
    let restart = bus.call_within(RELOAD, MANAGER, "TryRestartUnit", &[SERVICE, "replace"]);
    reported(restart.await, |why| {
        format!("{SERVICE} was not restarted: {why}; systemctl restart {SERVICE}")
    })
}

/// Creates the directory of a file if it does not exist.
///
/// # Errors
///
/// Returns a one-line message if it cannot be created.
pub fn make_directory(root: &Root, kind: LabelFileKind) -> Result<(), Refusal> {
    match kind.path().parent() {
        Some(directory) => {
            atomic_file::make_directory(root, directory).map_err(|error| refusal(chain(&error)))
        }
        None => Ok(()),
    }
}

/// Changes or removes a file, or makes systemd read it: systemd reads the drop-in of a unit only on a reload, as with
/// `systemctl daemon-reload`.
///
/// # Errors
///
/// Returns a one-line message if the file cannot be changed or systemd does not reload.
pub async fn edit(root: &Root, bus: &Bus, change: &FileChange, turn: &Turn) -> Result<(), Refusal> {
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
    within(EDIT, turn, path, work).await
}

/// Runs blocking work beside the loop, which must notify the watchdog: a disk may be slow, or never respond. Work that exceeds the
/// limit goes on, and holds its turn until it ends.
async fn within(
    limit: Duration,
    turn: &Turn,
    path: &Path,
    work: impl FnOnce() -> Result<(), WriteError> + Send + 'static,
) -> Result<(), Refusal> {
    let stalled = || {
        let path = path.display();
        refusal(format!("{path} was not changed: the disk does not respond"))
    };
    let Ok(held) = Arc::clone(turn).try_lock_owned() else {
        return Err(stalled());
    };
    let done = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(held);
        result
    });
    tokio::time::timeout(limit, done)
        .await
        .map_err(|_| stalled())?
        .map_err(|error| refusal(error.to_string()))?
        .map_err(|error| refusal(chain(&error)))
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
        Err(error) => Err(refusal(text(chain(&error)))),
    }
}

fn refusal(text: String) -> Refusal {
    Refusal {
        text,
        passing: true,
        retry_after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_disk_that_does_not_respond_holds_one_thread_and_not_the_loop() {
        let (allow, allowed) = mpsc::channel::<()>();
        let (turn, path) = (Turn::default(), LabelFileKind::Kubelet.path());
        let stuck = move || {
            let _ = allowed.recv();
            Ok(())
        };
        let first = within(Duration::from_millis(10), &turn, path, stuck).await;
        let text = "was not changed: the disk does not respond";
        assert!(first.unwrap_err().text.ends_with(text));
        let second = within(EDIT, &turn, path, || panic!("a second thread")).await;
        assert!(second.unwrap_err().text.ends_with(text));
        drop(allow);
        drop(turn.lock().await);
        within(EDIT, &turn, path, || Ok(())).await.unwrap();
    }
}
