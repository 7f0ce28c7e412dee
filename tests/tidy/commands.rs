// SPDX-License-Identifier: Apache-2.0
//! Each command that the README shows is executed by a test, or has a reason why it is not.

use std::collections::BTreeSet;
use std::process::Command;

use super::read;
use super::readme::{PROGRAM, code_lines, quoted};

/// How a command is tested.
enum Tested {
    /// Executed here, against an empty tree, with more arguments: its exit status, and a part of what it prints.
    Here(&'static [&'static str], i32, &'static str),
    /// Executed by a line of this script, which contains all these words.
    By(&'static str, &'static [&'static str]),
    /// Not executed, for this reason.
    Not(&'static str),
}

use Tested::{By, Here, Not};

/// Every command of the README.
const COMMANDS: &[(&str, Tested)] = &[
    // Install and uninstall.
    (
        "sudo apt install build-essential dpkg-dev rpm xz-utils",
        Not("tests/packages/run installs the same packages, where they are missing"),
    ),
    (
        "cargo install --locked cargo-auditable",
        By("tests/lib.sh", &["need_crate cargo-auditable"]),
    ),
    (
        "packaging/build",
        By("tests/run", &["OUT=$PACKAGES packaging/build"]),
    ),
    (
        "scp target/packages/harvester-node-agent_*.deb NODE:",
        Not("copies a file to a second system"),
    ),
    (
        "sudo apt install ./harvester-node-agent_*.deb",
        By("tests/packages/installed", &["apt install /tmp/agent.deb"]),
    ),
    (
        "sudo zypper install --allow-unsigned-rpm ./harvester-node-agent-*.rpm",
        Not(
            "tests/packages/installed installs the same file with rpm, and tests/packages/signed installs it with zypper from a signed repository",
        ),
    ),
    (
        "sudo systemctl enable --now harvester-node-agent",
        By(
            "tests/packages/installed",
            &["systemctl enable --now $unit"],
        ),
    ),
    (
        "packaging/packer/bake",
        By("tests/vm/bake", &["packaging/packer/bake debian-12"]),
    ),
    (
        "packaging/packer/provision PACKAGE",
        By("tests/image/checks", &["inside /provision", "/packages/"]),
    ),
    (
        "apt purge harvester-node-agent",
        By(
            "tests/packages/installed",
            &["apt purge harvester-node-agent"],
        ),
    ),
    (
        "rpm -e harvester-node-agent",
        By(
            "tests/packages/installed",
            &["rpm --erase harvester-node-agent"],
        ),
    ),
    (
        "rm -rf /etc/harvester-node-agent /var/lib/harvester-node-agent",
        Not("removes two directories, and nothing of this project runs"),
    ),
    (
        "kubectl label node NODE topology.harvesterhci.io/host-",
        Not("removes a label with kubectl, and nothing of this project runs"),
    ),
    // First steps.
    (
        "sudo harvester-node-agent whoami",
        Here(&[], 1, "Kubeconfigs"),
    ),
    (
        "sudo harvester-node-agent doctor",
        Here(&[], 1, "[harvester-credential-missing]"),
    ),
    (
        "kubectl get nodes -L topology.kubernetes.io/region,topology.kubernetes.io/zone,topology.harvesterhci.io/host",
        Not("needs a guest cluster; tests/scenarios read the same labels through its API"),
    ),
    (
        "journalctl -u harvester-node-agent",
        By("tests/packages/installed", &["journalctl", "--unit=$unit"]),
    ),
    (
        "harvester-node-agent explain hostname-differs",
        Here(&[], 0, "hostname-differs (warning"),
    ),
    (
        "harvester-node-agent rbac --help",
        Here(&[], 0, "--create-account"),
    ),
    // The table of commands.
    (
        "harvester-node-agent run",
        By("tests/scenarios/service.rs", &["\"run\""]),
    ),
    (
        "harvester-node-agent once",
        Here(&["--dry-run"], 1, "no Harvester kubeconfig found"),
    ),
    (
        "harvester-node-agent status",
        Here(&[], 75, "agent is not running"),
    ),
    (
        "harvester-node-agent events",
        Here(&[], 75, "the agent has not published any"),
    ),
    ("harvester-node-agent whoami", Here(&[], 1, "Kubeconfigs")),
    (
        "harvester-node-agent doctor",
        Here(&[], 1, "[harvester-credential-missing]"),
    ),
    (
        "harvester-node-agent explain",
        Here(&["not-kubevirt"], 0, "not-kubevirt (error"),
    ),
    (
        "harvester-node-agent config show",
        Here(&[], 0, "on_change"),
    ),
    (
        "harvester-node-agent config check",
        Here(&[], 0, "configuration OK"),
    ),
    (
        "harvester-node-agent kubeconfig",
        By("tests/scenarios/rbac.rs", &["kubeconfig --server"]),
    ),
    (
        "harvester-node-agent rbac",
        Here(
            &["--subject", "default:agent"],
            0,
            "kind: ClusterRoleBinding",
        ),
    ),
    (
        "harvester-node-agent gate",
        Here(&["--timeout", "1s"], 0, ""),
    ),
    ("harvester-node-agent bake-check", Here(&[], 1, "agent")),
    (
        "harvester-node-agent completions SHELL",
        Here(&["bash"], 0, "complete -F"),
    ),
    // Elsewhere in the text.
    (
        "systemd-analyze security",
        By(
            "tests/packages/files",
            &["systemd-analyze security --offline"],
        ),
    ),
    (
        "man harvester-node-agent",
        By("tests/packages/files", &["man --warnings=w"]),
    ),
    (
        "man 7 harvester-node-agent-topology",
        By(
            "tests/packages/files",
            &["\"$tree\"/usr/share/man/man*/*.gz"],
        ),
    ),
    (
        "tests/fleet/run",
        By("tests/run", &["tests/fleet/run 1000"]),
    ),
    ("cargo demo", By("tests/run", &["passes cargo demo"])),
    ("tests/run", By(".ci/run", &["exec tests/run"])),
];

/// Programs whose name begins a command in running text.
const PROGRAMS: [&str; 12] = [
    PROGRAM,
    "apt",
    "cargo",
    "journalctl",
    "kubectl",
    "man",
    "packaging/packer/bake",
    "packaging/packer/provision",
    "rm",
    "rpm",
    "systemd-analyze",
    "tests/fleet/run",
];

/// Returns the commands of the README: of code blocks, of running text and of the table of commands.
fn commands(readme: &str) -> BTreeSet<String> {
    let blocks = code_lines(readme).into_iter().filter_map(|(kind, line)| {
        let line = match kind {
            Some("") => line.strip_prefix("$ ")?,
            Some(_) => return None,
            None => line,
        };
        line.split(" #").next()
    });
    let text = quoted(readme).filter(|text| {
        let first = text.split_whitespace().next().unwrap_or_default();
        PROGRAMS.contains(&first) && *text != PROGRAM
    });
    let table = readme.lines().skip_while(|line| *line != "## Commands");
    let table = table.take_while(|line| !line.starts_with("Exit status"));
    let rows: Vec<String> = table
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| quoted(line.split('|').nth(1).unwrap_or_default()))
        // Options and arguments that may be left out.
        .map(|text| text.split(" [").next().unwrap_or(text))
        .map(|text| format!("{PROGRAM} {text}"))
        .collect();
    let all = blocks.chain(text).map(|text| text.trim().to_owned());
    all.filter(|text| !text.is_empty()).chain(rows).collect()
}

#[test]
fn every_command_of_the_readme_is_executed_or_has_a_reason() {
    let shown = commands(&read("README.md"));
    let known: BTreeSet<String> = COMMANDS
        .iter()
        .map(|(text, _)| (*text).to_owned())
        .collect();
    assert_eq!(known.len(), COMMANDS.len(), "a command is listed twice");
    let unknown: Vec<&String> = shown.difference(&known).collect();
    assert!(unknown.is_empty(), "commands in no row: {unknown:#?}");
    let gone: Vec<&String> = known.difference(&shown).collect();
    assert!(
        gone.is_empty(),
        "rows of commands that the README lacks: {gone:#?}"
    );
}

#[test]
fn a_script_that_is_said_to_execute_a_command_does() {
    for (command, tested) in COMMANDS {
        match tested {
            By(script, words) => {
                let text = read(script);
                let lines = text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with('#'));
                let mut lines = lines.filter(|line| words.iter().all(|word| line.contains(word)));
                assert!(
                    lines.next().is_some(),
                    "{script} does not execute {command}"
                );
            }
            Not(why) => assert!(why.contains(' '), "{command}: no reason"),
            Here(..) => {}
        }
    }
}

#[test]
fn commands_that_need_no_cluster_do_what_they_say() {
    let tree = tempfile::tempdir().unwrap();
    for (command, tested) in COMMANDS {
        let Here(more, status, prints) = tested else {
            continue;
        };
        let words = command.trim_start_matches("sudo ").split_whitespace();
        // A placeholder is replaced by `more`.
        let is_word = |word: &&str| word.chars().any(char::is_lowercase);
        let words = words.skip(1).filter(is_word);
        let output = Command::new(env!("CARGO_BIN_EXE_harvester-node-agent"))
            .args(words)
            .args(*more)
            .arg("--root")
            .arg(tree.path())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(output.status.code(), Some(*status), "{command}: {text}");
        assert!(text.contains(prints), "{command}: {text}");
    }
}

#[test]
fn commands_are_found_in_blocks_in_text_and_in_the_table() {
    let readme = "Use `apt purge x`, not `x.toml`:\n\n    a --b   # why\n\n```\n$ sudo c\nresult\n```\n\n```toml\nd = 1\n```\n\n\
                  ## Commands\n\n| `e`, `f [--g]` | h |\n";
    let found: Vec<String> = commands(readme).into_iter().collect();
    let table = ["e", "f"].map(|text| format!("{PROGRAM} {text}"));
    let expected = ["a --b", "apt purge x", &table[0], &table[1], "sudo c"];
    assert_eq!(found, expected);
}
