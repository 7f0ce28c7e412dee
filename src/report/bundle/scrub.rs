// SPDX-License-Identifier: Apache-2.0
//! Takes out of a text whatever looks like a secret.
//!
//! None of our own texts holds one; this is for those of others, such as a unit with a password in a proxy's address, or a
//! record that a library wrote. It works by three signs: the name before a value (`password: ...`), a form that only secrets
//! have (PEM, `Bearer ...`, `token-xxxxx:...`, `https://user:password@...`), and characters in no order, as random bytes have
//! them in base64, base64url, hexadecimal or any other alphabet. Rather too much is removed than too little.

use serde_json::Value;

/// Stands for what was removed.
pub const REMOVED: &str = "[removed]";

/// Names of values that are secrets, without `-` and `_`, in lower case; also where they are a part of a longer name.
const SECRET_NAMES: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "bearer",
    "clientkeydata",
    "clientcertificatedata",
    "certificateauthoritydata",
    "privatekey",
    "accesskey",
];

/// Others that are too short to be a part of a name.
const SECRET_WORDS: [&str; 4] = ["apikey", "pass", "pwd", "environment"];

/// Fields of a journal record that are kept, beside our own, which begin with `HNA_`. Others hold command lines, ids of this
/// machine, or what somebody put there.
const FIELDS: [&str; 9] = [
    "__REALTIME_TIMESTAMP",
    "PRIORITY",
    "MESSAGE",
    "SYSLOG_IDENTIFIER",
    "UNIT",
    "UNIT_RESULT",
    "JOB_RESULT",
    "EXIT_STATUS",
    "_PID",
];

/// How our own fields begin.
const OWN_FIELDS: &str = "HNA_";

/// Letters and digits without order are a secret from this length on.
const WORD_MIN: usize = 16;

/// Also those with the other signs of base64 among them, where all kinds of characters occur.
const MIXED_MIN: usize = 24;

/// A text without its secrets. The same text comes out of a second pass.
pub fn text(text: &str) -> String {
    words(&user_information(&named(&pem(text))))
}

