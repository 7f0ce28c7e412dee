// SPDX-License-Identifier: Apache-2.0
//! What a command prints, compared with a text in `expected/`.

use std::net::SocketAddr;

use crate::words;

/// Holds that a text is the one in `expected/NAME.txt`, but for names, times and line breaks that another run has otherwise.
pub(crate) fn is_expected(name: &str, text: &str) {
    let file = format!("tests/scenarios/expected/{name}.txt");
    let same = |text: &str| without_age(&words(text));
    harvester_lab::expected::is_expected(&file, &neutral(text), same);
}

/// The text with a word in place of everything that differs between two runs.
fn neutral(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let mut before = "";
        let words = line.split(' ').map(|word| {
            let core = word.trim_matches(|letter| "().,;:`".contains(letter));
            let shown = placeholder(before, core);
            before = word.trim_start_matches('(');
            shown.map_or_else(|| word.to_owned(), |shown| word.replace(core, shown))
        });
        let words: Vec<String> = words.collect();
        words.join(" ") + "\n"
    });
    lines.collect()
}

fn placeholder(before: &str, word: &str) -> Option<&'static str> {
    let digits = word.trim_end_matches(['s', 'm', 'h', 'd']);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let url = word.trim_start_matches("https://");
    let address = url.split('/').next().unwrap_or_default();
    match () {
        () if word == env!("CARGO_PKG_VERSION") => Some("VERSION"),
        () if address.parse::<SocketAddr>().is_ok() => Some("SERVER"),
        () if address.starts_with("localhost:") => Some("SERVER"),
        () if word.ends_with('Z') && word.contains('T') && word.contains('-') => Some("TIME"),
        () if is_number(word) && before == "process" => Some("PID"),
        () if is_number(digits) && digits.len() < word.len() => Some("SPAN"),
        () => None,
    }
}

/// The agent that runs beside may have observed a finding, or not yet.
fn without_age(text: &str) -> String {
    let mut parts = text.split(" (first observed ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept += part.split_once(')').map_or(part, |(_, rest)| rest);
    }
    kept
}
