// SPDX-License-Identifier: Apache-2.0
//! Where the programs of Kubernetes are found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::kubernetes::Kubernetes;

/// The directories in which `tests/lab/kubernetes` puts programs, below `target`.
const PROVIDED: [&str; 2] = ["envtest", "envtest-1.36"];

/// Releases by program. A program is asked once.
static RELEASES: Mutex<BTreeMap<PathBuf, Option<String>>> = Mutex::new(BTreeMap::new());

/// A program of this version in a directory of `KUBEBUILDER_ASSETS`, else in `target`; or where it was looked for.
pub(super) fn find(program: &str, version: Kubernetes) -> Result<PathBuf, String> {
    let directories = directories();
    let mut seen = Vec::new();
    for directory in &directories {
        let path = directory.join(program);
        let Some(release) = release(&path) else {
            continue;
        };
        if Kubernetes::of_release(&release) == Some(version) {
            return Ok(path);
        }
        seen.push(format!("{release} in {}", directory.display()));
    }
    if seen.is_empty() {
        seen.push(format!("looked in {directories:?}"));
    }
    Err(format!(
        "no {program} of Kubernetes {version} ({}); `tests/lab/kubernetes {program} DIR {version}` makes one",
        seen.join(", ")
    ))
}

fn directories() -> Vec<PathBuf> {
    let given = std::env::var_os("KUBEBUILDER_ASSETS").unwrap_or_default();
    let given = std::env::split_paths(&given).filter(|path| !path.as_os_str().is_empty());
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let targets = target.into_iter().chain([project.join("target")]);
    let provided = targets.flat_map(|target| PROVIDED.map(|name| target.join(name)));
    given.chain(provided).collect()
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
