// SPDX-License-Identifier: Apache-2.0
//! Secrets that are identified by their form.

use super::REMOVED;
use super::named::is_end;

/// The minimum number of hexadecimal pairs in a key; a MAC address has only six.
const PAIRS_MIN: usize = 12;

/// The maximum number of characters of a URL in which user and password are searched.
const USER_MAX: usize = 512;

/// Removes PEM sections of all types, also with escaped line ends (`\n`), or without an end.
pub(super) fn without_pem(text: &str) -> String {
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

/// Removes user and password from URLs.
pub(super) fn without_users(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        kept.push_str(before);
        let end = after.char_indices().take(USER_MAX);
        let mut end =
            end.skip_while(|(_, character)| !is_end(*character) && !"<>".contains(*character));
        let end = end
            .next()
            .map_or_else(|| nth(after, USER_MAX), |(at, _)| at);
        let address = after.get(..end).unwrap_or_default();
        let authority = address.find(['/', '?', '#']).unwrap_or(end);
        let authority = address.get(..authority).unwrap_or_default();
        rest = match user_end(authority, address) {
            Some(at) => {
                kept.push_str(REMOVED);
                after.get(at..).unwrap_or_default()
            }
            None => {
                kept.push_str(authority);
                after.get(authority.len()..).unwrap_or_default()
            }
        };
    }
    kept + rest
}

/// Returns the byte offset of the character with this index, or the end.
fn nth(text: &str, number: usize) -> usize {
    text.char_indices()
        .nth(number)
        .map_or(text.len(), |(at, _)| at)
}

/// Returns the end of user and password in a URL. A password may contain an unescaped slash; the text after a port is a path.
fn user_end(authority: &str, address: &str) -> Option<usize> {
    let (_, port) = authority.rsplit_once(':').unwrap_or_default();
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    let end = address.rfind('@')?;
    (authority.contains('@') || !is_port).then_some(end)
}

/// Removes `user:password@` before a host without a scheme, and bytes in the form `0a:1b:...`.
pub(super) fn without_words(text: &str) -> String {
    let mut kept = String::new();
    for piece in text.split_inclusive(is_end) {
        let word = piece.trim_end_matches(is_end);
        // An `=` after a colon is part of a password or of a URL.
        let name = word
            .find(['=', ':'])
            .filter(|at| word.get(*at..).is_some_and(|rest| rest.starts_with('=')));
        let (name, value) = word.split_at(name.map_or(0, |at| at + 1));
        match value.rsplit_once('@') {
            _ if pairs(value) >= PAIRS_MIN => kept.extend([name, REMOVED]),
            // An image reference has the form `image:tag@sha256:...`.
            Some((user, host))
                if user.contains(':') && !user.contains("://") && !host.starts_with("sha") =>
            {
                kept.extend([name, REMOVED, "@", host]);
            }
            _ => kept.push_str(word),
        }
        kept.push_str(piece.get(word.len()..).unwrap_or_default());
    }
    kept
}

fn pairs(word: &str) -> usize {
    let is_pair =
        |piece: &&str| piece.len() == 2 && piece.bytes().all(|byte| byte.is_ascii_hexdigit());
    word.split([':', '@']).filter(is_pair).count()
}
