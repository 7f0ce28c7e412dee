// SPDX-License-Identifier: Apache-2.0
//! Field and label selectors.

use serde_json::Value;

use super::resource::Kind;
use super::status::Failure;

/// Which objects of a resource a list or watch is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    fields: Vec<FieldTerm>,
    labels: Vec<LabelTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelTerm {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    pub(crate) fn parse(kind: &Kind, fields: &str, labels: &str) -> Result<Self, Failure> {
        Ok(Self {
            fields: parse_fields(kind, fields)?,
            labels: parse_labels(labels)?,
        })
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.fields.iter().all(|term| {
            let mut value = object;
            for part in term.path.split('.') {
                value = &value[part];
            }
            (value.as_str().unwrap_or_default() == term.value) == term.equal
        }) && self.labels.iter().all(|term| {
            let label = |key: &String| object["metadata"]["labels"][key].as_str();
            match term {
                LabelTerm::In(key, values) => {
                    label(key).is_some_and(|value| values.iter().any(|wanted| wanted == value))
                }
                LabelTerm::NotIn(key, values) => {
                    label(key).is_none_or(|value| values.iter().all(|unwanted| unwanted != value))
                }
                LabelTerm::Exists(key) => label(key).is_some(),
                LabelTerm::Absent(key) => label(key).is_none(),
            }
        })
    }
}

/// The value that a field selector text demands of `path`, for authorization.
pub(crate) fn required_field(fields: &str, path: &str) -> Option<String> {
    split_fields(fields)
        .into_iter()
        .find(|term| term.equal && term.path == path)
        .map(|term| term.value)
}

fn split_fields(text: &str) -> Vec<FieldTerm> {
    text.split(',')
        .filter(|term| !term.is_empty())
        .map(|term| {
            let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = term.split_once("==") {
                (path, value, true)
            } else {
                let (path, value) = term.split_once('=').unwrap_or((term, ""));
                (path, value, true)
            };
            FieldTerm {
                path: path.trim().to_owned(),
                value: value.trim().to_owned(),
                equal,
            }
        })
        .collect()
}

fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<FieldTerm>, Failure> {
    let mut terms = split_fields(text);
    for term in &mut terms {
        let known = match (
            kind.group.as_str(),
            kind.plural.as_str(),
            term.path.as_str(),
        ) {
            (_, _, "metadata.name") => true,
            (_, _, "metadata.namespace") => kind.namespaced,
            ("", "pods", "spec.nodeName" | "status.phase") => true,
            ("", "nodes", "spec.unschedulable") => true,
            ("", "events", path) => {
                path.starts_with("involvedObject.") || matches!(path, "reason" | "type")
            }
            ("events.k8s.io", _, path) if path.starts_with("regarding.") => {
                // Selectors are applied to the stored form.
                term.path = path.replacen("regarding.", "involvedObject.", 1);
                true
            }
            ("events.k8s.io", _, path) => matches!(path, "reason" | "type"),
            _ => false,
        };
        if !known {
            let message = format!("field label not supported: {}", term.path);
            return Err(Failure::bad_request(&message));
        }
    }
    Ok(terms)
}

fn parse_labels(text: &str) -> Result<Vec<LabelTerm>, Failure> {
    split_outside_brackets(text)
        .into_iter()
        .map(str::trim)
        .filter(|term| !term.is_empty())
        .map(|term| {
            let own = |text: &str| text.trim().to_owned();
            let set = |text: &str| {
                text.trim()
                    .trim_start_matches('(')
                    .trim_end_matches(')')
                    .split(',')
                    .map(own)
                    .collect::<Vec<_>>()
            };
            let parsed = if let Some((key, values)) = term.split_once(" notin ") {
                LabelTerm::NotIn(own(key), set(values))
            } else if let Some((key, values)) = term.split_once(" in ") {
                LabelTerm::In(own(key), set(values))
            } else if let Some((key, value)) = term.split_once("!=") {
                LabelTerm::NotIn(own(key), vec![own(value)])
            } else if let Some((key, value)) =
                term.split_once("==").or_else(|| term.split_once('='))
            {
                LabelTerm::In(own(key), vec![own(value)])
            } else if let Some(key) = term.strip_prefix('!') {
                LabelTerm::Absent(own(key))
            } else {
                LabelTerm::Exists(own(term))
            };
            let (LabelTerm::In(key, _)
            | LabelTerm::NotIn(key, _)
            | LabelTerm::Exists(key)
            | LabelTerm::Absent(key)) = &parsed;
            if key.is_empty() {
                let message =
                    format!("found '{term}', expected: !, identifier, or 'end of string'");
                return Err(Failure::bad_request(&message));
            }
            Ok(parsed)
        })
        .collect()
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .collect()
}
