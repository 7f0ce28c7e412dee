// SPDX-License-Identifier: Apache-2.0
//! Reads the modification times of files that must be unique to one machine, and whether the agent starts at the next boot.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Given;
use crate::commands::bake_check::unit;
use crate::commands::doctor::facts::image::{Belonging, Image};
use crate::facts::Fact;
use crate::sys::root::{ReadError, Root};

/// The directory in which cloud-init creates a file for each step at its first run on this machine.
const FIRST_RUN: &str = "/var/lib/cloud/instance/sem";

/// Files that must be unique to one machine: the identities that systemd, RKE2 and K3s create at first boot.
const BELONGINGS: [&str; 2] = ["/etc/machine-id", "/etc/rancher/node/password"];

/// The maximum number of cloud-init files to check; there are about thirty.
const NOTES_MAX: usize = 200;

/// Reads the facts about the image.
pub(super) async fn read(given: &Given<'_>) -> Image {
    Image {
        began: began(given.root),
        belongings: belongings(given.root),
        unit: unit::find(given.root, &[unit::OURS]).map_or(Fact::Absent, Fact::Known),
    }
}

/// Returns the time of the oldest cloud-init file.
fn began(root: &Root) -> Fact<i64> {
    let notes = match root.list(FIRST_RUN) {
        Ok(notes) => notes,
        Err(error) => return error.into(),
    };
    let notes = notes.into_iter().take(NOTES_MAX);
    let times = notes.filter_map(|note| written(root, Path::new(FIRST_RUN).join(note)).ok());
    times.min().map_or(Fact::Absent, Fact::Known)
}

fn belongings(root: &Root) -> Fact<Vec<Belonging>> {
    let mut belongings = Vec::new();
    for path in BELONGINGS.map(PathBuf::from) {
        match written(root, path.clone()) {
            Ok(written) => belongings.push(Belonging { path, written }),
            Err(error) if error.is_absent() => {}
            Err(error) => return error.into(),
        }
    }
    Fact::Known(belongings)
}

fn written(root: &Root, path: PathBuf) -> Result<i64, ReadError> {
    root.metadata(path).map(|metadata| metadata.mtime())
}
