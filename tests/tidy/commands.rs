// SPDX-License-Identifier: Apache-2.0
//! Commands of README and pages: all are understood, and each one of the README is executed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use harvester_node_agent::commands::Arguments;

use super::read;
use super::readme::{code, documents};

const PROGRAM: &str = "harvester-node-agent";

/// A command of the README, more arguments, its exit status on an empty tree, and a part of what it prints there.
#[rustfmt::skip]
const COMMANDS: &[(&str, &str, i32, &str)] = &[
    ("run", "--help", 0, "Usage: harvester-node-agent run"),
    ("once", "--dry-run", 1, "no Harvester kubeconfig found"),
    ("status", "", 75, "agent is not running"),
    ("events", "", 75, "the agent has not published any"),
    ("whoami", "", 1, "Kubeconfigs"),
    ("doctor", "", 1, "[harvester-credential-missing]"),
    ("explain", "not-kubevirt", 0, "[not-kubevirt]"),
    ("explain hostname-differs", "", 0, "[hostname-differs]"),
    ("config show", "", 0, "on_change"),
    ("config check", "", 0, "configuration OK"),
    ("kubeconfig", "--server https://192.0.2.2:6443", 1, "standard input is empty"),
    ("rbac", "--subject default:agent", 0, "kind: \"ClusterRoleBinding\""),
    ("rbac --help", "", 0, "--create-account"),
    ("gate", "--timeout 1s", 0, "the kubelet starts without the check"),
    ("bake-check", "", 1, "agent"),
    ("completions SHELL", "bash", 0, "complete -F"),
];

/// Returns the arguments of our program in each command that a text shows.
fn shown(text: &str) -> Vec<String> {
    let commands = code(text).filter_map(|line| {
        let command = line.trim_start_matches("sudo ").split(['#', '|', '>', '&']);
        let arguments = command.into_iter().next()?.strip_prefix(PROGRAM)?;
        Some(arguments.strip_prefix(' ')?.trim().to_owned())
    });
    commands.collect()
}

#[test]
fn each_command_that_a_document_shows_is_understood() {
    for (path, text) in documents() {
        for line in shown(&text) {
            let words = line.replace("CODE", "not-kubevirt");
            let words = [PROGRAM].into_iter().chain(words.split(' '));
            let parsed = Arguments::try_parse_from(words).map_err(|error| error.kind());
            let is_understood = matches!(parsed, Ok(_) | Err(ErrorKind::DisplayHelp));
            assert!(is_understood, "{path}: {line}: {parsed:?}");
        }
    }
}

#[test]
fn each_command_of_the_readme_does_what_it_says() {
    let readme = read("README.md");
    let (_, table) = readme.split_once("## Commands\n").unwrap();
    let rows = table.lines().take_while(|line| !line.starts_with('#'));
    let rows = rows.filter(|line| line.starts_with("| `"));
    let names = rows.filter_map(|row| row.split('|').nth(1)).flat_map(code);
    // What may be left out is left out.
    let names = names.filter_map(|name| Some(name.split(" [").next()?.to_owned()));
    let commands: BTreeSet<String> = names.chain(shown(&readme)).collect();
    let rows: BTreeSet<String> = COMMANDS.iter().map(|row| row.0.to_owned()).collect();
    assert_eq!(rows, commands, "rows, and commands of the README");
    for command in Arguments::command().get_subcommands() {
        let name = command.get_name();
        assert!(rows.iter().any(|row| row.starts_with(name)), "no `{name}`");
    }
    let tree = tempfile::tempdir().unwrap();
    for (command, more, status, prints) in COMMANDS {
        let words = command.split(' ').filter(|word| *word != "SHELL");
        let output = Command::new(env!("CARGO_BIN_EXE_harvester-node-agent"))
            .args(words.chain(more.split_whitespace()))
            .args([Path::new("--root"), tree.path()])
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(*status), "{command}: {text}");
        assert!(text.contains(prints), "{command}: {text}");
    }
}
