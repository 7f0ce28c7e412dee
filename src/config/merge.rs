// SPDX-License-Identifier: Apache-2.0
//! Second and third stage: merges the entries of all files, keeps the origin of each key, and validates them into [`Settings`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::errors::{ConfigProblem, ErrorPlace};
use super::file::FileEntry;
use super::keys::KEYS;
use super::settings::{MetricsFile, Settings};
use super::value::{ConfigValue, ValueProblem, Wrong};
use crate::facts::placement::Source;

/// One key with its effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// The whole key in TOML syntax.
    pub key: String,
    /// The value in TOML syntax.
    pub value: String,
    /// The origin of the value.
    pub origin: Origin,
    /// The description of the key.
    pub help: &'static str,
}

impl Effective {
    /// Reports whether the value equals the default, even if a file sets it.
    pub(super) fn is_default(&self) -> bool {
        let mut keys = KEYS.iter();
        let key = keys.find(|key| key.path == self.key);
        self.origin == Origin::Default
            || key.is_some_and(|key| {
                ConfigValue::parse(key.default) == ConfigValue::parse(&self.value)
            })
    }
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default.
    Default,
    /// A line of a file.
    File {
        /// The path, relative to the root.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// The entries of all files, not yet validated.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// For each key, the entry of the file with the highest precedence.
    winners: BTreeMap<String, FileEntry>,
    /// Entries that another file overrides. They are validated as well: an error in them is still reported.
    overridden: Vec<FileEntry>,
}

impl Merged {
    /// Adds the entries of one file, which overrides all files added before.
    pub(super) fn add(&mut self, entries: Vec<FileEntry>) {
        for entry in entries {
            if let Some(lower) = self.winners.insert(entry.path.clone(), entry) {
                self.overridden.push(lower);
            }
        }
    }

    /// Validates every entry, and the effective entries against each other.
    pub(super) fn validate(
        &self,
        problems: &mut Vec<ConfigProblem>,
        warnings: &mut Vec<String>,
    ) -> Settings {
        let mut scratch = Settings::default();
        for entry in &self.overridden {
            set(&mut scratch, entry, problems);
        }
        let mut settings = Settings::default();
        for entry in self.winners.values() {
            set(&mut settings, entry, problems);
        }
        self.check_host_label(&settings, problems);
        self.warn(&settings, warnings);
        settings
    }

    /// Returns every key with its value and origin, in the order of the table.
    pub(super) fn effective(&self) -> Vec<Effective> {
        let mut values: Vec<Effective> = Vec::new();
        for key in KEYS {
            let stated: Vec<&FileEntry> = self
                .winners
                .values()
                .filter(|entry| entry.key.path == key.path)
                .collect();
            values.extend(stated.iter().map(|entry| Effective {
                key: entry.path.clone(),
                value: entry.value.to_string(),
                origin: Origin::File {
                    path: entry.place.path.clone(),
                    line: entry.place.line,
                },
                help: key.help,
            }));
            let shown = match key.open_table() {
                Some(table) if self.has_entries_below(table) => continue,
                Some(table) => table,
                None => key.path,
            };
            if stated.is_empty() && !values.iter().any(|value| value.key == shown) {
                values.push(Effective {
                    key: shown.to_owned(),
                    value: key.default.to_owned(),
                    origin: Origin::Default,
                    help: key.help,
                });
            }
        }
        values
    }

    fn has_entries_below(&self, table: &str) -> bool {
        self.winners
            .values()
            .any(|entry| entry.key.open_table() == Some(table))
    }

