// SPDX-License-Identifier: Apache-2.0
//! The reference is complete: every finding, condition reason, Event reason, metric and configuration key has exactly one row.

use std::collections::BTreeSet;

use harvester_node_agent::catalog::Code;
use harvester_node_agent::config;
use harvester_node_agent::decide::conditions::{IDENTITY, TOPOLOGY};
use harvester_node_agent::decide::guest_agent::{CONDITION, GuestAgentHealth};
use harvester_node_agent::decide::label_state::{self, LabelState};
use harvester_node_agent::decide::name_match::Verdict;
use harvester_node_agent::sys::root::Root;

use super::{files, product_files, product_lines, read};

/// Returns the first cells of the rows of a page below a heading, or of all rows without one.
fn rows(page: &str, heading: Option<&str>) -> Vec<String> {
    let text = read(&format!(
        "packaging/docs/pages/harvester-node-agent-{page}.7.md"
    ));
    let parts = text.split("\n##").filter(|part| {
        let title = part.lines().next().unwrap_or_default();
        heading.is_none_or(|heading| title.trim_start_matches('#').trim() == heading)
    });
    let cells = parts.flat_map(|part| part.split("\n| `").skip(1));
    let names = cells.filter_map(|cell| cell.split('`').next());
    names.map(str::to_owned).collect()
}

/// Holds that these names, and no others, are rows, each one once.
fn is_complete<'a>(what: &str, names: impl IntoIterator<Item = &'a str>, rows: &[String]) {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let listed: BTreeSet<&str> = rows.iter().map(String::as_str).collect();
    let wrong: Vec<_> = names.symmetric_difference(&listed).collect();
    assert!(
        wrong.is_empty(),
        "{what}: rows that lack or are too many: {wrong:?}"
    );
    assert_eq!(rows.len(), listed.len(), "{what}: a row twice: {rows:?}");
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
fn every_finding_has_one_row() {
    let codes = Code::ALL.iter().map(|code| code.as_str());
    is_complete("findings", codes, &rows("findings", None));
}

#[test]
fn every_reason_of_a_condition_and_of_an_event_has_one_row() {
    let rows = |heading| rows("states", Some(heading));
    let states = label_state::all();
    let states = states.iter().map(LabelState::reason);
    is_complete(TOPOLOGY, states, &rows(TOPOLOGY));
    is_complete(
        IDENTITY,
        Verdict::ALL.iter().map(|verdict| verdict.reason()),
        &rows(IDENTITY),
    );
    let health = GuestAgentHealth::ALL.iter().map(|health| health.reason());
    is_complete(CONDITION, health, &rows(CONDITION));

    // The words of `events.rs` that are not types, and no status of a condition.
    let others = ["Normal", "Warning", "True", "False", "Unknown"];
    let words = literals("src/decide/events.rs", |c| c.is_ascii_alphabetic());
    let words = words.iter().map(String::as_str);
    let reasons = words.filter(|word| !others.contains(word));
    is_complete("Events", reasons, &rows("Events"));
}

#[test]
fn every_metric_has_one_row() {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = literals("src/report/metrics.rs", is_part);
    let names = names
        .iter()
        .filter_map(|name| name.strip_prefix("harvester_node_agent_"));
    is_complete("metrics", names, &rows("metrics", Some("Metrics")));
}

#[test]
fn every_configuration_key_is_in_the_shipped_defaults_once() {
    let tree = tempfile::tempdir().unwrap();
    let loaded = config::load(&Root::new(tree.path()), None).unwrap();
    // A key whose name the user chooses is described at its table.
    let keys = loaded
        .values
        .into_iter()
        .map(|row| match row.value.is_object() {
            true => format!("{}.*", row.key),
            false => row.key,
        });
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
    is_complete("configuration", keys.iter().map(String::as_str), &listed);
}

#[test]
fn nothing_pipes_a_script_from_the_network_into_a_shell() {
    let shells = ["| sh", "| bash", "| sudo", "<(curl ", "$(curl ", "$(wget "];
    let shipped = ["packaging", "cloud-init", "systemd"].into_iter();
    let shipped = shipped.flat_map(files).chain(product_files());
    for file in shipped.chain(["README.md".to_owned()]) {
        for line in read(&file).lines() {
            let is_download = line.contains("curl ") || line.contains("wget ");
            let is_run = is_download && shells.iter().any(|shell| line.contains(shell));
            assert!(!is_run, "{file}: {line}");
        }
    }
}
