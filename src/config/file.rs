// SPDX-License-Identifier: Apache-2.0
//! First stage: parses one file into entries, each a known key with its value and line.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::errors::{ConfigProblem, ErrorPlace, escaped, printable};
use super::keys::{KEYS, Key};
use super::suggest;
use super::value::ConfigValue;

/// One key in one file, not yet validated.
#[derive(Debug, Clone)]
pub(super) struct FileEntry {
    /// The row of the key in the table.
    pub(super) key: &'static Key,
    /// The whole key in TOML syntax.
    pub(super) path: String,
    /// The names in place of `*` in the row.
    pub(super) names: Vec<String>,
    /// The value in the file.
    pub(super) value: ConfigValue,
    /// The file and line.
    pub(super) place: ErrorPlace,
}

/// Parses one file and adds its errors to `problems`. A file that is not valid TOML has no entries.
pub(super) fn parse(
    path: &Path,
    source: &str,
    problems: &mut Vec<ConfigProblem>,
) -> Vec<FileEntry> {
    let (table, errors) = DeTable::parse_recoverable(source);
    let lines = FileLines::new(source);
    if !errors.is_empty() {
        problems.extend(errors.iter().map(|error| {
            let start = error.span().map_or(0, |span| span.start);
            ConfigProblem::Syntax {
                place: lines.place(path, start),
                column: column(source, start),
                message: printable(error.message()),
            }
        }));
        return Vec::new();
    }
    let mut walk = Walk {
        path,
        source,
        lines,
        entries: Vec::new(),
        problems,
    };
    walk.table(table.get_ref(), &[]);
    let mut entries = walk.entries;
    entries.sort_by_key(|entry| entry.place.line);
    entries
}

struct Walk<'a> {
    path: &'a Path,
    source: &'a str,
    lines: FileLines,
    entries: Vec<FileEntry>,
    problems: &'a mut Vec<ConfigProblem>,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>, above: &[String]) {
        for (name, value) in table {
            let mut names = above.to_vec();
            names.push(name.get_ref().clone().into_owned());
            let place = self.lines.place(self.path, name.span().start);
            if let Some(key) = KEYS.iter().find(|key| is_key(key, &names)) {
                self.entries.push(FileEntry {
                    key,
                    path: dotted(&names),
                    names: chosen_names(key, &names),
                    value: ConfigValue::new(value, self.source),
                    place,
                });
            } else if let Some(key) = KEYS.iter().find(|key| is_above(key, &names)) {
                match value.get_ref() {
                    DeValue::Table(inner) => self.table(inner, &names),
                    other => self.problems.push(ConfigProblem::WrongType {
                        place,
                        key: dotted(&names),
                        expected: "table",
                        found: other.type_str(),
                        value: escaped(self.source.get(value.span()).unwrap_or_default()),
                        allowed: format!("keys such as `{}`", key.path),
                    }),
                }
            } else {
                self.problems.push(ConfigProblem::Unknown {
                    place,
                    what: if value.get_ref().is_table() {
                        "table"
                    } else {
                        "key"
                    },
                    key: dotted(&names),
                    hint: hint(&names),
                });
            }
        }
    }
}

/// The offsets of the line ends in a file. They are computed once: counting for every key would take minutes on a malicious file.
struct FileLines {
    ends: Vec<usize>,
}

impl FileLines {
    fn new(source: &str) -> Self {
        Self {
            ends: source.match_indices('\n').map(|(end, _)| end).collect(),
        }
    }

    fn place(&self, path: &Path, offset: usize) -> ErrorPlace {
        ErrorPlace {
            path: path.to_owned(),
            line: self.ends.partition_point(|end| *end < offset) + 1,
        }
    }
}

/// Reports whether the names are those of the key.
fn is_key(key: &Key, names: &[String]) -> bool {
    key.segments().count() == names.len() && starts_with(key, names)
}

/// Reports whether the names are those of a table that contains the key.
fn is_above(key: &Key, names: &[String]) -> bool {
    key.segments().count() > names.len() && starts_with(key, names)
}

fn starts_with(key: &Key, names: &[String]) -> bool {
    key.segments()
        .zip(names)
        .all(|(segment, name)| segment == "*" || segment == name)
}

fn chosen_names(key: &Key, names: &[String]) -> Vec<String> {
    key.segments()
        .zip(names)
        .filter(|(segment, _)| *segment == "*")
        .map(|(_, name)| name.clone())
        .collect()
}

/// Returns a suggestion: a similar name in the same table, else the same name in another table, else all names in the table.
fn hint(names: &[String]) -> String {
    let Some((last, above)) = names.split_last() else {
        return String::new();
    };
    let mut siblings: Vec<&str> = KEYS
        .iter()
        .filter(|key| is_above(key, above))
        .filter_map(|key| key.segments().nth(above.len()))
        .collect();
    siblings.dedup();
    if let Some(meant) = suggest::closest(last, siblings.iter().copied()) {
        let mut corrected = above.to_vec();
        corrected.push(meant.to_owned());
        return format!("did you mean `{}`?", printable(&dotted(&corrected)));
    }
    let elsewhere = KEYS
        .iter()
        .find(|key| key.segments().last() == Some(last.as_str()) && !key.path.contains('*'));
    match elsewhere {
        Some(key) if key.path.contains('.') => format!("did you mean `{}`?", key.path),
        Some(key) => format!(
            "did you mean `{}`, which belongs above the first table?",
            key.path
        ),
        None => format!("allowed here: {}", siblings.join(", ")),
    }
}

/// Returns the names as a key in TOML syntax.
fn dotted(names: &[String]) -> String {
    let is_bare = |name: &&String| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let parts: Vec<String> = names
        .iter()
        .map(|name| {
            if is_bare(&name) {
                name.clone()
            } else {
                format!("{name:?}")
            }
        })
        .collect();
    parts.join(".")
}

fn column(source: &str, offset: usize) -> usize {
    let before = source.get(..offset).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.chars().count() + 1
}
