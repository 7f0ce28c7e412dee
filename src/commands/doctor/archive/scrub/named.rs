// SPDX-License-Identifier: Apache-2.0
//! Values that are secrets because of the name before them.

use super::REMOVED;

/// Names of secrets, without `-` and `_`, in lowercase; they also match as a part of a longer name.
const NAMES: [&str; 15] = [
    "password",
    "passwort",
    "kennwort",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "bearer",
    "cookie",
    "clientkeydata",
    "clientcertificatedata",
    "certificateauthoritydata",
    "privatekey",
    "accesskey",
];

/// Names of secrets that are too short to match as a part of a longer name.
const WORDS: [&str; 10] = [
    "apikey",
    "auth",
    "cred",
    "creds",
    "environment",
    "pass",
    "passcode",
    "psk",
    "pw",
    "pwd",
];

/// Options of curl and wget with a user name as their value, or `user:password`.
const LOGINS: [&str; 4] = ["-u", "-U", "--user", "--proxy-user"];

/// Unit settings whose whole line is removed, regardless of quotes (systemd.exec(5)).
const SETTINGS: [&str; 3] = ["environment", "setcredential", "setcredentialencrypted"];

/// The maximum length of a name, in characters. It limits the search for a name before each separator.
const NAME_MAX: usize = 128;

/// The end of the value after a name.
enum Extent {
    /// The end of the word.
    Word,
    /// The end of a unit setting.
    Setting,
    /// The end of the line and of the lines below that belong to the value.
    Lines(Option<usize>),
}

/// Removes values after the name of a secret, after an option with such a name, and after `Bearer` and `Basic`.
pub(super) fn without(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find([':', '=', ' ']) {
        let (before, after) = rest.split_at(at);
        kept.push_str(before);
        let (hint, after) = after.split_at(1);
        let extent = extent(&kept, hint, after);
        kept.push_str(hint);
        rest = after;
        if let Some(extent) = extent {
            let (lead, value) = after.split_at(extent.lead(after));
            let end = extent.end(lead, value);
            if end > 0 && !is_template(value) {
                kept.push_str(lead);
                kept.push_str(REMOVED);
                rest = value.get(end..).unwrap_or_default();
            }
        }
    }
    kept + rest
}

/// Reports whether a value is a reference in a Go template, as in the command that prints a kubeconfig.
fn is_template(value: &str) -> bool {
    value.starts_with("{{.data.") || value.starts_with("{{index .data ")
}

/// Reports whether a value with this name is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let plain = plain(name);
    let is_part = NAMES.iter().any(|secret| plain.contains(secret));
    // The first half of a Rancher token looks like a name.
    is_part || WORDS.contains(&plain.as_str()) || name.starts_with("kubeconfig-")
}

fn plain(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Returns how much to remove after a separator, based on the name at the end of `before`.
fn extent(before: &str, hint: &str, after: &str) -> Option<Extent> {
    // Only one check for any number of spaces.
    if before.ends_with(' ') && hint == " " {
        return None;
    }
    let name = last_name(before);
    let is_scheme = || ["bearer", "basic"].contains(&name.to_ascii_lowercase().as_str());
    let is_option = || name.starts_with('-') && is_secret(name);
    let is_login = || LOGINS.contains(&name) && begins_with_login(after);
    match hint {
        " " if is_scheme() || is_option() || is_login() => Some(Extent::Word),
        "=" if is_login() => Some(Extent::Word),
        "=" if SETTINGS.contains(&plain(name).as_str()) => Some(Extent::Setting),
        ":" | "=" if is_secret(name) => Some(Extent::Lines(column(before, name))),
        _ => None,
    }
}

/// Reports whether a text begins with `user:password`: exactly one colon, and on both sides text that is not removed yet.
fn begins_with_login(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '"', '\'']);
    let end = text.find(is_end).unwrap_or(text.len());
    let word = text.get(..end).unwrap_or_default();
    word.split_once(':').is_some_and(|(user, password)| {
        !user.is_empty()
            && !password.is_empty()
            && !password.contains(':')
            && !word.contains(REMOVED)
            && !password.starts_with('/')
    })
}

