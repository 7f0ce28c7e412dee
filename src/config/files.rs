// SPDX-License-Identifier: Apache-2.0
//! The configuration files and their order.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::errors::{ConfigError, printable};
use crate::sys::escape::chain;
use crate::sys::root::Root;

/// The drop-ins of the distribution and the image.
const VENDOR_DIR: &str = "/usr/lib/harvester-node-agent/config.d";
/// The drop-ins of this boot.
const RUNTIME_DIR: &str = "/run/harvester-node-agent/config.d";
/// The configuration file of the administrator.
const ADMIN_FILE: &str = "/etc/harvester-node-agent/config.toml";
/// The drop-ins of the administrator.
const ADMIN_DIR: &str = "/etc/harvester-node-agent/config.d";
/// A link to this path disables the drop-ins of the same name.
const NOTHING: &str = "/dev/null";
/// File name extensions that a user may use by mistake; they are ignored with a warning.
const LIKELY_MISTAKES: [&str; 4] = ["conf", "json", "yaml", "yml"];

/// The files to read, lowest precedence first.
#[derive(Debug, Default)]
pub(super) struct FoundFiles {
    pub(super) files: Vec<PathBuf>,
    pub(super) problems: Vec<ConfigError>,
    pub(super) warnings: Vec<String>,
}

/// Finds the configuration files, lowest precedence first.
pub(super) fn find(root: &Root) -> FoundFiles {
    let mut found = FoundFiles::default();
    // A drop-in in a later directory replaces those of the same name.
    let mut read = |dirs: &[&str]| {
        let mut drop_ins = BTreeMap::new();
        for dir in dirs.iter().map(Path::new) {
            let names = names(root, dir, &mut found).into_iter();
            drop_ins.extend(names.map(|name| (name.clone(), dir.join(name))));
        }
        drop_ins
    };
    let mut below = read(&[VENDOR_DIR, RUNTIME_DIR]);
    let above = read(&[ADMIN_DIR]);
    below.retain(|name, _| !above.contains_key(name));
    let has_admin_file = root.exists(ADMIN_FILE) || root.link_target(ADMIN_FILE).is_some();
    let admin_file = has_admin_file.then(|| PathBuf::from(ADMIN_FILE));
    let files = below.into_values().chain(admin_file);
    let files = files.chain(above.into_values());
    found.files = files.filter(|path| !is_nothing(root, path)).collect();
    found
}

/// Returns the files and directories to watch for changes if no single file is set, whether or not they exist.
///
/// If the directory below `/run` does not exist, its parent must not be watched instead: the agent writes there.
pub fn watched_paths() -> Vec<PathBuf> {
    let paths = [VENDOR_DIR, RUNTIME_DIR, ADMIN_FILE, ADMIN_DIR];
    paths.map(PathBuf::from).to_vec()
}

/// Reports whether the path resolves to `/dev/null`, whether or not the root has that device.
pub(super) fn is_nothing(root: &Root, path: &Path) -> bool {
    root.steps(path)
        .last()
        .is_some_and(|end| end == Path::new(NOTHING))
}

/// Returns the names of the drop-ins in one directory.
fn names(root: &Root, dir: &Path, found: &mut FoundFiles) -> Vec<OsString> {
    match root.list(dir) {
        Ok(names) => names
            .into_iter()
            .filter(|name| is_drop_in(dir, name, &mut found.warnings))
            .collect(),
        Err(error) if error.is_absent() && !root.exists(dir) => Vec::new(),
        Err(error) => {
            let text = match error.is_absent() {
                true => format!("`{}` is not a directory", dir.display()),
                false => chain(&error),
            };
            found.problems.push(ConfigError::new(None, &text));
            Vec::new()
        }
    }
}

/// Reports whether the name is that of a drop-in. Hidden files belong to editors and package managers.
fn is_drop_in(dir: &Path, name: &OsString, warnings: &mut Vec<String>) -> bool {
    let text = name.to_string_lossy();
    let ending = Path::new(name)
        .extension()
        .map(|ending| ending.to_string_lossy().into_owned());
    match ending.as_deref() {
        _ if text.starts_with('.') => false,
        Some("toml") => true,
        Some(other) if other.eq_ignore_ascii_case("toml") || LIKELY_MISTAKES.contains(&other) => {
            let path = printable(&dir.join(name).to_string_lossy());
            warnings.push(format!("{path}: ignored, its name does not end in `.toml`"));
            false
        }
        _ => false,
    }
}
