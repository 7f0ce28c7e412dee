// SPDX-License-Identifier: Apache-2.0
//! Texts that are shown or sent away: the scrubber of archives, and escaping.

use std::borrow::Cow;

use harvester_node_agent::commands::doctor::archive::scrub;
use harvester_node_agent::sys::escape::{in_json, is_plain, one_line, shell_word};
use serde_json::Value;

use super::Target;

/// Secrets by their form, whatever stands around them.
const SECRETS: [&str; 5] = [
    "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6ZGVmYXVsdDpnYzgifQ.Wlpa7WpaW3paWlq9Wlpa",
    "9f2c4e7a1b8d3f60c5e4a7b2d19f8e3c6a5b4d7f",
    "K10f3a1c8e97b2d4460a5c1e8f7d3b29046a8e5c7f1d2b3094::server:7c1e9f3a5b8d2046",
    "vT3qXU8nFEb0/K7mDzNG/bPxRfiC2Ya9Mp4LkQeY",
    "glpat-Zx81bQyW-7fKpR0sTuVw",
];

/// Any window of so many characters of a secret is too much.
const WINDOW: usize = 12;

/// A secret that stands alone in any text is removed, and a second pass of each function changes nothing.
pub(super) const SCRUB: Target = Target {
    name: "scrub_escape",
    run: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        scrubbed(&text);
        escaped(&text);
    },
    words: &[
        "password: ",
        "token=",
        "Authorization: Bearer ",
        "https://a:b@c/",
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "-----END ",
        "-----",
        "\"",
        "'",
        "\\",
        "\n",
        " ",
        "\\n",
        "?sig=",
        "&key=",
        "Environment=",
        "-u ",
        "$6$",
        "glpat-",
        "0a:1b:2c:",
        "://",
        "@",
        "[removed]",
        "=",
        "==",
        ".",
        "/",
        "\u{202e}",
        "\u{1b}[31m",
        "\0",
        "\u{e0041}",
        "\u{85}",
        "{{.data.",
        "kubeconfig-",
        "AKIA",
        "%2b",
        "\\u002f",
        ":\n  ",
        "- ",
    ],
};

fn scrubbed(text: &str) {
    let once = scrub::text(text);
    assert_eq!(scrub::text(&once), once, "a second pass of {text:?}");
    // At each line end: there a secret stands alone.
    let at = text.find('\n').map_or(text.len(), |at| at + 1);
    for secret in SECRETS {
        let planted = format!("{}{secret}\n{}", &text[..at], &text[at..]);
        if at == text.len() && !text.is_empty() && !text.ends_with('\n') {
            continue;
        }
        let scrubbed = scrub::text(&planted);
        for start in 0..secret.len() - WINDOW {
            let window = &secret[start..start + WINDOW];
            assert!(
                text.contains(window) || !scrubbed.contains(window),
                "{window} of {secret} in {scrubbed:?}"
            );
        }
    }
    if let Ok(mut value) = serde_json::from_str::<Value>(text) {
        let shape = shape(&value);
        scrub::value(&mut value);
        assert!(self::shape(&value) <= shape, "a document grows");
    }
    drop(scrub::record(text));
}

/// How many values a document has.
fn shape(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(shape).sum::<usize>(),
        Value::Object(entries) => 1 + entries.values().map(shape).sum::<usize>(),
        _ => 1,
    }
}

fn escaped(text: &str) {
    for max in [0, 1, 7, 120, usize::MAX] {
        let once = one_line(text, max);
        assert!(once.chars().all(is_plain), "{once:?}");
        assert!(once.chars().count() <= max, "longer than {max}");
        assert_eq!(one_line(&once, max), once, "a second pass");
        let is_same = matches!(once, Cow::Borrowed(_));
        assert!(!is_same || max == 0 || once == text);
    }
    let json = in_json(text);
    assert!(
        json.chars()
            .all(|character| is_plain(character) || character.is_ascii_whitespace()),
        "{json:?}"
    );
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        assert_eq!(
            serde_json::from_str::<Value>(&json).unwrap(),
            value,
            "another document"
        );
    }
    let word = shell_word(text);
    assert_eq!(as_shell(&word), text, "{word}");
}

/// What a POSIX shell makes of a word of plain characters and single quotes.
fn as_shell(word: &str) -> String {
    let mut read = String::new();
    let mut is_quoted = false;
    let mut characters = word.chars();
    while let Some(character) = characters.next() {
        match character {
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => read.extend(characters.next()),
            _ => {
                let is_bare = character.is_ascii_alphanumeric() || "/._-@:=+,".contains(character);
                assert!(
                    is_quoted || is_bare,
                    "{character:?} means something to a shell"
                );
                read.push(character);
            }
        }
    }
    assert!(!is_quoted, "an open quote");
    read
}
