// SPDX-License-Identifier: Apache-2.0
//! The walkthroughs of `packaging/docs/pages/development.md`: each names at most three files, and what it says compiles.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::{read, rust_files, top};

/// Text that is added to a file: behind the first line that contains the anchor, or as a new file where that is empty.
struct Edit {
    file: &'static str,
    anchor: &'static str,
    text: &'static str,
}

const fn edit(file: &'static str, anchor: &'static str, text: &'static str) -> Edit {
    Edit { file, anchor, text }
}

const SOURCE: &str = "src/facts/placement.rs";
const PLACE: &str = "src/decide/placement.rs";

/// The headings of the walkthroughs, each with an addition.
const WALKTHROUGHS: &[(&str, &[Edit])] = &[
    (
        "### Add a trigger",
        &[
            edit(
                "src/facts/trigger.rs",
                "pub enum Trigger {",
                "    /// An example.\n    Example,",
            ),
            edit(
                "src/facts/trigger.rs",
                "Self::Startup => \"startup\",",
                "            Self::Example => \"example\",",
            ),
            edit(
                "src/facts/trigger.rs",
                "Self::Startup => Scope::ALL,",
                "            Self::Example => Scope::KNOWN,",
            ),
            edit("src/triggers/mod.rs", "pub mod clock;", "pub mod example;"),
            edit(
                "src/triggers/mod.rs",
                "tokio::spawn(clock::listen(",
                "        tokio::spawn(example::listen(sender(), health())),",
            ),
            edit(
                "src/triggers/example.rs",
                "",
                "//! An example.\n\
                 use super::Sender;\n\
                 use crate::agent::Trigger;\n\
                 use crate::agent::signal_board::SignalBoard;\n\
                 /// Listens until dropped.\n\
                 pub async fn listen(sender: Sender, health: SignalBoard) {\n    \
                     health.set(\"example\", true, \"an example\");\n    \
                     loop {\n        \
                         tokio::time::sleep(std::time::Duration::from_secs(60)).await;\n        \
                         sender.send(Trigger::Example);\n    \
                     }\n\
                 }\n",
            ),
        ],
    ),
    (
        "### Add a topology source",
        &[
            edit(
                SOURCE,
                "pub enum Source {",
                "    /// An example.\n    Example,",
            ),
            edit(SOURCE, "pub const ALL: [Self; ", "        Self::Example,"),
            edit(
                SOURCE,
                "pub const NAMES: [(&'static str, Self); ",
                "        (\"example\", Self::Example),",
            ),
            edit(
                SOURCE,
                "pub struct PlacementReads {",
                "    /// An example.\n    pub example: Fact<HostLabels>,",
            ),
            edit(
                SOURCE,
                "configmap: answer(),",
                "            example: answer(),",
            ),
            edit(
                "src/observe/host_labels.rs",
                "let mut reads = PlacementReads::none(",
                "    if settings.topology.sources.contains(&Source::Example) {\n        \
                     reads.example = Fact::Known(HostLabels::new());\n    \
                 }",
            ),
            edit(
                PLACE,
                "let absence = match source {",
                "            Source::Example => Absence::Silent,",
            ),
            edit(
                PLACE,
                "let labels = match source {",
                "                Source::Example => weigh(&reads.example),",
            ),
        ],
    ),
    (
        "### Add a finding",
        &[
            edit(
                "src/catalog/entries.rs",
                "catalog! {",
                "    Example, \"example\", Machine, Notice, \"an example\",\n        \
                     impact: \"None.\",\n        \
                     fix: [\"Nothing.\"];",
            ),
            edit(
                "src/decide/findings/reads.rs",
                "pub(super) fn answers(",
                "    if observation.distributions.is_empty() {\n        \
                     findings.push(Finding::new(Code::Example, \"no distribution\"));\n    \
                 }",
            ),
        ],
    ),
    (
        "### Add a metric",
        &[edit(
            "src/report/metrics.rs",
            "fn state_gauges(",
            "    MetricFamily::new(page, \"harvester_node_agent_example\", Kind::Gauge, \"An example.\")\n        \
                 .sample(&[], number(report.placement.is_some()));",
        )],
    ),
    (
        "### Add a command",
        &[
            edit("src/commands/mod.rs", "pub mod doctor;", "pub mod example;"),
            edit(
                "src/commands/mod.rs",
                "pub enum Command {",
                "    /// Print an example\n    Example,",
            ),
            edit(
                "src/main.rs",
                "match arguments.command {",
                "        Command::Example => commands::example::run(),",
            ),
            edit(
                "src/commands/example.rs",
                "",
                "//! An example.\n\
                 use super::{Answer, Exit};\n\
                 /// Returns an example.\n\
                 pub fn run() -> Answer {\n    \
                     Answer::new(\"example\\n\".to_owned(), Exit::Ok)\n\
                 }\n",
            ),
        ],
    ),
];

/// Returns a text with one edit. An array of constants gets one element more.
fn edited(text: &str, edit: &Edit) -> String {
    let at = text.lines().position(|line| line.contains(edit.anchor));
    let at = at.unwrap_or_else(|| panic!("{} has no `{}`", edit.file, edit.anchor));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = &mut lines[at];
    if let Some((before, rest)) = line.rsplit_once("; ")
        && let Some((count, after)) = rest.split_once(']')
        && let Ok(count) = count.parse::<usize>()
    {
        *line = format!("{before}; {}]{after}", count + 1);
    }
    lines.insert(at + 1, edit.text.to_owned());
    lines.join("\n") + "\n"
}

/// Copies the sources, with everything beside them as links.
fn copy(to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(top()).unwrap() {
        let name = entry.unwrap().file_name();
        if name != "src" && name != "target" && name != ".git" {
            symlink(top().join(&name), to.join(&name)).unwrap();
        }
    }
    for file in rust_files("src") {
        let path = to.join(&file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, read(&file)).unwrap();
    }
}

/// Returns what a walkthrough names: the file, or the folder of a new one.
fn place(edit: &Edit) -> String {
    match edit.anchor {
        "" => edit.file[..=edit.file.rfind('/').unwrap()].to_owned(),
        _ => edit.file.to_owned(),
    }
}

/// The files that a walkthrough names: `src/...` in backticks at the beginning of its steps.
fn named(heading: &str) -> BTreeSet<String> {
    let page = read("packaging/docs/pages/development.md");
    let (_, text) = page
        .split_once(&format!("{heading}\n"))
        .unwrap_or_else(|| panic!("no `{heading}`"));
    let steps = text.lines().take_while(|line| !line.starts_with('#'));
    let steps = steps.filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    steps
        .filter_map(|line| line.split('`').nth(1))
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_walkthrough_has_at_most_three_files_and_compiles() {
    let to = top().join("target/walkthroughs");
    copy(&to);
    for (heading, edits) in WALKTHROUGHS {
        let files: BTreeSet<String> = edits.iter().map(place).collect();
        assert_eq!(named(heading), files, "{heading}");
        assert!(files.len() <= 3, "{heading}: {files:?}");
        for edit in *edits {
            let path = to.join(edit.file);
            let text = match edit.anchor {
                "" => edit.text.to_owned(),
                _ => edited(&fs::read_to_string(&path).unwrap(), edit),
            };
            fs::write(path, text).unwrap();
        }
    }
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--lib", "--bins"])
        .current_dir(&to)
        .env("CARGO_TARGET_DIR", top().join("target"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    println!("walkthroughs: {} additions compile", WALKTHROUGHS.len());
}
