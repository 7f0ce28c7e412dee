// SPDX-License-Identifier: Apache-2.0
//! Names and comments in `src/` use the terms of the field, as texts do.

use super::literals::blank_literals;
use super::without_code;
use crate::{read, rust_files};

/// Words that are neither in a comment nor a name, and what to say instead.
const WORDS: &[(&str, &str)] = &[
    ("anew", "again, re-establish, re-create"),
    ("anybody", "anyone"),
    ("complain", "report"),
    ("complains", "reports"),
    ("complaint", "finding, issue, error"),
    ("complaints", "findings, issues, errors"),
    ("dice", "random"),
    ("epoch", "window_end"),
    ("fight", "conflict"),
    ("hurried", "with_short_timeouts"),
    ("hurry", "skip_backoff"),
    ("nobody", "no one, none, anonymous"),
    ("patience", "timeout, grace period, run_kind"),
    ("remark", "issue"),
    ("remarks", "issues"),
    ("rival", "conflict, conflicting writer"),
    ("rivalry", "conflict, ConflictTracker"),
    ("somebody", "someone"),
    ("told", "reported, asked, given"),
    ("whereabouts", "host_labels"),
    ("whoever", "anyone who"),
];

/// Words that are no names; in a comment they may be English.
const NAMES: &[(&str, &str)] = &[
    ("few", "collect"),
    ("hear", "handle, receive"),
    ("herald", "HintSink"),
    ("look", "round, reconcile, read"),
    ("rights", "privileges, permissions"),
];

/// Splits a line into its code and its comment.
fn parts(line: &str) -> (&str, &str) {
    line.split_once("//").unwrap_or((line, ""))
}

/// Finds each word of `banned`, as one line with the place and the standard term.
fn found(text: &str, file: &str, line: usize, banned: &[(&str, &str)]) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    let hits = banned
        .iter()
        .filter(|(word, _)| words.iter().any(|one| one == word));
    hits.map(|(word, standard)| format!("{file}:{line}: `{word}`, say: {standard}"))
        .collect()
}

/// Finds the banned words of a file, outside its literals.
fn banned(file: &str, text: &str) -> Vec<String> {
    let code = blank_literals(text);
    let lines = code.lines().enumerate();
    let found = lines.flat_map(|(at, line)| {
        let (code, comment) = parts(line);
        let mut here = found(code, file, at + 1, WORDS);
        here.extend(found(&without_code(comment), file, at + 1, WORDS));
        here.extend(found(code, file, at + 1, NAMES));
        here
    });
    found.collect()
}

#[test]
fn no_name_and_no_comment_has_a_word_of_our_own() {
    let files = rust_files("src");
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| banned(file, &read(file)))
        .collect();
    println!(
        "identifiers: {} files, {} words, {} found",
        files.len(),
        WORDS.len() + NAMES.len(),
        found.len()
    );
    assert!(files.len() > 200, "files are not found any more");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_planted_name_is_found_and_a_literal_is_not() {
    let found = |text: &str| banned("a.rs", text);
    assert_eq!(
        found("\nlet Rival = 1;"),
        ["a.rs:2: `rival`, say: conflict, conflicting writer"]
    );
    assert_eq!(found("/// Somebody else's.").len(), 1);
    assert_eq!(found("fn look() {}").len(), 1);
    for fine in [
        "// It may look like a token of the user `nobody`.",
        "a(\"is told\", r#\"a \"rival\"\"#, '\"'); b",
        "fn what_is_reported() {}",
    ] {
        assert_eq!(found(fine), Vec::<String>::new(), "{fine}");
    }
}
