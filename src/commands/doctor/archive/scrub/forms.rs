// SPDX-License-Identifier: Apache-2.0
//! Secrets with a fixed form: tokens with a known prefix, kubeadm tokens, password hashes, URL parameters.

use super::REMOVED;
use super::named::{is_end, is_secret};

/// The prefixes of the tokens of known services.
const BEGINNINGS: [&str; 16] = [
    "glpat-",
    "gldt-",
    "glrt-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "hvs.",
];

/// The minimum length of a token after its prefix.
const TOKEN_MIN: usize = 8;

/// The prefixes of password hashes (crypt(5)).
const HASHES: [&str; 11] = [
    "$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$", "$7$", "$y$", "$gy$", "$apr1$", "$argon2",
];

/// URL parameters that are secrets, but not secrets in other texts.
const PARAMETERS: [&str; 5] = ["key", "sas", "sig", "signature", "code"];

/// The lengths of the two parts of a kubeadm bootstrap token.
const BOOTSTRAP: [usize; 2] = [6, 16];

/// Removes these secrets from a text.
pub(super) fn without(text: &str) -> String {
    let mut kept = String::new();
    for piece in text.split_inclusive(is_end) {
        let word = piece.trim_end_matches(is_end);
        kept.push_str(&without_parameters(&word_without(word)));
        kept.push_str(piece.get(word.len()..).unwrap_or_default());
    }
    kept
}

/// Removes a hash, which continues to the end of the word, and tokens from a word.
fn word_without(word: &str) -> String {
    let hash = word.match_indices('$').map(|(at, _)| at).find(|at| {
        HASHES
            .iter()
            .any(|hash| word.get(*at..).is_some_and(|rest| rest.starts_with(hash)))
    });
    let (word, end) = match hash {
        Some(at) => (word.get(..at).unwrap_or_default(), REMOVED),
        None => (word, ""),
    };
    let is_of_token =
        |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let mut kept = String::new();
    for piece in word.split_inclusive(|character| !is_of_token(character)) {
        let run = piece.trim_end_matches(|character| !is_of_token(character));
        let name = run.trim_end_matches('.');
        let is_gone = is_token(name) || is_bootstrap(name);
        kept.push_str(if is_gone { REMOVED } else { name });
        kept.push_str(piece.get(name.len()..).unwrap_or_default());
    }
    kept + end
}

fn is_token(run: &str) -> bool {
    let rest = BEGINNINGS
        .iter()
        .find_map(|beginning| run.strip_prefix(beginning));
    rest.is_some_and(|rest| rest.len() >= TOKEN_MIN)
}

/// Matches `[a-z0-9]{6}.[a-z0-9]{16}` with a digit in the second part; a hostname of that form has none there.
fn is_bootstrap(run: &str) -> bool {
    let is_part = |part: &str, length: usize| {
        part.len() == length
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let [first, second] = BOOTSTRAP;
    run.split_once('.').is_some_and(|(id, secret)| {
        is_part(id, first)
            && is_part(secret, second)
            && secret.bytes().any(|byte| byte.is_ascii_digit())
    })
}

/// Removes the values of secret parameters from a word, if it is a URL with parameters.
fn without_parameters(word: &str) -> String {
    let Some((address, parameters)) = word.split_once('?') else {
        return word.to_owned();
    };
    let mut kept = address.to_owned();
    let mut hint = "?";
    for parameter in parameters.split('&') {
        kept.push_str(hint);
        hint = "&";
        match parameter.split_once('=') {
            Some((name, value)) if !value.is_empty() && is_parameter(name) => {
                kept.extend([name, "=", REMOVED]);
            }
            _ => kept.push_str(parameter),
        }
    }
    kept
}

fn is_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    is_secret(&name) || PARAMETERS.contains(&name.as_str()) || name.ends_with("-signature")
}
