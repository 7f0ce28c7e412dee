// SPDX-License-Identifier: Apache-2.0
//! The status: all that the agent knows, as `/run/harvester-node-agent/status.json` holds it and `-o json` prints it.
//!
//! The shape is stable: fields are added, never renamed or removed, while `apiVersion` stays.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::Severity;
use crate::decide::identity::NameKind;
use crate::sys::escape::one_line;

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
    /// When this was found out, RFC 3339.
    pub last_update_time: String,
    /// Why the agent reconciled.
    pub trigger: String,
    /// The process.
    pub agent: AgentStatus,
    /// Who we are.
    pub identity: IdentityStatus,
    /// Where we are; missing while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementStatus>,
    /// How the labels of the Node stand.
    pub labels: LabelsStatus,
    /// What a kubelet that starts is given; missing unless `[registration] node_labels` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<RegistrationStatus>,
    /// The last migration that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_migration: Option<MigrationStatus>,
    /// The last migration hint and its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_migration_hint: Option<MigrationHintStatus>,
    /// The two credentials.
    pub credentials: CredentialsStatus,
    /// What the Harvester credential may do; only where it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionStatus>,
    /// qemu-guest-agent.
    #[serde(default)]
    pub qemu_guest_agent: GuestAgentStatus,
    /// What triggers a reconcile, and whether it is active here.
    pub event_sources: Vec<EventSourceStatus>,
    /// Findings, worst first.
    pub findings: Vec<FindingStatus>,
}

impl Status {
    /// As JSON; by way of its text, because each way of writing all these types is 10 kB of code.
    pub fn to_json(&self) -> Value {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// From JSON, by way of its text as well; of this version alone.
    pub fn from_json(value: &Value) -> Result<Self, serde_json::Error> {
        let version = value.get("apiVersion").and_then(Value::as_str);
        if version != Some(API_VERSION) {
            let found = version.unwrap_or("no apiVersion");
            let text = format!("{}, and not {API_VERSION}", one_line(found, 100));
            return Err(serde::de::Error::custom(text));
        }
        serde_json::from_slice(&serde_json::to_vec(value)?)
    }
}

/// The process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// When it started, RFC 3339.
    pub start_time: String,
    /// When the kernel started it, in clock ticks since the boot: with `pid` and `boot_id` it names this process and no later
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ticks: Option<u64>,
    /// The boot that these are counted from.
    #[serde(rename = "bootID", default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// Who we are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// How the names compare: the name of a `decide::name_match::Verdict`, such as `names-match` or `name-of-another-vm`.
    pub state: String,
    /// What does not work because of it.
    pub impact: String,
    /// The VM; missing while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmStatus>,
    /// The name that the names below were compared with: the VM's, or while that is not known the one that the platform gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_name: Option<String>,
    /// Why the VM is not known, or not read just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The names of this machine.
    pub names: Vec<NameStatus>,
    /// What was compared.
    pub evidence: Vec<EvidenceStatus>,
}

/// The VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmStatus {
    /// Name.
    pub name: String,
    /// Namespace; missing when only the name is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the VirtualMachine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// UID of the VirtualMachineInstance.
    #[serde(rename = "instanceUID", skip_serializing_if = "Option::is_none")]
    pub instance_uid: Option<String>,
}

/// One name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameStatus {
    /// Which name.
    #[serde(rename = "type")]
    pub kind: NameKind,
    /// The name, control characters escaped.
    pub name: String,
    /// How it compares.
    pub state: String,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceStatus {
    /// What was compared.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it matches the VM.
    pub matches: bool,
    /// What was compared with what.
    pub detail: String,
}

/// Where we are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// The Harvester host.
    pub host: String,
    /// The source of the host.
    #[serde(default)]
    pub host_source: String,
    /// Its region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The source of region and zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_source: Option<String>,
    /// Every source, in order.
    pub sources: Vec<SourceStatus>,
}

/// The outcome of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// The source.
    pub name: String,
    /// `used`, `not-needed`, `disabled`, `stale`, `empty`, `failed` or `invalid`.
    pub outcome: String,
    /// The same, human-readable.
    pub detail: String,
}

