// SPDX-License-Identifier: Apache-2.0
//! The words of the field: no text that a user reads has a phrase of [`phrases`], and no line of output is too long.

mod identifiers;
mod literals;
mod phrases;
mod sentences;

use std::fs;
use std::process::Command;

use self::literals::{Literal, literals};
use self::phrases::{PHRASES, STANDARD};
use self::sentences::SENTENCES;
use super::{product_files, read, top};

/// Characters of one line of output; commands to paste are never wrapped.
const LINE_MAX: usize = 120;

/// Stands for what is not read: code in backticks, a placeholder.
const CODE: &str = "`";

/// A text that a user reads.
struct Text {
    /// Where it is from: a path from the top, or a command line.
    origin: String,
    /// The number of its first line there.
    line: usize,
    text: String,
}

/// A word of a text, or a mark between words.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    /// Lines before it in its text.
    line: usize,
    text: String,
}

/// A phrase as words, and what to say instead.
struct Rule {
    words: Vec<String>,
    standard: &'static str,
}

/// Splits a text into words, in lower case. Quotes and the leaders of comments are left out, other marks are words.
fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let mut add = |text: &str| {
            let text = text.to_lowercase();
            words.push(Word { line, text });
        };
        for part in without_code(text).split_whitespace() {
            let mut rest = part;
            while let Some(first) = rest.chars().next() {
                let is_mark = |c: char| ",;:!?()<>|*\"“”".contains(c);
                let length = match is_mark(first) {
                    true => first.len_utf8(),
                    false => rest.find(is_mark).unwrap_or(rest.len()),
                };
                let (word, after) = rest.split_at(length);
                let bare = word.trim_end_matches('.').trim_matches('\'');
                if !["", "#", "//", "\"", "“", "”"].contains(&bare) {
                    add(bare);
                }
                // A path or a number may have a dot within, the end of a sentence is a mark.
                if word.ends_with('.') {
                    add(".");
                }
                rest = after;
            }
        }
    }
    words
}

/// Replaces code in backticks and placeholders in braces, each within one line, which are names and no prose.
fn without_code(line: &str) -> String {
    let mut text = line.replace('’', "'");
    for (opening, closing) in [('`', '`'), ('{', '}')] {
        let mut bare = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(opening) {
            bare.push_str(before);
            rest = match after.split_once(closing) {
                Some((_, after)) => {
                    bare.push_str(&format!(" {CODE} "));
                    after
                }
                None => after,
            };
        }
        bare.push_str(rest);
        text = bare;
    }
    text
}

fn rules() -> Vec<Rule> {
    let listed = PHRASES.iter().chain(SENTENCES);
    let rules = listed.map(|(phrase, standard)| Rule {
        words: phrase_words(phrase),
        standard,
    });
    rules.collect()
}

fn phrase_words(phrase: &str) -> Vec<String> {
    words(phrase).into_iter().map(|word| word.text).collect()
}

/// Returns whether words begin with a phrase.
fn begins(words: &[Word], phrase: &[String]) -> bool {
    words.len() >= phrase.len()
        && words
            .iter()
            .zip(phrase)
            .all(|(word, one)| word.text == *one)
}

/// Finds each phrase in a text, as one line with the place, the phrase and the standard term.
fn banned(text: &Text, rules: &[Rule]) -> Vec<String> {
    let words = words(&text.text);
    let mut standard = vec![false; words.len()];
    for phrase in STANDARD.iter().map(|phrase| phrase_words(phrase)) {
        for at in (0..words.len()).filter(|at| begins(&words[*at..], &phrase)) {
            standard[at..at + phrase.len()].fill(true);
        }
    }
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        for rule in rules
            .iter()
            .filter(|rule| begins(&words[at..], &rule.words))
        {
            let end = at + rule.words.len();
            if standard[at..end].contains(&true) {
                continue;
            }
            let around = &words[at.saturating_sub(5)..words.len().min(end + 5)];
            let around: Vec<&str> = around.iter().map(|word| word.text.as_str()).collect();
            found.push(format!(
                "{}:{}: `{}`, say: {} (... {} ...)",
                text.origin,
                text.line + word.line,
                rule.words.join(" "),
                rule.standard,
                around.join(" ")
            ));
        }
    }
    found
}

/// Returns the literals of a Rust file that are prose: one word alone is a name.
fn prose(path: &str) -> Vec<Text> {
    let of_text = |literal: &Literal| literal.text.trim().contains(' ') && !literal.is_reason;
    let literals = literals(&read(path)).into_iter().filter(of_text);
    let texts = literals.map(|literal| Text {
        origin: path.to_owned(),
        line: literal.line,
        text: literal.text,
    });
    texts.collect()
}

