// SPDX-License-Identifier: Apache-2.0
//! Our own configuration.
//!
//! Three stages: the entries of each file (`file.rs`), merged with their origins (`merge.rs`), validated [`Settings`].
//!
//! Files, lowest first; a later one replaces single keys of an earlier one:
//! 1. `/usr/lib/harvester-node-agent/config.d/*.toml` and `/run/harvester-node-agent/config.d/*.toml`, all of them sorted
//!    by file name, whichever directory they are in;
//! 2. `/etc/harvester-node-agent/config.toml`;
//! 3. `/etc/harvester-node-agent/config.d/*.toml`, sorted by file name.
//!
//! A drop-in takes the place of all those of the same name in an earlier directory (`/usr/lib`, `/run`, `/etc`): they are
//! not read. A link to `/dev/null` or an empty file therefore disables them. Hidden files and other endings are not read.
//! An array is replaced as a whole; `[labels.extra]` and `[hosts]` gain the keys of every file.
//!
//! A mistake in any file that is read is an error, also where a later file states the key again, and every mistake is
//! reported at once.
//!
//! To add a key: a field with its default in `settings.rs`, a row in [`KEYS`], a commented line in
//! `packaging/config.d/10-defaults.toml`, good and bad values in `tests.rs`, and a test of its effect with a row in
//! `tests/tidy/effects.rs`.

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
    TopologySettings, WatchMode,
};

use crate::sys::root::Root;

/// Far more than every key with every host of a large Harvester takes.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The configuration as it was read.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// What the agent works with.
    pub settings: Settings,
    /// Every key with its value and origin.
    pub values: Vec<Effective>,
    /// The files that were read, lowest first.
    pub files: Vec<PathBuf>,
    /// What is valid and yet surely not meant, one line each.
    pub warnings: Vec<String>,
}

/// Reads the configuration; no file at all is a good one.
///
/// `only` replaces every other file. It is an absolute path inside the root; a relative one would be read from the top of
/// the root and not from the working directory, so it is refused.
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

/// Every file and directory whose change calls for a new reading, present or not, when no single file was named.
///
/// The parent of the directory below `/run` must not be watched in its stead: the agent itself writes there.
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

/// In the order in which a person meets them: unreadable files first, then file by file, line by line.
fn sort(problems: &mut [ConfigProblem], read: &[PathBuf]) {
    problems.sort_by_key(|problem| {
        problem.place().map(|place| {
            let file = read.iter().position(|path| *path == place.path);
            (file, place.line)
        })
    });
}
