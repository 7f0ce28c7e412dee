// SPDX-License-Identifier: Apache-2.0
//! Entry points for `tests/fuzz`: parsers as functions of bytes. For tests only; no release is built with it.

mod plan;

use std::fs::File;
use std::path::PathBuf;

use hyper::Request;
use serde_json::{Value, json};

use crate::access::{PemProblem, TokenProblem, pem, token};
use crate::facts::host_metrics::HostMetrics;
use crate::observe::{configmap, environment_file};
use crate::report::endpoint::http;
use crate::sys::document::DocumentError;
use crate::sys::document::yaml::{YamlValue, parse};
use crate::wire::kubeapi::lines::Lines;
use crate::wire::virtio::downward_metrics::MetricsAnswer;
use crate::wire::virtio::vhostmd_disk;

pub use plan::history;

/// Reads a YAML or JSON text. The order of keys is lost.
///
/// # Errors
///
/// As the reader's.
pub fn yaml(text: &[u8]) -> Result<Value, DocumentError> {
    parse(text).map(json_of)
}

/// Reads a YAML or JSON text and drops the tree.
pub fn is_yaml(text: &[u8]) -> bool {
    parse(text).is_ok()
}

fn json_of(value: YamlValue) -> Value {
    match value {
        YamlValue::Null => Value::Null,
        YamlValue::Bool(value) => json!(value),
        // Numbers of YAML that JSON does not have stay text.
        YamlValue::Number(text) => serde_json::from_str(&text).unwrap_or_else(|_| json!(text)),
        YamlValue::Text(text) => json!(text.as_str()),
        YamlValue::List(list) => list.into_iter().map(json_of).collect(),
        YamlValue::Map(entries) => entries
            .into_iter()
            .map(|(key, value)| (key, json_of(value)))
            .collect(),
    }
}

/// Reads the entry of a ConfigMap: labels of a host.
///
/// # Errors
///
/// The text of the reader's.
pub fn configmap_entry(text: &str) -> Result<Vec<(String, String)>, String> {
    let labels = configmap::labels(text).map_err(|error| error.to_string())?;
    Ok(labels
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect())
}

/// Reads a PEM text: its certificates, and whether it has a key.
///
/// # Errors
///
/// As the reader's.
pub fn pem_sections(text: &[u8]) -> Result<(Vec<Vec<u8>>, bool), PemProblem> {
    let contents = pem::read(text)?;
    let certificates = contents.certificates.iter();
    Ok((
        certificates.map(|der| der.to_vec()).collect(),
        contents.key.is_some(),
    ))
}

/// Reads the certificates of an authority.
///
/// # Errors
///
/// As the reader's.
pub fn authorities(text: &[u8]) -> Result<usize, PemProblem> {
    pem::authorities(text).map(|authorities| authorities.len())
}

/// Judges whether a text can be sent as a bearer token.
///
/// # Errors
///
/// As the check's.
pub fn token(text: &str) -> Result<(), TokenProblem> {
    token::check(text)
}

/// Takes the lines of a stream that comes in these pieces. None where a line is too long.
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

/// Takes the messages of downward metrics that come in these pieces. None where they are too large.
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

/// Reads vhostmd's disk.
///
/// # Errors
///
/// The text of the reader's.
pub fn vhostmd(disk: &File) -> Result<HostMetrics, String> {
    vhostmd_disk::read_metrics(PathBuf::from("/dev/vdb"), disk).map_err(|error| error.to_string())
}

/// The assignments of an environment file.
pub fn variables(text: &str) -> Vec<(String, String)> {
    environment_file::variables(text)
}

/// The flags of a command line.
pub fn flags(line: &str) -> Vec<(String, String)> {
    environment_file::flags(line)
}

/// Answers a request for metrics: the status and the text. None for what is no request.
pub fn http_request(method: &str, uri: &str, page: &str) -> Option<(u16, String)> {
    let request = Request::builder().method(method).uri(uri).body(()).ok()?;
    let answer = http::answer(&request, page);
    Some((answer.status().as_u16(), answer.into_body()))
}
