// SPDX-License-Identifier: Apache-2.0
//! The house rules that a compiler cannot know: the table of `src/lib.rs`, the size of files, the README.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod commands;
mod effects;
mod faults;
mod language;
mod layers;
mod outcomes;
mod readme;
mod recording;
mod reference;
mod types;
mod walkthroughs;

use std::fs;
use std::path::Path;

/// Lines of code in one file, tests aside; more is a smell.
const LINES_MAX: usize = 400;

/// The top of the sources.
fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All Rust files below a folder, as paths from the top.
fn rust_files(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(top().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files.extend(rust_files(&path));
        } else if path.ends_with(".rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The files of the product, without those that only tests use.
fn product_files() -> Vec<String> {
    let is_test = |path: &String| {
        let stem = path.trim_end_matches(".rs");
        path.contains("/tests/")
            || ["tests", "fixtures", "testing"].contains(&stem.rsplit('/').next().unwrap())
    };
    let files = rust_files("src").into_iter();
    files.filter(|path| !is_test(path)).collect()
}

/// The lines of a file that are code of the product: without what is only compiled for tests and without comments.
fn product_lines(text: &str) -> Vec<&str> {
    let mut product = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        match line.trim_start() {
            "#[cfg(test)]" => skip_item(&mut lines, indent),
            "" => {}
            comment if comment.starts_with("//") => {}
            _ => product.push(line),
        }
    }
    product
}

/// Goes past one item. As rustfmt writes it, an item ends on its first line or with the first brace that is indented as it is.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>, indent: &str) {
    let mut item = lines.skip_while(|line| line.trim_start().starts_with("#["));
    let first = item.next().unwrap_or_default();
    if !first.ends_with([';', ',']) && !first.ends_with("{}") {
        item.find(|line| {
            line.strip_prefix(indent)
                .is_some_and(|rest| rest.starts_with('}'))
        });
    }
}

#[test]
fn only_what_tests_use_is_left_out() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\n/// Says.\nfn b() {\n    #[cfg(test)]\n    #[x]\n    {\n        c();\n    }\n    d();\n}\n\n\
                #[cfg(test)]\nmod tests {\n    use e;\n}\nfn f() {}";
    assert_eq!(
        product_lines(text),
        ["use a;", "fn b() {", "    d();", "}", "fn f() {}"]
    );
}

#[test]
fn files_stay_small() {
    let lines = |file: &String| product_lines(&read(file)).len();
    let long: Vec<String> = product_files()
        .iter()
        .map(|file| (lines(file), file))
        // A table of data grows with what is known.
        .filter(|(lines, file)| *lines > LINES_MAX && *file != "src/catalog/entries.rs")
        .map(|(lines, file)| format!("{file}: {lines}"))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for_and_no_one_leaves_notes_to_himself() {
    let notes = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|parts| parts.concat());
    for file in ["src", "tests", "packaging"]
        .into_iter()
        .flat_map(rust_files)
    {
        let text = read(&file);
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("// SPDX-License-Identifier: Apache-2.0"),
            "{file}"
        );
        let says = lines.next().is_some_and(|line| line.starts_with("//! "));
        assert!(
            says || file.ends_with("/tests.rs"),
            "{file} does not say what it is for"
        );
        for note in &notes {
            assert!(!text.contains(note), "{file}: {note}");
        }
    }
}
