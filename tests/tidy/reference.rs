// SPDX-License-Identifier: Apache-2.0
//! The reference is complete: every finding, condition reason, Event reason, metric and configuration key has exactly one row.

use std::collections::BTreeSet;
use std::fs;

use harvester_node_agent::catalog::Code;
use harvester_node_agent::commands::bake_check::rules::FaultCode;
use harvester_node_agent::config::KEYS;
use harvester_node_agent::decide::conditions::{IDENTITY, TOPOLOGY};
use harvester_node_agent::decide::guest_agent::{CONDITION, GuestAgentHealth};
use harvester_node_agent::decide::label_state;
use harvester_node_agent::decide::name_match::Verdict;

use super::readme::documents;
use super::{product_files, product_lines, read, top};

const STATES: &str = "packaging/docs/pages/harvester-node-agent-states.7.md";
const FINDINGS: &str = "packaging/docs/pages/harvester-node-agent-findings.7.md";
const METRICS: &str = "packaging/docs/pages/harvester-node-agent-metrics.7.md";
const DEFAULTS: &str = "packaging/config.d/10-defaults.toml";

/// Returns the first cells of the rows below a heading, or of all rows without one.
fn rows(page: &str, heading: Option<&str>) -> Vec<String> {
    let is_inside = |inside: &mut bool, line: &str| {
        if line.starts_with("##") {
            let title = line.trim_start_matches('#').trim();
            *inside = heading.is_none_or(|heading| title == heading);
        }
        Some((*inside, line.to_owned()))
    };
    let lines = page.lines().scan(heading.is_none(), is_inside);
    let lines = lines.filter(|(is_inside, _)| *is_inside);
    lines
        .filter_map(|(_, line)| {
            let cell = line.strip_prefix("| `")?;
            Some(cell.split('`').next()?.to_owned())
        })
        .collect()
}

/// Holds that these names, and no others, are rows, each one once.
fn is_complete<'a>(what: &str, names: impl IntoIterator<Item = &'a str>, rows: &[String]) {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let listed: BTreeSet<&str> = rows.iter().map(String::as_str).collect();
    let missing: Vec<_> = names.difference(&listed).collect();
    assert!(missing.is_empty(), "{what}: no row for {missing:?}");
    let unknown: Vec<_> = listed.difference(&names).collect();
    assert!(
        unknown.is_empty(),
        "{what}: rows for {unknown:?}, which the agent lacks"
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
    let of_images = FaultCode::ALL.iter().map(|code| code.entry().name);
    is_complete(
        "findings",
        codes.chain(of_images),
        &rows(&read(FINDINGS), None),
    );
}

#[test]
fn every_reason_of_a_condition_and_of_an_event_has_one_row() {
    let page = read(STATES);
    let rows = |heading| rows(&page, Some(heading));
    is_complete(TOPOLOGY, label_state::REASONS, &rows(TOPOLOGY));
    let undecided = ["IdentityAmbiguous", "VMNotFound"];
    let verdicts = Verdict::ALL.map(Verdict::reason);
    is_complete(
        IDENTITY,
        verdicts.into_iter().chain(undecided),
        &rows(IDENTITY),
    );
    is_complete(
        CONDITION,
        GuestAgentHealth::ALL.map(GuestAgentHealth::reason),
        &rows(CONDITION),
    );

    // The words of `events.rs` that are not types, and no status of a condition.
    let others = ["Normal", "Warning", "True", "False", "Unknown"];
    let words = literals("src/decide/events.rs", |c| c.is_ascii_alphabetic());
    let words = words.iter().map(String::as_str);
    is_complete(
        "Events",
        words.filter(|word| !others.contains(word)),
        &rows("Events"),
    );
}

#[test]
fn every_metric_has_one_row() {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = literals("src/report/metrics.rs", is_part);
    let names = names
        .iter()
        .filter_map(|name| name.strip_prefix("harvester_node_agent_"));
    is_complete("metrics", names, &rows(&read(METRICS), Some("Metrics")));
}

#[test]
fn every_configuration_key_is_in_the_shipped_defaults_once() {
    let text = read(DEFAULTS);
    let mut table = "";
    let mut listed = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix('#')) {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']');
            listed.push(format!("[{table}]"));
        } else if let Some((name, _)) = line.split_once(" = ")
            && !name.starts_with(' ')
        {
            listed.push([table, name].join(".").trim_start_matches('.').to_owned());
        }
    }
    // A key whose name the user chooses is described at its table.
    let keys = KEYS.iter().map(|key| match key.path.split_once(".*") {
        Some((table, _)) => format!("[{table}]"),
        None => key.path.to_owned(),
    });
    let keys: BTreeSet<String> = keys.collect();
    let is_described = |row: &String| !row.starts_with('[') || keys.contains(row);
    let rows: Vec<String> = listed.into_iter().filter(is_described).collect();
    is_complete("configuration", keys.iter().map(String::as_str), &rows);
}

/// Reports whether a line runs a script that it downloads.
fn runs_a_download(line: &str) -> bool {
    const SHELLS: [&str; 8] = [
        "sh", "bash", "ash", "dash", "zsh", "python", "python3", "perl",
    ];
    let downloads = |text: &str| text.contains("curl ") || text.contains("wget ");
    let is_substituted = ["<(", "$("].iter().any(|open| {
        let mut inner = line.split(open).skip(1);
        let is_run = ["sh ", "bash ", "eval ", "source "]
            .iter()
            .any(|word| line.contains(word));
        is_run && inner.any(|text| text.starts_with("curl ") || text.starts_with("wget "))
    });
    let mut parts = line.split('|');
    let mut before = parts.next().unwrap_or_default().to_owned();
    let is_piped = parts.any(|part| {
        let mut words = part.split_whitespace().skip_while(|word| {
            ["sudo", "env"].contains(word) || word.starts_with('-') || word.contains('=')
        });
        let program = words
            .next()
            .unwrap_or_default()
            .trim_matches(['"', '`', '\'', ',', ';']);
        let program = program.rsplit('/').next().unwrap_or_default();
        let is_run = downloads(&before) && SHELLS.contains(&program);
        before.push_str(part);
        is_run
    });
    is_substituted || is_piped
}

/// Returns all text files below a folder, as paths from the top.
fn text_files(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(top().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(text_files(&path)),
            false => files.push(path),
        }
    }
    files
}

#[test]
fn nothing_pipes_a_script_from_the_network_into_a_shell() {
    for line in [
        "curl -sfL https://a/b.sh | bash -s x",
        "wget -qO- https://a | sudo -E sh",
        "bash <(curl -s https://a)",
        "sh -c \"$(curl -fsSL https://a)\"",
        "curl https://a | tee x | /bin/sh",
    ] {
        assert!(runs_a_download(line), "{line}");
    }
    for line in [
        "curl https://a | jq .",
        "base64 -d x | sh",
        "curl -o x https://a",
    ] {
        assert!(!runs_a_download(line), "{line}");
    }
    let folders = ["packaging", "cloud-init", "systemd"];
    let files = folders.into_iter().flat_map(text_files);
    let texts = files.map(|file| (read(&file), file));
    let sources = product_files().into_iter().map(|file| (read(&file), file));
    let pages = documents().into_iter().map(|(file, text)| (text, file));
    let commands = Code::ALL.iter().flat_map(|code| code.entry().commands);
    let commands = commands.map(|command| (command.text.to_string(), "a command".to_owned()));
    for (text, file) in texts.chain(sources).chain(pages).chain(commands) {
        for line in text.lines() {
            assert!(!runs_a_download(line), "{file}: {line}");
        }
    }
}
