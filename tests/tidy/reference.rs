// SPDX-License-Identifier: Apache-2.0
//! The reference is complete: every Event reason and configuration key has exactly one row.

use std::collections::BTreeSet;

use harvester_node_agent::config;
use harvester_node_agent::sys::root::Root;

use super::{product_lines, read};

/// Returns the first cells of the rows of a page below a heading.
pub(super) fn rows(page: &str, heading: &str) -> Vec<String> {
    let page = format!("packaging/docs/pages/harvester-node-agent-{page}.7.md");
    let text = read(&page);
    let (_, text) = text.split_once(&format!("# {heading}\n")).unwrap();
    let cells = text.split("\n#").next().unwrap().split("\n| `").skip(1);
    let names = cells.filter_map(|cell| cell.split('`').next());
    names.map(str::to_owned).collect()
}

/// Holds that these names, and no others, are rows, each one once.
pub(super) fn is_complete<'a>(names: impl Iterator<Item = &'a str>, mut rows: Vec<String>) {
    let names: BTreeSet<&str> = names.collect();
    rows.sort();
    assert_eq!(rows, names.into_iter().collect::<Vec<_>>());
}

/// Returns the string literals of a source file that consist of these characters only.
fn literals(file: &str, is_part: fn(char) -> bool) -> Vec<String> {
    let code = read(file);
    let code = product_lines(&code).join("\n");
    let literals = code.split('"').skip(1).step_by(2);
    let literals = literals.filter(|text| !text.is_empty() && text.chars().all(is_part));
    literals.map(str::to_owned).collect()
}

#[test]
fn every_reason_of_an_event_has_one_row() {
    // The words of `events.rs` that are not types, and no status of a condition.
    let others = ["Normal", "Warning", "True", "False", "Unknown"];
    let words = literals("src/decide/events.rs", |c| c.is_ascii_alphabetic());
    let words = words.iter().map(String::as_str);
    let reasons = words.filter(|word| !others.contains(word));
    is_complete(reasons, rows("states", "Events"));
}

#[test]
fn every_configuration_key_is_in_the_shipped_defaults_once() {
    let tree = tempfile::tempdir().unwrap();
    let loaded = config::load(&Root::new(tree.path()), None).unwrap();
    // A key whose name the user chooses is described at its table.
    let ends = |is_table| if is_table { ".*" } else { "" };
    let keys = loaded.values.iter();
    let keys = keys.map(|row| format!("{}{}", row.key, ends(row.value.is_object())));
    let keys: BTreeSet<String> = keys.collect();
    let text = read("packaging/config.d/10-defaults.toml");
    let mut table = String::new();
    let mut listed = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix('#')) {
        if line.starts_with('[') {
            table = format!("{}.", line.trim_matches(['[', ']']));
            listed.extend(keys.get(&format!("{table}*")).cloned());
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with(' ')) {
            listed.push(format!("{table}{name}"));
        }
    }
    is_complete(keys.iter().map(String::as_str), listed);
}
