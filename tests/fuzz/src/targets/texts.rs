// SPDX-License-Identifier: Apache-2.0
//! Texts that are shown or sent away: escaping.

use std::borrow::Cow;

use harvester_node_agent::sys::escape::{in_json, is_plain, one_line, shell_word};
use serde_json::Value;

/// What a terminal would take for more than text is escaped, and a second pass of each function changes nothing.
pub fn escape(bytes: &[u8]) {
    escaped(&String::from_utf8_lossy(bytes))
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
