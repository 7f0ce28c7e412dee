// SPDX-License-Identifier: Apache-2.0
//! For tests only: machines that have a few files and nothing else, so that a fleet need not ask the kernel for the many that are
//! absent, nor again for those that never change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of the machines of a thread.
#[derive(Default)]
struct Files {
    /// Whether each of them ever changes.
    changes: BTreeMap<PathBuf, bool>,
    /// What was read of those that do not, by machine.
    read: BTreeMap<(PathBuf, PathBuf), Vec<u8>>,
}

thread_local! {
    static FILES: RefCell<Option<Files>> = const { RefCell::new(None) };
}

/// Declares that every root of this thread has these files with the directories above them, nothing else and no links.
pub(crate) fn have_only(constant: &[&str], changing: &[&str]) {
    let of = |files: &[&str], changes: bool| -> Vec<(PathBuf, bool)> {
        files.iter().map(|file| (file.into(), changes)).collect()
    };
    let changes = [of(constant, false), of(changing, true)].concat();
    FILES.set(Some(Files {
        changes: changes.into_iter().collect(),
        read: BTreeMap::new(),
    }));
}

/// Whether the files of this thread's roots are declared.
pub(super) fn is_declared() -> bool {
    FILES.with_borrow(Option::is_some)
}

/// Whether it is declared that nothing stands at this path.
pub(super) fn is_absent(path: &Path) -> bool {
    let leads_to_one = |files: &Files| files.changes.keys().any(|file| file.starts_with(path));
    FILES.with_borrow(|files| files.as_ref().is_some_and(|files| !leads_to_one(files)))
}

/// What was read of a file that never changes.
pub(super) fn known(dir: &Path, path: &Path) -> Option<Vec<u8>> {
    let key = (dir.to_owned(), path.to_owned());
    FILES.with_borrow(|files| files.as_ref()?.read.get(&key).cloned())
}

/// Keeps what was read, where it never changes.
pub(super) fn keep(dir: &Path, path: &Path, bytes: &[u8]) {
    FILES.with_borrow_mut(|files| {
        if let Some(files) = files
            && files.changes.get(path) == Some(&false)
        {
            let key = (dir.to_owned(), path.to_owned());
            files.read.insert(key, bytes.to_owned());
        }
    });
}