/// All files below a folder, as paths from the top.
fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// What is shipped or documented. The program behind the manual pages counts with its literals, JSON with its strings, and
/// what only developers run does not count.
fn shipped() -> Vec<Text> {
    let mut paths = vec!["README.md".to_owned()];
    paths.extend(
        ["packaging", "systemd", "cloud-init"]
            .into_iter()
            .flat_map(files),
    );
    let mut texts = Vec::new();
    for path in paths {
        match path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("rs" | "json") => texts.extend(prose(&path)),
            Some("cast" | "gif" | "png") => {}
            _ if path == "packaging/build" || path == "packaging/docs/Cargo.toml" => {}
            None if path.starts_with("packaging/docs/") => {}
            _ => texts.push(Text {
                text: read(&path),
                line: 1,
                origin: path,
            }),
        }
    }
    texts
}

/// Returns what the program prints: the help of each command, all findings, the configuration without a file.
fn printed() -> Vec<Text> {
    use clap::CommandFactory;
    let tree = tempfile::tempdir().unwrap();
    let tree = tree.path().to_str().unwrap();
    let names = harvester_node_agent::commands::Arguments::command();
    let names = names.get_subcommands().map(|one| one.get_name().to_owned());
    let mut lines = vec![vec!["--help".to_owned()]];
    lines.extend(names.map(|name| vec![name, "--help".to_owned()]));
    for line in ["explain --all", &format!("config show --root {tree}")] {
        lines.push(line.split(' ').map(str::to_owned).collect());
    }
    let texts = lines.into_iter().map(|arguments| {
        let output = Command::new(env!("CARGO_BIN_EXE_harvester-node-agent"))
            .args(&arguments)
            .env("COLUMNS", LINE_MAX.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !text.is_empty(), "{arguments:?}");
        Text {
            origin: arguments.join(" "),
            line: 1,
            text,
        }
    });
    texts.collect()
}

#[test]
fn no_text_that_a_user_reads_has_a_word_of_our_own() {
    let rules = rules();
    let mut texts: Vec<Text> = product_files()
        .iter()
        .flat_map(|file| prose(file))
        .collect();
    texts.extend(shipped());
    texts.extend(printed());
    let mut origins: Vec<&str> = texts.iter().map(|text| text.origin.as_str()).collect();
    origins.dedup();
    println!(
        "language: {} texts of {} files and commands, {} phrases",
        texts.len(),
        origins.len(),
        rules.len()
    );
    assert!(texts.len() > 1500, "literals are not found any more");
    let found: Vec<String> = texts.iter().flat_map(|text| banned(text, &rules)).collect();
    assert!(found.is_empty(), "{}\n{}", found.join("\n"), found.len());
}

#[test]
fn a_line_of_output_has_120_characters_at_most() {
    let mut long = Vec::new();
    for text in printed() {
        let lines = text.text.lines().enumerate();
        let prose = lines.filter(|(_, line)| !line.contains("kubectl "));
        let over = prose.filter(|(_, line)| line.chars().count() > LINE_MAX);
        long.extend(over.map(|(at, line)| format!("{}:{}: {line}", text.origin, at + 1)));
    }
    // An error is printed as a part of a line: what it says besides names and values must leave them room.
    for file in product_files() {
        let errors = literals(&read(&file)).into_iter();
        for error in errors.filter(|literal| literal.is_error) {
            let bare = without_code(&error.text).replace(CODE, "");
            let over = bare.chars().count() > LINE_MAX;
            long.extend(over.then(|| format!("{file}:{}: {}", error.line, error.text)));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn a_planted_sentence_is_found_with_its_place_and_the_standard_term() {
    let text = |text: &str| Text {
        origin: "a.rs".to_owned(),
        line: 7,
        text: text.to_owned(),
    };
    let found = |planted: &str| banned(&text(planted), &rules());
    let [one] = &found("The token is fine,\nbut the CA has Ended; see `has ended`.")[..] else {
        panic!("it is found once");
    };
    assert!(
        one.starts_with("a.rs:8: `has ended`, say: has expired"),
        "{one}"
    );
    let sentence = "the kernel gives no event loop: {error}";
    assert!(
        found(sentence)
            .iter()
            .any(|one| one.contains("failed to create event loop"))
    );
    for planted in [
        "# somebody’s file",
        "is told nothing",
        "a (foreign) label",
        "Connection was\n# refused.",
    ] {
        assert_eq!(found(planted).len(), 1, "{planted}");
    }
    for standard in [
        "connection refused",
        "a virtual machine, machine-readable, /etc/machine-id",
        "signed by a certificate authority (certificate-authority-data)",
        "cannot tell that there is no label, which is no longer set",
        "default, faulted_by, `fault`, {fault}, has: ended",
    ] {
        assert_eq!(found(standard), Vec::<String>::new(), "{standard}");
    }
}

#[test]
fn each_phrase_is_listed_once_and_no_standard_term_is_one() {
    let rules = rules();
    for (at, rule) in rules.iter().enumerate() {
        let twice = rules[..at].iter().any(|other| other.words == rule.words);
        assert!(!twice, "{} is listed twice", rule.words.join(" "));
        let standard = Text {
            origin: rule.words.join(" "),
            line: 1,
            text: rule.standard.to_owned(),
        };
        assert_eq!(banned(&standard, &rules), Vec::<String>::new());
    }
}
