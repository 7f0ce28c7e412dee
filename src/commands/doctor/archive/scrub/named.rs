// SPDX-License-Identifier: Apache-2.0
//! Values that are secrets because of the name in front of them.

use super::REMOVED;

/// Names of values that are secrets, without `-` and `_`, in lower case; also where they are a part of a longer name.
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

/// Others that are too short to be a part of a name.
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

/// Options of curl and wget whose value is a user, and with a colon a password, too.
const LOGINS: [&str; 4] = ["-u", "-U", "--user", "--proxy-user"];

/// Settings of a unit whose whole line is a secret, whatever is quoted in it (systemd.exec(5)).
const SETTINGS: [&str; 3] = ["environment", "setcredential", "setcredentialencrypted"];

/// No name is longer, in characters. It bounds how far each sign is looked back from.
const NAME_MAX: usize = 128;

/// How far the value behind a name reaches.
enum Extent {
    /// To the end of the word.
    Word,
    /// To the end of a setting of a unit.
    Setting,
    /// To the end of the line, and of what belongs to it below.
    Lines(Option<usize>),
}

/// The text without values that stand behind the name of a secret, behind an option of such a name, and behind `Bearer` and
/// `Basic`.
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

/// Reports whether a value is the reference of a Go template, as in the command that prints a kubeconfig.
fn is_template(value: &str) -> bool {
    value.starts_with("{{.data.") || value.starts_with("{{index .data ")
}

/// Whether a value of this name is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let plain = plain(name);
    let is_part = NAMES.iter().any(|secret| plain.contains(secret));
    // The first half of a token of Rancher looks like a name.
    is_part || WORDS.contains(&plain.as_str()) || name.starts_with("kubeconfig-")
}

fn plain(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// What is to go behind the name that `before` ends with, and a sign.
fn extent(before: &str, hint: &str, after: &str) -> Option<Extent> {
    // One lookup for any number of blanks.
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

/// Whether a text begins with `user:password`: one colon and something on both sides of it that is not removed yet.
fn begins_with_login(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '"', '\'']);
    let end = text.find(is_end).unwrap_or(text.len());
    let word = text.get(..end).unwrap_or_default();
    word.split_once(':').is_some_and(|(user, password)| {
        !user.is_empty()
            && !password.is_empty()
            && !password.contains(':')
            && !password.contains(REMOVED)
            && !password.starts_with('/')
    })
}

impl Extent {
    /// Blanks and quotes in front of a value.
    fn lead(&self, text: &str) -> usize {
        match self {
            Self::Setting => 0,
            Self::Word | Self::Lines(_) => {
                text.len() - text.trim_start_matches([' ', '\t', '"', '\'', '\\']).len()
            }
        }
    }

    /// How much of `value` is to go.
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

/// The last characters of a text.
fn tail(text: &str, length: usize) -> &str {
    let begin = text.char_indices().rev().take(length).last();
    text.get(begin.map_or(0, |(at, _)| at)..)
        .unwrap_or_default()
}

/// The name that a text ends with, without quotes and blanks behind it.
fn last_name(text: &str) -> &str {
    let text = tail(text, NAME_MAX);
    let text = text.trim_end_matches(['"', '\'', '\\', ' ', '`']);
    let is_of_name =
        |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let begin = text.trim_end_matches(is_of_name).len();
    text.get(begin..).unwrap_or_default()
}

/// Whether a word ends in front of the character.
pub(super) fn is_end(character: char) -> bool {
    character.is_whitespace() || ['"', '\'', ',', ';', '\\', '`'].contains(&character)
}

/// Where a quoted value ends: at its quote. In JSON within JSON that one is escaped, else an escaped one is a part of it.
fn quoted_end(value: &str, quote: char, is_escaped: bool) -> usize {
    let quotes = value.match_indices(quote).map(|(at, _)| at);
    let mut quotes = quotes.filter(|at| {
        let before = value.get(..*at).unwrap_or_default();
        before.ends_with('\\') == is_escaped
    });
    let end = quotes.next();
    end.map_or(value.len(), |at| at - usize::from(is_escaped))
}

/// Where a setting of a unit ends: with its line, or with the first one that no backslash continues.
fn setting_end(value: &str) -> usize {
    let mut lines = value.split_inclusive('\n');
    let continued = lines
        .by_ref()
        .take_while(|line| line.trim_end().ends_with('\\'));
    let continued: usize = continued.map(str::len).sum();
    let last = value.get(continued..).unwrap_or_default();
    continued + last.find('\n').unwrap_or(last.len())
}

/// At which column a name begins, if it is the first word in its line. Of YAML's lists the mark is no word.
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

/// Where a value without quotes ends: with its line, and in YAML and JSON with the lines below that are indented more than
/// its name. The last line end stays: it parts the value from what follows.
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
