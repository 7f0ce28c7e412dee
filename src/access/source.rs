// SPDX-License-Identifier: Apache-2.0
//! The credential of one side over time.
//!
//! Files are read again when something says that they changed, and judged by what is in them, not by their times: a file
//! that is written in place can change twice within one tick of its clock. The last good credential stays in use while a new
//! one is half-written, does not fit together, or is gone.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest::Digest;

use super::kubeconfig::{LoadedKubeconfig, read};
use super::trust::{Changeable, changeable};
use super::{Credential, CredentialError, Exposure, OptIns};
use crate::sys::root::Root;

/// Others may read or write.
const OTHERS: u32 = 0o006;

/// Others may pass through a folder.
const OTHERS_PASS: u32 = 0o001;

/// One side's credential.
#[derive(Debug)]
pub struct CredentialSource {
    path: PathBuf,
    allowed: OptIns,
    last_good: Option<LastGood>,
    /// The files of the last attempt, also where it failed: one that is missing is waited for.
    touched: Vec<PathBuf>,
}

struct LastGood {
    credential: Arc<Credential>,
    secret_files: Vec<PathBuf>,
    digest: Digest,
}

impl std::fmt::Debug for LastGood {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.credential.fmt(formatter)
    }
}

/// What a new reading brought.
#[derive(Debug)]
pub enum LoadOutcome {
    /// The files hold what they held before.
    Unchanged,
    /// There is a new credential.
    Changed,
    /// The files cannot be used as they are now; the credential from before stays.
    KeptOld(CredentialError),
    /// The files cannot be used, and there is no credential from before.
    Failed(CredentialError),
    /// The kubeconfig does not exist; a credential from before stays, if there is one.
    Absent,
}

impl CredentialSource {
    /// A kubeconfig that was not read yet.
    pub fn new(path: impl Into<PathBuf>, allowed: OptIns) -> Self {
        Self {
            path: path.into(),
            allowed,
            last_good: None,
            touched: Vec::new(),
        }
    }

    /// The kubeconfig.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last good credential.
    pub fn credential(&self) -> Option<&Arc<Credential>> {
        self.last_good.as_ref().map(|good| &good.credential)
    }

    /// Reads the files again.
    pub fn refresh(&mut self, root: &Root) -> LoadOutcome {
        self.touched.clear();
        let loaded = read(root, &self.path, &self.allowed, &mut self.touched);
        match (loaded, &self.last_good) {
            (Ok(loaded), Some(good)) if loaded.digest.as_ref() == good.digest.as_ref() => {
                LoadOutcome::Unchanged
            }
            (Ok(loaded), _) => {
                let LoadedKubeconfig {
                    credential,
                    secret_files,
                    digest,
                } = loaded;
                self.last_good = Some(LastGood {
                    credential: Arc::new(credential),
                    secret_files,
                    digest,
                });
                LoadOutcome::Changed
            }
            (Err(error), _) if error.is_absent() => LoadOutcome::Absent,
            (Err(error), Some(_)) => LoadOutcome::KeptOld(error),
            (Err(error), None) => LoadOutcome::Failed(error),
        }
    }

    /// Every path whose change calls for a new reading: each file, each symbolic link on the way to it, and where it ends.
    pub fn watched(&self, root: &Root) -> Vec<PathBuf> {
        let in_use = self
            .last_good
            .iter()
            .flat_map(|good| &good.credential.files);
        in_use
            .chain(&self.touched)
            .chain([&self.path])
            .flat_map(|file| root.steps(file))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// The files with a secret that everybody on this machine can reach.
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
}

impl CredentialSource {
    /// What someone besides root can change of the files that the credential consists of.
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

/// Whether others may pass through every folder above the place that `file` leads to.
fn is_reachable(root: &Root, file: &Path) -> bool {
    root.steps(file)
        .last()
        .into_iter()
        .flat_map(|place| place.ancestors().skip(1))
        // The root itself is taken as open: of a tree for tests it says nothing.
        .filter(|folder| *folder != Path::new("/"))
        .all(|folder| mode(root, folder).is_none_or(|mode| mode & OTHERS_PASS != 0))
}

fn mode(root: &Root, path: &Path) -> Option<u32> {
    let metadata = root.metadata(path).ok()?;
    Some(metadata.permissions().mode() & 0o7777)
}

#[cfg(test)]
mod tests;