impl Extent {
    /// Returns the length of the blanks and quotes before a value.
    fn lead(&self, text: &str) -> usize {
        match self {
            Self::Setting => 0,
            Self::Word | Self::Lines(_) => {
                text.len() - text.trim_start_matches([' ', '\t', '"', '\'', '\\']).len()
            }
        }
    }

    /// Returns how many bytes of `value` to remove.
    fn end(&self, lead: &str, value: &str) -> usize {
        let mut quotes = lead.chars().rev();
        let quote = quotes.find(|character| ['"', '\''].contains(character));
        match (self, quote) {
            (Self::Setting, _) => setting_end(value),
            (_, Some(quote)) => quoted_end(value, quote, lead.contains('\\')),
            (Self::Word, None) => value.find(is_end).unwrap_or(value.len()),
            (Self::Lines(column), None) => lines_end(*column, value),
        }
    }
}

/// Returns the last characters of a text.
fn tail(text: &str, length: usize) -> &str {
    let begin = text.char_indices().rev().take(length).last();
    text.get(begin.map_or(0, |(at, _)| at)..)
        .unwrap_or_default()
}

/// Returns the name at the end of a text, without the quotes and blanks after it.
fn last_name(text: &str) -> &str {
    let text = tail(text, NAME_MAX);
    let text = text.trim_end_matches(['"', '\'', '\\', ' ', '`']);
    let is_of_name =
        |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let begin = text.trim_end_matches(is_of_name).len();
    text.get(begin..).unwrap_or_default()
}

/// Reports whether the character ends a word.
pub(super) fn is_end(character: char) -> bool {
    character.is_whitespace() || ['"', '\'', ',', ';', '\\', '`'].contains(&character)
}

/// Returns the end of a quoted value: its closing quote. In JSON inside JSON, that quote is escaped; otherwise, escaped ones are
/// content.
fn quoted_end(value: &str, quote: char, is_escaped: bool) -> usize {
    let quotes = value.match_indices(quote).map(|(at, _)| at);
    let mut quotes = quotes.filter(|at| {
        let before = value.get(..*at).unwrap_or_default();
        before.ends_with('\\') == is_escaped
    });
    let end = quotes.next();
    end.map_or(value.len(), |at| at - usize::from(is_escaped))
}

/// Returns the end of a unit setting: the first line end without a backslash before it.
fn setting_end(value: &str) -> usize {
    let mut lines = value.split_inclusive('\n');
    let continued = lines
        .by_ref()
        .take_while(|line| line.trim_end().ends_with('\\'));
    let continued: usize = continued.map(str::len).sum();
    let last = value.get(continued..).unwrap_or_default();
    continued + last.find('\n').unwrap_or(last.len())
}

/// Returns the column of a name, if it is the first word in its line. The marker of a YAML list item is not a word.
fn column(before: &str, name: &str) -> Option<usize> {
    let end = tail(before, 2 * NAME_MAX);
    let line = match end.rsplit_once('\n') {
        Some((_, line)) => line,
        None if end.len() == before.len() => end,
        None => return None,
    };
    let words = line.trim_start_matches([' ', '\t', '-']);
    let is_first = words.trim_matches(['"', '\'', ' ']) == name;
    is_first.then_some(line.len() - words.len())
}

/// Returns the end of an unquoted value: the end of its line, and in YAML and JSON of the lines below with a deeper indentation
/// than its name. The last line end is kept as a separator.
fn lines_end(column: Option<usize>, value: &str) -> usize {
    let first = value.find('\n').unwrap_or(value.len());
    let Some(column) = column else {
        return first;
    };
    let is_of_value = |line: &&str| {
        let words = line.trim_start_matches([' ', '\t']);
        let indentation = line.len() - words.len();
        let is_item = words.starts_with("- ") && indentation == column;
        !words.trim_end().is_empty() && (indentation > column || is_item)
    };
    let below = value.get(first + 1..).unwrap_or_default();
    let below = below.split_inclusive('\n').take_while(is_of_value);
    let length: usize = below.map(str::len).sum();
    let has_end = value
        .get(..first + 1 + length)
        .is_some_and(|value| value.ends_with('\n'));
    match length {
        0 => first,
        _ => first + 1 + length - usize::from(has_end),
    }
}
