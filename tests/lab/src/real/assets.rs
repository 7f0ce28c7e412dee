// SPDX-License-Identifier: Apache-2.0
//! Where the programs of Kubernetes are found.

use std::path::{Path, PathBuf};

/// A program in `KUBEBUILDER_ASSETS`, else in `target/envtest`; or where it was looked for.
pub(super) fn find(program: &str) -> Result<PathBuf, String> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let given = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let candidates: Vec<PathBuf> = target
        .into_iter()
        .chain([project.join("target")])
        .map(|dir| dir.join("envtest"))
        .collect();
    let candidates: Vec<PathBuf> = given.into_iter().chain(candidates).collect();
    let found = candidates
        .iter()
        .map(|dir| dir.join(program))
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        format!("no {program} in {candidates:?}; `tests/lab/kubernetes {program} DIR` makes one")
    })
}
