// SPDX-License-Identifier: Apache-2.0
//! For tests only: a machine that has a few files and nothing else, so that a fleet need not ask the kernel for the many that are absent.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

thread_local! {
    static FILES: RefCell<Option<BTreeSet<PathBuf>>> = const { RefCell::new(None) };
}

/// Declares that every root of this thread has these files with the directories above them, nothing else and no links.
pub(crate) fn have_only(files: &[&str]) {
    FILES.set(Some(files.iter().map(PathBuf::from).collect()));
}

/// Whether the files of this thread's roots are declared.
pub(super) fn is_declared() -> bool {
    FILES.with_borrow(Option::is_some)
}

/// Whether it is declared that nothing stands at this path.
pub(super) fn is_absent(path: &Path) -> bool {
    let leads_to_one = |files: &BTreeSet<PathBuf>| files.iter().any(|file| file.starts_with(path));
    FILES.with_borrow(|files| files.as_ref().is_some_and(|files| !leads_to_one(files)))
}
