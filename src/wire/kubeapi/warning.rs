// SPDX-License-Identifier: Apache-2.0
//! Logs the `Warning` headers of an API server, such as a deprecated API or an unknown field.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use reqwest::header::{HeaderMap, WARNING};

/// The maximum number of texts that are remembered. Further warnings are counted, but not logged.
const MAXIMUM_TEXTS: usize = 32;

/// The texts that were logged.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    texts: Mutex<BTreeSet<String>>,
}

impl Warnings {
    /// Reports whether an escaped text is to be logged, since it is new.
    fn is_news(&self, text: &str) -> bool {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.len() < MAXIMUM_TEXTS && texts.insert(text.to_owned())
    }

    /// Logs the new warnings of a response, escaped by `describe`. Returns the number of all warnings.
    pub(super) fn take(
        &self,
        server: &str,
        headers: &HeaderMap,
        describe: impl Fn(&str) -> String,
    ) -> u64 {
        let mut count = 0;
        for value in headers.get_all(WARNING) {
            count += 1;
            let text = describe(&text_of(&String::from_utf8_lossy(value.as_bytes())));
            if self.is_news(&text) {
                tracing::debug!(server, text, "the API server sent a warning");
            }
        }
        count
    }
}

/// Returns the text of a header such as `299 - "unknown field \"spec.x\""`; the whole header if it has another form.
fn text_of(header: &str) -> String {
    let Some((_, quoted)) = header.split_once('"') else {
        return header.to_owned();
    };
    let mut text = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_is_quoted() {
        for (header, text) in [
            (
                r#"299 - "unknown field \"metadata.labelz\"""#,
                r#"unknown field "metadata.labelz""#,
            ),
            (
                r#"299 - "v1 Endpoints is deprecated in v1.33+" "Mon, 02 Jan 2026""#,
                "v1 Endpoints is deprecated in v1.33+",
            ),
            (r#"299 - "open"#, "open"),
            (r#"299 - "a\"#, "a"),
            ("299", "299"),
            ("", ""),
        ] {
            assert_eq!(text_of(header), text, "{header}");
        }
    }

    #[test]
    fn each_text_is_news_once_and_memory_is_bounded() {
        let warnings = Warnings::default();
        assert!(warnings.is_news("a"));
        assert!(!warnings.is_news("a"));
        let news = (0..1000).filter(|number| warnings.is_news(&number.to_string()));
        assert_eq!(news.count(), MAXIMUM_TEXTS - 1);
        assert!(!warnings.is_news("b"));
    }
}
