// SPDX-License-Identifier: Apache-2.0
//! For tests only: simulated systems with a few files, so that a fleet need not query the kernel for the many that do
//! not exist, nor repeatedly for those that never change.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;

/// The files of a thread's systems. Paths are compared as strings, since a fleet looks up millions.
#[derive(Default)]
struct Files {
    /// The files and the directories above them.
    present: HashSet<OsString>,
    /// The files that never change.
    constant: HashSet<OsString>,
    /// The content of these files, by system.
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
pub(crate) fn is_declared() -> bool {
    FILES.with_borrow(Option::is_some)
}

/// Reports whether this path is declared not to exist.
pub(super) fn is_absent(path: &Path) -> bool {
    FILES.with_borrow(|files| {
        files
            .as_ref()
            .is_some_and(|files| !files.present.contains(path.as_os_str()))
    })
}

/// Returns the cached content of a file that never changes.
pub(super) fn known(dir: &Path, path: &Path) -> Option<Vec<u8>> {
    FILES.with_borrow(|files| {
        let read = files.as_ref()?.read.get(dir.as_os_str())?;
        read.get(path.as_os_str()).cloned()
    })
}

/// Caches the content of a file that never changes.
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
