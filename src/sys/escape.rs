// SPDX-License-Identifier: Apache-2.0
//! Makes untrusted text safe for output.
//!
//! Names and messages from the network, from other processes and from files may contain terminal escapes, line breaks or
//! characters that reverse the reading direction. All text for a terminal, the journal or a status line goes
//! through [`one_line`]. It is idempotent: a second call with the same limit does not change the text.

use std::borrow::Cow;
use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Replaces the truncated part of a text.
const ELLIPSIS: char = '…';

/// Returns `text` as one safe line of at most `max` characters; plain text is returned unchanged.
pub fn one_line(text: &str, max: usize) -> Cow<'_, str> {
    if max == 0 {
        return Cow::Borrowed("");
    }
    // One more than `max`: enough to decide whether the text fits, without reading a long text to its end.
    let plain = text.chars().take(max.saturating_add(1)).all(is_plain);
    if plain && text.chars().nth(max).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(escape_and_cap(text, max))
}

/// Returns a JSON text in which every character that is not shown unchanged is escaped as `\u....`. The document is the same:
/// outside of its strings, only line ends are such characters.
pub fn in_json(text: &str) -> Cow<'_, str> {
    let is_kept = |character: char| is_plain(character) || character.is_ascii_whitespace();
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_kept(character) {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    Cow::Owned(escaped)
}

/// Returns a JSON document for output: indented, with a line end, and safe to print on a terminal (see [`in_json`]).
pub fn json_text(value: &impl std::fmt::Display) -> String {
    in_json(&format!("{value:#}\n")).into_owned()
}

/// Quotes `text` as one word for a POSIX shell.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-@:=+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Quotes `path` as one word of plain characters for a shell. A name with any other character is written as bash, zsh and BusyBox
/// read it (`$'...'`): its escaped form in ordinary quotes would be the name of another file.
pub fn shell_path(path: &Path) -> String {
    if let Some(text) = path.to_str().filter(|text| text.chars().all(is_plain)) {
        return shell_word(text);
    }
    let mut word = "$'".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' '..=b'~' if !b"'\\".contains(byte) => word.push(char::from(*byte)),
            _ => word.push_str(&format!("\\{byte:03o}")),
        }
    }
    word.push('\'');
    word
}

fn escape_and_cap(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    // The position at which the ellipsis still fits and no escape is split.
    let mut cut = 0;
    for character in text.chars() {
        let before = line.len();
        push_escaped(&mut line, character);
        // An escape is ASCII; any other text is one character.
        length += match is_plain(character) {
            true => 1,
            false => line.len() - before,
        };
        if length < max {
            cut = line.len();
        } else if length > max {
            line.truncate(cut);
            line.push(ELLIPSIS);
            return line;
        }
    }
    line
}

fn push_escaped(line: &mut String, character: char) {
    match character {
        '\n' | '\r' | '\t' => line.extend(character.escape_default()),
        _ if character.is_ascii_control() => {
            line.push_str(&format!("\\x{:02x}", u32::from(character)));
        }
        _ if !is_plain(character) => line.extend(character.escape_unicode()),
        _ => line.push(character),
    }
}

/// Reports whether a character is shown unchanged: it cannot move the cursor, break the line, be invisible or change the reading direction.
pub fn is_plain(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{feff}' // soft hyphen, Arabic letter mark, byte order mark
            | '\u{200b}'..='\u{200f}'         // zero width, left-to-right and right-to-left marks
            | '\u{2028}'..='\u{202e}'         // line and paragraph separators, bidi embeddings and overrides
            | '\u{2060}'..='\u{206f}'         // invisible operators, bidi isolates
            | '\u{fff9}'..='\u{fffb}'         // interlinear annotation
            | '\u{e0000}'..='\u{e007f}') // tags
}

/// The maximum length of a shown chain of causes, in characters.
const CHAIN_LIMIT: usize = 600;

/// Returns an error with its causes, as one safe line. No error prints its own source, so no text is repeated.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    one_line(&text, CHAIN_LIMIT).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dangerous_character_is_shown_and_no_other_is_changed() {
        for (text, shown) in [
            ("rke2-worker-1.example", "rke2-worker-1.example"),
            ("", ""),
            ("back\\slash \"quotes\"", "back\\slash \"quotes\""),
            ("Zürich 東京 🚀", "Zürich 東京 🚀"),
            ("a\nb\r\nc\td", "a\\nb\\r\\nc\\td"),
            ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
            ("nul\0del\x7f", "nul\\x00del\\x7f"),
            ("c1\u{9b}31m", "c1\\u{9b}31m"),
            (
                "a\u{202e}b\u{2066}c\u{200f}",
                "a\\u{202e}b\\u{2066}c\\u{200f}",
            ),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            (
                "line\u{2028}paragraph\u{2029}",
                "line\\u{2028}paragraph\\u{2029}",
            ),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ] {
            let once = one_line(text, 100);
            assert_eq!(once, shown);
            assert_eq!(one_line(&once, 100), shown, "a second pass changed {shown}");
        }
    }

    #[test]
    fn a_json_text_is_the_same_document_without_a_character_that_hides_or_moves_text() {
        let value = serde_json::json!({
            "a\u{202e}": ["\u{9b}31m", "\x7f", "\u{200b}\u{feff}", "\u{e0041}", "\x1b\n\t", "Zürich 東京 🚀"],
        });
        let text = format!("{value:#}\n");
        let escaped = in_json(&text);
        assert!(
            escaped
                .chars()
                .all(|character| is_plain(character) || character == '\n'),
            "{escaped}"
        );
        assert!(
            escaped.contains("\\u202e") && escaped.contains("\\udb40\\udc41"),
            "{escaped}"
        );
        assert!(escaped.contains("Zürich 東京 🚀"));
        let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read, value);
        assert!(matches!(in_json("{\n  \"a\": 1\n}\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(one_line("zone-a", 6), Cow::Borrowed("zone-a")));
        assert!(matches!(one_line("zone-a\n", 60), Cow::Owned(_)));
    }

    #[test]
    fn long_text_is_capped_in_characters_and_no_escape_is_cut_in_two() {
        for (text, max, shown) in [
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abcde…"),
            ("äöüäöüä", 6, "äöüäö…"),
            ("abc\x1b", 7, "abc\\x1b"),
            ("abc\x1bd", 7, "abc…"),
            ("abc\x1bd", 8, "abc\\x1bd"),
            ("\u{202e}\u{202e}", 9, "\\u{202e}…"),
            ("ab", 1, "…"),
            ("\n", 1, "…"),
            ("anything", 0, ""),
        ] {
            let line = one_line(text, max);
            assert_eq!(line, shown);
            assert!(line.chars().count() <= max);
        }
    }
}
