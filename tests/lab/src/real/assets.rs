// SPDX-License-Identifier: Apache-2.0
//! Where the programs of Kubernetes are found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::kubernetes::Kubernetes;

/// The directories in which `tests/lab/kubernetes` puts programs, below `target`. They are not asked for their version, which
/// takes a part of a second of a processor.
const PROVIDED: [(&str, Kubernetes); 2] = [
    ("envtest", Kubernetes::V1_20),
    ("envtest-1.36", Kubernetes::V1_36),
];

/// Releases by program. A program is asked once.
static RELEASES: Mutex<BTreeMap<PathBuf, Option<String>>> = Mutex::new(BTreeMap::new());

/// A program of this version in a directory of `KUBEBUILDER_ASSETS`, else in `target`; or where it was looked for.
pub(super) fn find(program: &str, version: Kubernetes) -> Result<PathBuf, String> {
    let given = std::env::var_os("KUBEBUILDER_ASSETS").unwrap_or_default();
    let given: Vec<PathBuf> = std::env::split_paths(&given)
        .filter(|path| !path.as_os_str().is_empty())
        .map(|directory| directory.join(program))
        .collect();
    let is_of_version = |path: &&PathBuf| {
        release(path).is_some_and(|release| Kubernetes::of_release(&release) == Some(version))
    };
    if let Some(path) = given.iter().find(is_of_version) {
        return Ok(path.clone());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let targets = target.into_iter().chain([project.join("target")]);
    let provided: Vec<PathBuf> = targets
        .flat_map(|target| PROVIDED.map(|(name, version)| (target.join(name), version)))
        .filter(|(_, provided)| *provided == version)
        .map(|(directory, _)| directory.join(program))
        .collect();
    let found = provided.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| {
        format!(
            "no {program} of Kubernetes {version} in {:?}; `tests/lab/kubernetes {program} DIR {version}` makes one",
            [given, provided].concat()
        )
    })
}

/// Which release a program is of, for example `v1.36.2`; none where there is no such program.
fn release(program: &Path) -> Option<String> {
    let mut releases = RELEASES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = releases
        .entry(program.to_owned())
        .or_insert_with_key(|program| ask(program));
    known.clone()
}

fn ask(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().strip_prefix("Kubernetes ")?.to_owned())
}
