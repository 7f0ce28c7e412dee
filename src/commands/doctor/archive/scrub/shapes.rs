// SPDX-License-Identifier: Apache-2.0
//! Secrets that are known by their form.

use super::REMOVED;
use super::named::is_end;

/// A MAC address has six pairs of digits, and no key so few.
const PAIRS_MIN: usize = 12;

/// User and password are looked for in so many characters of an address.
const USER_MAX: usize = 512;

/// Without PEM sections of every kind, also where line ends are written as `\n`, and where the end is missing.
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

/// Without user and password in addresses.
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

/// The byte at which the character of that number begins, or the end.
fn nth(text: &str, number: usize) -> usize {
    text.char_indices()
        .nth(number)
        .map_or(text.len(), |(at, _)| at)
}

/// Where user and password end in an address. A password may hold a slash that no one has escaped; what follows a port is a
/// path.
fn user_end(authority: &str, address: &str) -> Option<usize> {
    let (_, port) = authority.rsplit_once(':').unwrap_or_default();
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    let end = address.rfind('@')?;
    (authority.contains('@') || !is_port).then_some(end)
}

/// Without `user:password@` in front of a host where no scheme says that it is an address, and without bytes that are
/// written as `0a:1b:...`.
pub(super) fn without_words(text: &str) -> String {
    let mut kept = String::new();
    for piece in text.split_inclusive(is_end) {
        let word = piece.trim_end_matches(is_end);
        let (name, value) = word.split_at(word.find('=').map_or(0, |at| at + 1));
        match value.rsplit_once('@') {
            _ if pairs(value) >= PAIRS_MIN => kept.extend([name, REMOVED]),
            // `image:tag@sha256:...` is an image.
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
