// SPDX-License-Identifier: Apache-2.0
//! The validation that a client of Nodes, Events and custom objects can run into.

use serde_json::Value;

use super::resource::Kind;
use super::status::{Cause, Failure};
use crate::kubernetes::Kubernetes;

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Checks an object in its stored form before it is written.
pub(crate) fn validate(
    server: Kubernetes,
    kind: &Kind,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Failure> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let mut causes = Vec::new();
    // RBAC names may hold colons.
    if old.is_none() && kind.group != "rbac.authorization.k8s.io" {
        name_causes(name, &mut causes);
    }
    metadata_causes(server, &new["metadata"], &mut causes);
    match (kind.storage_group(), kind.plural.as_str(), old) {
        ("", "nodes", Some(old)) => node_causes(old, new, &mut causes),
        ("", "events", None) => event_causes(server, kind, new, &mut causes),
        _ => {}
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Failure::invalid(kind, name, &causes))
    }
}

fn name_causes(name: &str, causes: &mut Vec<Cause>) {
    let field = "metadata.name";
    if name.is_empty() {
        causes.push(Cause::required(field, "name or generateName is required"));
    } else if name.len() > 253 {
        let why = "must be no more than 253 characters";
        causes.push(Cause::invalid(field, name, why));
    } else if !is_subdomain(name) {
        causes.push(Cause::invalid(field, name, SUBDOMAIN));
    }
}

fn metadata_causes(server: Kubernetes, metadata: &Value, causes: &mut Vec<Cause>) {
    let field = "metadata.labels";
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        key_causes(field, key, causes);
        // Labels that are no strings never get here.
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            let why = match server {
                Kubernetes::V1_20 => "must be no more than 63 characters",
                Kubernetes::V1_36 => "must be no more than 63 bytes",
            };
            causes.push(Cause::invalid(field, value, why));
        } else if !value.is_empty() && !is_name(value) {
            causes.push(Cause::invalid(field, value, LABEL_VALUE));
        }
    }
    for (key, _) in metadata["annotations"].as_object().into_iter().flatten() {
        key_causes("metadata.annotations", key, causes);
    }
}

fn key_causes(field: &str, key: &str, causes: &mut Vec<Cause>) {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            causes.push(Cause::invalid(field, key, "prefix part must be non-empty"));
        } else if !is_subdomain(prefix) {
            causes.push(Cause::invalid(
                field,
                key,
                &format!("prefix part {SUBDOMAIN}"),
            ));
        }
    }
    if name.is_empty() {
        causes.push(Cause::invalid(field, key, "name part must be non-empty"));
    } else if name.len() > 63 {
        let why = "name part must be no more than 63 characters";
        causes.push(Cause::invalid(field, key, why));
    }
    if !is_name(name) {
        causes.push(Cause::invalid(field, key, NAME_PART));
    }
}

fn node_causes(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let provider = |node: &Value| {
        node["spec"]["providerID"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    if !provider(old).is_empty() && provider(old) != provider(new) {
        causes.push(Cause::forbidden(
            "spec.providerID",
            "node updates may not change providerID except from \"\" to valid",
        ));
    }
}

/// An event with `eventTime`, through either API, is one of the new kind and needs the new fields.
fn event_causes(server: Kubernetes, kind: &Kind, event: &Value, causes: &mut Vec<Cause>) {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let involved = event["involvedObject"]["namespace"]
        .as_str()
        .unwrap_or_default();
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let is_timed = event["eventTime"].is_string();
    let new_api = kind.group == "events.k8s.io" || is_timed;
    let is_newer = server >= Kubernetes::V1_36;
    // Events about cluster-scoped objects: `default` for the old form, `kube-system` for the new one, and later both.
    let agrees = match involved {
        "" if !new_api || is_newer && !is_timed => namespace == "default",
        "" => namespace == "kube-system" || is_newer && namespace == "default",
        _ if new_api => true,
        other => other == namespace,
    };
    if !agrees {
        let why = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", involved, why));
    }
    if !new_api {
        return;
    }
    if !event["eventTime"].is_string() {
        causes.push(Cause::required("eventTime", ""));
    }
    if is_timed || !is_newer {
        new_fields(server, kind, event, causes);
    }
    if !matches!(text("type"), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", text("type"));
        causes.push(Cause::invalid("type", "", &why));
    }
}

/// The fields that an event of the new form has to have.
fn new_fields(server: Kubernetes, kind: &Kind, event: &Value, causes: &mut Vec<Cause>) {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let reporter = match server {
        Kubernetes::V1_36 if kind.group.is_empty() => "reportingComponent",
        _ => "reportingController",
    };
    if text("reportingComponent").is_empty() {
        causes.push(Cause::required(reporter, ""));
    }
    key_causes(reporter, text("reportingComponent"), causes);
    for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = text(field);
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        } else if value.len() > limit {
            let why = format!("can have at most {limit} characters");
            causes.push(Cause::invalid(field, "", &why));
        }
    }
    if text("message").len() > 1024 {
        let why = "can have at most 1024 characters";
        causes.push(Cause::invalid("message", "", why));
    }
}

fn is_name(text: &str) -> bool {
    let alphanumeric = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    alphanumeric(text.bytes().next())
        && alphanumeric(text.bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        is_name(label)
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    })
}
