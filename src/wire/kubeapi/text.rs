// SPDX-License-Identifier: Apache-2.0
//! Makes untrusted text safe for a message: one line, no characters that move the cursor, limited length.

use crate::sys::escape::one_line;

/// The number of characters after which untrusted text is truncated: enough for any sentence of the API server, too little to
/// flood a journal.
pub(super) const MAXIMUM_CHARACTERS: usize = 200;

/// Returns the text with every control and direction character escaped, truncated to the maximum length.
#[must_use]
pub fn describe(foreign: &str) -> String {
    one_line(foreign.trim(), MAXIMUM_CHARACTERS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_escaped() {
        assert_eq!(
            describe("a\n\u{1b}[31m\u{202e}b\u{0}\u{9b}"),
            "a\\n\\x1b[31m\\u{202e}b\\x00\\u{9b}"
        );
    }

    #[test]
    fn letters_of_any_script_stay_as_they_are() {
        assert_eq!(describe(" Größe 主机 “ok” "), "Größe 主机 “ok”");
    }

    #[test]
    fn a_long_text_is_cut_after_two_hundred_characters() {
        assert_eq!(describe(&"ü".repeat(200)), "ü".repeat(200));
        assert_eq!(describe(&"ü".repeat(201)), format!("{}…", "ü".repeat(199)));
    }
}
