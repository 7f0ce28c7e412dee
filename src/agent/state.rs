// SPDX-License-Identifier: Apache-2.0
//! The state that is kept over a restart. It belongs to one machine: in a cloned image it is detected and discarded.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::decide::Migration;
use crate::decide::node_ownership::is_same_uuid;
use crate::decide::scheduled_events::{EventTracker, ScheduledEvent};
use crate::facts::machine::Machine;
use crate::sys::atomic_file;
use crate::sys::disk::{self, Content};
use crate::sys::document::json::damage;
use crate::sys::root::{ReadError, Root};

/// The path of the state file, readable only by this agent.
const STATE_FILE: &str = "/var/lib/harvester-node-agent/state.json";

/// The file contains no secrets, but other users do not need it.
const STATE_MODE: u32 = 0o600;

/// The version of the format. Newer versions are not parsed.
const VERSION: u32 = 1;

/// The maximum size of the file. The state has only a few lines, but texts of an API may have the longest names with all escaped.
const SIZE_MAX: u64 = 256 << 10;

/// How long the start waits for the disk. The state can be read while its file system is frozen, but not moved aside.
const LOAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    version: u32,
    /// The machine that the state belongs to.
    pub machine: MachineId,
    /// The firmware UUID of the VM that used this disk before, until the Node is known to be that of this VM: the disk was copied, and
    /// the kubelet's credential with it.
    #[serde(default)]
    pub copied_from: Option<Uuid>,
    /// The VM that was found last. It is only used as one more name to search for, and is no proof.
    #[serde(default)]
    pub vm: Option<String>,
    /// The last migration.
    pub last_migration: Option<LastMigration>,
    /// The scheduled events that were published.
    #[serde(default)]
    pub scheduled: EventTracker,
    /// The last states of scheduled events, the oldest first.
    #[serde(default)]
    pub events: Vec<ScheduledEvent>,
}

/// The last migration, and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastMigration {
    /// The migration.
    #[serde(flatten)]
    pub migration: Migration,
    /// The time from the trigger to the written labels; missing until they are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<Seconds>,
    /// The time for which it interrupted the guest; missing if that cannot be estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruption_seconds: Option<Seconds>,
    /// The trigger of the reconcile that wrote the labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
}

impl From<Migration> for LastMigration {
    fn from(migration: Migration) -> Self {
        Self {
            migration,
            duration_seconds: None,
            interruption_seconds: None,
            trigger: None,
        }
    }
}

/// A duration in milliseconds; in JSON in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "f64", from = "f64")]
pub struct Seconds(pub u64);

impl Seconds {
    /// Rounds a duration down.
    pub fn of(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Seconds> for f64 {
    fn from(Seconds(milliseconds): Seconds) -> Self {
        milliseconds as Self / 1000.0
    }
}

impl From<f64> for Seconds {
    fn from(seconds: f64) -> Self {
        Self((seconds * 1000.0).round() as u64)
    }
}

/// The identifiers that distinguish machines with a copy of the same disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineId {
    machine_id: Option<String>,
    product_uuid: Option<Uuid>,
    /// Which of them could not be read, so that nothing may be concluded from it.
    #[serde(skip)]
    unread: [bool; 2],
}

impl MachineId {
    /// Returns the identifiers of this machine.
    pub fn of(machine: &Machine) -> Self {
        Self {
            machine_id: machine.machine_id.known().cloned(),
            product_uuid: machine.product_uuid.known().copied(),
            unread: [
                machine.machine_id.why().is_some(),
                machine.product_uuid.why().is_some(),
            ],
        }
    }

    /// Reports whether a state with these identifiers belongs to another machine than this one.
    fn is_foreign(&self, here: &Self) -> bool {
        let [no_machine_id, no_uuid] = here.unread;
        !no_machine_id && self.machine_id != here.machine_id
            || !no_uuid && self.product_uuid != here.product_uuid
    }

    /// Returns the firmware UUID, if that of `here` is known too and differs.
    fn other_hardware(&self, here: &Self) -> Option<Uuid> {
        let (theirs, ours) = self.product_uuid.zip(here.product_uuid)?;
        (!is_same_uuid(ours, theirs)).then_some(theirs)
    }
}

impl State {
    /// Creates the state of a new machine.
    pub fn new(machine: MachineId) -> Self {
        Self {
            version: VERSION,
            machine,
            copied_from: None,
            vm: None,
            last_migration: None,
            scheduled: EventTracker::default(),
            events: Vec::new(),
        }
    }

