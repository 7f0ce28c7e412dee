// SPDX-License-Identifier: Apache-2.0
//! The configuration of the agent.
//!
//! Three stages: the entries of each file (`file.rs`), merged with their origins (`merge.rs`), and validated [`Settings`].
//!
//! Files, lowest precedence first; a later file overrides single keys of an earlier one:
//! 1. `/usr/lib/harvester-node-agent/config.d/*.toml` and `/run/harvester-node-agent/config.d/*.toml`, sorted by file name,
//!    regardless of the directory;
//! 2. `/etc/harvester-node-agent/config.toml`;
//! 3. `/etc/harvester-node-agent/config.d/*.toml`, sorted by file name.
//!
//! A drop-in replaces all drop-ins of the same name in earlier directories (`/usr/lib`, `/run`, `/etc`): they are not read. A link
//! to `/dev/null` or an empty file therefore disables them. Hidden files and files with other extensions are not read. An array is
//! replaced as a whole; `[labels.extra]` and `[hosts]` merge the keys of all files.
//!
//! An error in any file that is read is reported, even if a later file overrides the key. All errors are reported at once.
//!
//! To add a key: a field with its default in `settings.rs`, a row in [`KEYS`], a commented line in
//! `packaging/config.d/10-defaults.toml`, valid and invalid values in `tests.rs`, and a test of its effect.

mod duration;
mod errors;
mod file;
mod files;
mod keys;
mod label;
mod listen;
mod merge;
mod settings;
pub mod show;
mod suggest;
#[cfg(test)]
mod tests;
mod value;

use std::path::{Path, PathBuf};

pub use duration::{DurationError, parse as parse_duration};
pub use errors::{ConfigErrors, ConfigProblem, ErrorPlace};
pub use keys::{KEYS, Key};
pub use label::{ConfigMapName, GuestKeyError, LabelKey, NameError, NamespaceName, ObjectName};
pub use listen::Listen;
pub use merge::{Effective, Origin};
pub use settings::{
    Guest, HarvesterSettings, HostPlace, Log, LogLevel, MachineSettings, Metrics, MetricsFile,
    OnChange, OptIn, OptIns, RegistrationSettings, ReportSettings, Settings, Timing,
    TopologySettings, WatchMode, ZoneFallback,
};

use crate::sys::root::Root;

/// The maximum size of a file: much more than all keys with every host of a large Harvester cluster need.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The configuration, with its origins and warnings.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The settings.
    pub settings: Settings,
    /// Every key with its value and origin.
    pub values: Vec<Effective>,
    /// The files that were read, lowest precedence first.
    pub files: Vec<PathBuf>,
    /// Warnings about values that are valid, but probably mistakes; one line each.
    pub warnings: Vec<String>,
}

/// Loads the configuration. It is valid to have no file.
///
/// `only` replaces all other files. It must be an absolute path inside the root: a relative path would be resolved from the root,
/// not from the working directory, and is rejected.
pub fn load(root: &Root, only: Option<&Path>) -> Result<LoadedConfig, ConfigErrors> {
    let found = match only {
        None => files::find(root),
        Some(path) => only_file(root, path),
    };
    let files::FoundFiles {
        files,
        mut problems,
        mut warnings,
    } = found;
    let mut merged = merge::Merged::default();
    let mut read = Vec::new();
    for path in files {
        match root.read_text(&path, MAX_FILE_BYTES) {
            Ok(source) => {
                merged.add(file::parse(&path, &source, &mut problems));
                read.push(path);
            }
            Err(error) => problems.push(ConfigProblem::Unreadable(error)),
        }
    }
    let settings = merged.validate(&mut problems, &mut warnings);
    if problems.is_empty() {
        Ok(LoadedConfig {
            settings,
            values: merged.effective(),
            files: read,
            warnings,
        })
    } else {
        sort(&mut problems, &read);
        Err(ConfigErrors { problems })
    }
}

/// Returns the files and directories to watch for changes if no single file is set, whether or not they exist.
///
/// If the directory below `/run` does not exist, its parent must not be watched instead: the agent writes there.
pub fn watched_paths() -> Vec<PathBuf> {
    files::watched()
}

fn only_file(root: &Root, path: &Path) -> files::FoundFiles {
    let mut found = files::FoundFiles::default();
    if !path.is_absolute() {
        found
            .problems
            .push(ConfigProblem::RelativePath(path.to_owned()));
    } else if !files::is_nothing(root, path) {
        found.files.push(path.to_owned());
    }
    found
}

/// Sorts the errors: unreadable files first, then by file and line.
fn sort(problems: &mut [ConfigProblem], read: &[PathBuf]) {
    problems.sort_by_key(|problem| {
        problem.place().map(|place| {
            let file = read.iter().position(|path| *path == place.path);
            (file, place.line)
        })
    });
}
