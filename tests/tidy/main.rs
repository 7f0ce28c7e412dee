// SPDX-License-Identifier: Apache-2.0
//! The rules of the tree that neither a compiler nor a lint can know.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod commands;
mod findings;
mod layers;
mod readme;
mod reference;
mod sizes;
mod states;
mod words;

use std::fs;
use std::path::Path;

/// The top of the sources.
fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files below a folder, as sorted paths from the top.
fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top().join(folder)).unwrap() {
        let path = format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap());
        match top().join(&path).is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// The Rust files of the product, without those that only tests use.
fn product_files() -> Vec<String> {
    let mut files = files("src");
    files.retain(|path| {
        let mut names = path.trim_end_matches(".rs").split('/');
        let is_test = names.any(|name| ["tests", "fixtures", "testing"].contains(&name));
        path.ends_with(".rs") && !is_test
    });
    files
}

/// The lines of a file that are code of the product: without blanks, comments and items that are compiled only for tests.
fn product_lines(text: &str) -> Vec<&str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut product = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if code == "#[cfg(test)]" {
            // As rustfmt writes it, this ends an item, and no attribute.
            let is_end = |one: &&str| indent(one) == indent(line) && one.ends_with([';', ',', '}']);
            lines.by_ref().find(is_end);
        } else if !code.is_empty() && !code.starts_with("//") {
            product.push(line);
        }
    }
    product
}

#[test]
fn every_source_file_begins_with_its_license_and_no_test_has_a_stopwatch() {
    let product = product_files();
    let sources = ["src", "tests", "packaging"].into_iter().flat_map(files);
    for file in sources.filter(|path| path.ends_with(".rs")) {
        let text = read(&file);
        assert!(
            text.starts_with("// SPDX-License-Identifier: Apache-2.0\n"),
            "{file}"
        );
        let mut lines = text.lines();
        let says_what_it_is_for = lines.any(|line| line.starts_with("//! "));
        assert!(!product.contains(&file) || says_what_it_is_for, "{file}");
        if file.starts_with("src/") || file.starts_with("tests/scenarios/") {
            let count = |text: &str| text.matches(".elapsed()").count();
            let code = product_lines(&text).join("\n");
            let allowed = count(&code) * usize::from(product.contains(&file));
            assert_eq!(count(&text), allowed, "{file}");
        }
    }
}

#[test]
fn every_library_is_used() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let code: String = product_files().iter().map(|file| read(file)).collect();
    for name in manifest["dependencies"].as_table().unwrap().keys() {
        let path = format!("{}::", name.replace('-', "_"));
        assert!(code.contains(&path), "{name}");
    }
}
