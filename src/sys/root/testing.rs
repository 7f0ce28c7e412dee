// SPDX-License-Identifier: Apache-2.0
//! For tests only: machines that have a few files and nothing else, so that a fleet need not ask the kernel for the many that are
//! absent, nor again for those that never change.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;

/// The files of the machines of a thread. Paths are compared as strings: a fleet looks up millions.
#[derive(Default)]
struct Files {
    /// They and the directories above them.
    present: HashSet<OsString>,
    /// Those that never change.
    constant: HashSet<OsString>,
    /// What was read of these, by machine.
    read: HashMap<OsString, HashMap<OsString, Vec<u8>>>,
}

thread_local! {
    static FILES: RefCell<Option<Files>> = const { RefCell::new(None) };
}

/// Declares that every root of this thread has these files with the directories above them, nothing else and no links.
pub(crate) fn have_only(constant: &[&str], changing: &[&str]) {
    let mut files = Files {
        constant: constant.iter().map(OsString::from).collect(),
        ..Files::default()
    };
    for file in constant.iter().chain(changing) {
        let ancestors = Path::new(file).ancestors();
        files
            .present
            .extend(ancestors.map(|path| path.as_os_str().to_owned()));
    }
    FILES.set(Some(files));
}

/// Reports whether the files of this thread's roots are declared.
pub(super) fn is_declared() -> bool {
    FILES.with_borrow(Option::is_some)
}

/// Reports whether it is declared that nothing stands at this path.
pub(super) fn is_absent(path: &Path) -> bool {
    FILES.with_borrow(|files| {
        files
            .as_ref()
            .is_some_and(|files| !files.present.contains(path.as_os_str()))
    })
}

/// Returns what was read of a file that never changes.
pub(super) fn known(dir: &Path, path: &Path) -> Option<Vec<u8>> {
    FILES.with_borrow(|files| {
        let read = files.as_ref()?.read.get(dir.as_os_str())?;
        read.get(path.as_os_str()).cloned()
    })
}

/// Keeps what was read, where it never changes.
pub(super) fn keep(dir: &Path, path: &Path, bytes: &[u8]) {
    FILES.with_borrow_mut(|files| {
        if let Some(files) = files
            && files.constant.contains(path.as_os_str())
        {
            let read = files.read.entry(dir.as_os_str().to_owned()).or_default();
            read.insert(path.as_os_str().to_owned(), bytes.to_owned());
        }
    });
}
