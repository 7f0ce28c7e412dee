// SPDX-License-Identifier: Apache-2.0
//! Entry points for `tests/fuzz`: parsers as functions of bytes. For tests only; not included in releases.

use hyper::Request;
use serde_json::{Value, json};

use crate::access::{pem, token};
use crate::commands::doctor::objects::Pod;
use crate::observe::{configmap, environment_file};
use crate::report::endpoint;
use crate::sys::document::DocumentError;
use crate::sys::document::yaml::{YamlValue, parse};
use crate::wire::kubeapi::lines::Lines;
use crate::wire::virtio::downward_metrics::MetricsAnswer;

/// Parses a YAML or JSON text. The order of keys is lost.
///
/// # Errors
///
/// As in the parser.
pub fn yaml(text: &[u8]) -> Result<Value, DocumentError> {
    parse(text).map(json_of)
}

/// Reports whether a text is valid YAML or JSON, and drops the tree.
pub fn is_yaml(text: &[u8]) -> bool {
    parse(text).is_ok()
}

fn json_of(value: YamlValue) -> Value {
    match value {
        YamlValue::Null => Value::Null,
        YamlValue::Bool(value) => json!(value),
        // YAML numbers that are invalid in JSON become strings.
        YamlValue::Number(text) => serde_json::from_str(&text).unwrap_or_else(|_| json!(text)),
        YamlValue::Text(text) => json!(text.as_str()),
        YamlValue::List(list) => list.into_iter().map(json_of).collect(),
        YamlValue::Map(entries) => entries
            .into_iter()
            .map(|(key, value)| (key, json_of(value)))
            .collect(),
    }
}

/// Parses the entry of a ConfigMap, with the labels of a host.
///
/// # Errors
///
/// The message of the parser.
pub fn configmap_entry(text: &str) -> Result<Vec<(String, String)>, String> {
    let labels = configmap::labels(text).map_err(|error| error.to_string())?;
    Ok(labels
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect())
}

/// Parses a PEM text: returns its certificates, and whether it has a key.
///
/// # Errors
///
/// As in the parser.
pub fn pem_sections(text: &[u8]) -> Result<(Vec<Vec<u8>>, bool), &'static str> {
    let contents = pem::read(text)?;
    let certificates = contents.certificates.iter();
    Ok((
        certificates.map(|der| der.to_vec()).collect(),
        contents.key.is_some(),
    ))
}

/// Parses the certificates of an authority, and returns their number.
///
/// # Errors
///
/// As in the parser.
pub fn authorities(text: &[u8]) -> Result<usize, &'static str> {
    pem::authorities(text).map(|authorities| authorities.len())
}

/// Checks that a text can be sent as a bearer token.
///
/// # Errors
///
/// As in the check.
pub fn token(text: &str) -> Result<(), &'static str> {
    token::check(text)
}

/// Splits a stream that arrives in these chunks into lines. Returns `None` if a line is too long.
pub fn watch_lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<(Vec<Vec<u8>>, bool)> {
    let mut lines = Lines::default();
    let mut taken = Vec::new();
    for piece in pieces {
        lines.push(piece);
        while let Some(line) = lines.next_line().ok()? {
            taken.push(lines.line(line).to_vec());
            lines.release();
        }
    }
    Some((taken, lines.is_empty()))
}

/// Splits downward metrics that arrive in these chunks into messages. Returns `None` if they are too large.
pub fn metrics_messages<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<Vec<u8>>> {
    let mut answer = MetricsAnswer::default();
    let mut taken = Vec::new();
    for piece in pieces {
        answer.push(piece).ok()?;
        while let Some(message) = answer.take() {
            taken.push(message);
        }
    }
    Some(taken)
}

/// Returns the assignments of an environment file.
pub fn variables(text: &str) -> Vec<(String, String)> {
    environment_file::variables(text)
}

/// Reports whether a JSON text is a pod as `doctor` reads it.
pub fn is_pod(text: &[u8]) -> bool {
    serde_json::from_slice::<Pod>(text).is_ok()
}

/// Returns the flags of a command line.
pub fn flags(line: &str) -> Vec<(String, String)> {
    environment_file::flags(line)
}

/// Responds to a request for metrics with the status and the text. Returns `None` for an invalid request.
pub fn http_request(method: &str, uri: &str, page: &str) -> Option<(u16, String)> {
    let request = Request::builder().method(method).uri(uri).body(()).ok()?;
    let answer = endpoint::response(&request, page);
    Some((answer.status().as_u16(), answer.into_body()))
}
