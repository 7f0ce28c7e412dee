// SPDX-License-Identifier: Apache-2.0
//! The status: the complete state of the agent, as in `/run/harvester-node-agent/status.json` and as `-o json` prints it.
//!
//! The format is stable: fields are added, never renamed or removed, while `apiVersion` is unchanged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::problem::Problem;
use super::status_file::{self, StatusError};
use crate::agent::state::{LastMigration, Seconds};
use crate::catalog::{Api, Code, Severity};
use crate::decide::identity::{Evidence, JudgedName};
use crate::decide::labels::Left;
use crate::decide::placement::Tried;
use crate::decide::registration::Registration;
use crate::decide::scheduled_events::ScheduledEvent;
use crate::sys::document::json::{in_field, without_list};
use crate::sys::escape::one_line;
use crate::sys::root::Root;

/// `apiVersion` of the status.
pub const API_VERSION: &str = "node-agent.harvesterhci.io/v1beta1";

/// The status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `Status`.
    pub kind: String,
    /// The time of the observation, RFC 3339.
    pub last_update_time: String,
    /// The trigger of the reconcile.
    pub trigger: String,
    /// The process.
    pub agent: AgentStatus,
    /// The identity of this machine.
    pub identity: IdentityStatus,
    /// The location of the VM; missing while it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementStatus>,
    /// The state of the labels of the Node.
    pub labels: LabelsStatus,
    /// The labels for a kubelet that registers; missing unless `[registration] node_labels` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<Registration>,
    /// The last detected migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_migration: Option<LastMigration>,
    /// The last migration hint and its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_migration_hint: Option<MigrationHintStatus>,
    /// The last state of a scheduled event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_event: Option<ScheduledEvent>,
    /// The two credentials.
    pub credentials: CredentialsStatus,
    /// The permissions of the Harvester credential; only if they were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionStatus>,
    /// qemu-guest-agent.
    #[serde(default)]
    pub qemu_guest_agent: GuestAgentStatus,
    /// The event sources, and whether each is active.
    pub event_sources: Vec<EventSourceStatus>,
    /// Findings, most severe first.
    pub findings: Vec<Problem>,
}

impl Status {
    /// Reports whether it has a finding of severity error.
    pub fn has_error(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.severity == Severity::Error)
    }

    /// Converts the status to JSON through its text, because another serializer for all these types adds 10 kB of code.
    pub fn to_json(&self) -> Value {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Parses JSON, also through its text; only of this version.
    pub fn from_json(value: &Value) -> Result<Self, StatusError> {
        let of_another = |found: &str, expected: &str| {
            let found = one_line(found, 100);
            StatusError::Version(format!("{found}, and not {expected}"))
        };
        let version = value.get("apiVersion").and_then(Value::as_str);
        match version {
            Some(API_VERSION) => {}
            Some(version) => return Err(of_another(version, API_VERSION)),
            None => {
                return Err(StatusError::Damaged(
                    "missing field `apiVersion`".to_owned(),
                ));
            }
        }
        let text = serde_json::to_vec(value).unwrap_or_default();
        // Another version of the agent may report codes and states that this one does not know.
        let writer = value.pointer("/agent/version").and_then(Value::as_str);
        let ours = env!("CARGO_PKG_VERSION");
        let is_other = |version: &&str| *version != ours;
        serde_json::from_slice(&text).map_err(|error| match writer.filter(is_other) {
            Some(version) => of_another(version, ours),
            // The position is that in the other text.
            None => {
                let why = in_field(&text, &error);
                let why = why.rsplit_once(" at line ").map_or(&*why, |(why, _)| why);
                StatusError::Damaged(without_list(why).to_owned())
            }
        })
    }

    /// Returns the last one that was published.
    pub fn read(root: &Root) -> Result<Self, StatusError> {
        status_file::read(root).and_then(|value| Self::from_json(&value))
    }

    /// Returns what stands for a placeholder in the commands for this machine, if it is known. `api` is that of the finding.
    pub fn word(&self, word: &str, api: Option<Api>) -> Option<&str> {
        let vm = self.identity.vm.as_ref();
        let harvester = &self.credentials.harvester;
        let credential = match api {
            Some(Api::Guest) => &self.credentials.kubelet,
            Some(Api::Harvester) | None => harvester,
        };
        match word {
            "<NODE>" => self.labels.node.as_deref(),
            "<VM>" => vm.map(|vm| vm.name.as_str()),
            "<NAMESPACE>" => vm
                .and_then(|vm| vm.namespace.as_deref())
                .or(harvester.namespace.as_deref()),
            "<HOST>" => self.placement.as_ref().map(|place| place.host.as_str()),
            "<SERVER>" => credential.server.as_deref(),
            "<KUBECONFIG>" => credential.kubeconfig.as_deref(),
            _ => None,
        }
    }
}

