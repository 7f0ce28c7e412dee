// SPDX-License-Identifier: Apache-2.0
//! What scenarios wait for and count.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::{World, eventually, nothing_is_missing};

/// Generous: this is the limit for a broken agent, not a measurement of a working one.
pub const SOON: Duration = Duration::from_secs(60);

impl World {
    /// Waits until a label of the Node has a value.
    pub async fn label_becomes(&self, key: &str, value: &str) {
        let what = format!("label {key}={value}");
        eventually(SOON, &what, || async {
            self.node_label(key).await.as_deref() == Some(value)
        })
        .await;
    }

    /// Waits until a condition of the Node has a status and a reason.
    pub async fn condition_becomes(&self, kind: &str, status: &str, reason: &str) {
        let what = format!("condition {kind}={status} ({reason})");
        eventually(SOON, &what, || async {
            self.condition_state(kind).await == Some((status.to_owned(), reason.to_owned()))
        })
        .await;
    }

    /// Status and reason of a condition of the Node.
    pub async fn condition_state(&self, kind: &str) -> Option<(String, String)> {
        let condition = self.condition(kind).await?;
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason")))
    }

    /// The codes of the findings in the agent's status file. Both servers of a world are on the loopback, which the agent
    /// rightly finds odd; that one is left out.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        let status = self.guest.status().unwrap_or(Value::Null);
        let findings = status["findings"].as_array().cloned().unwrap_or_default();
        findings
            .iter()
            .filter_map(|finding| finding["code"].as_str().map(str::to_owned))
            .filter(|code| code != "harvester-on-loopback")
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// Waits until the status file holds exactly these findings.
    ///
    /// # Panics
    /// With those that it holds, when it does not soon.
    pub async fn findings_become(&self, expected: &[&str]) {
        let missing = async || {
            if self.guest.status().is_none() {
                return Some("there is no status yet".to_owned());
            }
            let findings = self.findings();
            (findings != expected)
                .then(|| format!("findings are {findings:?}, expected {expected:?}"))
        };
        nothing_is_missing(SOON, missing).await;
    }

    /// Waits until this finding is not reported any more.
    ///
    /// # Panics
    ///
    /// If it still is after a while.
    pub async fn finding_ends(&self, code: &str) {
        let what = format!("{code} is not reported any more");
        let has_ended = async || {
            let is_there = self.findings().iter().any(|finding| finding == code);
            self.guest.status().is_some() && !is_there
        };
        eventually(SOON, &what, has_ended).await;
    }

    /// The agent's PATCHes of Node metadata (not of its status).
    pub async fn node_patches(&self) -> usize {
        let writes = self.agent_writes().await;
        writes
            .iter()
            .filter(|write| write.verb == "patch" && !write.path.ends_with("/status"))
            .count()
    }
}
