// SPDX-License-Identifier: Apache-2.0
//! What clients asked, from the audit log.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::server::RequestRecord;

/// Bodies of writes, and metadata of everything else that is not the server talking to itself.
pub(super) fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": ["system:apiserver"]},
            {"level": "Request", "verbs": ["create", "update", "patch"]},
            {"level": "Metadata"},
        ],
    })
}

pub(super) fn parse_audit(text: &str, user_agent_prefix: &str) -> Vec<RequestRecord> {
    let mut seen = std::collections::HashSet::new();
    let (wall, monotonic) = (OffsetDateTime::now_utc(), Instant::now());
    let mut requests = Vec::new();
    for line in text.lines() {
        // The last line may still be growing.
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let user_agent = text("userAgent");
        // A watch is logged twice, at its beginning and at its end.
        if !user_agent.starts_with(user_agent_prefix) || !seen.insert(text("auditID")) {
            continue;
        }
        let uri = text("requestURI");
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        let arrived =
            OffsetDateTime::parse(&text("requestReceivedTimestamp"), &Rfc3339).unwrap_or(wall);
        let ago = Duration::try_from(wall - arrived).unwrap_or_default();
        requests.push(RequestRecord {
            at: monotonic.checked_sub(ago).unwrap_or(monotonic),
            user: event["user"]["username"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            user_agent,
            method: method(&text("verb")).to_owned(),
            verb: text("verb"),
            path: path.to_owned(),
            query: query.to_owned(),
            status: event["responseStatus"]["code"]
                .as_u64()
                .and_then(|code| u16::try_from(code).ok())
                .unwrap_or_default(),
            body: event["requestObject"].clone(),
        });
    }
    requests.sort_by_key(|request| request.at);
    requests
}

/// The log has no methods, but each verb has one.
fn method(verb: &str) -> &'static str {
    match verb {
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    }
}
