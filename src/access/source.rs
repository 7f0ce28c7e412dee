// SPDX-License-Identifier: Apache-2.0
//! Keeps the credential of one endpoint up to date.
//!
//! Files are read again after a notification of a change, and compared by their content, not by their timestamps: a file
//! that is written in place can change twice within one tick of the clock. The last valid credential stays in use while a new
//! one is half-written, inconsistent or missing.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::credential::{Credential, Exposure};
use super::error::CredentialError;
use super::kubeconfig::{LoadedKubeconfig, read};
use super::trust::{Changeable, changeable};
use crate::sys::root::Root;

/// The permission bits of others to read or write.
const OTHERS: u32 = 0o006;

/// The permission bit of others to search a directory.
const OTHERS_PASS: u32 = 0o001;

/// The credential of one endpoint.
#[derive(Debug)]
pub struct CredentialSource {
    path: PathBuf,
    last_good: Option<LoadedKubeconfig>,
    /// The files of the last attempt, including missing ones: a missing file may be created later.
    touched: Vec<PathBuf>,
}

/// The result of reading the files again.
#[derive(Debug)]
pub enum LoadOutcome {
    /// The content of the files is the same.
    Unchanged,
    /// There is a new credential.
    Changed,
    /// The files cannot currently be used; the earlier credential stays in use.
    KeptOld(CredentialError),
    /// The files cannot be used, and there is no earlier credential.
    Failed(CredentialError),
    /// The kubeconfig does not exist; the earlier credential, if there is one, stays in use.
    Absent,
}

impl CredentialSource {
    /// Creates a source for a kubeconfig, without reading it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            last_good: None,
            touched: Vec::new(),
        }
    }

    /// Returns the path of the kubeconfig.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last valid credential.
    pub fn credential(&self) -> Option<&Arc<Credential>> {
        self.last_good.as_ref().map(|good| &good.credential)
    }

    /// Reads the files again.
    pub fn refresh(&mut self, root: &Root) -> LoadOutcome {
        self.touched.clear();
        let loaded = read(root, &self.path, &mut self.touched);
        match (loaded, &self.last_good) {
            (Ok(loaded), Some(good)) if loaded.digest.as_ref() == good.digest.as_ref() => {
                LoadOutcome::Unchanged
            }
            (Ok(loaded), _) => {
                self.last_good = Some(loaded);
                LoadOutcome::Changed
            }
            (Err(error), _) if error.is_absent() => LoadOutcome::Absent,
            (Err(error), Some(_)) => LoadOutcome::KeptOld(error),
            (Err(error), None) => LoadOutcome::Failed(error),
        }
    }

    /// Returns every path whose change requires a new read: each file, each symbolic link on its path, and the target.
    pub fn watched(&self, root: &Root) -> Vec<PathBuf> {
        let in_use = self
            .last_good
            .iter()
            .flat_map(|good| &good.credential.files);
        let files = in_use.chain(&self.touched).chain([&self.path]);
        let mut watched: Vec<PathBuf> = files.flat_map(|file| root.steps(file)).collect();
        watched.sort_unstable();
        watched.dedup();
        watched
    }

    /// Returns the files with a secret that every user of this system can reach.
    pub fn exposures(&self, root: &Root) -> Vec<Exposure> {
        let mut exposures: Vec<Exposure> = Vec::new();
        for file in self.last_good.iter().flat_map(|good| &good.secret_files) {
            let mode = mode(root, file).filter(|mode| mode & OTHERS != 0);
            if let Some(mode) = mode
                && !exposures.iter().any(|exposure| exposure.path == *file)
                && is_reachable(root, file)
            {
                exposures.push(Exposure {
                    path: file.clone(),
                    mode,
                });
            }
        }
        exposures
    }

    /// Returns the places on the paths of the credential's files that users other than root can change.
    pub fn changeable(&self, root: &Root) -> Vec<Changeable> {
        let mut places: Vec<Changeable> = Vec::new();
        let files = self
            .last_good
            .iter()
            .flat_map(|good| &good.credential.files);
        for place in files.filter_map(|file| changeable(root, file)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }
}

/// Reports whether others may search every directory above the target of `file`.
fn is_reachable(root: &Root, file: &Path) -> bool {
    root.steps(file)
        .last()
        .into_iter()
        .flat_map(|place| place.ancestors().skip(1))
        // The root itself counts as searchable: for a tree in a test its mode is irrelevant.
        .filter(|folder| *folder != Path::new("/"))
        .all(|folder| mode(root, folder).is_none_or(|mode| mode & OTHERS_PASS != 0))
}

fn mode(root: &Root, path: &Path) -> Option<u32> {
    let metadata = root.metadata(path).ok()?;
    Some(metadata.permissions().mode() & 0o7777)
}

#[cfg(test)]
mod tests;