    /// Rejects the host label as an extra label: two writers of one label in the agent would overwrite each other forever.
    fn check_host_label(&self, settings: &Settings, problems: &mut Vec<ConfigProblem>) {
        let is_unsure = problems
            .iter()
            .any(|problem| problem.key() == Some("topology.host_label"));
        let Some(host_label) = settings.topology.host_label.as_ref() else {
            return;
        };
        if is_unsure {
            return;
        }
        let clash = self.winners.values().find(|entry| {
            entry.key.path == "labels.extra.*"
                && entry.names.first().map(String::as_str) == Some(host_label.as_str())
        });
        if let Some(entry) = clash {
            problems.push(ConfigProblem::Refused {
                place: entry.place.clone(),
                key: entry.path.clone(),
                value: format!("\"{host_label}\""),
                why: "is the host label (`topology.host_label`), which the agent writes itself"
                    .to_owned(),
                allowed: entry.key.allowed.to_owned(),
            });
        }
    }

    /// Adds a warning for each value that is valid, but probably a mistake.
    fn warn(&self, settings: &Settings, warnings: &mut Vec<String>) {
        let sources = &settings.topology.sources;
        let mut warn = |place: &ErrorPlace, text: String| warnings.push(format!("{place}: {text}"));
        if let Some(entry) = self.winners.get("topology.sources")
            && sources.is_empty()
        {
            let text = "`topology.sources` is empty, so region and zone stay unknown";
            warn(&entry.place, text.to_owned());
        }
        if let Some(entry) = self.winners.get("topology.configmap")
            && !sources.contains(&Source::ConfigMap)
        {
            let text = "`topology.configmap` has no effect, because `topology.sources` does not include \"configmap\"";
            warn(&entry.place, text.to_owned());
        }
        if let Some(entry) = self.winners.get("metrics.textfile")
            && let MetricsFile::Path(path) = &settings.metrics.textfile
            && path.extension().is_none_or(|extension| extension != "prom")
        {
            let text =
                "`metrics.textfile` does not end in `.prom`, so node-exporter does not read it";
            warn(&entry.place, text.to_owned());
        }
        if !sources.contains(&Source::HostsTable) {
            let of_hosts = |entry: &&FileEntry| entry.key.path.starts_with("hosts.*.");
            for entry in self.winners.values().filter(of_hosts) {
                let text = format!(
                    "`{}` has no effect, because `topology.sources` does not include \"hosts-table\"",
                    entry.path
                );
                warn(&entry.place, text);
            }
        }
        let has_labels_of_hosts =
            sources.contains(&Source::HostNode) || sources.contains(&Source::ConfigMap);
        for entry in self.winners.values() {
            if entry.key.path != "labels.extra.*" {
                continue;
            }
            if !has_labels_of_hosts {
                let text = format!(
                    "`{}` has no effect, because `topology.sources` includes neither \"host-node\" nor \"configmap\"",
                    entry.path
                );
                warn(&entry.place, text);
            }
            let is_instance_type = settings.extra_labels.keys().any(|key| {
                key.is_instance_type()
                    && entry.names.first().is_some_and(|name| name == key.as_str())
            });
            if is_instance_type {
                let text = format!("`{}` is a label that cloud providers write too", entry.path);
                warn(&entry.place, text);
            }
        }
    }
}

/// Sets one field, or adds an error.
fn set(settings: &mut Settings, entry: &FileEntry, problems: &mut Vec<ConfigProblem>) {
    if let Err(wrongs) = (entry.key.set)(settings, &entry.names, &entry.value) {
        problems.extend(wrongs.into_iter().map(|wrong| problem(entry, wrong)));
    }
}

fn problem(entry: &FileEntry, wrong: Wrong) -> ConfigProblem {
    let place = entry.place.clone();
    let key = match wrong.element {
        Some(index) => format!("{}[{index}]", entry.path),
        None => entry.path.clone(),
    };
    let allowed = entry.key.allowed.to_owned();
    match wrong.why {
        ValueProblem::Type { expected, found } => ConfigProblem::WrongType {
            place,
            key,
            expected,
            found,
            value: wrong.shown,
            allowed,
        },
        ValueProblem::Content(why) => ConfigProblem::Refused {
            place,
            key,
            value: wrong.shown,
            why,
            allowed,
        },
    }
}