/// How the labels stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelsStatus {
    /// The Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// One word; the reason of the condition `HarvesterTopologySynced` in kebab-case.
    pub state: String,
    /// Labels that we own, with the values that we wrote.
    pub owned: BTreeMap<String, String>,
    /// Labels that differ and were not changed.
    pub skipped_labels: Vec<SkippedLabelStatus>,
}

/// What a kubelet that starts is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationStatus {
    /// The labels; missing while they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The files of ours that tell it.
    #[serde(default)]
    pub files: Vec<String>,
}

/// A label that was not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedLabelStatus {
    /// The key.
    pub key: String,
    /// The value on the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The value of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,
    /// `pinned`, `report-only`, `not-managed`, `host-has-none`, `would-mix` or `host-not-read`.
    pub reason: String,
}

/// A migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationStatus {
    /// The host before.
    pub from: String,
    /// The host after.
    pub to: String,
    /// When the agent observed it, RFC 3339.
    pub time: String,
    /// Milliseconds from the trigger to the written labels; missing until they are.
    #[serde(
        rename = "durationSeconds",
        with = "seconds",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub latency_ms: Option<u64>,
    /// The trigger after which the labels were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
}

/// A migration hint and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationHintStatus {
    /// The event source of the first hint, such as `link` or `port`.
    pub trigger: String,
    /// `confirmed`, `unconfirmed` or `api-unavailable`.
    pub outcome: String,
    /// When the outcome was known, RFC 3339.
    pub time: String,
    /// Milliseconds from the first hint to the outcome; of a confirmed one, to the written labels.
    #[serde(rename = "durationSeconds", with = "seconds")]
    pub took_ms: Option<u64>,
    /// Reads of the VMI that it cost.
    pub reads: usize,
}

/// The two credentials, without their secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    /// For Harvester.
    pub harvester: CredentialStatus,
    /// The kubelet's.
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
    /// The user that it is for, where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The namespace in which the VM is looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// When it expires, RFC 3339; missing if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A request that the agent sends to Harvester.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionStatus {
    /// `verb resource.group`, with the scope.
    pub request: String,
    /// Whether it is allowed; missing while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<bool>,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the agent needs it for.
    pub purpose: String,
}

/// qemu-guest-agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestAgentStatus {
    /// One word; the reason of the condition `QemuGuestAgentReady` in kebab-case.
    pub state: String,
    /// Its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// `SubState` and `UnitFileState` of the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_state: Option<String>,
    /// Why its unit is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An event source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSourceStatus {
    /// Its name.
    pub name: String,
    /// Whether it works here.
    pub active: bool,
    /// The same, human-readable.
    pub detail: String,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FindingStatus {
    /// Its code, for `explain`.
    pub code: String,
    /// `error`, `warning` or `notice`.
    pub severity: Severity,
    /// What it is.
    pub title: String,
    /// What was observed, on which object.
    pub observed: String,
    /// What happens because of it.
    pub impact: String,
    /// What fixes it, in steps.
    pub fix: Vec<String>,
    /// Since when, RFC 3339; missing in the output of a single run, which cannot know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_observed_time: Option<String>,
}

/// Milliseconds as seconds.
mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(milliseconds) => to.serialize_f64(*milliseconds as f64 / 1000.0),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let seconds = Option::<f64>::deserialize(from)?;
        Ok(seconds.map(|seconds| (seconds * 1000.0).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_of_another_version_is_refused_by_its_name() {
        for (document, found) in [
            (json!({"apiVersion": "v9", "kind": "Status"}), "v9"),
            (json!({"kind": "Status"}), "no apiVersion"),
            (json!({"apiVersion": "a\nb"}), "a\\nb"),
        ] {
            let error = Status::from_json(&document).unwrap_err().to_string();
            let expected = format!("{found}, and not {API_VERSION}");
            assert_eq!(error, expected, "{document}");
        }
    }
}
