// SPDX-License-Identifier: Apache-2.0
//! The recording of the demo: a well-formed drawing of the demo as it is today.

use super::read;

const RECORDING: &str = "packaging/docs/images/demo.svg";

/// Bytes; the page of the README loads it at each visit.
const SIZE_MAX: usize = 150_000;

/// Returns the titles of the steps in the source of the demo.
fn titles() -> Vec<String> {
    let source = read("tests/demo/main.rs");
    let steps = source.split("    step!(").skip(1);
    let titles = steps.filter_map(|step| step.split('"').nth(1));
    titles.map(str::to_owned).collect()
}

#[test]
fn the_recording_shows_every_step_of_the_demo() {
    let text = read(RECORDING);
    assert!(text.len() <= SIZE_MAX, "{}", text.len());
    let drawing = roxmltree::Document::parse(&text).unwrap();
    let texts = drawing
        .descendants()
        .filter(|node| node.has_tag_name("text"));
    let lines: Vec<String> = texts
        .map(|node| node.text().unwrap_or_default().to_owned())
        .collect();
    let titles = titles();
    assert!(titles.len() > 5, "{titles:?}");
    for (title, number) in titles.iter().zip(1..) {
        let line = format!("{number}. {title}");
        assert!(
            lines.contains(&line),
            "run packaging/docs/record-demo: no `{line}`"
        );
    }
    let last = lines.iter().rfind(|line| !line.is_empty());
    assert!(
        last.is_some_and(|line| line.starts_with("all steps passed in ")),
        "{last:?}"
    );
    assert!(read("README.md").contains(RECORDING));
}