/// A JSON document without its secrets; its shape stays.
pub fn value(value: &mut Value) {
    match value {
        Value::String(string) => *string = text(string),
        Value::Array(items) => items.iter_mut().for_each(self::value),
        Value::Object(entries) => {
            for (key, entry) in entries {
                match entry {
                    Value::Null | Value::Bool(_) => {}
                    entry if is_secret_name(key) => *entry = Value::from(REMOVED),
                    entry => self::value(entry),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A journal record (`journalctl -o json`) with the fields that are of use, without their secrets. None for what is no record.
pub fn record(line: &str) -> Option<Value> {
    let Value::Object(fields) = serde_json::from_str(line).ok()? else {
        return None;
    };
    let is_kept = |name: &str| FIELDS.contains(&name) || name.starts_with(OWN_FIELDS);
    let fields = fields.into_iter().filter(|(name, _)| is_kept(name));
    let mut record = fields
        .map(|(name, content)| (name, readable(content)))
        .collect();
    value(&mut record);
    Some(record)
}

/// A field that is no UTF-8 comes as a list of bytes.
fn readable(content: Value) -> Value {
    let bytes: Option<Vec<u8>> = content.as_array().and_then(|numbers| {
        let bytes = numbers
            .iter()
            .map(|number| u8::try_from(number.as_u64()?).ok());
        bytes.collect()
    });
    match bytes {
        Some(bytes) => Value::from(String::from_utf8_lossy(&bytes)),
        None => content,
    }
}

/// Removes PEM sections of every kind, also where line ends are written as `\n`, and where the end is missing.
fn pem(text: &str) -> String {
    let (begin, end, dashes) = ("-----BEGIN ", "-----END ", "-----");
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, section)) = rest.split_once(begin) {
        kept.push_str(before);
        kept.push_str(REMOVED);
        let after = section.split_once(end).map(|(_, after)| after);
        rest = after
            .and_then(|after| after.split_once(dashes))
            .map_or("", |(_, after)| after);
    }
    kept + rest
}

/// Removes values that stand behind the name of a secret, and what follows `Bearer` and `Basic`.
fn named(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find([':', '=', ' ']) {
        let (before, after) = rest.split_at(at);
        kept.push_str(before);
        let name = last_name(&kept);
        let is_scheme = ["bearer", "basic"].contains(&name.to_ascii_lowercase().as_str());
        let is_name = is_secret_name(name);
        let (sign, after) = after.split_at(1);
        kept.push_str(sign);
        rest = after;
        let (lead, value) = after.split_at(lead(after));
        let end = match sign {
            " " if is_scheme => value.find(is_end).unwrap_or(value.len()),
            ":" | "=" if is_name => value_end(lead, value),
            _ => 0,
        };
        if end > 0 {
            kept.push_str(lead);
            kept.push_str(REMOVED);
            rest = value.get(end..).unwrap_or_default();
        }
    }
    kept + rest
}

/// The name that a text ends with, without quotes and blanks behind it.
fn last_name(text: &str) -> &str {
    let text = text.trim_end_matches(['"', '\'', '\\', ' ', '`']);
    let is_of_name =
        |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let begin = text.trim_end_matches(is_of_name).len();
    text.get(begin..).unwrap_or_default()
}

fn is_secret_name(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|character| character.to_ascii_lowercase())
        .collect();
    let is_part = SECRET_NAMES.iter().any(|secret| plain.contains(secret));
    // The first half of a token of Rancher looks like a name.
    is_part || SECRET_WORDS.contains(&plain.as_str()) || name.starts_with("kubeconfig-")
}

/// Blanks and quotes in front of a value.
fn lead(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t', '"', '\'', '\\']).len()
}

/// Where a value ends: at its closing quote, else at the end of the line. A block of YAML goes on in the lines that are
/// indented.
fn value_end(lead: &str, value: &str) -> usize {
    let quote = lead
        .chars()
        .rev()
        .find(|character| ['"', '\''].contains(character));
    if let Some(quote) = quote {
        return quoted_end(value, quote, lead.contains('\\'));
    }
    let mut end = value.find('\n').unwrap_or(value.len());
    let line = value.get(..end).unwrap_or_default().trim_end();
    if line.is_empty() || line.starts_with(['|', '>']) {
        let below = value.get(end..).unwrap_or_default();
        let lines = below.split_inclusive('\n').skip(1);
        let block = lines.take_while(|line| line.starts_with([' ', '\t']));
        let length: usize = block.map(str::len).sum();
        // Without the last line end, which parts it from what follows.
        end += length;
    }
    end
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

fn is_end(character: char) -> bool {
    character.is_whitespace() || ['"', '\'', ',', ';', '\\', '`'].contains(&character)
}

/// Removes user and password from addresses.
fn user_information(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        kept.push_str(before);
        let end = after.find(|character: char| is_end(character) || "/?#<>".contains(character));
        let (authority, tail) = after.split_at(end.unwrap_or(after.len()));
        match authority.rsplit_once('@') {
            Some((_, host)) => kept.extend([REMOVED, "@", host]),
            None => kept.push_str(authority),
        }
        rest = tail;
    }
    kept + rest
}

/// Removes runs of characters in no order.
fn words(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (run, after) = rest.split_at(run_length(rest));
        kept.push_str(&judged(run));
        let mut other = after.chars();
        kept.extend(other.next());
        rest = other.as_str();
    }
    kept
}

/// The length of the run of base64, base64url or a JSON Web Token that a text begins with, with what JSON escapes of them.
fn run_length(text: &str) -> usize {
    let mut rest = text;
    loop {
        let plain = rest.trim_start_matches(|character: char| {
            character.is_ascii_alphanumeric() || "+/=_-.~".contains(character)
        });
        let escaped = [
            "\\/", "\\u002b", "\\u002f", "\\u003d", "\\u002B", "\\u002F", "\\u003D",
        ];
        rest = escaped
            .iter()
            .find_map(|escape| plain.strip_prefix(escape))
            .unwrap_or(plain);
        if rest.len() == plain.len() {
            return text.len() - rest.len();
        }
    }
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
        // Of a path, the name that is a secret.
        let names = run.split('/').map(|name| {
            let mut pieces = name.split(|character: char| !character.is_ascii_alphanumeric());
            if pieces.any(is_random) { REMOVED } else { name }
        });
        names.collect::<Vec<_>>().join("/")
    } else {
        REMOVED.to_owned()
    }
}

/// Whether letters and digits are in no order.
fn is_random(word: &str) -> bool {
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let changes = changes(word);
    let is_long = word.len() >= WORD_MIN;
    let is_mixed = has_digit && changes >= 3 || changes * 10 >= word.len() * 3;
    // Of the keys of AWS only the beginning is certain.
    let is_key = word.starts_with("AKIA") || word.starts_with("ASIA");
    is_long && (is_mixed || is_key)
}

/// How often the kind of character changes: words change little, random ones at every second character.
fn changes(word: &str) -> usize {
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    let following = word.bytes().skip(1);
    let pairs = word.bytes().zip(following);
    pairs
        .filter(|(one, next)| kind(*one) != kind(*next))
        .count()
}

#[cfg(test)]
mod tests;
