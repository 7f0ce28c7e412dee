// SPDX-License-Identifier: Apache-2.0
//! README and reference pages are true: files and headings that they name exist, commands are understood, configuration is
//! accepted.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Parser;
use clap::error::ErrorKind;
use harvester_node_agent::commands::Arguments;
use harvester_node_agent::config;
use harvester_node_agent::sys::root::Root;

use super::{read, top};

pub(super) const PROGRAM: &str = "harvester-node-agent";

/// Returns README and reference pages, each as its path from the top and its text.
pub(super) fn documents() -> Vec<(String, String)> {
    let pages = "packaging/docs/pages";
    let names = std::fs::read_dir(top().join(pages)).unwrap();
    let mut paths: Vec<String> = names
        .map(|entry| format!("{pages}/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    paths.push("README.md".to_owned());
    paths.sort();
    let documents = paths.into_iter().map(|path| {
        let text = read(&path);
        (path, text)
    });
    documents.collect()
}

/// Returns the lines of code blocks, each with the word after the fence of its block; `None` without a fence.
pub(super) fn code_lines(readme: &str) -> Vec<(Option<&str>, &str)> {
    let mut kind = None;
    let mut lines = Vec::new();
    for line in readme.lines() {
        match (line.strip_prefix("```"), kind, line.strip_prefix("    ")) {
            (Some(begun), None, _) => kind = Some(begun),
            (Some(_), Some(_), _) => kind = None,
            (None, Some(kind), _) => lines.push((Some(kind), line)),
            (None, None, Some(code)) => lines.push((None, code)),
            (None, None, None) => {}
        }
    }
    lines
}

/// Returns what is between backticks in running text.
pub(super) fn quoted(readme: &str) -> impl Iterator<Item = &str> {
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
fn each_command_that_a_document_shows_is_understood() {
    let mut count = 0;
    for (path, text) in documents() {
        let blocks = code_lines(&text)
            .into_iter()
            .filter_map(|(_, line)| arguments(line.trim_start_matches("$ ")));
        let table = quoted(&text)
            .filter(|text| text.starts_with(PROGRAM))
            .filter_map(arguments);
        for words in blocks.chain(table).filter(|words| words.len() > 1) {
            let parsed = Arguments::try_parse_from(words.iter().map(|word| example(word)));
            if let Err(error) = parsed
                && error.kind() != ErrorKind::DisplayHelp
            {
                panic!("{path}: {}: {error}", words.join(" "));
            }
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn each_command_is_in_the_readme() {
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
        .filter(|(kind, _)| *kind == Some("toml"));
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
fn each_link_and_each_path_in_a_document_leads_somewhere() {
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
    let folders = ["src/", "tests/", "packaging/", "systemd/", "cloud-init/"];
    let mut lost = Vec::new();
    for (path, text) in documents() {
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let anchors: BTreeSet<String> = headings
            .map(|line| anchor(line.trim_start_matches('#').trim()))
            .collect();
        let folder = Path::new(&path).parent().unwrap();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("https://")) {
            let is_there = match link.strip_prefix('#') {
                Some(name) => anchors.contains(name),
                None => top().join(folder).join(link).exists(),
            };
            lost.extend((!is_there).then(|| format!("{path}: {link}")));
        }
        let paths =
            quoted(&text).filter(|text| folders.iter().any(|folder| text.starts_with(folder)));
        for text in paths {
            let named = text.split_whitespace().next().unwrap_or_default();
            lost.extend((!top().join(named).exists()).then(|| format!("{path}: {named}")));
        }
    }
    assert!(lost.is_empty(), "named and not there: {}", lost.join(", "));
}

#[test]
fn the_readme_is_short() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 200, "{}", readme.lines().count());
    assert!(readme.len() <= 16 * 1024, "{}", readme.len());
}
