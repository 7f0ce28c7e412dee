// SPDX-License-Identifier: Apache-2.0
//! The README is true: files and headings that it names exist, commands are understood, configuration is accepted.

use std::collections::BTreeSet;

use clap::Parser;
use harvester_node_agent::cli::Arguments;
use harvester_node_agent::config;
use harvester_node_agent::findings::Code;
use harvester_node_agent::root::Root;

use super::{read, top};

const PROGRAM: &str = "harvester-node-agent";

/// The lines of code blocks, and whether a block is fenced as `kind`.
fn code_lines(readme: &str) -> Vec<(&str, &str)> {
    let mut kind = None;
    let mut lines = Vec::new();
    for line in readme.lines() {
        match (line.strip_prefix("```"), kind, line.strip_prefix("    ")) {
            (Some(begun), None, _) => kind = Some(begun),
            (Some(_), Some(_), _) => kind = None,
            (None, Some(kind), _) => lines.push((kind, line)),
            (None, None, Some(code)) => lines.push(("", code)),
            (None, None, None) => {}
        }
    }
    lines
}

/// What stands between backticks in running text.
fn quoted(readme: &str) -> impl Iterator<Item = &str> {
    let text = readme
        .lines()
        .filter(|line| !line.starts_with("```") && !line.starts_with("    "));
    text.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// A word of a command, with something that may stand for a placeholder.
fn example(word: &str) -> &str {
    match word {
        "NAME" => "worker-1",
        "CODE" => "not-kubevirt",
        word => word,
    }
}

/// The arguments of our program in a line for a shell, if it runs it.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let line = line.split('#').next()?.trim().trim_start_matches("sudo ");
    let words = line
        .split_whitespace()
        .take_while(|word| !["|", "||", ">", "&&"].contains(word));
    let words: Vec<&str> = words.collect();
    (words.first() == Some(&PROGRAM)).then_some(words)
}

#[test]
fn each_command_that_the_readme_shows_is_understood() {
    let readme = read("README.md");
    let blocks = code_lines(&readme)
        .into_iter()
        .filter_map(|(_, line)| arguments(line));
    let table = quoted(&readme)
        .filter(|text| text.starts_with(PROGRAM))
        .filter_map(arguments);
    let commands: Vec<Vec<&str>> = blocks
        .chain(table)
        .filter(|words| words.len() > 1)
        .collect();
    assert!(commands.len() > 8, "{commands:?}");
    for words in commands {
        let parsed = Arguments::try_parse_from(words.iter().map(|word| example(word)));
        assert!(
            parsed.is_ok(),
            "{}: {}",
            words.join(" "),
            parsed.unwrap_err()
        );
    }
}

#[test]
fn each_command_stands_in_the_readme() {
    use clap::CommandFactory;
    let readme = read("README.md");
    for command in Arguments::command().get_subcommands() {
        let name = command.get_name();
        let is_there = readme
            .lines()
            .any(|line| line.starts_with(&format!("| `{name}")));
        assert!(is_there, "README.md has no row for `{name}`");
    }
}

#[test]
fn the_configuration_in_the_readme_is_accepted() {
    let readme = read("README.md");
    let lines = code_lines(&readme)
        .into_iter()
        .filter(|(kind, _)| *kind == "toml");
    let text: Vec<&str> = lines.map(|(_, line)| line).collect();
    assert!(text.len() > 5, "{text:?}");
    let tree = tempfile::tempdir().unwrap();
    let folder = tree.path().join("etc/harvester-node-agent");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), text.join("\n")).unwrap();
    let loaded = config::load(&Root::new(tree.path()), None).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn each_link_and_each_path_in_the_readme_leads_somewhere() {
    let readme = read("README.md");
    let anchor = |heading: &str| -> String {
        let kept = |c: &char| c.is_alphanumeric() || *c == '-' || *c == ' ' || *c == '_';
        heading
            .to_lowercase()
            .chars()
            .filter(kept)
            .collect::<String>()
            .trim()
            .replace(' ', "-")
    };
    let headings = readme.lines().filter(|line| line.starts_with('#'));
    let anchors: BTreeSet<String> = headings
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect();
    let links = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let mut lost = Vec::new();
    for link in links.filter(|link| !link.starts_with("https://")) {
        let is_there = match link.strip_prefix('#') {
            Some(name) => anchors.contains(name),
            None => top().join(link).exists(),
        };
        lost.extend((!is_there).then_some(link));
    }
    let folders = ["src/", "tests/", "packaging/", "systemd/", "cloud-init/"];
    let paths =
        quoted(&readme).filter(|text| folders.iter().any(|folder| text.starts_with(folder)));
    for text in paths {
        let path = text.split_whitespace().next().unwrap_or_default();
        lost.extend((!top().join(path).exists()).then_some(path));
    }
    assert!(
        lost.is_empty(),
        "README.md names what is not there: {}",
        lost.join(" ")
    );
}

#[test]
fn the_readme_lists_every_finding() {
    let readme = read("README.md");
    for code in Code::ALL {
        let entry = code.entry();
        let row = format!(
            "| `{}` | {} | {} |",
            entry.name,
            entry.severity.as_str(),
            entry.title
        );
        assert!(readme.contains(&row), "README.md lacks: {row}");
    }
    let rows = readme
        .lines()
        .filter(|line| line.starts_with("| `") && line.matches('|').count() == 4);
    let codes = rows.filter(|row| Code::parse(row.split('`').nth(1).unwrap_or_default()).is_some());
    assert_eq!(codes.count(), Code::ALL.len());
}
