// SPDX-License-Identifier: Apache-2.0
//! String literals of Rust and JSON, each with its line, without those that are only compiled for tests.

use super::super::skip_item;

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Literal {
    /// The line on which it begins.
    pub(super) line: usize,
    /// What it stands for, with its escapes resolved as far as they are spaces, quotes and line breaks.
    pub(super) text: String,
    /// Whether it gives the reason of a lint's exception, which nobody but a developer reads.
    pub(super) is_reason: bool,
    /// Whether it is the text of an error.
    pub(super) is_error: bool,
}

/// Finds the literals of a file.
pub(super) fn literals(text: &str) -> Vec<Literal> {
    let code = without_tests(text);
    let found = spans(&code).into_iter();
    let literals = found.map(|span| {
        let before = &code[..span.start];
        let code = before.trim_end();
        Literal {
            line: 1 + before.matches('\n').count(),
            text: match span.is_raw {
                true => span.content.to_owned(),
                false => resolved(span.content),
            },
            is_reason: code.ends_with("reason ="),
            is_error: code.ends_with("#[error("),
        }
    });
    literals.collect()
}

/// Blanks the literals of a file, so that each line keeps its number.
pub(super) fn blank_literals(text: &str) -> String {
    let mut blank = String::new();
    let mut done = 0;
    for span in spans(text) {
        blank.push_str(&text[done..=span.start]);
        blank.push_str(&"\n".repeat(span.content.matches('\n').count()));
        done = span.start + 1 + span.content.len();
    }
    blank.push_str(&text[done..]);
    blank
}

/// Where a literal is: its opening quote, and what it holds as it is written.
struct Span<'a> {
    start: usize,
    content: &'a str,
    is_raw: bool,
}

/// Finds the literals of code.
fn spans(code: &str) -> Vec<Span<'_>> {
    let mut spans = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, here) = rest.split_at(at);
        rest = match here.as_bytes() {
            [b'/', b'/', ..] => here.find('\n').map_or("", |end| &here[end..]),
            // Of a character, or of a lifetime, which has no end.
            [b'\'', b'\\', _, ..] => here[3..].split_once('\'').map_or("", |(_, rest)| rest),
            [b'\'', b'"', b'\'', ..] => &here[3..],
            [b'"', ..] => {
                let end = raw(before);
                let (content, rest) = match &end {
                    Some(end) => here[1..].split_once(end.as_str()).unwrap(),
                    None => quoted(&here[1..]),
                };
                spans.push(Span {
                    start: code.len() - here.len(),
                    content,
                    is_raw: end.is_some(),
                });
                rest
            }
            _ => &here[1..],
        };
    }
    spans
}

/// Returns the end of a literal whose opening quote comes after `before`, if it is a raw one.
fn raw(before: &str) -> Option<String> {
    let start = before.trim_end_matches('#');
    let outside = start.strip_suffix("br").or(start.strip_suffix('r'))?;
    let hashes = "#".repeat(before.len() - start.len());
    (!outside.ends_with(|c: char| c.is_alphanumeric() || c == '_')).then(|| format!("\"{hashes}"))
}

/// Splits after the first quote without a backslash.
fn quoted(text: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = text.find(|c| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    let end = end.unwrap();
    (&text[..end], &text[end + 1..])
}

/// Joins the lines of a literal that a backslash continues, and resolves what is a space, a quote or a line break.
fn resolved(content: &str) -> String {
    let mut text = String::new();
    let mut rest = content;
    while let Some((before, escape)) = rest.split_once('\\') {
        text.push_str(before);
        let mut after = escape.chars();
        match after.next() {
            Some('\n') => {
                rest = escape.trim_start();
                continue;
            }
            Some('n') => text.push('\n'),
            Some(other) => text.push(other),
            None => {}
        }
        rest = after.as_str();
    }
    text.push_str(rest);
    text
}

/// Blanks the items that are only compiled for tests, so that each line keeps its number.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start() == "#[cfg(test)]" {
            let indent = &line[..line.len() - line.trim_start().len()];
            let before = lines.clone().count();
            skip_item(&mut lines, indent);
            kept.push_str(&"\n".repeat(before - lines.clone().count()));
        } else {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    kept
}

#[test]
fn literals_are_found_with_their_lines() {
    let text = "// \"no\"\nfn a<'a>() {\n    b(\"c \\\"d\\\" \\\n       e\", '\"', '\\'', b\"f\");\n    #[cfg(test)]\n    g(\"no\");\n    \
                #[error(\n        \"h\\ni\"\n    )]\n    j(r#\"k \"l\" \\n\"#);\n    #[expect(m, reason = \"n\")]\n}\n";
    let found = literals(text);
    let plain: Vec<(usize, &str)> = found
        .iter()
        .map(|one| (one.line, one.text.as_str()))
        .collect();
    assert_eq!(
        plain,
        [
            (3, "c \"d\" e"),
            (4, "f"),
            (8, "h\ni"),
            (10, "k \"l\" \\n"),
            (11, "n")
        ]
    );
    let of = |is: fn(&Literal) -> bool| {
        found
            .iter()
            .filter(|one| is(one))
            .map(|one| one.line)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(|one| one.is_error), [8]);
    assert_eq!(of(|one| one.is_reason), [11]);
}