/// The process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The version.
    pub version: String,
    /// The process ID.
    pub pid: u32,
    /// The start time, RFC 3339.
    pub start_time: String,
    /// The start time of the process in the kernel, in clock ticks since the boot: with `pid` and `boot_id` it identifies this
    /// process and no later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ticks: Option<u64>,
    /// The ID of the boot that `start_ticks` refers to.
    #[serde(rename = "bootID", default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// The identity of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// The result of comparing the names.
    pub state: String,
    /// The impact of the result.
    pub impact: String,
    /// The VM; missing while it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmStatus>,
    /// The name that the names below were compared with: the VM's, or that from the platform while the VM is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_name: Option<String>,
    /// The reason why the VM is unknown, or could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The firmware UUID of the VM that used this disk before, until the Node is known to be that of this VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_from: Option<Uuid>,
    /// The names of this machine.
    pub names: Vec<JudgedName>,
    /// The results of the comparisons.
    pub evidence: Vec<Evidence>,
}

/// The VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmStatus {
    /// The name.
    pub name: String,
    /// The namespace; missing if only the name is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The UID of the VirtualMachine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The UID of the VirtualMachineInstance.
    #[serde(rename = "instanceUID", skip_serializing_if = "Option::is_none")]
    pub instance_uid: Option<String>,
}

impl VmStatus {
    /// Returns the name with the namespace, if that is known.
    pub fn full_name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The location of the VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// The Harvester host.
    pub host: String,
    /// The source of the host.
    #[serde(default)]
    pub host_source: String,
    /// The region of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The zone of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The source of region and zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_source: Option<String>,
    /// All sources, in order.
    pub sources: Vec<Tried>,
}

impl PlacementStatus {
    /// Returns region and zone, with a word for one that is unknown.
    pub fn topology<'a>(&'a self, unknown: &'a str) -> (&'a str, &'a str) {
        let text = |value: &'a Option<String>| value.as_deref().unwrap_or(unknown);
        (text(&self.region), text(&self.zone))
    }
}

/// The state of the labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelsStatus {
    /// The name of the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The state in one word; the reason of the condition `HarvesterTopologySynced` in kebab-case.
    pub state: String,
    /// Labels that we own, with the values that the Node has.
    pub owned: BTreeMap<String, String>,
    /// Labels that differ and were not changed.
    pub skipped_labels: Vec<Left>,
}

/// A migration hint and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationHintStatus {
    /// The event source of the first hint, such as `link` or `port`.
    pub trigger: String,
    /// `confirmed`, `unconfirmed` or `api-unavailable`.
    pub outcome: String,
    /// The time at which the outcome was known, RFC 3339.
    pub time: String,
    /// The time from the first hint to the outcome; to the written labels if it was confirmed.
    pub duration_seconds: Seconds,
    /// The number of reads of the VMI for this hint.
    pub reads: usize,
}

/// Both credentials, without their secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    /// The credential for Harvester.
    pub harvester: CredentialStatus,
    /// The credential of the kubelet.
    pub kubelet: CredentialStatus,
}

/// One credential.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialStatus {
    /// The kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    /// The API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The user of the credential, if it contains one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The namespace in which the VM is searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The expiration time, RFC 3339; missing if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<String>,
    /// The reason why there is no credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The code of the first error about the credential or its API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Code>,
}

/// A request that the agent sends to Harvester, and whether it is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionStatus {
    /// `verb resource.group`, with the scope.
    pub request: String,
    /// Whether it is allowed; missing while that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<bool>,
    /// The reason why that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The purpose of the request.
    pub purpose: String,
}

/// The state of qemu-guest-agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestAgentStatus {
    /// The state in one word; the reason of the condition `QemuGuestAgentReady` in kebab-case.
    pub state: String,
    /// The name of the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// `SubState` and `UnitFileState` of the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_state: Option<String>,
    /// The reason why the unit is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An event source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSourceStatus {
    /// The name.
    pub name: String,
    /// Whether it is active.
    pub active: bool,
    /// The state as readable text.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_of_another_version_is_refused_by_its_name() {
        let document = json!({"apiVersion": "a\nb"});
        let error = Status::from_json(&document).unwrap_err().to_string();
        let expected = format!(": a\\nb, and not {API_VERSION}");
        assert!(error.ends_with(&expected), "{error}");
        for damaged in [json!({"kind": "Status"}), json!({}), json!([]), json!(null)] {
            let error = Status::from_json(&damaged).unwrap_err().to_string();
            let expected = "is damaged: missing field `apiVersion`";
            assert!(error.ends_with(expected), "{error}");
        }
    }

    #[test]
    fn a_status_that_only_a_newer_agent_understands_is_one_of_another_version() {
        let document = |version: &str| {
            let agent = json!({"version": version, "pid": 7, "startTime": ""});
            json!({"apiVersion": API_VERSION, "agent": agent, "findings": [{"code": "new"}]})
        };
        let error = |version| Status::from_json(&document(version)).unwrap_err();
        assert!(matches!(error("99.0.0"), StatusError::Version(text) if text.contains("99.0.0")));
        let ours = error(env!("CARGO_PKG_VERSION"));
        assert!(matches!(ours, StatusError::Damaged(_)), "{ours}");
    }
}
