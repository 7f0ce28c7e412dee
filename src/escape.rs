// SPDX-License-Identifier: Apache-2.0
//! Foreign text for people: on one line, without control over the terminal, of a bounded length.

use std::borrow::Cow;
use std::error::Error;

/// The longest foreign text shown, in characters.
pub const SHOWN_MAX: usize = 300;

/// `text` on one line: control characters and those that turn the direction of writing are escaped, and what is longer than
/// `most` characters is cut with an ellipsis.
pub fn one_line(text: &str, most: usize) -> Cow<'_, str> {
    let is_plain = |character: char| !character.is_control() && !is_invisible(character);
    if text.chars().all(is_plain) && text.chars().nth(most).is_none() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == most {
            shown.push('…');
            break;
        }
        if is_plain(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_default());
        }
    }
    Cow::Owned(shown)
}

/// An error with its causes, on one line. No error prints its own source, so nothing is said twice.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    one_line(&text, SHOWN_MAX * 2).into_owned()
}

/// Characters that show nothing or rearrange what is shown (Unicode bidirectional controls, zero width, line separators).
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_left_and_control_is_shown() {
        for (text, shown) in [
            ("plain täxt", "plain täxt"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\u{202e}b\u{200b}", "a\\u{202e}b\\u{200b}"),
            ("\u{9b}31m", "\\u{9b}31m"),
        ] {
            assert_eq!(one_line(text, 100), shown);
        }
        assert!(matches!(one_line("plain", 5), Cow::Borrowed(_)));
        assert_eq!(one_line("abcdef", 3), "abc…");
    }

    #[test]
    fn an_error_is_printed_with_its_causes_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("inner\nline"));
        assert_eq!(chain(&error), "outer: inner\\nline");
    }
}
