// SPDX-License-Identifier: Apache-2.0
//! Reads one kubeconfig, and every file that it names, into a [`Credential`] or an error.
//!
//! The agent never runs a program (`exec`), and never sends a credential to a server that is not verified with a CA certificate of
//! the kubeconfig. If any file is missing, truncated or does not match the others, the whole read fails.

mod key;
mod reader;
mod user;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::credential::Credential;
use super::error::{CredentialError, encoding};
use crate::sys::document::yaml::{YamlValue, parse};
use crate::sys::root::Root;
use key::KubeconfigKey;
use reader::KubeconfigReader;

pub(crate) use reader::KUBECONFIG_MAX;

pub(super) use reader::LoadedKubeconfig;

/// Reads a kubeconfig.
pub fn load(root: &Root, path: &Path) -> Result<Arc<Credential>, CredentialError> {
    read(root, path, &mut Vec::new()).map(|loaded| loaded.credential)
}

/// Reads a kubeconfig, and adds to `touched` every file that was opened or missing, also when it fails.
pub(super) fn read(
    root: &Root,
    path: &Path,
    touched: &mut Vec<PathBuf>,
) -> Result<LoadedKubeconfig, CredentialError> {
    touched.push(path.to_owned());
    let text = root.read(path, KUBECONFIG_MAX).map(Zeroizing::new);
    let text = text.map_err(CredentialError::Unreadable)?;
    let document = parse(&text);
    if !matches!(document, Ok(YamlValue::Map(_)))
        && let Some(form) = encoding(&text)
    {
        let text = format!("`{}` {form}", path.display());
        return Err(CredentialError::Unusable(text));
    }
    let document = document
        .map_err(|problem| CredentialError::Unusable(format!("`{}` {problem}", path.display())))?;
    let mut reader = KubeconfigReader::new(root, path, touched);
    reader.note(path, &text);
    reader.credential(&KubeconfigKey::whole(path, &document))
}

/// Returns the token of a kubeconfig, also if that cannot be used for another reason, such as a missing CA certificate.
pub fn token(root: &Root, path: &Path) -> Option<SecretString> {
    let text = root.read(path, KUBECONFIG_MAX).map(Zeroizing::new).ok()?;
    let document = parse(&text).ok()?;
    let mut touched = Vec::new();
    let mut reader = KubeconfigReader::new(root, path, &mut touched);
    let document = KubeconfigKey::whole(path, &document);
    let user = reader.context(&document).ok()?.child("user").ok()?;
    let user = reader.entry(&document, "users", "user", &user).ok()?;
    reader.token(&user).ok()?
}

/// Reports whether a text is a kubeconfig, also one that is truncated, encoded or otherwise unusable, or has no content.
pub(crate) fn is_meant(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let is_key = |line: &str| {
        let key = line.split_once(':').map(|(key, _)| key).unwrap_or_default();
        let key = key.trim_matches([' ', '\t', '{', '"', '\'', '\u{feff}']);
        ["clusters", "contexts", "current-context"].contains(&key)
            || line.trim_end() == "kind: Config"
    };
    let is_blank = |line: &str| {
        let line = line.trim_matches(|char: char| char.is_whitespace() || char == '\0');
        // A comment in the place of one, as in the user data of our examples.
        line.is_empty() || line.starts_with('#') && text.contains("kubeconfig")
    };
    encoding(text.as_bytes()).is_some()
        || text.split(['\n', ',']).any(is_key)
        || text.lines().all(is_blank)
}

#[cfg(test)]
mod tests;
