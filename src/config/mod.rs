// SPDX-License-Identifier: Apache-2.0
//! The configuration of the agent.
//!
//! A file is read as leaves (`leaves.rs`), each of which is deserialized alone: so every mistake has its own error. The leaves that
//! win are then deserialized together into [`Settings`], which alone state the keys and their defaults.
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
//! To add a key: a field with its default in `settings.rs`, a commented line in `packaging/config.d/10-defaults.toml`, and a test
//! of its effect. `tests.rs` sets each key; only a value with a meaning of its own needs a case there.

mod duration;
mod errors;
mod files;
mod label;
mod leaves;
mod listen;
mod settings;
pub mod show;
mod suggest;
#[cfg(test)]
pub(crate) mod tests;
mod tree;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use duration::{parse as parse_duration, text as duration_text};
pub use errors::{ConfigError, ConfigErrors, FileLine};
pub use files::watched_paths;
pub use label::LabelKey;
pub use listen::Listen;
pub use settings::{
    Guest, GuestAgentSettings, HarvesterSettings, LabelSettings, Log, LogLevel, MachineSettings,
    Metrics, MetricsFile, OnChange, PodInfoSettings, RegistrationSettings, ReportSettings,
    Settings, Timing, TopologySettings, ZoneFallback,
};
pub use show::Effective;
pub(crate) use suggest::closest;
pub use value::FilePath;

use crate::facts::placement::Source;
use crate::sys::escape::chain;
use crate::sys::root::Root;
use tree::{Leaf, Node};

/// The key whose value the keys of `[labels.extra]` must differ from.
const HOST_LABEL: [&str; 2] = ["topology", "host_label"];

/// The maximum number of extra labels: the Node is patched with all of them at once, and lists those that the agent owns.
pub const EXTRA_MAX: usize = 128;

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
    let mut read = Vec::new();
    for path in files {
        match root.read_text(&path, MAX_FILE_BYTES) {
            Ok(source) => read.push((path, source)),
            Err(error) => problems.push(ConfigError::new(None, &chain(&error))),
        }
    }
    let mut winners = BTreeMap::new();
    let mut has_host_label = true;
    for (path, source) in &read {
        for leaf in leaves::parse(path, source, &mut problems) {
            let errors = leaf.errors();
            if errors.is_empty() {
                winners.insert(leaf.names.clone(), leaf);
            } else {
                has_host_label &= leaf.path != HOST_LABEL;
                problems.extend(errors);
            }
        }
    }
    let winners: Vec<Leaf<'_>> = winners.into_values().collect();
    let settings = Settings::deserialize(Node::of(&winners)).unwrap_or_else(|refusal| {
        problems.push(ConfigError::new(None, &refusal.to_string()));
        Settings::default()
    });
    if has_host_label {
        problems.extend(winners.iter().filter_map(|leaf| clash(&settings, leaf)));
    }
    let extra: Vec<_> = winners.iter().filter(|leaf| is_extra(leaf)).collect();
    if let Some(leaf) = extra.get(EXTRA_MAX) {
        let found = extra.len();
        let why = format!("is one of {found} in `[labels.extra]`; at most {EXTRA_MAX} are allowed");
        problems.push(leaf.wrong("the key", &why));
    }
    let values = show::effective(&settings, &winners);
    let is_whole = problems.is_empty();
    let warning = |value| warning(&settings, value, is_whole);
    warnings.extend(values.iter().filter_map(warning));
    if is_whole {
        return Ok(LoadedConfig {
            values,
            settings,
            files: read.iter().map(|(path, _)| path.clone()).collect(),
            warnings,
        });
    }
    // Errors of whole files first, then by file and line.
    problems.sort_by_key(|problem| {
        problem.place.as_ref().map(|place| {
            let file = read.iter().position(|(path, _)| *path == place.path);
            (file, place.line)
        })
    });
    Err(ConfigErrors { problems, warnings })
}

/// Rejects the host label as an extra label: two writers of one label in the agent would overwrite each other forever.
fn clash(settings: &Settings, leaf: &Leaf<'_>) -> Option<ConfigError> {
    let host_label = settings.topology.host_label.as_ref()?.as_str();
    let why = "is the host label (`topology.host_label`), which the agent writes itself";
    let is_host = leaf.path.last().is_some_and(|key| key == host_label);
    (is_extra(leaf) && is_host).then(|| leaf.wrong("the key", why))
}

fn is_extra(leaf: &Leaf<'_>) -> bool {
    matches!(leaf.path.as_slice(), [labels, extra, _] if labels == "labels" && extra == "extra")
}

/// Returns a warning if a value is valid, but probably a mistake. What other settings make of it is known only if these are the whole
/// configuration.
fn warning(settings: &Settings, value: &Effective, is_whole: bool) -> Option<String> {
    let (topology, key) = (&settings.topology, value.key.as_str());
    let place = value.origin.as_ref().filter(|_| !value.is_default)?;
    let lacks = |source| !topology.sources.contains(&source);
    let has_no_host_labels = lacks(Source::HostNode) && lacks(Source::ConfigMap);
    #[rustfmt::skip]
    let useless: [(bool, &[&str], &str); 7] = [
        (lacks(Source::ConfigMap), &["topology.configmap"], "`topology.sources` does not include \"configmap\""),
        (lacks(Source::HostsTable), &["hosts."], "`topology.sources` does not include \"hosts-table\""),
        (lacks(Source::PodInfo) && settings.pod_info.path.is_some(), &["pod_info.path"], "`topology.sources` does not include \"pod-info\""),
        (has_no_host_labels, &["labels.extra.", "topology.zone_fallback"],
            "`topology.sources` includes neither \"host-node\" nor \"configmap\""),
        (topology.on_change == OnChange::Report, &["labels.extra.", "registration.node_labels", "topology.remove_stale"],
            "`topology.on_change` is \"report\""),
        (topology.on_change == OnChange::Hold, &["topology.remove_stale"], "`topology.on_change` is \"hold\""),
        (!settings.report.node_conditions, &["report.lifecycle_conditions"], "`report.node_conditions` is false"),
    ];
    let mut useless = useless.iter().filter(|(holds, ..)| *holds && is_whole);
    let is_named = |keys: &[&str]| keys.iter().any(|prefix| key.starts_with(prefix));
    if let Some((.., why)) = useless.find(|(_, keys, _)| is_named(keys)) {
        return Some(format!("{place}: `{key}` has no effect, because {why}"));
    }
    let extra = key.strip_prefix("labels.extra.").unwrap_or_default();
    let extra = LabelKey::parse(extra.trim_matches('"'));
    let is_prom = |path: &Path| path.extension().is_some_and(|ending| ending == "prom");
    let why = match (key, &settings.metrics.textfile) {
        ("topology.sources", _) if topology.sources.is_empty() => {
            "is empty, so region and zone stay unknown"
        }
        ("metrics.textfile", MetricsFile::Path(path)) if !is_prom(path) => {
            "does not end in `.prom`, so node-exporter does not read it"
        }
        _ if extra.is_ok_and(|key| key.is_instance_type()) => {
            "is a label that cloud providers write too"
        }
        _ => return None,
    };
    Some(format!("{place}: `{key}` {why}"))
}

fn only_file(root: &Root, path: &Path) -> files::FoundFiles {
    let mut found = files::FoundFiles::default();
    if !path.is_absolute() {
        let text = format!("`{}` is not an absolute path", path.display());
        found.problems.push(ConfigError::new(None, &text));
    } else if !files::is_nothing(root, path) {
        found.files.push(path.to_owned());
    }
    found
}