    /// Returns the content of the file.
    pub fn content(&self) -> Content {
        Content {
            path: STATE_FILE.into(),
            text: Some(serde_json::to_string_pretty(self).unwrap_or_default()),
            mode: STATE_MODE,
        }
    }
}

/// The reason why an earlier state is not used.
#[derive(Debug)]
enum Unused {
    /// It belongs to another VM, with this firmware UUID if that is certain.
    Foreign(String, Option<Uuid>),
    /// It cannot be read or parsed.
    Unusable(String),
}

/// Reads the state for the daemon. The second value is the reason why an earlier state was not used; the file was then renamed or
/// belongs to another VM.
pub fn load(root: &Root, machine: &MachineId) -> (State, Option<String>) {
    let (state, unused) = usable(root, machine);
    let why = unused.map(|unused| match unused {
        Unused::Foreign(why, _) => why,
        Unused::Unusable(why) => aside(root, &why),
    });
    (state, why)
}

/// Reads the state for a command. The file is not changed.
pub fn recall(root: &Root, machine: &MachineId) -> State {
    usable(root, machine).0
}

/// Returns the earlier state of this machine, or a new one with the reason why the earlier one is not used.
fn usable(root: &Root, machine: &MachineId) -> (State, Option<Unused>) {
    let mut state = State::new(machine.clone());
    match read(root, machine) {
        Ok(earlier) => (earlier.unwrap_or(state), None),
        Err(unused) => {
            if let Unused::Foreign(_, copied_from) = unused {
                state.copied_from = copied_from;
            }
            (state, Some(unused))
        }
    }
}

fn read(root: &Root, machine: &MachineId) -> Result<Option<State>, Unused> {
    let path = STATE_FILE;
    let bytes = match root.read(path, SIZE_MAX) {
        Ok(bytes) => bytes,
        Err(ReadError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(Unused::Unusable(crate::sys::escape::chain(&error))),
    };
    match serde_json::from_slice::<State>(&bytes) {
        Ok(state) if state.version != VERSION => Err(Unused::Unusable(format!(
            "`{path}` has version {}, this agent supports {VERSION}",
            state.version
        ))),
        Ok(state) if state.machine.is_foreign(machine) => {
            let other = state.machine.other_hardware(machine);
            let or_changed = match other {
                Some(_) => "",
                None => ", or its identifiers have changed",
            };
            let why = format!("`{path}` belongs to another VM{or_changed}");
            Err(Unused::Foreign(why, other.or(state.copied_from)))
        }
        Ok(state) => Ok(Some(state)),
        Err(error) => {
            let why = format!("`{path}` is damaged: {}", damage(&error));
            Err(Unused::Unusable(why))
        }
    }
}

/// Renames the file, so that an administrator can check it.
fn aside(root: &Root, why: &str) -> String {
    let root = root.clone();
    let moved = disk::within(LOAD_TIMEOUT, move || {
        atomic_file::move_aside(&root, Path::new(STATE_FILE), "unusable")
    });
    match moved {
        Some(Ok(moved)) => format!("{why}; moved to {}", moved.display()),
        _ => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Fact, Unavailable, UnavailableKind};

    pub(crate) fn machine(id: &str) -> MachineId {
        MachineId {
            machine_id: Some(id.to_owned()),
            product_uuid: None,
            unread: [false; 2],
        }
    }

    fn write(root: &Root, state: &State) {
        let text = state.content().text.unwrap();
        atomic_file::write_atomic(root, STATE_FILE, text.as_bytes(), STATE_MODE).unwrap();
    }

    pub(crate) fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        (dir, root)
    }

    #[test]
    fn a_state_comes_back_on_its_own_machine_only() {
        let (_dir, root) = tree();
        assert_eq!(load(&root, &machine("a")), (State::new(machine("a")), None));
        let mut state = State::new(machine("a"));
        let hosts = ["hv-a", "hv-b", "2026-11-21T00:00:00Z"].map(str::to_owned);
        let [from, to, at] = hosts;
        state.last_migration = Some(Migration { from, to, at }.into());
        write(&root, &state);
        assert_eq!(load(&root, &machine("a")), (state, None));
        let (other, why) = load(&root, &machine("b"));
        assert_eq!(other, State::new(machine("b")));
        assert!(why.unwrap().contains("another VM"));
    }

    #[test]
    fn another_machine_id_does_not_make_a_copied_disk_an_original() {
        let (_dir, root) = tree();
        let other = Uuid::from_u128(1);
        let mut state = State::new(machine("a"));
        state.copied_from = Some(other);
        write(&root, &state);
        assert_eq!(recall(&root, &machine("b")).copied_from, Some(other));
        assert_eq!(load(&root, &machine("b")).0.copied_from, Some(other));
    }

    #[test]
    fn an_identifier_that_cannot_be_read_discards_no_state() {
        let (_dir, root) = tree();
        let mut here = crate::decide::fixtures::World::new().observation.machine;
        let mut state = State::new(MachineId::of(&here));
        state.vm = Some("pool1-abcde".to_owned());
        write(&root, &state);
        let (machine_id, product_uuid) = (here.machine_id.clone(), here.product_uuid.clone());
        let failed = || Unavailable::new(UnavailableKind::Unreachable, "I/O error");
        here.machine_id = Fact::Failed(failed());
        assert_eq!(load(&root, &MachineId::of(&here)), (state.clone(), None));
        here.product_uuid = Fact::Failed(failed());
        assert_eq!(load(&root, &MachineId::of(&here)), (state.clone(), None));
        // The state keeps the identifiers of its machine.
        here.product_uuid = Fact::Absent;
        assert!(load(&root, &MachineId::of(&here)).1.is_some());
        (here.machine_id, here.product_uuid) = (machine_id, product_uuid);
        assert_eq!(load(&root, &MachineId::of(&here)), (state, None));
    }

    #[test]
    fn a_damaged_or_newer_state_is_moved_aside_and_said() {
        for (text, word) in [
            ("", "it ends too early, in line 1"),
            ("{\"version\":", "it ends too early, in line 1"),
            (
                r#"{"version":9,"machine":{"machineId":"a","productUuid":null},"lastMigration":null,"lastLatency":null}"#,
                "version 9",
            ),
        ] {
            let (_dir, root) = tree();
            std::fs::create_dir_all(root.join(STATE_FILE).parent().unwrap()).unwrap();
            std::fs::write(root.join(STATE_FILE), text).unwrap();
            let (state, why) = load(&root, &machine("a"));
            assert_eq!(state, State::new(machine("a")));
            assert!(why.as_ref().unwrap().contains(word), "{why:?}");
            assert!(root.exists("/var/lib/harvester-node-agent/state.json.unusable"));
            assert!(load(&root, &machine("a")).1.is_none());
        }
    }
}
