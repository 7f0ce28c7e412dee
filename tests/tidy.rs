// SPDX-License-Identifier: Apache-2.0
//! The house rules that a compiler cannot know: the table of `src/lib.rs`, the size of files, the map, the README.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use harvester_node_agent::findings::Code;

/// Lines of code in one file, tests aside; more is a smell.
const LINES_MAX: usize = 400;

/// Where something must not be mentioned. Each place must exist, or the check would pass on nothing.
const FORBIDDEN: &[(&[&str], &[&str])] = &[
    (
        &[
            "src/facts",
            "src/decide",
            "src/findings.rs",
            "src/findings",
            "src/bake.rs",
        ],
        &[
            "tokio",
            "reqwest",
            "std::fs",
            "std::env",
            "std::net",
            "std::process",
            "Instant",
            "::now()",
            "tracing::",
            "kubeapi",
            "Root",
        ],
    ),
    (
        &["src/config", "src/credentials"],
        &["tokio", "kubeapi", "std::env", "std::process"],
    ),
    (
        &["src/observe"],
        &[
            "tracing_journald",
            "sd_notify",
            ".create(",
            "fs::write",
            "durable",
        ],
    ),
    (
        &["src/netlink"],
        &["crate::decide", "findings", "reqwest", "Trigger"],
    ),
    (
        &["src/channel"],
        &[
            "kubeapi",
            "crate::decide",
            "crate::observe",
            "findings",
            "Trigger",
        ],
    ),
    (
        &["src/endpoint"],
        &[
            "kubeapi",
            "crate::decide",
            "crate::observe",
            "crate::report",
            "findings",
            "Trigger",
        ],
    ),
    (&["src/triggers"], &["observe", "crate::apply"]),
    (&["src/apply"], &["observe", "decide::plan", "sleep"]),
    (
        &[
            "src/apply/mod.rs",
            "src/apply/node.rs",
            "src/apply/event.rs",
            "src/apply/unit.rs",
        ],
        &["durable"],
    ),
    (
        &["src/kubeapi"],
        &[
            "topology.",
            "findings",
            "harvesterhci",
            "crate::decide",
            "crate::facts",
        ],
    ),
    (
        &["src/bus"],
        &["findings", "crate::decide", "crate::facts", "tracing"],
    ),
    (&["src/report"], &["kubeapi", "reqwest", "tokio"]),
    (
        &["src/agent.rs"],
        &[
            "tokio", "reqwest", "inotify", "nix", "std::fs", "std::net", "std::env",
        ],
    ),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).unwrap_or_else(|_| panic!("{} does not exist", path.display()))
    {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn is_test(path: &Path) -> bool {
    let text = path.to_string_lossy();
    ["/tests", "tests.rs", "fixtures.rs", "testing.rs"]
        .iter()
        .any(|part| text.contains(part))
}

/// The lines of a file that are code for the product: without its test module and without comments.
fn product_lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"));
    lines
        .filter(|line| !line.trim_start().starts_with("//") && !line.trim().is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_part_keeps_to_its_row_of_the_table() {
    let mut broken = Vec::new();
    for (places, words) in FORBIDDEN {
        for place in *places {
            let files: Vec<PathBuf> = rust_files(&root().join(place))
                .into_iter()
                .filter(|file| !is_test(file))
                .collect();
            assert!(!files.is_empty(), "{place} holds no code");
            for file in files {
                for line in product_lines(&file) {
                    for word in words.iter().filter(|word| line.contains(**word)) {
                        broken.push(format!("{}: `{word}` in: {}", file.display(), line.trim()));
                    }
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn files_stay_small() {
    let files = rust_files(&root().join("src"));
    let long: Vec<String> = files
        .iter()
        .filter(|file| !is_test(file))
        .map(|file| (product_lines(file).len(), file))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, file)| format!("{}: {lines}", file.display()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for_and_no_one_leaves_notes_to_himself() {
    for file in rust_files(&root().join("src"))
        .into_iter()
        .chain(rust_files(&root().join("tests")))
        .chain(rust_files(&root().join("packaging")))
    {
        let text = fs::read_to_string(&file).unwrap();
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("// SPDX-License-Identifier: Apache-2.0"),
            "{}",
            file.display()
        );
        let is_part_of_module = file.file_name().is_some_and(|name| name == "tests.rs");
        assert!(
            is_part_of_module || text.contains("//! "),
            "{} has no purpose",
            file.display()
        );
        let notes = ["TO", "FIX", "XX"]
            .iter()
            .zip(["DO", "ME", "X"])
            .map(|(a, b)| format!("{a}{b}"));
        for note in notes {
            assert!(!text.contains(&note), "{}: {note}", file.display());
        }
    }
}

#[test]
fn the_map_names_folders_that_exist_and_all_of_them() {
    let map = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.join("mod.rs").exists() {
            assert!(
                map.contains(&format!("`{name}`")),
                "the table of src/lib.rs lacks {name}"
            );
        }
    }
}

#[test]
fn only_apply_sends_changes() {
    let senders: Vec<PathBuf> = rust_files(&root().join("src"))
        .into_iter()
        .filter(|file| !is_test(file) && !file.starts_with(root().join("src/kubeapi")))
        .filter(|file| {
            product_lines(file)
                .iter()
                .any(|line| line.contains("PatchKind") || line.contains(".patch("))
        })
        .collect();
    assert_eq!(senders, [root().join("src/apply/mod.rs")]);
}

#[test]
fn the_readme_lists_every_finding() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
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
