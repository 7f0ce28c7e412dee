// SPDX-License-Identifier: Apache-2.0
//! What scenarios wait for and count.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::{World, eventually, nothing_is_missing};
use crate::names::HOST;

/// Generous: this is the limit for a broken agent, not a measurement of a working one. The agent itself waits for up to a minute after
/// failures.
pub const SOON: Duration = Duration::from_secs(100);

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
        self.guest.status().as_ref().map_or_else(Vec::new, codes_of)
    }

    /// Waits until the status file holds exactly these findings.
    ///
    /// # Panics
    /// With those that it holds, when it does not soon.
    pub async fn findings_become(&self, expected: &[&str]) {
        self.status_becomes("any", |_| true, expected).await;
    }

    /// Waits until one status is of this host, after the label of it was written, and holds exactly these findings. A status of before
    /// a migration also has no findings, but another host.
    pub async fn settles_on(&self, host: &str, expected: &[&str]) {
        let is_there = |status: &Value| {
            status["placement"]["host"] == host && status["labels"]["owned"][HOST] == host
        };
        self.status_becomes(host, is_there, expected).await;
    }

    /// Waits until one status satisfies `is_wanted`, which no status of before may do, and holds exactly these findings.
    ///
    /// # Panics
    /// With the last status, when there is none soon.
    pub async fn status_becomes(
        &self,
        what: &str,
        is_wanted: impl Fn(&Value) -> bool,
        expected: &[&str],
    ) {
        let missing = async || match self.guest.status() {
            None => Some("there is no status yet".to_owned()),
            Some(status) if is_wanted(&status) && codes_of(&status) == expected => None,
            Some(status) => Some(format!("{what}, findings {expected:?}: {status:#}")),
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

/// The codes of the findings in a status, without that of a world.
fn codes_of(status: &Value) -> Vec<String> {
    let findings = status["findings"].as_array().into_iter().flatten();
    let codes: BTreeSet<_> = findings
        .filter_map(|finding| finding["code"].as_str().map(str::to_owned))
        .filter(|code| code != "harvester-on-loopback")
        .collect();
    codes.into_iter().collect()
}
