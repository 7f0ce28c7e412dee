// SPDX-License-Identifier: Apache-2.0
//! Keeps the credential of one endpoint up to date.
//!
//! Files are read again after a notification of a change, and compared by their content, not by their timestamps: a file
//! that is written in place can change twice within one tick of the clock. The last valid credential stays in use while a new
//! one is half-written, inconsistent or missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::credential::{Credential, Exposure};
use super::error::CredentialError;
use super::kubeconfig::{LoadedKubeconfig, read};
use super::search::Candidate;
use super::trust::{Changeable, changeable, exposed};
use crate::sys::root::{ReadError, Root};

/// The credential of one endpoint.
#[derive(Debug, Default)]
pub struct CredentialSource {
    /// The kubeconfig, once one is found.
    path: Option<PathBuf>,
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
    /// The files cannot be used; the earlier credential of the kubeconfig, if there is one, stays in use.
    Failed(CredentialError),
    /// The kubeconfig exists and cannot be read; the earlier credential, if there is one, stays in use.
    Unreadable(ReadError),
}

impl CredentialSource {
    /// Returns the last valid credential.
    pub fn credential(&self) -> Option<&Arc<Credential>> {
        self.last_good.as_ref().map(|good| &good.credential)
    }

    /// Reads the first of the files that exists, and the files that it names. No path after it is checked, also if it cannot be read: using
    /// another identity instead would be worse than none.
    pub fn search<'a>(
        &mut self,
        root: &Root,
        candidates: &'a [Candidate],
    ) -> Option<(&'a Candidate, LoadOutcome)> {
        let mut candidates = candidates.iter();
        candidates.find_map(|one| Some((one, self.refresh_from(root, &one.path)?)))
    }

    /// Reads a kubeconfig again, or another one, which then replaces the credential if it can be read. Returns `None` if it does not
    /// exist; the earlier credential, if there is one, stays in use.
    fn refresh_from(&mut self, root: &Root, path: &Path) -> Option<LoadOutcome> {
        let mut touched = Vec::new();
        let loaded = match read(root, path, &mut touched) {
            Err(CredentialError::Unreadable(error)) => {
                return (!error.is_absent()).then_some(LoadOutcome::Unreadable(error));
            }
            loaded => loaded,
        };
        if self.path.as_deref() != Some(path) {
            self.path = Some(path.to_owned());
            self.last_good = None;
        }
        self.touched = touched;
        Some(match (loaded, &self.last_good) {
            (Ok(loaded), Some(good)) if loaded.digest.as_ref() == good.digest.as_ref() => {
                LoadOutcome::Unchanged
            }
            (Ok(loaded), _) => {
                self.last_good = Some(loaded);
                LoadOutcome::Changed
            }
            (Err(error), _) => LoadOutcome::Failed(error),
        })
    }

    /// Returns every path whose change requires a new read: each file, each symbolic link on its path, and the target.
    pub fn watched(&self, root: &Root) -> Vec<PathBuf> {
        let in_use = self
            .last_good
            .iter()
            .flat_map(|good| &good.credential.files);
        let files = in_use.chain(&self.touched).chain(&self.path);
        let watched: BTreeSet<PathBuf> = files.flat_map(|file| root.steps(file)).collect();
        Vec::from_iter(watched)
    }

    /// Returns the files with a secret that every user of this system can reach.
    pub fn exposures(&self, root: &Root) -> Vec<Exposure> {
        let files = self.last_good.iter().flat_map(|good| &good.secret_files);
        let files = BTreeSet::from_iter(files).into_iter();
        let exposure = |path: &PathBuf| {
            let (mode, path) = (exposed(root, path)?, path.clone());
            Some(Exposure { path, mode })
        };
        files.filter_map(exposure).collect()
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

#[cfg(test)]
mod tests;
