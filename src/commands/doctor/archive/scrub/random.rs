// SPDX-License-Identifier: Apache-2.0
//! Secrets that are identified by random characters.

use super::REMOVED;

/// The minimum length of random letters and digits that are a secret.
const WORD_MIN: usize = 16;

/// The minimum length of a secret that also has other base64 characters, and all kinds of characters.
pub(super) const MIXED_MIN: usize = 24;

/// The escapes of base64 characters in JSON and URLs.
const ESCAPES: [&str; 13] = [
    "\\/", "\\u002b", "\\u002f", "\\u003d", "\\u002B", "\\u002F", "\\u003D", "%2b", "%2f", "%3d",
    "%2B", "%2F", "%3D",
];

/// Removes runs of random characters from a text.
pub(super) fn without(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    // Whether the line above ends with removed text.
    let (mut is_removed, mut is_below) = (false, false);
    while !rest.is_empty() {
        let (run, after) = rest.split_at(run_length(rest));
        let is_whole = is_below && after.chars().next().is_none_or(char::is_control);
        let judged = match judged(run) {
            _ if is_whole && is_tail(run) => REMOVED.to_owned(),
            judged => judged,
        };
        kept.push_str(&judged);
        let mut other = after.chars();
        let hint = other.next();
        kept.extend(hint);
        rest = other.as_str();
        is_removed = judged == REMOVED || run.is_empty() && is_removed;
        is_below = is_removed && (hint == Some('\n') || is_below && run.is_empty());
        is_removed &= hint.is_some_and(char::is_whitespace);
    }
    kept
}

/// Returns the length of the run of base64, base64url or a JSON Web Token at the start of a text, including JSON escapes.
fn run_length(text: &str) -> usize {
    let mut rest = text;
    loop {
        let plain = rest.trim_start_matches(|character: char| {
            character.is_ascii_alphanumeric() || "+/=_-.~".contains(character)
        });
        let mut escapes = ESCAPES.iter();
        rest = escapes
            .find_map(|escape| plain.strip_prefix(escape))
            .unwrap_or(plain);
        if rest.len() == plain.len() {
            return text.len() - rest.len();
        }
    }
}

/// Reports whether a run may be the last line of base64, which is too short to be identified without the lines above.
fn is_tail(run: &str) -> bool {
    let letters = run.trim_end_matches('=');
    let is_of_it = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
    let is_word = letters.bytes().all(|byte| byte.is_ascii_lowercase());
    run.len().is_multiple_of(4) && letters.bytes().all(is_of_it) && !is_word
}

fn judged(run: &str) -> String {
    let pieces = || run.split(|character: char| !character.is_ascii_alphanumeric());
    let changes = || pieces().map(changes).sum::<usize>();
    let has = |kind: fn(&char) -> bool| run.chars().any(|character| kind(&character));
    let is_mixed = run.len() >= MIXED_MIN
        && has(char::is_ascii_lowercase)
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_digit)
        && changes() * 4 >= run.len();
    if is_mixed {
        REMOVED.to_owned()
    } else if !pieces().any(is_random) {
        run.to_owned()
    } else if run.starts_with('/') {
        // In a path, only the names that are secrets are removed.
        let names = run.split('/').map(|name| {
            let mut pieces = name.split(|character: char| !character.is_ascii_alphanumeric());
            if pieces.any(is_random) { REMOVED } else { name }
        });
        names.collect::<Vec<_>>().join("/")
    } else {
        REMOVED.to_owned()
    }
}

/// Reports whether letters and digits are random.
fn is_random(word: &str) -> bool {
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let changes = changes(word);
    let is_long = word.len() >= WORD_MIN;
    let is_mixed = has_digit && changes >= 3 || changes * 10 >= word.len() * 3;
    // Only the prefix identifies an AWS key.
    let is_key = word.starts_with("AKIA") || word.starts_with("ASIA");
    is_long && (is_mixed || is_key)
}

/// Counts the changes of the kind of character: words have few, random text has one at every second character. The parts of a name
/// such as `MemoryDenyWriteExecute` are words.
fn changes(word: &str) -> usize {
    if is_of_words(word) {
        return 0;
    }
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    let following = word.bytes().skip(1);
    let pairs = word.bytes().zip(following);
    pairs
        .filter(|(one, next)| kind(*one) != kind(*next))
        .count()
}

/// Reports whether each capital letter begins a word, or an abbreviation before a word: `ProtectSystem`, `RestrictSUIDSGID`.
fn is_of_words(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
        let after = word.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
        let (capitals, letters) = (rest.len() - word.len(), word.len() - after.len());
        let is_word = letters >= 2 || letters == 0 && capitals >= 2;
        if !is_word {
            return false;
        }
        rest = after;
    }
    true
}
